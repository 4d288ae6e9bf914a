"""The reflections of a proposal do not know of each other, and are asked at the same time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from further import thorough
from optimizers.several_world import NAMES, Rendered, search
from optimizers.worlds import OVERLOADED, Run, answers, bound, current_text, instruction
from promptgraft.algorithms.gepa import GepaMutationProposed, GepaResult
from promptgraft.errors import PermanentProviderError
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Cancellation, Session
from promptgraft.search import RejectionReason, StopReason

LONG_ENOUGH = 60  # seconds until a test that hangs is given up

FIRST, SECOND = "step/1/reflect/0", "step/1/reflect/2"


def note(rendered: Rendered) -> str:
    """Add a line with the first word that is missing."""
    missing = re.findall(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)}\n{missing[0]}")


def shared(
    reply: Callable[[Rendered], str] = note,
    *,
    names: tuple[str, ...] = NAMES[:2],
    context: dict[str, Any] | None = None,
    **changes: Any,
) -> Run:
    """Return a run whose steps reflect on each section."""
    return search(names, reply, context=context, minibatch_size=6, module_choice="all", **changes)


@contextmanager
def workers(count: int) -> Iterator[dict[str, Any]]:
    """Give the context of a run so many workers; at the end nobody works any more."""
    before = set(threading.enumerate())
    if not count:
        yield {}
    else:
        with ThreadPoolExecutor(count) as executor:
            yield {"executor": executor}
    assert set(threading.enumerate()) <= before


class Meeting:
    """Replies as usual, but has some of the first calls wait until all of them are made."""

    def __init__(self, calls: range, reply: Callable[[Rendered], str] = note) -> None:
        self._calls, self._reply = calls, reply
        self._barrier = threading.Barrier(len(calls), timeout=LONG_ENOUGH)
        self._lock = threading.Lock()
        self._made = 0

    def __call__(self, rendered: Rendered) -> str:
        with self._lock:
            number = self._made
            self._made += 1
        if number in self._calls:
            self._barrier.wait()
        return self._reply(rendered)


def two_questions() -> list[str]:
    """Return what the first step asks, in order."""
    seen: list[str] = []

    def reply(rendered: Rendered) -> str:
        seen.append(rendered.text)
        return note(rendered)

    shared(reply).start()
    return seen[:2]


def test_those_of_several_parts_are_asked_at_the_same_time() -> None:
    whole = shared(names=NAMES[:4]).start()
    with workers(1) as context:
        run = shared(Meeting(range(4)), names=NAMES[:4], context=context)
        assert run.start() == whole


def test_repairs_are_asked_at_the_same_time_after_all_first_attempts() -> None:
    def reply(rendered: Rendered) -> str:
        return note(rendered) if "hm, hm" in rendered.text else "hm, hm"

    whole = shared(reply).start()
    with workers(1) as context:
        meeting = Meeting(range(2), Meeting(range(2, 4), reply))
        assert shared(meeting, context=context).start() == whole
    assert whole.found_better


def test_without_workers_they_are_asked_in_turn() -> None:
    working = threading.Lock()

    def reply(rendered: Rendered) -> str:
        assert working.acquire(blocking=False)
        try:
            return note(rendered)
        finally:
            working.release()

    assert shared(reply).start().found_better


@pytest.mark.parametrize("count", [2, *thorough([0])])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_fault_of_one_leaves_the_reply_of_the_other(count: int, failing: int) -> None:
    questions, session = two_questions(), Session()

    def reply(rendered: Rendered) -> str:
        if rendered.text == questions[failing]:
            raise OVERLOADED
        return note(rendered)

    with workers(count) as context:
        result = shared(reply, context={"session": session, **context}).start()
    first, *_ = session.select_all(GepaMutationProposed)
    assert first.step == 1
    assert len(first.after.split("\n")) == 2
    [fault] = [one for one in result.rejections if one.step == 1]
    assert fault.reason is RejectionReason.REFLECTION_FAILED
    assert not fault.final


def test_of_two_errors_that_of_the_first_question_is_told() -> None:
    questions, failed = two_questions(), threading.Event()

    def reply(rendered: Rendered) -> str:
        place = questions.index(rendered.text)
        if place:
            failed.set()
        assert failed.wait(LONG_ENOUGH)
        raise PermanentProviderError(f"no. {place + 1} is refused")

    with workers(1) as context:
        result = shared(reply, context=context).start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.stop_detail == "no. 1 is refused"


@pytest.mark.parametrize(("failing", "kept"), [(0, SECOND), (1, FIRST)])
def test_what_was_answered_beside_an_error_is_not_asked_again(failing: int, kept: str) -> None:
    questions, journal = two_questions(), MemoryJournal()

    def reply(rendered: Rendered) -> str:
        if rendered.text == questions[failing]:
            raise PermanentProviderError("refused")
        return note(rendered)

    with workers(2) as context:
        run = shared(Meeting(range(2), reply), context={"journal": journal, **context})
        ended = run.start()
    assert ended.stop_reason is StopReason.PROVIDER_FAILED
    assert [key for key in answers(journal) if key in {FIRST, SECOND}] == [kept]
    again = shared(context={"journal": journal})
    whole = shared().start()
    assert unpaid(again.start()) == unpaid(whole)
    assert again.reflection.calls == whole.total_reflections - 1


def unpaid(result: GepaResult) -> GepaResult:
    return attrs.evolve(result, ledger=())


@pytest.mark.parametrize("count", [0, 2])
def test_one_too_many_does_not_keep_those_before_it_from_being_asked(count: int) -> None:
    journal = MemoryJournal()
    with workers(count) as context:
        run = shared(max_reflections=1, context={"journal": journal, **context})
        result = run.start()
    assert result.stop_reason is StopReason.REFLECTIONS
    assert run.reflection.calls == result.total_reflections == 1
    assert [key for key in answers(journal) if "/reflect/" in key] == [FIRST]
    more = shared(context={"journal": journal})
    whole = shared().start()
    assert more.start() == whole
    assert more.reflection.calls == whole.total_reflections - 1


@pytest.mark.parametrize(
    ("k", "g", "limit"), [(3, 1, 3), (2, 2, 6), *thorough([(3, 1, 11), (1, 3, 6)])]
)
def test_they_are_used_up_exactly_by_several_proposals(k: int, g: int, limit: int) -> None:
    changes: dict[str, Any] = {"max_reflections": limit}
    changes |= {"proposals_per_step": k, "steps_at_once": g}
    whole = shared(**changes).start()
    with workers(4) as context:
        run = shared(context=context, **changes)
        result = run.start()
    assert result == whole
    assert run.reflection.calls == result.total_reflections == limit


def test_a_run_that_is_cancelled_meanwhile_ends_and_keeps_what_was_answered() -> None:
    cancellation, journal = Cancellation(), MemoryJournal()

    def reply(rendered: Rendered) -> str:
        cancellation.set("enough")
        return note(rendered)

    with workers(2) as context:
        context |= {"journal": journal, "cancellation": cancellation}
        result = shared(Meeting(range(2), reply), context=context).start()
    assert result.stop_reason is StopReason.CANCELLED
    assert not [one for one in threading.enumerate() if "promptgraft-reflection" in one.name]
    whole = shared().start()
    again = shared(context={"journal": journal})
    assert again.start() == whole
    assert again.reflection.calls == whole.total_reflections - 2
