"""Runs that are killed, interrupted or out of time while their providers keep them waiting."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
import pytest
from resume_world import acknowledged

from adapters.storm.storm_servers import Weather, served
from adapters.storm.storm_world import (
    BASELINE,
    CONFIG,
    REFLECTION_MODEL,
    STEP,
    TASK_MODEL,
    WORKERS,
    adapter_of,
    found_by,
    run,
    scripted,
)
from programs import Programs, Started
from promptgraft import FileJournal, GepaConfig, GepaResult, LocalPromptOverridesStore
from promptgraft.cli.exits import ExitCode
from promptgraft.evals.spending import Role
from promptgraft.search import StopReason
from promptgraft.search.ledger import LedgerEntry
from servers.behaviour import WELL, Asked, Behaviour, Break
from servers.loopback import LoopbackServer
from settings_leaves import evolved

PROGRAM = Path(__file__).with_name("stopped_run.py")
HANGS = Behaviour(breaks=Break.HANGS)
SLOW = Behaviour(seconds=0.01)
ONE_STEP = attrs.evolve(CONFIG, rollout_budget=BASELINE + STEP)
SHORT = attrs.evolve(CONFIG, rollout_budget=BASELINE + 2 * STEP)
GUARD = 60.0


Running = Callable[..., AbstractContextManager[Started]]
"""Runs the run in a process of its own."""


@pytest.fixture(scope="module")
def running(programs: Programs) -> Running:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}

    def started(folder: Path, *options: str) -> AbstractContextManager[Started]:
        return programs.started(PROGRAM, folder, *options, environment=path)

    return started


def ended(process: Started) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a process that says little."""
    return process.wait(GUARD), process.stdout.read(), process.stderr.read()


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def server(weather: Weather) -> Iterator[LoopbackServer]:
    with served("openai", weather) as server:
        yield server


class Hanging:
    """A script that leaves the task's requests without an answer after some."""

    def __init__(self, well: int) -> None:
        self._well = well
        self._met = threading.Semaphore(0)

    def __call__(self, asked: Asked) -> Behaviour:
        self._well -= asked.model == TASK_MODEL
        if self._well >= 0:
            return SLOW
        self._met.release()
        return HANGS

    def wait_for(self, requests: int) -> None:
        """Wait until so many requests hang."""
        for _ in range(requests):
            assert self._met.acquire(timeout=GUARD)


def resumed(
    server: LoopbackServer, folder: Path | None, config: GepaConfig | None = None
) -> GepaResult:
    journal = None if folder is None else FileJournal(folder / "journal.jsonl")
    try:
        return run(
            adapter_of("openai", TASK_MODEL, server.base_url),
            adapter_of("openai", REFLECTION_MODEL, server.base_url),
            config or SHORT,
            journal=journal,
            store=None if folder is None else LocalPromptOverridesStore(folder),
        )
    finally:
        if journal is not None:
            journal.close()


def timeless(result: GepaResult) -> list[LedgerEntry]:
    return [attrs.evolve(entry, seconds=0.0) for entry in result.ledger]


def assert_ends_as_if_nothing_had_happened(server: LoopbackServer, folder: Path) -> None:
    """Resume, and compare with the run that nobody stopped."""
    result = resumed(server, folder)
    elsewhere = folder / "calm"
    elsewhere.mkdir()
    calm = run(
        scripted(TASK_MODEL),
        scripted(REFLECTION_MODEL),
        SHORT,
        store=LocalPromptOverridesStore(elsewhere),
    )
    assert found_by(result) == found_by(calm)


def test_a_killed_and_resumed_run_has_the_ledger_of_an_uninterrupted_one(
    tmp_path: Path, server: LoopbackServer, weather: Weather, running: Running
) -> None:
    faults, last = 20, BASELINE + 20 + CONFIG.minibatch_size + 8

    def script(asked: Asked) -> Behaviour:
        number = asked.number - before
        if number == last and before == 0:
            process.send_signal(signal.SIGKILL)
        return Behaviour(status=503) if number < faults else WELL

    before = 0
    weather.script = script
    with running(tmp_path, server.base_url) as process:
        code, said, _ = ended(process)
    assert (code, said) == (-signal.SIGKILL, "")
    weather.script = lambda _: WELL
    result = resumed(server, tmp_path, ONE_STEP)
    made = server.counts.requests

    before, weather.script = made, script
    whole = resumed(server, None, ONE_STEP)
    assert whole.stop_reason is result.stop_reason is StopReason.BUDGET
    lost = [entry for entry in timeless(result) if entry.role is Role.UNANSWERED]
    assert [entry for entry in timeless(result) if entry not in lost] == timeless(whole)
    assert sum(entry.retries for entry in result.ledger) == faults
    needed = sum(entry.calls + entry.retries for entry in whole.ledger)
    assert server.counts.requests - made == needed
    # What was in flight at the kill was asked once more, and is charged. A request that was just
    # about to leave is among it, whether the server has seen it or not.
    assert 0 < made - needed <= sum(entry.calls for entry in lost) <= WORKERS


def test_a_signal_ends_a_run_whose_calls_all_hang(
    tmp_path: Path, server: LoopbackServer, weather: Weather, running: Running
) -> None:
    weather.script = hanging = Hanging(BASELINE + STEP)
    with running(tmp_path, server.base_url) as process:
        hanging.wait_for(WORKERS)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        code, said, complained = ended(process)
    assert code == ExitCode.STOPPED_EARLY
    assert json.loads(said) == {"reason": StopReason.CANCELLED, "best": 1}
    assert complained == "promptgraft: the run was stopped: asked to end (SIGTERM)\n"
    weather.script = lambda _: WELL
    assert_ends_as_if_nothing_had_happened(server, tmp_path)


def test_a_second_interrupt_ends_a_run_that_is_stuck_and_loses_no_acknowledged_answer(
    tmp_path: Path, server: LoopbackServer, weather: Weather, running: Running
) -> None:
    weather.script = hanging = Hanging(BASELINE + STEP + 4)
    with running(tmp_path, server.base_url, "stuck") as process:
        hanging.wait_for(WORKERS - 4)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "told\n"
        process.send_signal(signal.SIGTERM)
        code, said, complained = ended(process)
    assert (code, said) == (ExitCode.STOPPED_EARLY, "")
    assert complained == "promptgraft: interrupted again, ended at once\n"
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        kept = {record.key for record in journal.records()}
    keys = acknowledged(tmp_path)
    assert len(keys) > BASELINE + STEP
    assert set(keys) <= kept
    weather.script = lambda _: WELL
    assert_ends_as_if_nothing_had_happened(server, tmp_path)


def test_a_run_out_of_time_leaves_hanging_calls_and_can_be_resumed(
    tmp_path: Path, server: LoopbackServer, weather: Weather
) -> None:
    first = resumed(server, tmp_path, ONE_STEP)
    weather.script = lambda _: HANGS
    late = resumed(server, tmp_path, evolved(SHORT, timeout=1.0))
    assert late.stop_reason is StopReason.DEADLINE
    assert (late.best_index, late.candidates) == (1, first.candidates)
    assert late.total_rollouts == first.total_rollouts
    counts = server.counts
    assert 1 <= counts.requests - counts.statuses.total() <= WORKERS  # left hanging
    weather.script = lambda _: WELL
    assert_ends_as_if_nothing_had_happened(server, tmp_path)
