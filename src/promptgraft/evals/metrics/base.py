"""What all metrics share: name and threshold, reasons, and the checks before the first call."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import attrs

from promptgraft.errors import ConfigError, FeedbackError, PromptgraftError, joined_faults
from promptgraft.evals.turns import judged_turns, over_turns
from promptgraft.evals.types import Answer, Case, Metric, TaughtCase, Verdict
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import Json, canonical_json, shown
from promptgraft.strict.checks import SHARE, STRING, TEXT
from promptgraft.text import clip, raised_at

Step: TypeAlias = "str | int | None"
"""A key, an index, or None for every item."""
Path: TypeAlias = "tuple[Step, ...]"

# Characters that arrive whole; of a longer text the middle is left out.
LONGEST_QUOTE = 200
LONGEST_VALUE = 100
LONGEST_REASON = 1000
LONGEST_FEEDBACK = 50_000

_BEFORE, _AFTER = 40, 80
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")


def quoted(text: str, limit: int = LONGEST_QUOTE) -> str:
    """Return ``text`` between quotation marks, in one line, its middle left out if it is long."""
    return _one_line(clip(text, limit, around=" "))


def brief(value: Json, limit: int = LONGEST_VALUE) -> str:
    """Return a value as JSON in one line, its middle left out if it is long."""
    if isinstance(value, str):
        return quoted(value, limit)
    return clip(_BREAKS.sub(_escaped, canonical_json(value)), limit, around=" ")


def reason(text: str) -> str:
    """Return ``text`` as one paragraph of at most ``LONGEST_REASON`` characters."""
    return clip(" ".join(text.split()), LONGEST_REASON, around=" ")


def difference(expected: str, found: str) -> str:
    """Return what was expected, what was found and where they differ first."""
    pairs = enumerate(zip(expected, found, strict=False))
    shorter = min(len(expected), len(found))
    at = next((index for index, (one, other) in pairs if one != other), shorter)
    if max(len(expected), len(found)) <= LONGEST_QUOTE:
        place = f"; the first difference is at character {at + 1}" if at else ""
        return (
            f"expected {quoted(expected)}, found {quoted(found)}{place}{_manner(expected, found)}"
        )
    return (
        f"the first difference is at character {at + 1}: expected {_around(expected, at)}, "
        f"found {_around(found, at)}{_manner(expected, found)}"
    )


def _manner(expected: str, found: str) -> str:
    if expected.casefold() == found.casefold():
        return "; they differ in upper and lower case only"
    if expected.split() == found.split():
        return "; they differ in white space only"
    return ""


def _around(text: str, at: int) -> str:
    start, end = max(0, at - _BEFORE), at + _AFTER
    if at >= len(text):
        return f"{_one_line(text[start:])} and then its end"
    head = "…" if start else ""
    tail = "…" if end < len(text) else ""
    return f"{head}{_one_line(text[start:end])}{tail}"


def _one_line(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode("utf-8")
    spelled = json.dumps(plain, ensure_ascii=False)
    return _BREAKS.sub(_escaped, spelled)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def feedback_text(case: Case, verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts with their reasons, the user's hints for this case, and its teacher.

    Failed metrics come first, then those that could not judge, then those that passed.
    """
    rank = {False: 0, None: 1, True: 2}
    parts = [_said(one, case.hints) for one in sorted(verdicts, key=lambda v: rank[v.passed])]
    if general := case.hints.get(""):
        parts.append(f"hint: {general}")
    if isinstance(case, TaughtCase):
        parts.append(case.remark)
    return clip("\n".join(parts), LONGEST_FEEDBACK)


def _said(verdict: Verdict, hints: Mapping[str, str]) -> str:
    if verdict.score is None:
        head = f"[unscored] {verdict.metric}"
    else:
        head = f"[{'passed' if verdict.passed else 'failed'}] {verdict.metric} {verdict.score:.4g}"
    hint = hints.get(verdict.metric)
    lines = [f"{head}: {verdict.reason}", *([f"hint: {hint}"] if hint else [])]
    return "\n  ".join(line for text in lines for line in text.splitlines())


