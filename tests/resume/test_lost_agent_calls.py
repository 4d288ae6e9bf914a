"""Calls of agents that can only be called, lost with the process that made them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lost_calls_world
import pytest
from lost_calls_world import CALLS, COST, MOST, Script, run

from programs import Programs
from promptgraft import FileJournal, GepaResult, MemoryJournal
from promptgraft.evals.spending import Role
from promptgraft.search import StopReason
from promptgraft.search.ledger import LedgerEntry


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> Callable[[str], Path]:
    """Kill a run of a kind in its sixth call of the agent, once; return its journal."""

    @cache
    def killed(kind: str) -> Path:
        folder = tmp_path_factory.mktemp("killed")
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        words = (lost_calls_world.__file__, folder, kind)
        with programs.started(*words, environment=path) as program:
            assert program.stdout.readline() == "hangs\n"
            program.send_signal(signal.SIGKILL)
            assert program.wait() == -signal.SIGKILL
        return folder / "journal.jsonl"

    return killed


@pytest.fixture
def killed(journals: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of the journal of a run of a kind that was killed."""
    return lambda kind: Path(shutil.copy(journals(kind), tmp_path))


def entry(result: GepaResult, role: Role) -> LedgerEntry | None:
    return next((entry for entry in result.ledger if entry.role is role), None)


def calls(result: GepaResult, role: Role = Role.TASK) -> int:
    found = entry(result, role)
    return 0 if found is None else found.calls


def test_a_call_that_a_kill_has_lost_is_in_the_ledger_at_its_bound(
    killed: Callable[[str], Path],
) -> None:
    whole = run(MemoryJournal())
    path = killed("bound")
    with FileJournal(path) as journal:
        result = run(journal, bound=MOST)
    lost = entry(result, Role.UNANSWERED)
    assert lost is not None
    assert (lost.calls, lost.retries, lost.cost, lost.unpriced_calls) == (1, 0, MOST, 0)
    assert calls(result) == calls(whole) > CALLS
    assert result.total_cost == calls(whole) * COST + MOST
    with FileJournal(path) as journal:  # a replay counts the same
        assert run(journal, bound=MOST).ledger == result.ledger


def test_a_rehearsal_that_a_kill_has_lost_is_counted_by_a_replay_too(
    killed: Callable[[str], Path],
) -> None:
    path = killed("bound")
    lines = path.read_bytes().splitlines(keepends=True)
    sent = next(at for at, line in enumerate(lines) if b'"kind":"sent"' in line)
    assert b'"rehearsal/' in lines[sent]
    path.write_bytes(b"".join(lines[: sent + 1]))
    with FileJournal(path) as journal:
        result = run(journal, bound=MOST)
    assert calls(result, Role.UNANSWERED) == 1
    with FileJournal(path) as journal:
        assert run(journal, bound=MOST).ledger == result.ledger


def test_without_a_bound_its_cost_is_unknown_and_never_0(killed: Callable[[str], Path]) -> None:
    path = killed("")
    with FileJournal(path) as journal:
        result = run(journal)
    lost = entry(result, Role.UNANSWERED)
    assert lost is not None
    assert (lost.calls, lost.unpriced_calls) == (1, 1)
    assert result.total_cost is None


@pytest.mark.parametrize("kind", ["", "bound"])
def test_max_cost_includes_it_or_says_what_is_missing(
    killed: Callable[[str], Path], kind: str
) -> None:
    path = killed(kind)
    with FileJournal(path) as journal:
        bound = MOST if kind else None
        result = run(journal, bound=bound, max_cost="2.25")
    assert result.stop_reason is StopReason.COST
    if kind:
        # Five answers and the one that was lost leave a quarter of a dollar.
        assert result.total_cost == CALLS * COST + MOST + COST
    else:
        assert "give an agent `max_call_cost`" in result.stop_detail


def test_turns_whose_answers_are_lost_with_the_rollout_are_all_lost(
    killed: Callable[[str], Path],
) -> None:
    whole = run(MemoryJournal(), turns=True)
    # The rehearsal takes one call, and each rollout two.
    path = killed("turns bound")
    with FileJournal(path) as journal:
        result = run(journal, turns=True, bound=MOST)
    assert calls(result, Role.UNANSWERED) == CALLS % 2
    assert calls(result) == calls(whole)


def test_a_call_that_failed_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    monkeypatch.setattr(Script, "is_down", True)
    with FileJournal(path) as journal:
        stopped = run(journal, bound=MOST)
    monkeypatch.undo()
    assert stopped.stop_reason is StopReason.PROVIDER_FAILED
    with FileJournal(path) as journal:
        result = run(journal, bound=MOST)
    assert calls(result, Role.UNANSWERED) == 0
    assert stopped.total_cost is not None
    assert stopped.total_cost > calls(stopped) * COST
    resumed = calls(result) - calls(stopped)
    assert result.total_cost == stopped.total_cost + resumed * COST


def test_a_run_without_a_kill_loses_nothing() -> None:
    journal = MemoryJournal()
    first = run(journal)
    assert calls(first, Role.UNANSWERED) == 0
    assert run(journal).ledger == first.ledger
    assert all(record.answer is not None for record in journal.records() if record.kind == "sent")
