"""A run is a replay: killed anywhere and resumed, it ends where it would have ended."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from resume_world import acknowledged, paid, run

from promptgraft import EventBus, FileJournal
from promptgraft.errors import JournalLockedError, JournalMismatchError
from promptgraft.optimizers.gepa.events import (
    GepaMergeAttempted,
    GepaMutationAccepted,
    GepaMutationProposed,
)

HERE = Path(__file__).parent


BUDGET = 130


@attrs.frozen(kw_only=True)
class Trial:
    """What the crash server reports of one trial."""

    result: str
    rollouts: int
    names: list[str]
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


def trials(folder: Path, kills: list[list[int]], *, workers: int = 0) -> list[Trial]:
    """Make trials in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "crash_server.py"), str(folder), str(BUDGET), str(workers)],
        input=json.dumps(kills),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Trial(**json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """The run that nobody interrupts."""
    [trial] = trials(tmp_path_factory.mktemp("run") / "whole", [[]])
    assert trial.answers > BUDGET
    return trial


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
    result = run(tmp_path, budget=BUDGET, bus=bus)
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
    assert result.improved
    assert result.persisted


@pytest.mark.parametrize("part", range(3))
def test_a_run_killed_at_any_kind_of_moment_ends_the_same(
    tmp_path: Path, whole: Trial, part: int
) -> None:
    # One moment of each kind: before and after each system call, each call of a model and each
    # record, by what the run was doing.
    moments: dict[str, list[int]] = {}
    for number, name in enumerate(whole.names, 1):
        moments.setdefault(name, []).append(number)
    done = {name.partition(",")[0] for name in moments}
    assert {"before write", "after fsync", "before replace", "call generate-task-example"} <= done
    assert {"acknowledged step/#/merge/#", "acknowledged step/#/merge/rest/#"} <= done
    chance = random.Random(part)
    points = [[chance.choice(numbers)] for numbers in moments.values()][part::3]
    found = trials(tmp_path / "killed", points)
    assert len(found) == len(points)
    for trial in found:
        assert trial.killed_times == 1
        assert trial.wasted <= 1
        assert_equal_outcome(trial, whole)


def test_a_run_killed_at_random_and_again_while_it_resumes_ends_the_same(
    tmp_path: Path, whole: Trial
) -> None:
    chance = random.Random(0)
    ticks = len(whole.names)
    points = [[chance.randint(1, ticks), chance.randint(1, ticks // 2)] for _ in range(12)]
    found = trials(tmp_path / "killed", points)
    assert sum(trial.killed_times for trial in found) > 12
    for trial in found:
        assert trial.wasted <= trial.killed_times
        assert_equal_outcome(trial, whole)


def test_a_run_with_four_workers_killed_at_random_ends_like_one_without_workers(
    tmp_path: Path, whole: Trial
) -> None:
    chance = random.Random(9)
    points = [[chance.randint(1, len(whole.names))] for _ in range(8)]
    for trial in trials(tmp_path / "killed", points, workers=4):
        # What workers have answered is in flight until it is recorded: a batch at the most.
        assert trial.wasted <= 6
        assert_equal_outcome(trial, whole)


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
    assert first.improved
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
