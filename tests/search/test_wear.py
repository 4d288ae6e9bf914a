"""Held-out cases that judge one run after another are told to be worn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from optimizers.worlds import config, examples, optimize, twin
from promptgraft import (
    EventBus,
    GepaExample,
    GepaResult,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    MemoryJournal,
    OverlayPromptOverridesStore,
)
from promptgraft.errors import JournalWriteError
from promptgraft.ground.serde import HexDigest, Json
from promptgraft.journal import Journal
from promptgraft.overrides.local_store import FILE, LookFile
from promptgraft.overrides.looks import Look
from promptgraft.search.events import RunEnded
from promptgraft.search.wear import wear_of

CASES = tuple(f"case-{number}" for number in range(24))


def look(run: str, cases: tuple[str, ...] = CASES) -> Look:
    return Look(run=run, prompt="tests/words", time="2026-11-28T12:00:00+00:00", cases=cases)


def unseen() -> tuple[GepaExample, ...]:
    return tuple(twin(one, f"{one.id}-unseen") for one in examples(12))


def one_run(
    store: object,
    seed: int,
    *,
    journal: Journal | None = None,
    held_out: Sequence[GepaExample] | None = None,
) -> GepaResult:
    cases = unseen() if held_out is None else held_out
    settings = config(held_out=cases, rollout_budget=200, seed=seed, persist=False)
    return optimize(settings, overrides_store=store, journal=journal)


def test_runs_say_how_many_their_held_out_cases_have_judged(tmp_path: Path) -> None:
    results = [one_run(LocalPromptOverridesStore(tmp_path), seed) for seed in range(5)]
    assert results[0].wear is None
    assert [result.wear and result.wear.runs for result in results] == [None, 2, 3, 4, 5]
    # Their number is a warning once there are several.
    assert [any("have judged" in each for each in result.remarks) for result in results] == [
        False,
        False,
        False,
        False,
        True,
    ]
    [*_, remark] = results[-1].remarks
    assert remark.startswith("these 12 test cases have judged 5 runs: ")
    assert results[-1].ended.wear == results[-1].wear


def test_a_run_that_is_made_again_is_not_another_look(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    assert [one_run(store, seed=1).wear for _ in range(3)] == [None] * 3
    assert len(store.looks()) == 1


def test_a_resumed_run_has_the_wear_that_it_had_and_other_cases_have_theirs(tmp_path: Path) -> None:
    store, journal = LocalPromptOverridesStore(tmp_path), MemoryJournal()
    one_run(store, seed=1)
    first = one_run(store, seed=2, journal=journal)
    assert first.wear is not None
    for seed in range(3, 6):
        one_run(store, seed)
    looks = store.looks()
    assert one_run(store, seed=2, journal=journal) == first
    assert store.looks() == looks

    more = (*unseen(), *(twin(one, f"{one.id}-more") for one in examples(3, first=40)))
    again = one_run(store, seed=2, journal=journal, held_out=more)
    assert again.wear is not None
    assert (again.wear.runs, again.wear.new) == (5, 3)


@pytest.mark.parametrize("is_overlaid", [False, True])
def test_stores_in_memory_remember_as_long_as_they_live(is_overlaid: bool) -> None:
    store = InMemoryPromptOverridesStore()
    seen_by_run = OverlayPromptOverridesStore(base=store, overlay=()) if is_overlaid else store
    wears = [one_run(seen_by_run, seed).wear for seed in range(2)]
    assert [wear and wear.runs for wear in wears] == [None, 2]
    assert len(store.looks()) == 2


def test_wear_raises_the_gain_that_can_be_shown() -> None:
    wear = wear_of(CASES, [look(f"run-{number}") for number in range(13)], run="now")
    assert wear is not None
    assert wear.line == (
        "these 24 test cases have judged 14 runs: allowing for all of them, they can show a mean "
        "gain of 0.42 or more (0.25 when they were new); exchange them for new ones, or use "
        "40 cases"
    )
    assert (wear.new, wear.is_worn) == (0, True)


def test_cases_that_can_show_nothing_any_more_are_told_so() -> None:
    few = CASES[:7]
    wear = wear_of(few, [look(f"run-{number}", few) for number in range(13)], run="now")
    assert wear is not None
    assert (wear.least_gain, wear.least_gain_when_new) == (None, 6 / 7)
    assert "they can show no gain at all (0.86 when they were new)" in wear.line


def test_new_cases_are_not_worn_and_a_run_does_not_count_itself() -> None:
    looks = [look("a", CASES[:4]), look("b"), look("b")]
    assert wear_of(CASES, [look("now")], run="now") is None
    assert wear_of((), looks, run="now") is None
    # Fewer than half of the cases were used by the first.
    wear = wear_of((*CASES[:4], "x", "y", "z", "u", "v", "w"), looks, run="now")
    assert wear is None
    wear = wear_of((*CASES[:6], "new"), looks, run="now")
    assert wear is not None
    assert (wear.runs, wear.new) == (3, 1)


def test_a_damaged_record_is_read_as_far_as_possible_and_breaks_no_run(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.parent.mkdir()
    kept = {"version": 1, "run": "r", "prompt": "p", "time": "t", "cases": ["a", "b"]}
    lines = [
        json.dumps(kept),
        "{",
        "[" * 5_000,
        json.dumps({**kept, "version": 2}),
        json.dumps({**kept, "cases": [1]}),
        json.dumps({**kept, "run": None}),
        json.dumps([kept]),
        '"torn',
    ]
    file.write_bytes("\n".join(lines).encode() + b"\xff\xfe")
    record = LookFile(tmp_path)
    assert record.looks() == (Look(run="r", prompt="p", time="t", cases=("a", "b")),)
    record.remember_look(look("next"))
    assert [each.run for each in record.looks()] == ["r", "next"]
    assert one_run(LocalPromptOverridesStore(tmp_path), seed=1).held_out is not None
    assert len(record.looks()) == 3


def test_a_record_that_cannot_be_kept_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).mkdir(parents=True)
    result = one_run(LocalPromptOverridesStore(tmp_path), seed=1)
    assert result.wear is None
    assert "this use of the test cases is not remembered" in caplog.text


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / FILE).parent.mkdir(parents=True)
    elsewhere.write_text("mine\n")
    (root / FILE).symlink_to(elsewhere)
    LookFile(root).remember_look(look("a"))
    assert elsewhere.read_text() == "mine\n"


def test_many_runs_at_once_lose_no_look(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        records = [LookFile(tmp_path) for _ in range(8)]
        list(pool.map(lambda n: records[n % 8].remember_look(look(f"run-{n}")), range(40)))
    assert {each.run for each in LookFile(tmp_path).looks()} == {f"run-{n}" for n in range(40)}


class FullDisk(MemoryJournal):
    """A journal whose disk is full once the search has ended."""

    is_full = True

    def append(self, key: str, request_digest: HexDigest, kind: str, answer: Json) -> None:
        if self.is_full and key.startswith("wear/"):
            raise JournalWriteError("the journal cannot be written: no space left on device")
        super().append(key, request_digest, kind, answer)


def test_a_look_that_cannot_be_kept_does_not_lose_the_result(tmp_path: Path) -> None:
    store, journal, ended = LocalPromptOverridesStore(tmp_path), FullDisk(), list[RunEnded]()
    bus = EventBus()
    bus.subscribe(RunEnded, ended.append)
    settings = config(held_out=unseen(), rollout_budget=200, seed=1, persist=False)
    with pytest.raises(JournalWriteError, match=r"^the journal cannot be written") as raised:
        optimize(settings, overrides_store=store, journal=journal, event_bus=bus)
    result = raised.value.result
    assert isinstance(result, GepaResult)
    assert result.found_better
    assert [event.best for event in ended] == [result.best_index]
    journal.is_full = False
    assert one_run(store, seed=1, journal=journal).best == result.best
