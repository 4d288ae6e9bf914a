"""Baselines: canonical text, a round trip, and no comparison with other data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.gate.reports import report
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.gate import (
    Baseline,
    Standing,
    cases_digest,
    compare,
    metrics_identity,
    read_baseline,
    write_baseline,
)
from promptgraft.evals.gate.baseline import parse_baseline
from promptgraft.evals.metrics import Exact, Length
from promptgraft.evals.types import Answer, Case
from promptgraft.ground.serde import digest

BEFORE = report({"t-1": 1.0, "t-2": 0.25, "t-3": None}, critical=["t-2"])


def test_a_baseline_is_one_line_for_each_case_in_the_order_of_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "gate" / "baseline.json"
    write_baseline(file, report({"b": None, "a": 0.5}, critical=["a"], dataset=digest("cases")))

    text = file.read_text("utf-8")
    assert text.splitlines()[1:4] == [
        ' "cases": [',
        '  {"critical":true,"id":"a","passed":true,"score":0.5},',
        '  {"critical":false,"id":"b","passed":null,"score":null}',
    ]
    assert json.loads(text)["version"] == 1


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.one_of(st.none(), st.floats(0, 1)),
        min_size=1,
        max_size=4,
    ),
    st.text(max_size=8),
)
def test_a_baseline_is_read_back_as_it_was(cases: dict[str, float | None], prompt: str) -> None:
    kept = Baseline.of(report(cases, prompt=prompt, dataset=digest("cases")))
    written = kept.text().encode("utf-8", "backslashreplace")

    assert parse_baseline(written, where="baseline") == kept
    assert parse_baseline(written, where="baseline").text() == kept.text()


def test_the_file_takes_ids_that_utf_8_does_not_have(tmp_path: Path) -> None:
    write_baseline(tmp_path / "b.json", report({"a\ud800": 1.0}, dataset=digest("cases")))
    assert read_baseline(tmp_path / "b.json").scores == {"a\ud800": 1.0}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"version": 1', '"version": 2', "version: expected 1, found 2; save a new one"),
        (' "version": 1\n', ' "model2": 1\n', "version"),
        ('"score":0.25', '"score":"x"', "expected a number, found 'x'"),
        ('"score":0.25', '"score":1.25', "expected a number from 0 to 1, found 1.25 @ $.cases[1]"),
        ('"id":"t-1"', '"id":"t-2"', "two cases have the id 't-2'"),
        ('"split": "test"', '"split": "test"!', "b.json:"),
    ],
)
def test_a_damaged_baseline_is_refused_with_the_place(
    old: str, new: str, fault: str, tmp_path: Path
) -> None:
    text = Baseline.of(BEFORE).text()
    assert old in text
    (tmp_path / "b.json").write_text(text.replace(old, new), "utf-8")

    with pytest.raises(DataFormatError) as found:
        read_baseline(tmp_path / "b.json")
    assert fault in str(found.value)
    assert "b.json" in str(found.value)


def test_a_missing_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file.*--save-baseline"):
        read_baseline(tmp_path / "b.json")


def test_a_comparison_says_what_changed_with_an_interval() -> None:
    before = report({f"t-{n}": 0.0 for n in range(8)})
    after = report({f"t-{n}": 1.0 if n else 0.0 for n in range(8)})

    found = compare(Baseline.of(before), after)
    assert (found.gain.mean_before, found.gain.mean_after) == (0.0, 0.875)
    assert [change.case_id for change in found.changes] == [f"t-{n}" for n in range(1, 8)]
    assert found.gain.line().startswith("gain +0.875 (95 % interval +0.156 to +0.997) on 8 cases")


def test_cases_without_a_score_on_both_sides_are_named_and_in_no_mean() -> None:
    after = report({"t-1": None, "t-2": 0.25, "t-3": 1.0}, critical=["t-2"])

    found = compare(Baseline.of(BEFORE), after)
    assert found.gain.unscored == ("t-1", "t-3")
    assert (found.gain.mean_before, found.gain.mean_after, found.changes) == (0.25, 0.25, ())


def test_few_cases_have_an_interval_without_any_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)

    found = compare(Baseline.of(report({"a": 0.5})), report({"a": 1.0}))
    assert found.gain.line() == (
        "gain +0.500 (95 % interval -0.963 to +0.988) on 1 case, 1 better, 0 worse, 0 the same"
    )
    low, high = found.gain.low, found.gain.high
    assert [found.to_json()[name] for name in ("low", "high", "level")] == [low, high, 0.95]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": "support/other"}, "prompt `support/triage` here, `support/other` there"),
        ({"dataset": digest("other")}, "dataset digest"),
        ({"metrics": "metrics exact ff"}, "metrics `metrics exact 0123456789abcdef` here"),
    ],
)
def test_a_baseline_of_other_data_is_refused_in_one_line(
    changed: dict[str, str], said: str
) -> None:
    kept = Baseline.of(BEFORE)
    other = attrs.evolve(kept, **changed)  # type: ignore[arg-type]

    with pytest.raises(ConfigError) as found:
        compare(other, BEFORE, where="b.json")
    assert str(found.value).startswith("b.json is of other data: ")
    assert said in str(found.value)
    assert "\n" not in str(found.value)
    assert compare(kept, BEFORE).changes == ()


CASE = Case(id="1", input="a", expected="b", origin="cases.jsonl:1")


def test_the_digest_of_cases_knows_what_they_ask_and_not_where_they_stand() -> None:
    two = Case(id="2", input="c")
    same = [two, attrs.evolve(CASE, origin="x.csv:9", hints={"": "look again"})]
    assert cases_digest([CASE, two]) == cases_digest(same)

    for changed in (
        attrs.evolve(CASE, input="A"),
        attrs.evolve(CASE, expected=None),
        attrs.evolve(CASE, critical=True),
        attrs.evolve(CASE, recorded=Answer(text="b")),
    ):
        assert cases_digest([changed, two]) != cases_digest([CASE, two])


def test_the_identity_of_metrics_knows_their_options() -> None:
    def mine(metric: Exact) -> str:
        return metrics_identity([metric, Length(max=9)])

    assert mine(Exact()) == mine(Exact())
    assert mine(Exact()) != mine(Exact(threshold=0.5))
    assert mine(Exact()).startswith("metrics exact,length ")


def test_the_cases_of_a_family_count_as_one_case() -> None:
    # One customer with eight cases is worse; nine others are as before.
    ids = [*(f"c-{n}" for n in range(8)), *(f"other-{n}" for n in range(9))]
    before = Baseline.of(report(dict.fromkeys(ids, 1.0)))
    scores = {id_: 0.0 if id_.startswith("c-") else 1.0 for id_ in ids}
    alone = compare(before, report(scores))
    assert (alone.verdict, alone.gain.cases) == (Standing.WORSE, 17)

    together = compare(before, report({**scores, "c-0": None}, family="c-"))
    assert (together.verdict, together.gain.cases) == (Standing.UNCLEAR, 10)
    assert (together.gain.lost, together.gain.unscored) == (("family c-",), ("c-0",))
    assert together.gain.mean_after == 0.9
    # What changed is told case by case.
    assert [change.case_id for change in together.worse] == ids[1:8]
