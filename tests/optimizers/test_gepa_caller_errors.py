"""The user's own functions fail: at once, and with the name of the example."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from optimizers.worlds import (
    Run,
    asked,
    config,
    judge,
    optimize,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    FeedbackFn,
    GepaExample,
    RolloutFeedback,
)
from promptgraft.errors import (
    FeedbackError,
)
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import SessionProtocol


def feedback_of(value: object) -> FeedbackFn:
    def give(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> Any:
        return (
            value() if callable(value) and example.id == "e2" else judge(example, response, session)
        )

    return give


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: int("x"), "feedback function on example `e2` raised ValueError: invalid literal"),
        (
            lambda: RolloutFeedback(score=math.nan, feedback=""),
            "feedback function on example `e2`: score: expected a finite number, found nan",
        ),
        (
            lambda: RolloutFeedback(score=-math.inf, feedback=""),
            "feedback function on example `e2`: score: expected a finite number, found -inf",
        ),
        (
            lambda: RolloutFeedback(score=10**400, feedback=""),
            "feedback function on example `e2`: score: expected a finite number, found an integer",
        ),
        (
            lambda: RolloutFeedback(score="1", feedback=""),  # type: ignore[arg-type]
            "feedback function on example `e2`: score: expected a finite number, found '1'",
        ),
        (
            lambda: RolloutFeedback(score=1, feedback=None),  # type: ignore[arg-type]
            "feedback function on example `e2`: feedback: expected text, found None",
        ),
        (
            lambda: RolloutFeedback(score=1, feedback="", eval_trace=3),  # type: ignore[arg-type]
            "feedback function on example `e2`: eval_trace: expected text, found 3",
        ),
        (
            lambda: (1.0, "good"),
            "feedback function on example `e2`: expected a RolloutFeedback, found (1.0, 'good')",
        ),
        (lambda: 0.5, "feedback function on example `e2`: expected a RolloutFeedback, found 0.5"),
    ],
)
def test_a_feedback_function_that_fails_stops_at_once_and_names_the_example(
    give: Callable[[], object], message: str
) -> None:
    run = Run(config(feedback_fn=feedback_of(give)))
    with pytest.raises(FeedbackError, match=re.escape(message)):
        run.start()
    assert run.task.calls == 3


def test_a_feedback_function_that_fails_among_threads_names_the_first_example() -> None:
    def fail(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        raise ValueError(f"no label for {example.id}")

    with (
        ThreadPoolExecutor(6) as executor,
        pytest.raises(FeedbackError, match="on example `e0` raised ValueError: no label for e0"),
    ):
        optimize(config(feedback_fn=fail), executor=executor)


def test_what_was_paid_before_a_feedback_function_failed_is_not_paid_again() -> None:
    journal = MemoryJournal()
    broken = config(feedback_fn=feedback_of(lambda: 1 / 0))
    with pytest.raises(FeedbackError, match="raised ZeroDivisionError"):
        optimize(broken, journal=journal)
    mended = Run(config(feedback_fn=feedback_of(None)), journal=journal, reuse_scores=True)
    assert mended.start().found_better
    assert [asked(r) for r in mended.task.requests[:2]] == ["w2", "w3"]


def test_a_whole_number_is_a_score() -> None:
    assert RolloutFeedback(score=1, feedback="").score == 1.0
    assert isinstance(RolloutFeedback(score=1, feedback="").score, float)


@pytest.mark.parametrize(
    ("formatters", "message"),
    [
        (
            {"example_formatter": lambda example, response: 1 / 0},
            "example_formatter on example `e0` raised ZeroDivisionError: division by zero",
        ),
        (
            {"example_formatter": lambda example, response: None},
            "example_formatter on example `e0`: expected input and answer as two texts, found None",
        ),
        (
            {"example_formatter": lambda example, response: ("in", 5)},
            "expected input and answer as two texts, found ('in', 5)",
        ),
        (
            {"trace_formatter": lambda session: None},
            "trace_formatter on example `e0`: expected a text, found None",
        ),
    ],
)
def test_a_formatter_that_fails_stops_at_once_and_names_the_example(
    formatters: dict[str, Any], message: str
) -> None:
    run = Run(config(**formatters))
    with pytest.raises(FeedbackError, match=re.escape(message)):
        run.start()
    assert run.task.calls == 1
