"""Steps of a graph that an adapter of a user's own answers are kept one by one."""

from __future__ import annotations

from typing import Any

from flows.tickets import GRAPH, context, settings, work
from promptgraft import (
    Cancellation,
    Deadline,
    GepaOptimizer,
    GepaResult,
    MemoryJournal,
    Prompt,
    PromptResponse,
)
from promptgraft.adapters.base import answered
from promptgraft.journal import Journal
from promptgraft.runtime import SessionProtocol
from promptgraft.search import StopReason


class Own:
    """Answers like the workers of the graph, and notes what it is asked."""

    identity = "own/1"

    def __init__(self, *, stop_after: int = 10**6) -> None:
        self.asked: list[str] = []
        self.stop = Cancellation()
        self._stop_after = stop_after

    def evaluate(
        self, prompt: Prompt[Any], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[Any]:
        """Answer at once, until the run is to stop."""
        if len(self.asked) >= self._stop_after:
            self.stop.set("enough")
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        self.asked.append(rendered.text)
        return answered(rendered, work(rendered), session=session)


def optimized(adapter: Own, journal: Journal) -> GepaResult:
    """Run or resume."""
    surroundings = context(adapter, journal=journal, cancellation=adapter.stop)
    return GepaOptimizer(surroundings, settings()).optimize(GRAPH)


def test_steps_that_a_stopped_run_has_taken_are_not_taken_again() -> None:
    calm, journal = Own(), MemoryJournal()
    whole = optimized(calm, MemoryJournal())
    # The seventh call is in the middle of the second ticket.
    hasty, patient = Own(stop_after=6), Own()
    stopped = optimized(hasty, journal)
    assert (stopped.stop_reason, stopped.total_rollouts) == (StopReason.CANCELLED, 1)
    result = optimized(patient, journal)
    assert sorted(hasty.asked + patient.asked) == sorted(calm.asked)
    assert result == whole


def test_an_adapter_whose_answers_cost_nothing_is_asked_again() -> None:
    class Free(Own):
        kept_whole = False

    calm, journal = Free(), MemoryJournal()
    optimized(calm, MemoryJournal())
    hasty, patient = Free(stop_after=6), Free()
    optimized(hasty, journal)
    optimized(patient, journal)
    # Two steps of the second ticket.
    assert len(hasty.asked) + len(patient.asked) == len(calm.asked) + 2
    assert not journal.with_calls
