"""The base classes of metrics, and the metrics that combine others."""

from __future__ import annotations

import re
import statistics
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import (
    ConfigError,
    FeedbackError,
    Lasting,
    PromptgraftError,
    ProviderError,
    joined_faults,
    lasting_of,
    user_errors,
)
from promptgraft.evals.metrics import reading
from promptgraft.evals.types import Answer, Case, Metric, Verdict
from promptgraft.ground.functions import call_fault, raised_at
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.strict.checks import FLAG, SHARE, STRING, TEXT, number, plain_score, reaches
from promptgraft.ground.text import clip
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol

LONGEST_REASON = 1000
LONGEST_VERDICT_REASON = 40_000
"""The maximum length of the reason of a function, or of all judges and rubrics together."""
MOST_ATTEMPTS = 2
"""The maximum number of calls until a judge gives a usable reply."""
LONGEST_SHOWN = 50_000
"""The maximum length of an answer, or of a refused reply, that a judge is shown, in characters."""


_LINE_ENDS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def reason(text: str) -> str:
    """Return ``text`` as a short paragraph; quoted texts may differ in white space, so it stays."""
    return clip(_LINE_ENDS.sub(" ", text.strip()), LONGEST_REASON, around=" ")


def held(hold: Callable[[str], object]) -> Callable[[object, attrs.Attribute[str], str], None]:
    """Return a validator that calls ``hold``, which raises a ``ConfigError`` for a bad text."""

    def validate(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        STRING.hold(attribute.name, value)
        try:
            hold(value)
        except ConfigError as error:
            raise ConfigError(f"{attribute.name}: {error}") from None

    return validate


def texts_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts of any collection, such as a column or the keys of a mapping, as a tuple."""
    value: Any = tuple(sorted(texts, key=str)) if isinstance(texts, (set, frozenset)) else texts
    if isinstance(value, str) or not isinstance(value, Iterable):
        return cast("tuple[str, ...]", value)  # which the validator refuses
    plain: Any = [str(text) if type(text).__module__ == "numpy" else text for text in value]
    # Lists stay lists: metrics get their identity from their `repr`.
    return plain if isinstance(value, list) else tuple(plain)


def each_of(
    what: str, hold: Callable[[str], object], *, least: int = 0
) -> Callable[[object, attrs.Attribute[tuple[str, ...]], Sequence[str]], None]:
    """Return a validator of lists of texts that reports all texts that ``hold`` refuses."""

    def validate(
        _: object, attribute: attrs.Attribute[tuple[str, ...]], value: Sequence[str]
    ) -> None:
        if not isinstance(value, (list, tuple)) or len(value) < least:
            raise ConfigError(f"{attribute.name}: expected a list of {what}, found {shown(value)}")
        faults: list[str] = []
        for place, item in enumerate(value, start=1):
            try:
                STRING.hold(f"{attribute.name}:{place}", item)
                hold(item)
            except ConfigError as error:
                faults.append(str(error))
        if faults:
            raise ConfigError(joined_faults(faults))

    return validate


@attrs.frozen(kw_only=True)
class BaseMetric(ABC):
    """A metric with the options that all built-in metrics share.

    Attributes:
        name: its name in reports; by default that of its kind.
        threshold: the lowest score that passes, 0 to 1.
        required: whether a case must pass this metric in order to pass.
        hidden: whether the metric is only reported: it counts neither in scores nor in whether a
            case passes, and in a run it judges held-out answers only, so that no search can
            pursue it.
        node: the node of a graph whose last output is judged; empty for the final answer.
    """

    kind: ClassVar[str]
    ends_case: ClassVar[bool] = False

    name: str = attrs.field(
        default=attrs.Factory(lambda metric: metric.kind, takes_self=True), validator=TEXT
    )
    threshold: float = attrs.field(default=1.0, validator=SHARE)
    required: bool = attrs.field(default=True, validator=FLAG)
    # Not in the `repr`, from which metrics get their identity: baselines and journals that were
    # written before there were nodes stay valid.
    node: str = attrs.field(default="", validator=STRING, repr=False)
    hidden: bool = attrs.field(default=False, validator=FLAG, repr=False)

    @property
    def wording(self) -> tuple[str, ...]:
        """Texts of the metric itself, not of a case, whose presence in an answer may score."""
        return ()

    @property
    def guarded(self) -> tuple[str, ...]:
        """Texts that no instruction may copy."""
        return self.wording

    def check(self, case: Case) -> None:  # noqa: B027 - most kinds need nothing of a case
        """Raise a ``ConfigError`` for a case that cannot be judged; runs before the first call."""

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        try:
            return awaited(self.assess(case, answer), deadline=deadline_of(session))
        except reading.UnusableAnswerError as error:
            # The candidate's fault: an answer in another form is a wrong answer.
            return self.verdict(0.0, str(error))

    @abstractmethod
    def assess(self, case: Case, answer: Answer) -> Verdict | Awaitable[Verdict]:
        """Judge one answer; may be ``async``.

        Raises:
            UnusableAnswerError: the answer lacks the form that this metric judges.
        """

    def verdict(self, score: float, why: str, amount: float | None = None) -> Verdict:
        """Return the verdict for a score; the reason becomes one paragraph of limited length."""
        score = plain_score(score)
        passed = reaches(score, self.threshold)
        return Verdict(
            metric=self.name, score=score, passed=passed, reason=reason(why), amount=amount
        )

    def unscored(self, why: str) -> Verdict:
        """Return the verdict for an answer that could not be judged."""
        return Verdict(metric=self.name, score=None, passed=None, reason=reason(why))

    def lacking(self, case: Case, what: str) -> ConfigError:
        """Return the error for a case that lacks what this metric needs."""
        place = f"{case.origin}: " if case.origin else ""
        return ConfigError(f"{place}case `{case.id}`: metric `{self.name}` {what}")


@attrs.frozen(kw_only=True)
class ReferenceMetric(BaseMetric):
    """A metric that compares the answer with the ``expected`` of its case.

    Attributes:
        expected_path: path of the reference in ``expected``; empty for all of it.
        answer_path: path of the compared value in the answer's data; empty for all of it.
        is_whole: whether an answer that says more than the reference is worse.
    """

    is_whole: ClassVar[bool] = True

    expected_path: str = attrs.field(default="", validator=held(reading.parse_path))
    answer_path: str = attrs.field(default="", validator=held(reading.parse_path))

    def check(self, case: Case) -> None:
        self.reference(case)

    def reference(self, case: Case) -> object:
        """Return the value that answers are compared with; a case without one is refused."""
        return self.expected(case)

    def expected(self, case: Case) -> Json:
        """Return the value at ``expected_path``; a missing reference never passes."""
        if case.expected is None:
            raise self.lacking(case, "needs `expected`, found none")
        values = list(reading.places(case.expected, reading.parse_path(self.expected_path)))
        if len(values) != 1 or values[0][1] is None:
            raise self.lacking(
                case,
                f"needs one value at `{self.expected_path}` of `expected`, "
                f"found {shown(case.expected)}",
            )
        return values[0][1]

    def expected_texts(self, case: Case) -> tuple[str, ...]:
        """Return the value at ``expected_path`` as at least one text, none of them empty."""
        value = self.expected(case)
        items = value if isinstance(value, list) else [value]
        if not items or any(isinstance(item, (list, dict)) or item in (None, "") for item in items):
            raise self.lacking(
                case,
                f"needs a text or a list of texts as `expected`, none of them empty, "
                f"found {shown(value)}{_mend_of(value)}",
            )
        return tuple(reading.as_text(item) for item in items)

    def found_text(self, answer: Answer) -> str:
        return reading.as_text(self.found(answer)) if self.answer_path else answer.text

    def found(self, answer: Answer) -> Json:
        return reading.only(reading.answer_data(answer), reading.parse_path(self.answer_path))


def _mend_of(value: Json) -> str:
    """Return what to do with a reference that is no text."""
    items = value if isinstance(value, list) else [value]
    is_data = any(isinstance(item, (list, dict)) for item in items)
    return "; the metric `json_match` compares objects and lists" if is_data else ""


@runtime_checkable
class ChecksCases(Protocol):
    """A metric that refuses cases that it cannot judge before anything is called."""

    def check(self, case: Case) -> None: ...


@attrs.frozen
class Needed:
    """What a metric expects at a place in the answer.

    Attributes:
        place: the place.
        values: the values of which one is right.
    """

    place: reading.Path
    values: Sequence[Json] = attrs.field(hash=False)

    def misfit(self, output_type: object) -> str:
        """Return why no answer of a type has such a value; empty if one may have."""
        return ""


@runtime_checkable
class NeedsValues(Protocol):
    """A metric that expects one of certain values at places in the answer."""

    def needed(self, case: Case) -> Iterable[Needed]: ...


# Attributes that metrics of users may have and need not have.


def is_required(metric: Metric) -> bool:
    """Return whether a case must pass the metric in order to pass."""
    return bool(getattr(metric, "required", True)) and not is_hidden(metric)


def is_hidden(metric: Metric) -> bool:
    """Return whether the metric is only reported."""
    return bool(getattr(metric, "hidden", False))


def wording_of(metric: Metric) -> tuple[str, ...]:
    """Return the texts whose presence in an answer may raise the metric's score."""
    return tuple(getattr(metric, "wording", ()))


def guarded_in(metric: Metric) -> tuple[str, ...]:
    """Return the texts of the metric that no instruction may copy."""
    return tuple(getattr(metric, "guarded", ()))


def ends_case(metric: Metric) -> bool:
    """Return whether failing the metric ends the case with a score of 0."""
    return bool(getattr(metric, "ends_case", False)) and not is_hidden(metric)


@runtime_checkable
class AskingMetric(Protocol):
    """A metric that asks models, or combines such metrics with others."""

    @property
    def judges(self) -> tuple[ProviderAdapter, ...]:
        """The models."""
        ...

    def questions(
        self, case: Case, answer: Answer
    ) -> Iterator[tuple[ProviderAdapter, Prompt[Any]]]:
        """Yield each question about an answer as it is asked at first, with the model."""
        ...

    def answered_by(self, judge: ProviderAdapter) -> Metric:
        """Return the metric with ``judge`` in place of each model."""
        ...


def judges_of(metrics: Iterable[Metric]) -> Iterator[ProviderAdapter]:
    """Yield the models that metrics ask."""
    for metric in metrics:
        if isinstance(metric, AskingMetric):
            yield from metric.judges


def questions_of(
    metrics: Iterable[Metric], case: Case, answer: Answer
) -> Iterator[tuple[ProviderAdapter, Prompt[Any]]]:
    """Yield the questions that metrics ask models about an answer, with the model."""
    for metric in metrics:
        if isinstance(metric, AskingMetric):
            yield from metric.questions(case, answer)


def answered_by(metrics: Iterable[Metric], judge: ProviderAdapter) -> tuple[Metric, ...]:
    """Return metrics with ``judge`` in place of the models that they ask."""
    return tuple(
        metric.answered_by(judge) if isinstance(metric, AskingMetric) else metric
        for metric in metrics
    )


def asks_models(metric: Metric) -> bool:
    """Return whether the metric calls models, so that verdicts on the same answer may differ."""
    return bool(getattr(metric, "asks_models", False))


def judges_tools(metric: Metric) -> bool:
    """Return whether the metric judges tool calls."""
    return bool(getattr(metric, "judges_tools", False))


def node_of(metric: Metric) -> str:
    """Return the node of a graph whose output the metric judges; empty for the final answer."""
    return str(getattr(metric, "node", ""))


def verdict_of(
    metric: Metric, case: Case, answer: Answer, *, session: SessionProtocol | None = None
) -> Verdict:
    """Return the verdict of one metric, whose ``judge`` may be ``async``.

    It is unscored if something that the metric calls is down.

    Raises:
        FeedbackError: the metric raised another exception or returned no verdict; the message
            names the metric and the case.
    """
    node = node_of(metric)
    judged = answer.of_node(node) if node else answer
    if judged is None:
        why = f"node `{node}` gave no output"
        return Verdict(metric=metric.name, score=0.0, passed=False, reason=why, node=node)
    try:
        verdict = verdict_on(metric, case, judged, session=session)
    except (FeedbackError, ProviderError) as error:
        cause = error.__cause__ or error
        if lasting_of(cause) is not Lasting.TRANSIENT:
            raise
        why = reason(raised_at(cause))  # without the case: one reason for all
        verdict = Verdict(metric=metric.name, score=None, passed=None, reason=why)
    return attrs.evolve(verdict, node=node) if node else verdict


def verdict_on(
    metric: Metric, case: Case, judged: Answer, *, session: SessionProtocol | None = None
) -> Verdict:
    """Return the verdict of a metric on exactly this answer, whatever node it judges.

    Raises:
        FeedbackError: see :func:`verdict_of`.
    """
    try:
        outcome = metric.judge(case, judged, session=session)
        verdict: object = awaited(outcome, deadline=deadline_of(session))
    except PromptgraftError:
        raise
    except user_errors() as error:
        where = f"{case.origin}: " if case.origin else ""
        raise FeedbackError(
            f"{where}metric `{metric.name}`, case `{case.id}`: {raised_at(error)}"
            f"{_attributes_hint(error, case, judged)}"
        ) from error
    if not isinstance(verdict, Verdict):
        raise FeedbackError(
            f"metric `{metric.name}`, case `{case.id}`: expected a Verdict, found {shown(verdict)}"
        )
    return verdict


def _attributes_hint(error: BaseException, case: Case, judged: Answer) -> str:
    """Return how to mend a function that raised, such as what a case or an answer has."""
    there = error.obj if isinstance(error, AttributeError) else None
    items = str(error) if isinstance(error, TypeError) else ""  # of `case["expected"]`
    if there is case or items.startswith("'Case' object is not subscriptable"):
        return "; a case has `input`, `expected`, `id` and `fields`"
    if there is judged or items.startswith("'Answer' object is not subscriptable"):
        return "; an answer has `text`, `output`, `tools` and `usage`"
    return "; if the answer is at fault, catch the error and return 0 with a reason"


def deadline_of(session: SessionProtocol | None) -> Deadline | None:
    """Return the deadline of an evaluation; None without one."""
    return None if session is None else session.deadline


def hold_metrics(metrics: Sequence[Metric]) -> None:
    """Raise a ``ConfigError`` unless there are metrics, and each of them can judge."""
    metrics_given: object = metrics
    if not isinstance(metrics_given, Sequence) or isinstance(metrics_given, str):
        raise ConfigError(f"metrics: expected a list of metrics, found {shown(metrics_given)}")
    if not metrics:
        raise ConfigError("metrics: expected at least one metric, found none")
    for metric in metrics:
        if isinstance(metric, type) or not callable(getattr(metric, "judge", None)):
            of_function = "metrics.python(function=f) makes one of a function"
            mend = f"call it: `{metric.__name__}()`" if isinstance(metric, type) else of_function
            raise ConfigError(
                f"metrics: expected metrics such as metrics.exact(), found {shown(metric)}; {mend}"
            )
        if fault := call_fault(metric.judge, "case", "answer", named=("session",)):
            raise ConfigError(f"metric `{metric.name}`: {fault}")


@attrs.frozen(kw_only=True)
class AllOf(BaseMetric):
    """The lowest score of several metrics, with the reasons of those that fail.

    Unscored if any of them is.

    Attributes:
        metrics: the metrics, each with its own threshold.
    """

    kind: ClassVar[str] = "all_of"

    metrics: tuple[Metric, ...]

    def __attrs_post_init__(self) -> None:
        hold_metrics(self.metrics)
        for metric in self.metrics:
            if is_hidden(metric):
                raise ConfigError(
                    f"metrics: `{metric.name}` is hidden, and its score would count in "
                    f"`{self.name}`; make it a metric of its own"
                )

    @property
    def asks_models(self) -> bool:
        return any(asks_models(metric) for metric in self.metrics)

    @property
    def judges(self) -> tuple[ProviderAdapter, ...]:
        return tuple(judges_of(self.metrics))

    def questions(
        self, case: Case, answer: Answer
    ) -> Iterator[tuple[ProviderAdapter, Prompt[Any]]]:
        return questions_of(self.metrics, case, answer)

    def answered_by(self, judge: ProviderAdapter) -> Self:
        return attrs.evolve(self, metrics=answered_by(self.metrics, judge))

    @property
    def wording(self) -> tuple[str, ...]:
        return tuple(text for metric in self.metrics for text in wording_of(metric))

    @property
    def guarded(self) -> tuple[str, ...]:
        return tuple(text for metric in self.metrics for text in guarded_in(metric))

    @property
    def judges_tools(self) -> bool:
        return any(judges_tools(metric) for metric in self.metrics)

    def asked_of(self, case: Case) -> tuple[Metric, ...]:
        """Return the metrics that judge a case."""
        return self.metrics

    def check(self, case: Case) -> None:
        for metric in self.asked_of(case):
            if isinstance(metric, ChecksCases):
                metric.check(case)

    def needed(self, case: Case) -> Iterator[Needed]:
        for metric in self.asked_of(case):
            if isinstance(metric, NeedsValues):
                yield from metric.needed(case)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        metrics_asked = self.asked_of(case)
        verdicts = [verdict_of(metric, case, answer, session=session) for metric in metrics_asked]
        if unscored := [verdict.reason for verdict in verdicts if verdict.score is None]:
            # The unknown score might be the lowest.
            return self.unscored("; ".join(unscored))
        return self.together(verdicts)

    def together(self, verdicts: Sequence[Verdict]) -> Verdict:
        """Combine scored verdicts into one."""
        failed = [verdict for verdict in verdicts if not verdict.passed]
        reasons = "; ".join(verdict.reason for verdict in failed or verdicts)
        return self.verdict(min(verdict.score or 0.0 for verdict in verdicts), reasons)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)


