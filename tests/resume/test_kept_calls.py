"""Runs that are killed within their rollouts pay again only for the calls in flight."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import attrs
import calls_world
import pytest
from calls_world import CASES, JUDGE, MODELS, WORKERS, brain, requests_of, run, told

from programs import Programs
from promptgraft import Cancellation, GepaResult, MemoryJournal
from promptgraft.evals.spending import Role
from promptgraft.ground.serde import digest_text
from promptgraft.journal import Journal
from promptgraft.runtime import EventBus
from promptgraft.runtime.calls import Bound
from promptgraft.search import StopReason
from promptgraft.search.call_log import CallLog
from promptgraft.search.events import CandidateAdded
from servers.behaviour import WELL, Asked, Behaviour, Break
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat

KILLS = 2
ENOUGH = 10**6
GUARD = 60.0
HANGS = Behaviour(breaks=Break.HANGS)
ROLLOUT = 5
"""Calls of a rollout: three nodes, a round of tools, a judge."""


Answered = Counter[tuple[str, tuple[str, ...], tuple[str, ...]]]


class Patience:
    """A script that answers so many requests and leaves the others without an answer.

    Those of the model ``silent`` are never answered.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.left = ENOUGH
        self.silent = ""
        self.answered: Answered = Counter()
        self._hanging = threading.Semaphore(0)

    def __call__(self, asked: Asked) -> Behaviour:
        if self.left <= 0 or asked.model == self.silent:
            self._hanging.release()
            return HANGS
        self.left -= 1
        # Without the body, which holds ids that the server counts.
        self.answered[asked.model, asked.texts, asked.results] += 1
        return WELL

    def wait_for(self, requests: int) -> None:
        """Wait until so many requests hang."""
        for _ in range(requests):
            assert self._hanging.acquire(timeout=GUARD)


@pytest.fixture(scope="module")
def patience() -> Patience:
    return Patience()


@pytest.fixture(autouse=True)
def _forgotten(patience: Patience) -> None:
    patience.forget()


@pytest.fixture(scope="module")
def server(patience: Patience) -> Iterator[LoopbackServer]:
    with LoopbackServer(
        OpenAIChat(), brain=brain, script=patience, key=calls_world.KEY, models=MODELS
    ) as server:
        yield server


@attrs.frozen
class Whole:
    """The run that nobody disturbs, and what it had to ask."""

    result: GepaResult
    needed: Answered


@pytest.fixture(scope="module")
def whole(server: LoopbackServer, patience: Patience) -> Whole:
    patience.forget()
    result = run(server.base_url, MemoryJournal())
    assert requests_of(result) == patience.answered.total()
    return Whole(result, patience.answered)


def test_kills_repay_at_most_the_calls_in_flight(
    tmp_path: Path, server: LoopbackServer, patience: Patience, whole: Whole, programs: Programs
) -> None:
    calls, before = requests_of(whole.result), server.counts.requests
    assert calls > CASES // 2 * ROLLOUT
    words = (calls_world.__file__, tmp_path, server.base_url)
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    for kill in range(KILLS):
        # Not a multiple of a rollout's calls, so that kills meet every kind of call.
        patience.left = 7 + kill % 3
        with programs.started(*words, environment=path) as process:
            patience.wait_for(WORKERS)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            assert process.stdout.read() == ""
    patience.left = ENOUGH
    ended = programs(*words, environment=path)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    # No answered call was made again, and those in flight once for each kill.
    assert patience.answered == whole.needed
    assert found["answered"] == calls
    assert found["lost"] == KILLS * WORKERS
    assert found["answered"] + found["lost"] == server.counts.requests - before
    assert Decimal(found["lost_cost"]) > 0
    assert found["found"] == told(whole.result)["found"]


def stopped(
    server: LoopbackServer,
    patience: Patience,
    journal: Journal,
    *,
    calls: int = ENOUGH,
    silent: str = "",
) -> GepaResult:
    """Run until all workers wait for calls that are not answered."""
    stop = Cancellation()

    def wait() -> None:
        patience.wait_for(WORKERS)
        stop.set("enough")

    patience.left, patience.silent = calls, silent
    waiting = threading.Thread(target=wait)
    waiting.start()
    result = run(server.base_url, journal, cancellation=stop)
    waiting.join()
    patience.left, patience.silent = ENOUGH, ""
    return result


