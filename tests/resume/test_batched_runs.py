"""Runs whose model answers in batches: which calls, at what price, and after a kill."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue

import batched_world
import pytest
from batched_world import adapter_of, brain, optimizer, prompt, run

from further import thorough
from programs import Programs, Started
from promptgraft import Cancellation, GepaResult, StopReason
from servers.batches import BatchServer

BOTH = pytest.mark.parametrize("name", ["openai", *thorough(["anthropic"])])
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


@contextlib.contextmanager
def running(programs: Programs, server: BatchServer, name: str, folder: Path) -> Iterator[Started]:
    """Start the run in a process that can be killed."""
    path = os.pathsep.join((str(TESTS), str(TESTS / "resume")))
    words = (batched_world.__file__, name, server.base_url, folder)
    with programs.started(*words, environment={"PYTHONPATH": path}) as process:
        yield process


@BOTH
def test_a_run_killed_before_it_knows_the_id_of_its_batch_pays_for_it_once(
    name: str, tmp_path: Path, ordinary: GepaResult, programs: Programs
) -> None:
    started: SimpleQueue[Started] = SimpleQueue()
    with BatchServer(name, brain) as server:
        server.on_made = lambda: started.get().send_signal(signal.SIGKILL)
        with running(programs, server, name, tmp_path) as process:
            started.put(process)
            assert process.wait() == -signal.SIGKILL
        server.on_made = lambda: None
        assert server.sizes == [5]
        assert outcome(run(name, server.base_url, tmp_path)) == outcome(ordinary)
        assert sum(server.sizes) + len(server.calls) == ordinary.total_rollouts


def test_a_run_killed_while_it_waits_for_a_batch_pays_for_it_once(
    tmp_path: Path, ordinary: GepaResult, programs: Programs
) -> None:
    name = "openai"
    with BatchServer(name, brain) as server:
        server.hold()
        with running(programs, server, name, tmp_path) as process:
            server.wait_until(lambda: bool(server.batches) and server.batches[0].looks > 0)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        server.release()
        result = run(name, server.base_url, tmp_path)
        assert outcome(result) == outcome(ordinary)
        assert sum(server.sizes) + len(server.calls) == ordinary.total_rollouts
