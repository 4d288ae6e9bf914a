"""Metrics that users write as Jinja2 expressions: ``assert`` and ``check``.

An expression sees ``this`` (the output of the answer, or its text, parsed if it is a JSON object
or list), ``input``, ``expected`` and ``usage``. Expressions are written by users, never by models;
text of a model is only ever a value.
"""

from __future__ import annotations

import functools
import re
from collections import UserDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, TypeGuard

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import BaseMetric, each_of, held
from promptgraft.evals.metrics.reading import LONGEST_QUOTE, UnusableAnswerError, answer_data, brief
from promptgraft.evals.metrics.values import usage_of
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import Json, canonical_json, did_you_mean, shown
from promptgraft.ground.strict.checks import SHARE, plain_score

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

    from promptgraft.prompt import sandbox

    where = f"the expression {shown(value)}"
    if not value.strip():
        raise ConfigError("expected an expression, found an empty one")
    if len(value) > LONGEST_EXPRESSION:
        raise ConfigError(
            f"{where} is too long: expected at most {LONGEST_EXPRESSION:,} characters, "
            f"found {len(value):,}"
        )
    environment = sandbox.sandbox(keys_first=True)
    try:
        _compile(value)
        tree = environment.parse(f"{{{{ {_bare(value)} }}}}")
    except TemplateSyntaxError as error:
        raise ConfigError(f"{where} does not parse: {error.message}") from None
    except sandbox.UNCOMPILED as error:
        raise ConfigError(f"{where} does not parse: {sandbox.why_uncompiled(error)}") from None
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
            return self.verdict(0.0, f"{why}; {_found(expression, case, answer)}")
        return value


_EXPECTED = re.compile(r"(?<![.\w'\"])expected\b")
_QUOTED = re.compile(r"'([^']{3,})'|\"([^\"]{3,})\"")


def _quoted_in(expression: str) -> Iterator[str]:
    return (single or double for single, double in _QUOTED.findall(expression))


def compared(case: Case, answer: Answer) -> str:
    """Return what was expected and what was found; empty if the case expects nothing."""
    if case.expected is None:
        return ""
    expected, this = (brief(value, LONGEST_QUOTE) for value in (case.expected, this_of(answer)))
    return f"expected {expected}, found {this}"


def _found(expression: str, case: Case, answer: Answer) -> str:
    """Return what an answer is, after the expected one where the expression compares with it."""
    difference = compared(case, answer) if _EXPECTED.search(expression) else ""
    return difference or f"the answer is {brief(this_of(answer), LONGEST_QUOTE)}"


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
                return self.verdict(0.0, f"{reason}; {_found(expression, case, answer)}")
        return self.verdict(1.0, f"all {len(self.expressions)} assertions hold")


@attrs.frozen(kw_only=True)
class Check(_ExpressionMetric):
    """The value of an expression: 1 for true, 0 for false, or a number from 0 to 1.

    Another value scores 0. Cases are refused whose expected answer has one, as on another scale.

    Attributes:
        expression: the expression; may be enclosed in ``{{ }}``.
    """

    kind: ClassVar[str] = "check"

    expression: str = attrs.field(validator=held(_hold))

    @property
    def wording(self) -> tuple[str, ...]:
        return tuple(_quoted_in(self.expression))

    def check(self, case: Case) -> None:
        if case.expected is None or case.turns:
            return
        is_text = isinstance(case.expected, str)
        text = case.expected if is_text else canonical_json(case.expected)
        answer = Answer(text=str(text), output=None if is_text else case.expected)
        value = self._value(self.expression, case, answer)
        if not isinstance(value, Verdict) and not _is_score(value):
            raise self.lacking(
                case,
                f"expected true, false or a number from 0 to 1 of `{_bare(self.expression)}`, "
                f"found {shown(value)} for the expected answer; map your scale to 0 to 1",
            )

    def assess(self, case: Case, answer: Answer) -> Verdict:
        source = _bare(self.expression)
        value = self._value(self.expression, case, answer)
        if isinstance(value, Verdict):
            return value
        if not _is_score(value):
            why = f"`{source}` is {shown(value)}, and no number from 0 to 1"
            return self.verdict(0.0, f"{why}; {_found(source, case, answer)}")
        value_text = str(value).lower() if isinstance(value, bool) else f"{value:g}"
        difference = "" if value == 1 else f"; {_found(source, case, answer)}"
        return self.verdict(float(value), f"`{source}` is {value_text}{difference}")


def _is_score(value: object) -> TypeGuard[bool | int | float]:
    return isinstance(value, (bool, int, float)) and SHARE.fits(plain_score(value)) is not None