def test_answers_inside_rollouts_that_a_stopped_run_leaves_are_used_when_it_goes_on(
    server: LoopbackServer, patience: Patience, whole: Whole
) -> None:
    journal = MemoryJournal()
    calls = 3 * ROLLOUT - 2  # some of them in rollouts that have not ended, whoever is quick
    first = stopped(server, patience, journal, calls=calls)
    assert first.stop_reason is StopReason.CANCELLED
    assert first.total_rollouts <= calls // ROLLOUT
    assert requests_of(first) == calls + WORKERS
    resumed, replayed = list[CandidateAdded](), list[CandidateAdded]()
    bus, bus_of_replay = EventBus(), EventBus()
    bus.subscribe(CandidateAdded, resumed.append)
    bus_of_replay.subscribe(CandidateAdded, replayed.append)
    result = run(server.base_url, journal, event_bus=bus)
    assert patience.answered == whole.needed
    assert told(result)["found"] == told(whole.result)["found"]
    # Requests that were broken off are requests without tokens, as they always were.
    assert requests_of(result) == requests_of(whole.result) + WORKERS
    assert result.total_cost == whole.result.total_cost
    # Once more, for nothing but the journal.
    again = run(server.base_url, journal, event_bus=bus_of_replay)
    assert again == result
    # What was paid before the run was stopped counts at the same places.
    assert replayed == resumed
    assert patience.answered == whole.needed


def test_a_call_has_the_same_place_in_every_run(server: LoopbackServer) -> None:
    journal = MemoryJournal()
    run(server.base_url, journal)
    keys = journal.calls_of("baseline/4")
    sent = [key for key in keys if "/sent/" in key]
    assert [key.removeprefix("baseline/4/call/") for key in sent] == [
        "1.1/sent/1",
        "2.1/sent/1",
        "2.2/sent/1",
        "3.1/sent/1",
        "judge.1/sent/1",
    ]
    # The rollout itself holds the last answer, which is kept as well if it is not recorded soon.
    kept = {key.removeprefix("baseline/4/call/") for key in keys if key not in sent}
    assert kept - {"judge.1"} == {"1.1", "2.1", "2.2", "3.1"}


def test_another_answer_of_a_tool_is_another_question(
    server: LoopbackServer, patience: Patience, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, before = MemoryJournal(), server.counts.requests
    stopped(server, patience, journal, silent=JUDGE)
    monkeypatch.setattr(calls_world, "WORD", "unknown")
    result = run(server.base_url, journal)
    made = server.counts.requests - before
    # What follows the tool is asked again: its step, the next one, and the judge.
    assert made == requests_of(whole.result) + 3 * WORKERS
    assert requests_of(result) == made


def test_max_cost_counts_requests_that_were_sent_and_not_answered(
    server: LoopbackServer, patience: Patience
) -> None:
    journal = MemoryJournal()
    stopped(server, patience, journal, calls=13)
    lost = Bound(model=calls_world.TASK, input_tokens=1, output_tokens=1, cost=Decimal(3))
    # As a process that is killed leaves it.
    CallLog(journal).places("baseline/9").kept.sent("9", digest_text("lost"), lost)
    before = server.counts.requests
    result = run(server.base_url, journal, max_cost=Decimal(2))
    assert (result.stop_reason, result.total_rollouts) == (StopReason.COST, 0)
    assert server.counts.requests == before
    assert [entry.cost for entry in result.ledger if entry.role is Role.UNANSWERED] == [3]
    # More money is a limit, which may change; what was lost is paid for once.
    result = run(server.base_url, journal, max_cost=Decimal(50))
    assert result.stop_reason is not StopReason.COST
    assert [entry.cost for entry in result.ledger if entry.role is Role.UNANSWERED] == [3]
