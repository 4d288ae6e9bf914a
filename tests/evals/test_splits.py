"""Train, validation and test never overlap, however they are made."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft import Case, Dataset, Splits
from promptgraft.errors import ConfigError, DataFormatError

KINDS = ("money", "goods", "delivery")
RATIOS = {"train": 0.6, "validation": 0.2, "test": 0.2}


def case(number: int, text: str = "") -> Case:
    kind = KINDS[number % 7 % 3]
    return Case(id=f"c{number}", input=text or f"question {number}", fields={"kind": kind})


def places(splits: Splits) -> dict[str, str]:
    return {i: name for name, part in splits.parts().items() for i in part.ids}


numbers = st.lists(st.integers(0, 500), min_size=12, max_size=60, unique=True)


@settings(max_examples=25, deadline=None)
@given(numbers=numbers, seed=st.integers(0, 99), data=st.data())
def test_a_split_by_ratio_is_complete_and_knows_no_order(
    numbers: list[int], seed: int, data: st.DataObject
) -> None:
    whole = Dataset.of(map(case, numbers))
    splits = Splits.by_ratio(whole, seed=seed)
    assert places(splits).keys() == set(whole.ids)
    for name, part in splits.parts().items():
        assert abs(len(part) - RATIOS[name] * len(whole)) < 1.01

    shuffled = Dataset.of(map(case, data.draw(st.permutations(numbers))))
    assert places(Splits.by_ratio(shuffled, seed=seed)) == places(splits)


@settings(max_examples=25, deadline=None)
@given(numbers=numbers)
def test_a_new_case_moves_at_most_one_other_over_each_border(numbers: list[int]) -> None:
    before = places(Splits.by_ratio(Dataset.of(map(case, numbers))))
    after = places(Splits.by_ratio(Dataset.of(map(case, [*numbers, 501]))))
    assert sum(after[i] != place for i, place in before.items()) <= 2


@settings(max_examples=25, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 500), min_size=40, max_size=60, unique=True),
    seed=st.integers(0, 99),
)
def test_a_stratified_split_gives_every_set_its_share_of_every_kind(
    numbers: list[int], seed: int
) -> None:
    whole = Dataset.of(map(case, numbers))
    splits = Splits.by_ratio(whole, seed=seed, stratify="kind")
    kinds = Counter(c.fields["kind"] for c in whole)
    for name, part in splits.parts().items():
        here = Counter(c.fields["kind"] for c in part)
        for kind, count in kinds.items():
            assert abs(here[kind] - RATIOS[name] * count) < 1.01


def test_strata_of_one_case_each_are_spread_over_all_sets() -> None:
    kept = [attrs.evolve(case(number), fields={"kind": number}) for number in range(100)]
    parts = Splits.by_ratio(Dataset.of(kept), stratify="kind").parts()
    for name, part in parts.items():
        assert abs(len(part) - 100 * RATIOS[name]) < 20


def test_another_seed_gives_another_split() -> None:
    whole = Dataset.of(map(case, range(50)))
    found = {tuple(Splits.by_ratio(whole, seed=seed).train.ids) for seed in range(10)}
    assert len(found) == 10


def test_sets_are_narrowed_to_the_cases_that_are_named() -> None:
    whole = Splits.by_ratio(Dataset.of(map(case, range(20))))
    first, second, *_ = whole.train.ids

    few = whole.narrowed({"train": [second, first]})
    assert list(few.train.ids) == [first, second]
    assert (few.validation, few.test) == (whole.validation, whole.test)
    assert whole.narrowed({}) is whole
    for only, fault in (
        ({"train": [whole.validation.ids[0]]}, "train: there is no case `c"),
        ({"train": []}, "train: expected ids of cases, found none"),
        ({"dev": [first]}, "expected a set among `train`, `validation`, `test`, found 'dev'"),
    ):
        with pytest.raises(ConfigError) as caught:
            whole.narrowed(only)
        assert str(caught.value).startswith(fault)


def test_the_split_of_a_case_is_the_same_on_every_machine() -> None:
    splits = Splits.by_ratio(Dataset.of(map(case, range(10))), seed=7)
    assert splits.train.ids == ("c0", "c2", "c3", "c5", "c6", "c8")
    assert splits.validation.ids == ("c1", "c7")


def test_cases_that_ask_the_same_stay_together() -> None:
    twins = [case(n, f"Question  {n % 20}" if n % 2 else f"question {n % 20}") for n in range(40)]
    found = places(Splits.by_ratio(Dataset.of(twins)))
    assert all(found[f"c{n}"] == found[f"c{n + 20}"] for n in range(20))


@settings(max_examples=25, deadline=None)
@given(
    drawn=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=30, max_size=60),
    seed=st.integers(0, 99),
)
def test_a_family_and_all_that_ask_the_same_stay_together(
    drawn: list[tuple[int, int]], seed: int
) -> None:
    cases = [
        Case(id=f"c{n}", input=f"q{n % 20 if asked else n}", fields={"family": family or None})
        for n, (family, asked) in enumerate(drawn)
    ]
    cases += [Case(id=f"d{n}", input=f"alone {n}") for n in range(20)]
    place = places(Splits.by_ratio(Dataset.of(cases), seed=seed))
    places_of = dict[str, set[str]]()
    for each in cases:
        for name in {f"asks {each.input}", f"family {each.family}"} - {"family "}:
            places_of.setdefault(name, set()).add(place[each.id])
    assert all(len(names) == 1 for names in places_of.values())


def test_without_a_share_there_is_no_test_set() -> None:
    whole = Dataset.of(map(case, range(9)))
    splits = Splits.by_ratio(whole, train=0.7, validation=0.3, test=0)
    assert splits.test is None
    assert len(splits.train) + len(splits.validation) == 9


def test_shares_of_less_than_everything_leave_the_other_cases_out() -> None:
    whole = Dataset.of(map(case, range(1_000)))
    few = Splits.by_ratio(whole, train=0.1, validation=0.05, test=0.02)
    assert [len(part) for part in few.parts().values()] == [100, 50, 20]
    more = Splits.by_ratio(whole, train=0.1, validation=0.05, test=0.85)
    assert [case.id for case in more.train] == [case.id for case in few.train]
    assert [case.id for case in more.validation] == [case.id for case in few.validation]
    assert {case.id for case in few.test or ()} < {case.id for case in more.test or ()}


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((0.9, 0.2, 0.2), "sum to 1 or less, found 1.3"),
        ((0, 0.5, 0.5), "train: expected a share between 0 and 1, found 0"),
        ((0.6, float("nan"), 0.2), "validation: expected a share between 0 and 1, found nan"),
        ((0.6, 0.6, -0.2), "test: expected a share"),
    ],
)
def test_shares_that_are_none_are_refused(shares: tuple[float, float, float], message: str) -> None:
    train, validation, test = shares
    whole = Dataset.of(map(case, range(9)))
    with pytest.raises(ConfigError, match=message):
        Splits.by_ratio(whole, train=train, validation=validation, test=test)


def test_cases_that_all_ask_the_same_are_refused_with_the_reason() -> None:
    alike = Dataset.of({"id": str(number), "input": " "} for number in range(40))
    with pytest.raises(DataFormatError, match="add cases, as these 40 ask only 1 question: "):
        Splits.by_ratio(alike)


def test_a_set_without_cases_is_refused_with_the_counts() -> None:
    with pytest.raises(DataFormatError, match=r"no cases for validation \(train 2, .* 0, test 1\)"):
        Splits.by_ratio(Dataset.of(map(case, range(3))))


def test_a_field_says_where_a_case_belongs() -> None:
    rows = [{"id": n, "input": f"x{n}", "split": s} for n, s in enumerate(["train", "dev", "test"])]
    splits = Splits.by_field(Dataset.of(rows, keep=["split"]), "split")
    assert places(splits) == {"0": "train", "1": "validation", "2": "test"}

    for row in rows:
        row["split"] = str(row["split"]).title()
    assert places(Splits.by_field(Dataset.of(rows, keep=["split"]), "split")) == places(splits)

    named = {"train": "validation", "dev": "train", "test": "test"}
    swapped = Splits.by_field(Dataset.of(rows, keep=["split"]), "split", names=named)
    assert swapped.train.ids == ("1",)


def test_without_validation_cases_a_third_of_the_training_cases_are_taken(tmp_path: Path) -> None:
    rows = [
        {"id": f"{part}{n}", "input": f"{part} {n}", "part": part}
        for part, count in (("train", 30), ("test", 6))
        for n in range(count)
    ]
    by_field = Splits.by_field(Dataset.of(rows, keep=["part"]), "part")
    sizes = {name: len(part) for name, part in by_field.parts().items()}
    assert sizes == {"train": 20, "validation": 10, "test": 6}
    assert all(name.startswith("test") for name in by_field.parts()["test"].ids)

    for part in ("train", "test"):
        lines = [json.dumps(row) for row in rows if row["part"] == part]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines), "utf-8")
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    assert places(Splits.load(train, test=test, keep=["part"])) == places(by_field)

    with pytest.raises(DataFormatError, match="no cases for train"):
        Splits.by_field(Dataset.of(rows[30:], keep=["part"]), "part")


def test_sets_by_name_are_splits() -> None:
    rows = [{"id": n, "input": f"x{n}"} for n in range(9)]
    learn, dev, test = (Dataset.of(rows[at : at + 3], name=f"{at}") for at in (0, 3, 6))
    splits = Splits.of_sets({"train": learn, "dev": dev, "test": test})
    assert [part.name for part in splits.parts().values()] == ["0", "3", "6"]
    assert len(Splits.of_sets({"train": learn}).validation) == 1
    for sets in ({"test": test}, {"train": learn, "extra": dev}):
        with pytest.raises(
            ConfigError, match="sets: expected `train`, `validation`, `test`, found"
        ):
            Splits.of_sets(sets)


def test_all_cases_without_a_place_are_named() -> None:
    rows = [{"id": n, "input": f"x{n}", "split": s} for n, s in enumerate(["learn", "hold", None])]
    whole = Dataset.of(rows, keep=["split"], name="mine")
    with pytest.raises(DataFormatError) as caught:
        Splits.by_field(whole, "split", names={"learn": "train", "steer": "validation"})
    assert caught.value.faults == (
        "mine:2: case `1`: split: expected one of `learn`, `steer`, found 'hold'",
        "mine:3: case `2`: lacks the field `split`; name it in `keep` when loading",
    )


def test_the_same_file_under_another_name_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("this is never read", "utf-8")
    (tmp_path / "folder").mkdir()
    link, hard = tmp_path / "link.jsonl", tmp_path / "hard.jsonl"
    link.symlink_to(path)
    os.link(path, hard)
    for other in (path, link, hard, tmp_path / "folder" / ".." / "cases.jsonl"):
        with pytest.raises(DataFormatError, match="train and validation are the same file"):
            Splits.load(path, other)
    with pytest.raises(DataFormatError, match="train and test are the same file"):
        Splits.load(path, tmp_path / "folder", link)


def test_ids_and_questions_in_two_sets_are_all_named(tmp_path: Path) -> None:
    def write(name: str, *cases: tuple[str, str]) -> Path:
        path = tmp_path / name
        lines = [json.dumps({"id": i, "input": text}) for i, text in cases]
        path.write_text("\n".join(lines), "utf-8")
        return path

    train = write("train.jsonl", ("a", "Where is it?"), ("b", "My money"))
    validation = write("val.jsonl", ("a", "Something else"), ("c", "hello"))
    test = write("test.jsonl", ("d", "  where IS\nit?"), ("c", "hello"))
    with pytest.raises(DataFormatError) as caught:
        Splits.load(train, validation, test)
    assert caught.value.faults == (
        f"splits: case `a`: train and validation share the id ({train}:1, {validation}:1)",
        f"splits: `a` in train asks the same as `d` in test ({train}:1, {test}:1)",
        f"splits: case `c`: validation and test share the id ({validation}:2, {test}:2)",
    )


def test_what_is_asked_is_the_whole_conversation() -> None:
    earlier = {"input": "And now?", "context": [{"role": "user", "content": "Hello"}]}
    state = {"input": "And now?", "state": {"n": 1}}
    sets = [Dataset.of([row]) for row in ({"input": "And now?"}, earlier, state)]
    assert len(Splits(*sets).parts()) == 3
    with pytest.raises(DataFormatError, match="asks the same as"):
        Splits(sets[1], Dataset.of([{**earlier, "id": "other", "expected": "differs"}]))


def test_cases_that_are_no_data_set_say_what_to_write() -> None:
    sets: Any = {"train": [("a", "b")], "validation": [("c", "d")]}
    with pytest.raises(
        ConfigError, match=r"^train: expected a Dataset, .*; write `promptgraft.Dataset.of\("
    ):
        Splits(**sets)
    with pytest.raises(ConfigError, match=r"found the sets `train`, .* each by `Splits.of_sets`$"):
        Dataset.of(sets)