@attrs.frozen(kw_only=True)
class ByCase(AllOf):
    """The weighted mean over the metrics that a case names.

    A metric that passes counts 1, one that fails counts its score. A case names its metrics in a
    field; a case that names none is judged by all. Unscored if any of them is.

    Attributes:
        metrics: the metrics that cases may name, each with its own threshold.
        weights: the weight of a metric by name, above 0; 1 by default.
        inverted: names of metrics that must not pass.
        field: the field of a case that holds the names.
    """

    kind: ClassVar[str] = "by_case"

    weights: Mapping[str, float] = attrs.field(
        factory=dict, validator=attrs.validators.deep_mapping(value_validator=number(above=0))
    )
    inverted: tuple[str, ...] = ()
    field: str = "asserts"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        names = [metric.name for metric in self.metrics]
        for name in (*self.weights, *self.inverted):
            if name not in names:
                near = did_you_mean(name, names)
                raise ConfigError(f"metrics: no metric has the name {shown(name)}{near}")

    def needed(self, case: Case) -> Iterator[Needed]:
        for metric in self.asked_of(case):
            if isinstance(metric, NeedsValues) and metric.name not in self.inverted:
                yield from metric.needed(case)

    def together(self, verdicts: Sequence[Verdict]) -> Verdict:
        shares, reasons = [], []
        for verdict in verdicts:
            inverted = verdict.metric in self.inverted
            if verdict.passed is not inverted:
                shares.append(1.0)
                continue
            shares.append(0.0 if inverted else verdict.score or 0.0)
            what = "must not hold, but does: " if inverted else ""
            reasons.append(f"`{verdict.metric}`: {what}{verdict.reason}")
        weights = [self.weights.get(verdict.metric, 1.0) for verdict in verdicts]
        share = statistics.fmean(shares, weights)
        return self.verdict(share, "; ".join(reasons) or f"all {len(shares)} hold")

    def asked_of(self, case: Case) -> tuple[Metric, ...]:
        names = case.fields.get(self.field)
        if names is None:
            return self.metrics
        by_name = {metric.name: metric for metric in self.metrics}
        if not isinstance(names, list) or not names:
            what = f"expects a list of metrics in `{self.field}`, found {shown(names)}"
            raise self.lacking(case, what)
        for name in names:
            if name not in by_name:
                near = did_you_mean(str(name), list(by_name))
                raise self.lacking(case, f"has no metric {shown(name)}{near}")
        return tuple(by_name[str(name)] for name in names)
