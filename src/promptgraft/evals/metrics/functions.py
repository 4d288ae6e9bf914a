"""Metrics that are Python functions of users."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from types import CodeType, FunctionType, MethodType
from typing import ClassVar, TypeGuard

import attrs

from promptgraft.errors import ConfigError, FeedbackError, LimitReachedError, user_errors
from promptgraft.evals.metrics.base import LONGEST_VERDICT_REASON, BaseMetric, deadline_of
from promptgraft.evals.metrics.expressions import compared
from promptgraft.evals.types import Answer, Case, Judge, Verdict
from promptgraft.ground.functions import call_fault, first_argument, function_name, raised_at
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import FINITE, SECONDS, SHARE, plain_score
from promptgraft.ground.text import clip
from promptgraft.runtime.companions import result_of
from promptgraft.runtime.deadline import sooner
from promptgraft.runtime.session import SessionProtocol

_REASONS = ("feedback", "reason", "comment")
"""What DSPy, deepeval and LangSmith call the reason of a score."""
_OF_OTHERS = (
    *("actual", "answer", "answers", "completion", "completions", "expected", "generated"),
    *("hypothesis", "output", "outputs", "pred", "prediction", "predictions", "preds"),
    *("prompt", "prompts", "reference", "references", "response", "target", "y_pred", "y_true"),
)
"""The first arguments of functions that compare texts, and so never see a case."""


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
        except user_errors() as error:  # a module may fail in any way while it is imported
            reason = raised_at(error)
            raise ConfigError(f"function: cannot import {shown(value)}: {reason}") from error
    if not callable(member):
        raise ConfigError(f"function: expected a function, found {shown(member)}{place}")
    if fault := call_fault(member, "case", "answer"):
        raise ConfigError(f"function: {fault}")
    if (first := first_argument(member)) in _OF_OTHERS:
        raise ConfigError(
            f"function: {function_name(member)} would get a case as `{first}`; write a function of "
            "(case, answer) that calls it with `answer.text` and `case.expected`"
        )
    return member


def _texts_in_code(function: object) -> tuple[str, ...]:
    """Return the texts that a function holds, and those of the module's constants that it uses.

    Its docstring is left out. Empty for what is not a plain function.
    """
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return ()
    texts: list[str] = []
    pending: list[CodeType] = [function.__code__]
    while pending:
        code = pending.pop()
        used = (function.__globals__.get(name) for name in code.co_names)
        for value in (*code.co_consts, *used):
            if isinstance(value, CodeType):
                pending.append(value)
            elif isinstance(value, (tuple, list, set, frozenset)):
                texts += [item for item in value if isinstance(item, str)]
            elif isinstance(value, str):
                texts.append(value)
    return tuple(dict.fromkeys(text for text in texts if text != function.__doc__))


@attrs.frozen(kw_only=True)
class Python(BaseMetric):
    """The score that a Python function returns for a case and an answer.

    Attributes:
        function: the function, or its import path ``package.module:function``.
        name: by default the name of the function.
        timeout: seconds for one verdict, after which the answer is unscored; None for no limit. A
            plain function goes on in a thread of its own.
    """

    kind: ClassVar[str] = "python"

    function: Judge = attrs.field(converter=_function, metadata={"plain": True})
    name: str = attrs.field(
        default=attrs.Factory(
            lambda metric: str(getattr(metric.function, "__name__", metric.kind)), takes_self=True
        )
    )
    # A limit, which a resumed run may change.
    timeout: float | None = attrs.field(default=None, validator=SECONDS.or_none, repr=False)

    @property
    def wording(self) -> tuple[str, ...]:
        return _texts_in_code(self.function)

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
        deadline = deadline_of(session)
        ends = deadline if self.timeout is None else sooner(deadline, self.timeout)
        try:
            outcome = result_of(lambda: self.function(case, answer), where, ends)
        except LimitReachedError:
            # The function may have met a limit of its own, such as that of a run that it begins.
            if (
                ends is None
                or ends is deadline
                or not ends.expired
                or (deadline and deadline.expired)
            ):
                raise
            return self.unscored(f"no verdict within {self.timeout:g} s, its `timeout`")
        if isinstance(outcome, Verdict):
            return attrs.evolve(outcome, metric=self.name)
        parts = _given(outcome)
        pair = (plain_score(parts[0]), *parts[1:]) if parts else ()
        if not _is_scored(pair):
            raise FeedbackError(
                f"{where}: expected a score from 0 to 1, a pair of score and reason, a mapping or "
                f"an object with `score` and `feedback`, or a Verdict, found {shown(outcome)}"
                f"{_hint(outcome, pair)}"
            )
        score, why = pair
        # A traceback, a diff or a list of faults would say little in one line.
        lines = "\n".join(line.rstrip() for line in why.strip().splitlines())
        # A bare score says nothing to who is to write a better prompt.
        details: list[str] = []
        if score < 1 and not lines:
            details = [compared(case, answer), _about(self.function)]
        bare = "; ".join([f"`{self.name}` returned {score:g}", *filter(None, details)])
        reason = clip(lines, LONGEST_VERDICT_REASON) or bare
        return attrs.evolve(self.verdict(score, ""), reason=reason)


def _about(function: object) -> str:
    """Return the first paragraph of a function's docstring in one line; empty if it has none."""
    if not isinstance(function, (FunctionType, MethodType)):
        return ""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _given(outcome: object) -> tuple[object, ...]:
    """Return score and reason of what a function returned, unchecked."""
    if isinstance(outcome, tuple):
        return outcome
    if isinstance(outcome, Mapping):
        # Other keys would be lost without a word; `key` is what LangSmith calls the metric.
        is_known = outcome.keys() <= {"score", "key", *_REASONS} and "score" in outcome
        reasons = (outcome.get(name) for name in _REASONS)
        return (outcome["score"], next(filter(None, reasons), "")) if is_known else ()
    reasons = (getattr(outcome, name) for name in _REASONS if hasattr(outcome, name))
    if hasattr(outcome, "score") and (said := [*reasons]):
        return outcome.score, next(filter(None, said), "")
    return outcome, ""


def _hint(outcome: object, pair: tuple[object, ...]) -> str:
    """Return how to mend an outcome without a score, or on another scale; empty if unclear."""
    if isinstance(outcome, Mapping) and "score" in outcome and not pair:
        return "; put what the other keys say into `feedback`"
    if isinstance(outcome, Mapping) and not pair:
        return "; return one of several scores, and name a metric for each of the others"
    score = pair[0] if pair else None
    is_other = FINITE.fits(score) is not None and SHARE.fits(score) is None
    return "; map your scale to 0 to 1, such as `score / 100`" if is_other else ""


def _is_scored(pair: object) -> TypeGuard[tuple[float, str]]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    score, why = pair
    return isinstance(why, str) and SHARE.fits(score) is not None