class UnusableAnswerError(ValueError):
    """An answer does not have the form that a metric judges; it scores 0, with this reason."""


def held(hold: Callable[[str], object]) -> Callable[[object, attrs.Attribute[str], str], None]:
    """Return a validator of texts that ``hold`` may refuse with a ``ConfigError``."""

    def validate(_: object, attribute: attrs.Attribute[str], value: str) -> None:
        try:
            hold(value)
        except ConfigError as error:
            raise ConfigError(f"{attribute.name}: {error}") from None

    return validate


def each_held(
    what: str, hold: Callable[[str], object], *, least: int = 0
) -> Callable[[object, attrs.Attribute[tuple[str, ...]], Sequence[str]], None]:
    """Return a validator of lists of texts, which says all that ``hold`` refuses at once."""

    def validate(
        _: object, attribute: attrs.Attribute[tuple[str, ...]], value: Sequence[str]
    ) -> None:
        if isinstance(value, str) or len(value) < least:
            raise ConfigError(f"{attribute.name}: expected a list of {what}, found {shown(value)}")
        faults: list[str] = []
        for item in value:
            try:
                hold(item)
            except ConfigError as error:
                faults.append(str(error))
        if faults:
            raise ConfigError(joined_faults(faults))

    return validate


@attrs.frozen(kw_only=True)
class BaseMetric(ABC):
    """A metric with the options that all of ours have.

    Attributes:
        name: how it is called in reports; the name of its kind unless it is given.
        threshold: the least score that passes, 0 to 1.
        required: whether a case has to pass it to pass.
        node: the node of a graph whose last output is judged; empty for the answer.
    """

    kind: ClassVar[str]
    ends_case: ClassVar[bool] = False

    name: str = attrs.field(
        default=attrs.Factory(lambda metric: metric.kind, takes_self=True), validator=TEXT
    )
    threshold: float = attrs.field(default=1.0, validator=SHARE)
    required: bool = True
    # Not in the `repr`, so that metrics without one are identified as they always were.
    node: str = attrs.field(default="", validator=STRING, repr=False)

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
        """Return the verdict on an answer that could not be judged."""
        return Verdict(metric=self.name, score=None, passed=None, reason=reason(why))

    def lacking(self, case: Case, what: str) -> ConfigError:
        """Return the error that a case lacks something, naming it."""
        place = f"{case.origin}: " if case.origin else ""
        return ConfigError(f"{place}case `{case.id}`: metric `{self.name}` {what}")


@runtime_checkable
class ChecksCases(Protocol):
    """A metric that refuses cases beforehand that it cannot judge."""

    def check(self, case: Case) -> None: ...


@runtime_checkable
class NeedsTexts(Protocol):
    """A metric that knows places in the answer, each with texts of which it has to be one."""

    def needed_texts(self, case: Case) -> Iterable[tuple[Path, Sequence[str]]]: ...


# What metrics of users may say of themselves, and need not.


def is_required(metric: Metric) -> bool:
    """Tell whether a case has to pass the metric."""
    return bool(getattr(metric, "required", True))


def ends_case(metric: Metric) -> bool:
    """Tell whether a case that fails the metric ends there, with a score of 0."""
    return bool(getattr(metric, "ends_case", False))


def asks_models(metric: Metric) -> bool:
    """Tell whether the metric asks models, which may judge one answer differently each time."""
    return bool(getattr(metric, "asks_models", False))


def judges_tools(metric: Metric) -> bool:
    """Tell whether the metric judges which tools were called."""
    return bool(getattr(metric, "judges_tools", False))


def node_of(metric: Metric) -> str:
    """Return the node of a graph whose output the metric judges; empty for the answer."""
    return str(getattr(metric, "node", ""))


