"""Runs whose model answers in batches: which calls, at what price, and after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import batched_world
import pytest
from batched_world import adapter_of, brain, optimizer, prompt, run

from promptgraft import Cancellation, GepaResult, StopReason
from promptgraft.journal import FileJournal
from servers.batches import BatchServer
from servers.loopback import KEY

BOTH = pytest.mark.parametrize("name", ["openai", "anthropic"])
TESTS = Path(__file__).parents[1]


def outcome(result: GepaResult) -> object:
    """What a run has come to, without what it took."""
    return result.scores_matrix, result.total_rollouts, result.stop_reason, result.held_out


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> GepaResult:
    """The run of the folder without batches."""
    with BatchServer("openai", brain) as server:
        folder = tmp_path_factory.mktemp("ordinary")
        return run("openai", server.base_url, folder, mode="call")


@BOTH
def test_whole_sets_are_answered_in_batches_and_minibatches_are_not(
    name: str, tmp_path: Path, ordinary: GepaResult
) -> None:
    with BatchServer(name, brain) as server:
        result = run(name, server.base_url, tmp_path)
    assert outcome(result) == outcome(ordinary)
    accepted = len(result.candidates) - 1
    assert server.sizes == [5, *[5] * accepted, 20]
    assert len(server.calls) == result.total_rollouts - sum(server.sizes)
    each = Decimal("0.0002")
    assert ordinary.total_cost == result.total_rollouts * each
    assert result.total_cost == each * len(server.calls) + each / 2 * sum(server.sizes)


def test_a_plan_has_the_prices_of_batches(tmp_path: Path) -> None:
    addresses = {"name": "openai", "base_url": "http://127.0.0.1:9"}
    [batched, ordinary] = (
        optimizer(adapter=adapter_of(**addresses, mode=mode)).plan(prompt())
        for mode in ("batch", "call")
    )
    assert batched.cost is not None
    assert ordinary.cost is not None
    # 5 of the 70 rollouts are for the baseline, and 20 kept for held-out examples.
    assert batched.cost == ordinary.cost * (1 - Decimal(25) / 70 / 2)
    assert batched.expected_cost is not None
    assert ordinary.expected_cost is not None
    assert ordinary.expected_cost / 2 < batched.expected_cost < ordinary.expected_cost
    assert batched.tokens == ordinary.tokens


def test_a_pause_does_not_wait_for_a_batch_and_its_answers_are_fetched_later(
    tmp_path: Path, ordinary: GepaResult
) -> None:
    pause = Cancellation()
    with BatchServer("anthropic", brain) as server:
        server.hold()
        server.on_look = lambda: pause.set("for tonight")
        paused = run("anthropic", server.base_url, tmp_path, pause=pause)
        assert paused.stop_reason is StopReason.PAUSED
        assert (server.sizes, server.batches[0].is_cancelled) == ([5], False)
        server.on_look = lambda: None
        server.release()
        assert outcome(run("anthropic", server.base_url, tmp_path)) == outcome(ordinary)
        assert server.sizes[:2] == [5, 5]
        assert sum(server.sizes) + len(server.calls) == ordinary.total_rollouts


class Program:
    """Runs in processes of their own, one after the other, which can be killed."""

    def __init__(self, forking: subprocess.Popen[str]) -> None:
        assert forking.stdin is not None
        assert forking.stdout is not None
        self._asked, self._told = forking.stdin, forking.stdout
        self._process = 0

    def begin(self, server: BatchServer, name: str, folder: Path) -> None:
        self._asked.write(f"{json.dumps([name, server.base_url, str(folder)])}\n")
        self._asked.flush()
        self._process = int(self._told.readline())

    def kill(self) -> None:
        os.kill(self._process, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        return int(self._told.readline())


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    path = os.pathsep.join((str(TESTS), str(TESTS / "resume")))
    with subprocess.Popen(
        [sys.executable, batched_world.__file__],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as forking:
        yield Program(forking)


@BOTH
def test_a_run_killed_before_it_knows_the_id_of_its_batch_pays_for_it_once(
    name: str, tmp_path: Path, ordinary: GepaResult, program: Program
) -> None:
    with BatchServer(name, brain) as server:
        server.on_made = program.kill
        program.begin(server, name, tmp_path)
        assert program.wait() == -signal.SIGKILL
        server.on_made = lambda: None
        assert server.sizes == [5]
        assert outcome(run(name, server.base_url, tmp_path)) == outcome(ordinary)
        assert sum(server.sizes) + len(server.calls) == ordinary.total_rollouts


def test_a_run_killed_while_it_waits_for_a_batch_pays_for_it_once(
    tmp_path: Path, ordinary: GepaResult, program: Program
) -> None:
    name = "openai"
    with BatchServer(name, brain) as server:
        server.hold()
        program.begin(server, name, tmp_path)
        server.wait_until(lambda: bool(server.batches) and server.batches[0].looks > 0)
        program.kill()
        assert program.wait() == -signal.SIGKILL
        server.release()
        result = run(name, server.base_url, tmp_path)
        assert outcome(result) == outcome(ordinary)
        assert sum(server.sizes) + len(server.calls) == ordinary.total_rollouts
        assert not any(batch.is_cancelled for batch in server.batches)
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        assert KEY not in "".join(map(str, journal.records()))
