"""What all metrics share: a name, a threshold, verdicts, and cases that are checked first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import attrs

from promptgraft.errors import ConfigError, FeedbackError
from promptgraft.evals.faults import CaseFaults, in_one_line
from promptgraft.evals.metrics.reasons import reason
from promptgraft.evals.types import Answer, Case, Metric, Verdict
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import shown
from promptgraft.strict.checks import SHARE, TEXT


class UnusableAnswerError(ValueError):
    """An answer has not the form that a metric judges: it scores 0, for the reason given here."""


def hold_each(items: Iterable[str], hold: Callable[[str], object]) -> None:
    """Hold every item; what is wrong with each is said in one ``ConfigError``."""
    faults: list[str] = []
    for item in items:
        try:
            hold(item)
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("; ".join(faults))


@attrs.frozen(kw_only=True)
class BaseMetric(ABC):
    """A metric with the options that all of ours have.

    Attributes:
        name: how it is called in reports; the name of its kind unless it is given.
        threshold: the least score that passes, 0 to 1.
        required: whether a case has to pass it to pass.
    """

    kind: ClassVar[str]
    ends_case: ClassVar[bool] = False

    name: str = attrs.field(validator=TEXT)
    threshold: float = attrs.field(default=1.0, validator=SHARE)
    required: bool = True

    @name.default
    def _kind_as_name(self) -> str:
        return self.kind

    def check(self, case: Case) -> None:  # noqa: B027 - most kinds need nothing of a case
        """Refuse a case that cannot be judged with a ``ConfigError``, before the first call."""

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        try:
            return awaited(self.assess(case, answer), deadline=deadline_of(session))
        except UnusableAnswerError as error:
            return self.verdict(0.0, str(error))

    @abstractmethod
    def assess(self, case: Case, answer: Answer) -> Verdict | Awaitable[Verdict]:
        """Judge one answer; may be ``async``.

        Raises:
            UnusableAnswerError: the answer has not the form that this metric judges.
        """

    def verdict(self, score: float, why: str, amount: float | None = None) -> Verdict:
        """Return a score with its reason, as one paragraph within limits."""
        passed = score >= self.threshold
        return Verdict(
            metric=self.name, score=score, passed=passed, reason=reason(why), amount=amount
        )

    def unscored(self, why: str) -> Verdict:
        """Return that this answer could not be judged."""
        return Verdict(metric=self.name, score=None, passed=None, reason=reason(why))

    def lacking(self, case: Case, what: str) -> ConfigError:
        """Return that a case lacks something, naming it."""
        place = f"{case.origin}: " if case.origin else ""
        return ConfigError(f"{place}case `{case.id}`: metric `{self.name}` {what}")


@runtime_checkable
class ChecksCases(Protocol):
    """A metric that can tell beforehand whether a case can be judged."""

    def check(self, case: Case) -> None:
        """Refuse a case that cannot be judged."""
        ...


def is_required(metric: Metric) -> bool:
    """Return whether a case has to pass the metric; so it is unless the metric says otherwise."""
    return bool(getattr(metric, "required", True))


def ends_case(metric: Metric) -> bool:
    """Return whether a case that fails the metric ends there, with a score of 0."""
    return bool(getattr(metric, "ends_case", False))


def asks_models(metric: Metric) -> bool:
    """Return whether the metric asks models, which may judge one answer differently each time."""
    return bool(getattr(metric, "asks_models", False))


def check_metrics(metrics: Sequence[Metric]) -> None:
    """Refuse metrics that cannot stand in one evaluation: none, or two of one name."""
    if not metrics:
        raise ConfigError("metrics: expected at least one metric, found none")
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"metrics: two metrics have the name `{name}`; give one of them another `name`"
            )


def check_cases(metrics: Sequence[Metric], cases: Iterable[Case]) -> None:
    """Refuse cases that the metrics cannot judge, all in one line, before the first call."""
    faults = in_one_line()
    note_unjudgeable(metrics, cases, faults)
    faults.refuse()


def note_unjudgeable(metrics: Sequence[Metric], cases: Iterable[Case], faults: CaseFaults) -> None:
    """Note the cases that the metrics cannot judge."""
    checking = [metric for metric in metrics if isinstance(metric, ChecksCases)]
    for case in cases:
        for metric in checking:
            try:
                metric.check(case)
            except ConfigError as error:
                faults.add_of(case, str(error))


def judge_case(
    metrics: Sequence[Metric], case: Case, answer: Answer, *, session: SessionProtocol | None = None
) -> tuple[Verdict, ...]:
    """Judge one answer with every metric, in their order.

    Metrics that end a case are asked first. When one fails, no other is asked (and paid for):
    each of them scores 0 with the same reason.

    Raises:
        ConfigError: a metric cannot judge this case.
    """
    verdicts: dict[str, Verdict] = {}
    ended = ""
    for metric in sorted(metrics, key=lambda metric: not ends_case(metric)):
        if ended:
            verdict = Verdict(metric=metric.name, score=0.0, passed=False, reason=ended)
        else:
            verdict = verdict_of(metric, case, answer, session=session)
            if ends_case(metric) and verdict.passed is False:
                ended = reason(f"not judged: `{metric.name}` ended the case; {verdict.reason}")
        verdicts[metric.name] = verdict
    return tuple(verdicts[metric.name] for metric in metrics)


def verdict_of(
    metric: Metric, case: Case, answer: Answer, *, session: SessionProtocol | None = None
) -> Verdict:
    """Return what one metric says, whether its ``judge`` is plain or ``async``.

    Raises:
        FeedbackError: it returned something else than a verdict; names metric and case.
    """
    said = metric.judge(case, answer, session=session)
    verdict: object = awaited(said, deadline=deadline_of(session))
    if not isinstance(verdict, Verdict):
        raise FeedbackError(
            f"metric `{metric.name}`, case `{case.id}`: expected a Verdict, found {shown(verdict)}"
        )
    return verdict


def deadline_of(session: SessionProtocol | None) -> Deadline | None:
    """Return when an evaluation ends; None for never, and without an evaluation."""
    return None if session is None else session.deadline


@attrs.frozen(kw_only=True)
class AllOf(BaseMetric):
    """The least score of several metrics, with the reasons of those that fail.

    Unscored when one of them is.

    Attributes:
        metrics: what is asked, each with its own threshold.
    """

    kind: ClassVar[str] = "all_of"

    metrics: tuple[Metric, ...]

    def __attrs_post_init__(self) -> None:
        if not self.metrics:
            raise ConfigError("metrics: expected at least one metric, found none")

    @property
    def asks_models(self) -> bool:
        """Whether one of the metrics asks models."""
        return any(asks_models(metric) for metric in self.metrics)

    def check(self, case: Case) -> None:
        for metric in self.metrics:
            if isinstance(metric, ChecksCases):
                metric.check(case)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        verdicts = [verdict_of(one, case, answer, session=session) for one in self.metrics]
        unscored = [verdict.reason for verdict in verdicts if verdict.score is None]
        if unscored:
            return self.unscored("; ".join(unscored))
        failed = [verdict for verdict in verdicts if not verdict.passed]
        said = "; ".join(verdict.reason for verdict in failed or verdicts)
        return self.verdict(min(verdict.score or 0.0 for verdict in verdicts), said)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)