def judge_case(
    metrics: Sequence[Metric], case: Case, answer: Answer, *, session: SessionProtocol | None = None
) -> tuple[Verdict, ...]:
    """Judge one answer with every metric, in their order.

    Metrics that end a case are asked first. When one fails, no other is asked (and paid for): each
    of them scores 0 with the same reason. A metric that cannot judge the case raises
    ``ConfigError``. A conversation is judged turn by turn, by each metric on the turns that have
    what it needs.
    """
    verdicts: dict[str, Verdict] = {}
    ended = ""
    for metric in sorted(metrics, key=lambda metric: not ends_case(metric)):
        if ended:
            verdict = Verdict(metric=metric.name, score=0.0, passed=False, reason=ended)
        else:
            verdict = _over_all(metric, case, answer, session=session)
            if ends_case(metric) and verdict.passed is False:
                ended = reason(f"not judged: `{metric.name}` ended the case; {verdict.reason}")
        verdicts[metric.name] = verdict
    return tuple(verdicts[metric.name] for metric in metrics)


def _over_all(
    metric: Metric, case: Case, answer: Answer, *, session: SessionProtocol | None
) -> Verdict:
    turns = [turn for turn in judged_turns(case, answer) if can_judge(metric, turn[1])]
    if not turns:
        return verdict_of(metric, case, answer, session=session)
    verdicts = [
        (number, verdict_of(metric, turn, said, session=session)) for number, turn, said in turns
    ]
    return over_turns(verdicts, threshold=metric.threshold)


def can_judge(metric: Metric, case: Case) -> bool:
    """Tell whether a case has what a metric needs."""
    try:
        if isinstance(metric, ChecksCases):
            metric.check(case)
    except ConfigError:
        return False
    return True


def verdict_of(
    metric: Metric, case: Case, answer: Answer, *, session: SessionProtocol | None = None
) -> Verdict:
    """Return the verdict of one metric, whose ``judge`` is plain or ``async``.

    A ``FeedbackError`` for anything else names metric and case.
    """
    node = node_of(metric)
    judged = answer.of_node(node) if node else answer
    if judged is None:
        why = f"node `{node}` gave no output"
        return Verdict(metric=metric.name, score=0.0, passed=False, reason=why, node=node)
    try:
        said = metric.judge(case, judged, session=session)
        verdict: object = awaited(said, deadline=deadline_of(session))
    except PromptgraftError:
        raise
    except Exception as error:  # whatever a metric of the user's raises
        where = f"{case.origin}: " if case.origin else ""
        raise FeedbackError(
            f"{where}metric `{metric.name}`, case `{case.id}`: {raised_at(error)}"
        ) from error
    if not isinstance(verdict, Verdict):
        raise FeedbackError(
            f"metric `{metric.name}`, case `{case.id}`: expected a Verdict, found {shown(verdict)}"
        )
    return attrs.evolve(verdict, node=node) if node else verdict


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
        return any(asks_models(metric) for metric in self.metrics)

    @property
    def judges_tools(self) -> bool:
        return any(judges_tools(metric) for metric in self.metrics)

    def asked_of(self, case: Case) -> tuple[Metric, ...]:
        """Return the metrics that judge a case."""
        del case
        return self.metrics

    def check(self, case: Case) -> None:
        for metric in self.asked_of(case):
            if isinstance(metric, ChecksCases):
                metric.check(case)

    def needed_texts(self, case: Case) -> Iterator[tuple[Path, Sequence[str]]]:
        for metric in self.asked_of(case):
            if isinstance(metric, NeedsTexts):
                yield from metric.needed_texts(case)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        asked = self.asked_of(case)
        verdicts = [verdict_of(one, case, answer, session=session) for one in asked]
        if unscored := [verdict.reason for verdict in verdicts if verdict.score is None]:
            return self.unscored("; ".join(unscored))
        return self.together(verdicts)

    def together(self, verdicts: Sequence[Verdict]) -> Verdict:
        """Return the one verdict that several with scores come to."""
        failed = [verdict for verdict in verdicts if not verdict.passed]
        said = "; ".join(verdict.reason for verdict in failed or verdicts)
        return self.verdict(min(verdict.score or 0.0 for verdict in verdicts), said)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)
