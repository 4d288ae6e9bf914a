"""Metrics that users write: Jinja2 expressions (``assert``, ``check``) and Python functions.

An expression sees ``this`` (the output of the answer, or its text, parsed if it is a JSON object
or list), ``input``, ``expected`` and ``usage``. Expressions are written by users, never by models;
text of a model is only ever a value.
"""

from __future__ import annotations

import functools
import pkgutil
import re
from collections import UserDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Protocol,
    TypeAlias,
    TypeGuard,
    runtime_checkable,
)

import attrs

from promptgraft.errors import ConfigError, FeedbackError
from promptgraft.evals.metrics.base import BaseMetric, deadline_of, each_of, held
from promptgraft.evals.metrics.reading import LONGEST_QUOTE, UnusableAnswerError, answer_data, brief
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.functions import call_fault, texts_in_code
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.strict.checks import SHARE, plain_score
from promptgraft.ground.under_way import doing
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol

if TYPE_CHECKING:
    from jinja2.environment import TemplateExpression


LONGEST_EXPRESSION = 10_000
"""The maximum length of an expression, in characters."""

NAMES = ("this", "input", "expected", "usage")
"""The variables of an expression."""

# Raised by an expression whose answer does not have the shape that it expects.
_UNFIT = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


class _UnknownAmountError(Exception):
    """The expression uses an amount that is unknown."""


class _Amounts(UserDict[str, float | int | None]):
    """Tokens, cost and seconds by name; an unknown amount raises an error."""

    def __getitem__(self, key: str) -> float | int | None:
        # None in a comparison would raise a TypeError, which counts against the answer.
        if (value := self.data[key]) is None:
            raise _UnknownAmountError(f"`usage.{key}` of this answer is not known")
        return value


def usage_of(answer: Answer) -> dict[str, float | int | None]:
    """Return the amounts of an answer by name; None for unknown ones."""
    usage = answer.usage
    is_known = usage.input_tokens + usage.output_tokens > 0
    return {
        "input_tokens": usage.input_tokens if is_known else None,
        "output_tokens": usage.output_tokens if is_known else None,
        "cached_tokens": usage.cached_tokens if is_known else None,
        "reasoning_tokens": usage.reasoning_tokens if is_known else None,
        "tokens": usage.input_tokens + usage.output_tokens if is_known else None,
        "cost": None if answer.cost is None else float(answer.cost),
        "seconds": answer.seconds,
    }


@functools.lru_cache(maxsize=256)
def _compile(expression: str) -> TemplateExpression:
    from promptgraft.prompt.sandbox import sandbox

    return sandbox(keys_first=True).compile_expression(_bare(expression), undefined_to_none=False)


def _bare(expression: str) -> str:
    text = expression.strip()
    inside = text.startswith("{{") and text.endswith("}}")
    return text[2:-2].strip() if inside else text


def _hold(value: str) -> None:
    """Raise a ``ConfigError`` unless an expression compiles and uses known names only."""
    from jinja2 import TemplateSyntaxError, meta

    from promptgraft.prompt.sandbox import UNCOMPILED, sandbox, why_uncompiled

    where = f"the expression {shown(value)}"
    if not isinstance(value, str):
        raise ConfigError(f"expected an expression, found {shown(value)}")
    if not value.strip():
        raise ConfigError("expected an expression, found an empty one")
    if len(value) > LONGEST_EXPRESSION:
        raise ConfigError(
            f"{where} is too long: expected at most {LONGEST_EXPRESSION:,} characters, "
            f"found {len(value):,}"
        )
    environment = sandbox(keys_first=True)
    try:
        _compile(value)
        tree = environment.parse(f"{{{{ {_bare(value)} }}}}")
    except TemplateSyntaxError as error:
        raise ConfigError(f"{where} does not parse: {error.message}") from None
    except UNCOMPILED as error:
        raise ConfigError(f"{where} does not parse: {why_uncompiled(error)}") from None
    # Jinja would take a misspelled name for an undefined value, and the score would be 0 for ever.
    for name in sorted(meta.find_undeclared_variables(tree) - {*NAMES, *environment.globals}):
        raise ConfigError(
            f"{where} uses `{name}`, which does not exist{did_you_mean(name, list(NAMES))}; "
            f"there are {', '.join(f'`{name}`' for name in NAMES)}"
        )


def this_of(answer: Answer) -> Json:
    """Return the answer as expressions see it."""
    if answer.output is not None or not answer.text.lstrip().startswith(("{", "[")):
        return answer.text if answer.output is None else answer.output
    try:
        return answer_data(answer)
    except UnusableAnswerError:
        return answer.text


@attrs.frozen(kw_only=True)
class _ExpressionMetric(BaseMetric):
    def _value(self, expression: str, case: Case, answer: Answer) -> object:
        """Return the value of an expression, or a verdict if it cannot be evaluated."""
        from jinja2 import UndefinedError
        from jinja2.exceptions import SecurityError

        from promptgraft.prompt.sandbox import bounded

        names = {"this": this_of(answer), "input": case.input, "expected": case.expected}
        try:
            with bounded():
                value: object = _compile(expression)(**names, usage=_Amounts(usage_of(answer)))
                bool(value)  # an undefined value raises here, where that is handled
        # Whatever the answer, the expression reaches for internals: its author's fault.
        except SecurityError as error:
            raise ConfigError(f"metric `{self.name}`: `{_bare(expression)}`: {error}") from None
        except _UnknownAmountError as error:
            return self.unscored(f"`{_bare(expression)}`: {error}")
        except (UndefinedError, *_UNFIT) as error:
            why = f"`{_bare(expression)}` cannot be evaluated: {error}"
            return self.verdict(0.0, f"{why}; the answer is {_this(answer)}")
        return value


