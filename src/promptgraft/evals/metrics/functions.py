"""The metric that is a user's Python function."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias, TypeGuard

import attrs

from promptgraft.errors import ConfigError, FeedbackError, PromptgraftError
from promptgraft.evals.metrics.base import BaseMetric, deadline_of
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import shown

Outcome: TypeAlias = bool | float | tuple[bool | float, str] | Verdict
"""A score from 0 to 1 (or true, or false), perhaps with a reason; or a whole verdict."""
Judge: TypeAlias = Callable[[Case, Answer], Outcome | Awaitable[Outcome]]


def _function(value: Judge | str) -> Judge:
    if not isinstance(value, str):
        if not callable(value):
            raise ConfigError(f"function: expected a function, found {shown(value)}")
        return value
    module, _, name = value.partition(":")
    if not module or not name:
        raise ConfigError(f"function: expected `package.module:function`, found {shown(value)}")
    try:
        found: object = importlib.import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"function: cannot import {shown(value)}: {error}") from None
    if not callable(found):
        raise ConfigError(f"function: expected a function, found {shown(found)} at {shown(value)}")
    return _named(found)


def _named(found: Callable[..., Outcome]) -> Judge:
    return found


def _called(metric: Python) -> str:
    return str(getattr(metric.function, "__name__", metric.kind))


@attrs.frozen(kw_only=True)
class Python(BaseMetric):
    """What a Python function of a case and an answer returns.

    Attributes:
        function: the function, or where to import it from: ``package.module:function``.
        name: the name of the function unless it is given.
    """

    kind: ClassVar[str] = "python"

    function: Judge = attrs.field(converter=_function, metadata={"plain": True})
    name: str = attrs.field(default=attrs.Factory(_called, takes_self=True))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        try:
            outcome = awaited(self.function(case, answer), deadline=deadline_of(session))
        except PromptgraftError:
            raise
        except Exception as error:
            raise FeedbackError(
                f"metric `{self.name}`, case `{case.id}`: {type(error).__name__}: {error}"
            ) from error
        if isinstance(outcome, Verdict):
            return attrs.evolve(outcome, metric=self.name)
        pair: object = outcome if isinstance(outcome, tuple) else (outcome, "")
        if not _is_scored(pair):
            raise FeedbackError(
                f"metric `{self.name}`, case `{case.id}`: expected a score from 0 to 1, a pair of "
                f"score and reason, or a Verdict, found {shown(outcome)}"
            )
        score, why = float(pair[0]), pair[1]
        return self.verdict(score, why or f"`{self.name}` returned {score:g}")


def _is_scored(pair: object) -> TypeGuard[tuple[float, str]]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    score, why = pair
    return isinstance(why, str) and isinstance(score, (bool, int, float)) and 0 <= score <= 1
