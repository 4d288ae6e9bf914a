"""A run is a replay: killed anywhere and resumed, it ends where it would have ended."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import attrs
import pytest
from resume_world import acknowledged, paid, run

from further import thorough
from promptgraft import EventBus, FileJournal
from promptgraft.algorithms.gepa import (
    GepaMergeAttempted,
    GepaMutationAccepted,
    GepaMutationProposed,
)
from promptgraft.errors import JournalLockedError, JournalMismatchError

HERE = Path(__file__).parent
KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "1"))
PARTS = 8


BUDGET, SEED = 106, 50
"""A short run in which everything happens that a run does."""


@attrs.frozen(kw_only=True)
class Trial:
    """What the crash server reports of one trial."""

    result: str
    rollouts: int
    moments: list[list[str]]
    killed_times: int
    paid: int
    wasted: int
    answers: int
    journal: str
    lost: list[str]
    repeated: int
    acknowledged_rollouts: int
    revisions: int
    stored: str


class CrashServer:
    """Makes trials in a process of its own."""

    def __init__(self, folder: Path) -> None:
        program = [sys.executable, str(HERE / "crash_server.py"), str(folder / "run")]
        self._errors = folder / "errors"
        with self._errors.open("w") as errors:
            self._running = subprocess.Popen(
                [*program, str(BUDGET), str(SEED)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.communicate()

    def trial(self, *kills: int, workers: int = 0, proposals: int = 1) -> Trial:
        """Run, be killed at each tick of ``kills`` in turn, then run to the end."""
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what it said when it ended says more
            asked = {"kills": kills, "workers": workers, "proposals": proposals}
            self._running.stdin.write(json.dumps(asked) + "\n")
            self._running.stdin.flush()
        line = self._running.stdout.readline()
        assert line, self._errors.read_text()
        return Trial(**json.loads(line))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashServer]:
    with CrashServer(tmp_path_factory.mktemp("crashes")) as server:
        yield server


@pytest.fixture(scope="module")
def whole(server: CrashServer) -> Trial:
    """The run that nobody interrupts."""
    trial = server.trial()
    assert trial.answers > BUDGET
    return trial


def ticks_of(whole: Trial) -> int:
    return sum(map(len, whole.moments))


def assert_equal_outcome(trial: Trial, whole: Trial) -> None:
    """Compare with the run that nobody interrupted."""
    # Winner, pool, ancestry, scores, rejections and ledger.
    assert trial.result == whole.result
    assert trial.journal == whole.journal
    assert trial.lost == []
    assert trial.repeated == 0
    assert trial.acknowledged_rollouts <= trial.rollouts <= BUDGET
    # Beyond what was in flight at each kill, nothing was paid twice.
    assert trial.paid == whole.paid + trial.wasted
    assert trial.revisions == 1
    assert trial.stored == whole.stored


def test_the_run_changes_every_kind_of_part_and_merges(tmp_path: Path) -> None:
    bus, accepted, modules = EventBus(), list[str](), list[str]()
    attempted: list[GepaMergeAttempted] = []
    bus.subscribe(GepaMutationProposed, lambda event: modules.append(event.module))
    bus.subscribe(GepaMutationAccepted, lambda event: accepted.append(event.module))
    bus.subscribe(GepaMergeAttempted, attempted.append)
    result = run(tmp_path, budget=BUDGET, seed=SEED, bus=bus)
    assert (
        set(modules)
        == set(accepted)
        == {
            "section rules",
            "tool look_up",
            "tool example look_up/0",
            "task example examples/first",
            "new task example in examples",
            "output field Answer.verdict",
        }
    )
    assert len(attempted) == result.accepted_merges > 1
    assert len({rejection.reason for rejection in result.rejections}) > 2
    assert any(not rejection.final for rejection in result.rejections)
    assert result.found_better
    assert result.persisted


@pytest.mark.parametrize("part", [0, *thorough(range(1, PARTS))])
def test_a_run_killed_at_any_kind_of_moment_ends_the_same(
    server: CrashServer, whole: Trial, part: int
) -> None:
    # One moment of each kind: before and after each system call, each call of a model and each
    # record, by what the run was doing. What is reflected on is no matter of the journal.
    kinds: dict[tuple[str, ...], list[int]] = {}
    tick = 0
    for names in whole.moments:
        kind = tuple(re.sub(r"reflect-[\w-]+", "reflect", name) for name in names)
        kinds.setdefault(kind, []).extend(range(tick + 1, tick + len(names) + 1))
        tick += len(names)
    named = {name for kind in kinds for name in kind}
    done = {name.partition(",")[0] for name in named}
    assert {"before write", "after fsync", "before replace", "call generate-task-example"} <= done
    assert {"acknowledged step/#/merge/#", "acknowledged step/#/merge/rest/#"} <= done
    chance = random.Random(part)
    for ticks in list(kinds.values())[part::PARTS]:
        trial = server.trial(chance.choice(ticks))
        assert trial.killed_times == 1
        assert trial.wasted <= 1
        assert_equal_outcome(trial, whole)


def test_a_run_killed_at_random_and_again_while_it_resumes_ends_the_same(
    server: CrashServer, whole: Trial
) -> None:
    chance = random.Random(0)
    ticks = ticks_of(whole)
    killed_times = 0
    for _ in range(KILLS):
        trial = server.trial(chance.randint(1, ticks), chance.randint(1, ticks // 2))
        assert trial.wasted <= trial.killed_times
        assert_equal_outcome(trial, whole)
        killed_times += trial.killed_times
    assert killed_times > KILLS


def test_a_run_with_four_workers_killed_at_random_ends_like_one_without_workers(
    server: CrashServer, whole: Trial
) -> None:
    chance = random.Random(9)
    for _ in range(KILLS):
        trial = server.trial(chance.randint(1, ticks_of(whole)), workers=4)
        # What workers have answered is in flight until it is recorded: a batch at the most.
        assert trial.wasted <= 6
        assert_equal_outcome(trial, whole)


def test_a_run_of_overlapping_proposals_killed_at_random_ends_like_one_without_workers(
    server: CrashServer,
) -> None:
    chance = random.Random(4)
    overlapping = server.trial(proposals=3)
    assert overlapping.answers > BUDGET
    ticks = ticks_of(overlapping)
    for _ in range(KILLS):
        kills = chance.randint(1, ticks), chance.randint(1, ticks // 2)
        trial = server.trial(*kills, workers=4, proposals=3)
        # In flight are a rollout of each worker and a reflection of each step, and what
        # workers have answered that nobody has recorded yet.
        assert trial.wasted <= 20 * trial.killed_times
        assert_equal_outcome(trial, overlapping)


def test_a_finished_run_resumed_with_a_larger_budget_ends_like_one_with_that_budget(
    tmp_path: Path,
) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    first = run(small, budget=60)
    spent = paid(small)
    longer = run(small, budget=160)
    assert longer == run(large, budget=160)
    assert longer.total_rollouts > first.total_rollouts
    assert paid(small) == paid(large) > spent


def test_a_finished_run_resumed_asks_nothing_and_writes_no_second_revision(
    tmp_path: Path,
) -> None:
    first = run(tmp_path, budget=80)
    assert first.found_better
    assert first.persisted
    spent, keys = paid(tmp_path), acknowledged(tmp_path)
    stored = {path: path.read_bytes() for path in (tmp_path / ".promptgraft").rglob("*.json")}
    assert run(tmp_path, budget=80) == first
    assert paid(tmp_path) == spent
    assert acknowledged(tmp_path) == keys
    assert stored == {
        path: path.read_bytes() for path in (tmp_path / ".promptgraft").rglob("*.json")
    }


def test_another_seed_on_the_same_journal_is_refused_before_any_call(tmp_path: Path) -> None:
    run(tmp_path, budget=60)
    spent = paid(tmp_path)
    with pytest.raises(JournalMismatchError, match="seed"):
        run(tmp_path, budget=60, seed=4)
    assert paid(tmp_path) == spent


def test_another_prompt_on_the_same_journal_is_refused(tmp_path: Path) -> None:
    run(tmp_path, budget=60)
    with pytest.raises(JournalMismatchError, match="prompt"):
        run(tmp_path, budget=60, rules="Known words: pear")


def test_another_dataset_on_the_same_journal_is_refused(tmp_path: Path) -> None:
    run(tmp_path, budget=60)
    with pytest.raises(JournalMismatchError, match="dataset"):
        run(tmp_path, budget=60, count=23)


def test_a_second_run_on_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    with (
        FileJournal(tmp_path / "journal.jsonl"),
        pytest.raises(JournalLockedError, match=r"journal\.jsonl"),
    ):
        run(tmp_path, budget=60)
    assert paid(tmp_path) == 0