_QUOTED = re.compile(r"'([^']{3,})'|\"([^\"]{3,})\"")


def _quoted_in(expression: str) -> Iterator[str]:
    return (single or double for single, double in _QUOTED.findall(expression))


def _this(answer: Answer) -> str:
    return brief(this_of(answer), LONGEST_QUOTE)


@attrs.frozen(kw_only=True)
class Assertion(_ExpressionMetric):
    """1 if all expressions are true; the first that is false ends the case with a score of 0.

    Attributes:
        expressions: evaluated in this order; may be enclosed in ``{{ }}``.
    """

    kind: ClassVar[str] = "assert"
    ends_case: ClassVar[bool] = True

    expressions: tuple[str, ...] = attrs.field(validator=each_of("expressions", _hold, least=1))

    @property
    def wording(self) -> tuple[str, ...]:
        return tuple(text for each in self.expressions for text in _quoted_in(each))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        for expression in self.expressions:
            value = self._value(expression, case, answer)
            if isinstance(value, Verdict):
                return value
            if not value:
                reason = f"expected `{_bare(expression)}`, which is false"
                return self.verdict(0.0, f"{reason}; the answer is {_this(answer)}")
        return self.verdict(1.0, f"all {len(self.expressions)} assertions hold")


@attrs.frozen(kw_only=True)
class Check(_ExpressionMetric):
    """The value of an expression: 1 for true, 0 for false, or a number from 0 to 1.

    Attributes:
        expression: the expression; may be enclosed in ``{{ }}``.
    """

    kind: ClassVar[str] = "check"

    expression: str = attrs.field(validator=held(_hold))

    @property
    def wording(self) -> tuple[str, ...]:
        return tuple(_quoted_in(self.expression))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        source = _bare(self.expression)
        value = self._value(self.expression, case, answer)
        if isinstance(value, Verdict):
            return value
        if not isinstance(value, (bool, int, float)) or not 0 <= plain_score(value) <= 1:
            raise self.lacking(
                case,
                f"expected true, false or a number from 0 to 1 of `{source}`, found {shown(value)}",
            )
        value_text = str(value).lower() if isinstance(value, bool) else f"{value:g}"
        shown_answer = "" if value == 1 else f"; the answer is {_this(answer)}"
        return self.verdict(float(value), f"`{source}` is {value_text}{shown_answer}")


@runtime_checkable
class ScoredObject(Protocol):
    """An object with a score and a reason, such as a prediction of DSPy."""

    score: bool | float
    feedback: str


Outcome: TypeAlias = (
    bool | float | tuple[bool | float, str] | Mapping[str, object] | ScoredObject | Verdict
)
"""A score from 0 to 1 or a boolean, alone, with a reason in a pair, or as ``score`` and
``feedback`` of a mapping or an object; or a whole verdict."""
Judge: TypeAlias = Callable[[Case, Answer], Outcome | Awaitable[Outcome]]


def _function(value: Judge | str) -> Judge:
    member: object = value
    place = ""
    if isinstance(value, str):
        module, _, name = value.partition(":")
        if not module or not name:
            raise ConfigError(f"function: expected `package.module:function`, found {shown(value)}")
        try:
            member, place = pkgutil.resolve_name(value), f" at {shown(value)}"
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"function: cannot import {shown(value)}: {error}") from None
    if not callable(member):
        raise ConfigError(f"function: expected a function, found {shown(member)}{place}")
    if fault := call_fault(member, "case", "answer"):
        raise ConfigError(f"function: {fault}")
    return member


def _name_of_function(metric: Python) -> str:
    return str(getattr(metric.function, "__name__", metric.kind))


@attrs.frozen(kw_only=True)
class Python(BaseMetric):
    """The score that a Python function returns for a case and an answer.

    Attributes:
        function: the function, or its import path ``package.module:function``.
        name: by default the name of the function.
    """

    kind: ClassVar[str] = "python"

    function: Judge = attrs.field(converter=_function, metadata={"plain": True})
    name: str = attrs.field(default=attrs.Factory(_name_of_function, takes_self=True))

    @property
    def wording(self) -> tuple[str, ...]:
        return texts_in_code(self.function)

    @property
    def guarded(self) -> tuple[str, ...]:
        # Most texts in a function are reasons, which reflectors may take at their word.
        return ()

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        where = f"metric `{self.name}`, case `{case.id}`"
        with doing(where):
            outcome = awaited(self.function(case, answer), deadline=deadline_of(session))
        if isinstance(outcome, Verdict):
            return attrs.evolve(outcome, metric=self.name)
        outcome_given = _given(outcome)
        pair = (
            (plain_score(outcome_given[0]), *outcome_given[1:]) if outcome_given else outcome_given
        )
        if not _is_scored(pair):
            raise FeedbackError(
                f"{where}: expected a score from 0 to 1, a pair of score and reason, a mapping or "
                f"an object with `score` and `feedback`, or a Verdict, found {shown(outcome)}"
            )
        score, why = pair
        return self.verdict(score, why or f"`{self.name}` returned {score:g}")


def _given(outcome: object) -> tuple[object, ...]:
    """Return score and reason of what a function returned, unchecked."""
    if isinstance(outcome, tuple):
        return outcome
    if isinstance(outcome, Mapping):
        # Other keys would be lost without a word.
        is_known = outcome.keys() <= {"score", "feedback"} and "score" in outcome
        return (outcome["score"], outcome.get("feedback") or "") if is_known else ()
    if isinstance(outcome, ScoredObject):
        return outcome.score, outcome.feedback or ""
    return outcome, ""


def _is_scored(pair: object) -> TypeGuard[tuple[float, str]]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    score, why = pair
    return isinstance(why, str) and SHARE.fits(score) is not None
