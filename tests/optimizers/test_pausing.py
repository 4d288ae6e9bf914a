"""A paused run ends after its step, pays for nothing more, and is resumed as if it never was."""

from __future__ import annotations

import functools
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import attrs
import pytest

from further import thorough
from optimizers.worlds import (
    OVERLOADED,
    Run,
    about,
    answer,
    answers,
    config,
    examples,
    failing,
    twin,
    twins,
)
from promptgraft.algorithms.gepa import GepaConfig, GepaResult, Paired
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Cancellation
from promptgraft.search import StopReason

MOMENTS = int(os.environ.get("PROMPTGRAFT_KILLS", "2"))  # with each number of workers

flaky = failing(OVERLOADED, about("w5"))


def settings(pair: tuple[int, int]) -> GepaConfig:
    """Return a search that confirms its winner and evaluates it on held-out examples.

    Args:
        pair: proposals of a step, and steps at once.
    """
    proposals, steps = pair
    return config(
        preset="lean",
        rollout_budget=400,
        minibatch_growth=1,  # many small steps to pause in
        proposals_per_step=proposals,
        steps_at_once=steps,
        enable_merge=True,
        training_examples=twins(6),
        held_out=tuple(twin(example, f"{example.id}-held-out") for example in examples(6)),
        acceptance=Paired(level=0.3),
        max_unscored_share=1.0,
    )


class Pausing:
    """Pauses its run with one of its calls, counted from 1."""

    def __init__(self, call: int = 0) -> None:
        self.pause = Cancellation()
        self.calls = 0
        self._call = call
        self._lock = threading.Lock()

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        with self._lock:
            self.calls += 1
            if self.calls == self._call:
                self.pause.set("lunch")
        return flaky(rendered)


def run(pair: tuple[int, int], task: Any, workers: int, journal: MemoryJournal) -> GepaResult:
    with ThreadPoolExecutor(workers) if workers else nullcontext() as executor:
        pause = task.pause if isinstance(task, Pausing) else None
        return Run(
            settings(pair), task=task, executor=executor, journal=journal, pause=pause
        ).start()


@functools.cache
def whole(pair: tuple[int, int]) -> tuple[GepaResult, dict[str, Any], int]:
    """Return result, answers and calls of the run that is never paused."""
    journal, task = MemoryJournal(), Pausing()
    result = run(pair, task, 0, journal)
    assert result.held_out is not None
    assert result.accepted_mutations > 1
    return result, answers(journal), task.calls


def paid_at_the_end(journal: MemoryJournal) -> list[str]:
    """Return the answers about held-out examples."""
    return [key for key in answers(journal) if key.startswith("held")]


@pytest.mark.parametrize(
    ("pair", "workers"), [((1, 1), 0), ((2, 3), 4), *thorough([((1, 1), 4), ((4, 1), 4)])], ids=str
)
def test_a_paused_run_is_resumed_as_the_run_that_was_never_paused(
    pair: tuple[int, int], workers: int
) -> None:
    result, recorded, calls = whole(pair)
    moments = random.Random(f"{pair} {workers}").sample(range(1, calls + 1), MOMENTS)
    paused_runs = 0
    for moment in moments:
        journal, task = MemoryJournal(), Pausing(moment)
        paused = run(pair, task, workers, journal)
        if paused.stop_reason is StopReason.PAUSED:
            paused_runs += 1
            assert paused.stop_detail == "the run was asked to pause"
            assert paid_at_the_end(journal) == []
            assert paused.held_out is not None
            assert paused.held_out.why_not == "the run was stopped before that"
            assert task.calls < calls
        # Whatever was answered is recorded, and nothing else than what the whole run asks for.
        assert set(answers(journal)) <= set(recorded)
        resumed = run(pair, flaky, 4 - workers, journal)
        # But for the ledger: calls that the provider failed are made again.
        assert attrs.evolve(resumed, ledger=result.ledger) == result, moment
        assert answers(journal) == recorded, moment
    assert paused_runs > MOMENTS // 2


def test_a_run_that_was_asked_to_pause_before_it_began_makes_its_baseline_only() -> None:
    pause = Cancellation()
    pause.set("not now")
    made = Run(settings((1, 1)), task=answer, pause=pause)
    result = made.start()
    assert (result.stop_reason, len(result.candidates)) == (StopReason.PAUSED, 1)
    assert (made.task.calls, made.reflection.calls) == (result.total_rollouts, 0)


def test_a_run_that_is_paused_again_and_again_comes_to_the_same_end() -> None:
    result, recorded, _ = whole((2, 3))
    journal = MemoryJournal()
    stops: list[StopReason] = []
    while not stops or stops[-1] is StopReason.PAUSED:
        stops.append(run((2, 3), Pausing(12), 4, journal).stop_reason)
        assert len(stops) < 100
    assert len(stops) > 2
    assert answers(journal) == recorded
    assert stops[-1] is result.stop_reason
