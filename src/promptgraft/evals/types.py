"""What is judged, and what a judgement is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.errors import ConfigError
from promptgraft.evals.spending import Spending, spent_to_json
from promptgraft.frozenmap import FrozenMap
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import HexDigest, Json, shown
from promptgraft.strict.checks import SHARE, plain_number
from promptgraft.strict.nodes import Node
from promptgraft.text import clip, joined

T = TypeVar("T")

_NO_JSON: FrozenMap[str, Json] = FrozenMap()
_NO_TEXTS: FrozenMap[str, str] = FrozenMap()
_NO_PARTS: Mapping[str, HexDigest] = FrozenMap()


# Most cases say nothing here, and there may be hundreds of thousands: they share what is empty.
def _json_map(items: Mapping[str, Json]) -> FrozenMap[str, Json]:
    return FrozenMap(_mapping(items)) if items else _NO_JSON


def _text_map(items: Mapping[str, str]) -> FrozenMap[str, str]:
    return FrozenMap(_mapping(items)) if items else _NO_TEXTS


def _mapping(items: Mapping[str, T]) -> Mapping[str, T]:
    if not isinstance(items, Mapping):
        raise ConfigError(f"expected an object, found {shown(items)}")
    return items


def _tools(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value and not (isinstance(value, tuple) and all(isinstance(one, ToolUse) for one in value)):
        raise ConfigError(f"{field.name}: expected a tuple of ToolUse, found {shown(value)}")


class Speaker(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@attrs.frozen
class Message:
    """A message before the question."""

    speaker: Speaker
    text: str


@attrs.frozen(kw_only=True)
class ToolUse:
    """A tool was called, or should be.

    Attributes:
        arguments: what it is called with, by name.
        result: what it returned, or should; None when that is not known.
    """

    name: str
    arguments: Mapping[str, Json] = attrs.field(default=_NO_JSON, converter=_json_map)
    result: Json = None


@attrs.frozen(kw_only=True)
class Step:
    """One step of a rollout: a node of a graph was asked, or did something.

    Attributes:
        id: its place in the flow, such as ``3``, or ``4.1.2`` for the second step of the first
            branch of the fourth; equal flows give equal ids with any number of threads.
        node: the node.
        kind: ``prompt``, or ``function`` for a node without a text.
        after: ids of the steps that it follows; empty for the first.
        input: what it was given, as text, clipped.
        output: what came of it, as text, clipped; empty when it failed.
        error: why it failed, in one line; empty when it did not.
        parts: the parts that it was made with, by name: the SHA-256 of their texts.
        tools: the tools that it called, each in one line.
        spent: what its calls of models took.
    """

    id: str
    node: str
    kind: str
    after: tuple[str, ...] = ()
    input: str = attrs.field(default="", converter=joined)
    output: str = attrs.field(default="", converter=joined)
    error: str = attrs.field(default="", converter=joined)
    parts: Mapping[str, HexDigest] = _NO_PARTS
    tools: tuple[str, ...] = ()
    spent: tuple[Spending, ...] = ()

    def clipped(self, limit: int) -> Step:
        """Return the step with texts of at most ``limit`` characters, marked where they are cut."""
        if max(len(self.input), len(self.output), len(self.error)) <= limit:
            return self
        return attrs.evolve(
            self,
            input=clip(self.input, limit),
            output=clip(self.output, limit),
            error=clip(self.error, limit, around=" "),
        )


def step_to_json(step: Step) -> Json:
    """Return what the journal keeps of a step: the fields that say something, by name."""
    told: dict[str, Json] = {"id": step.id, "node": step.node, "kind": step.kind}
    texts = {"input": step.input, "output": step.output, "error": step.error}
    told |= {name: text for name, text in texts.items() if text}
    if step.after:
        told["after"] = list(step.after)
    if step.parts:
        told["parts"] = dict(step.parts)
    if step.tools:
        told["tools"] = list(step.tools)
    if step.spent:
        told["spent"] = spent_to_json(step.spent)
    return told


@attrs.frozen(kw_only=True)
class Answer:
    """What an agent did with one input.

    Attributes:
        text: its final answer.
        output: the same as data, when it was asked for data; None otherwise.
        tools: the tools that it called, in order.
        usage: tokens.
        cost: US dollars; None when that is not known.
        seconds: wall time; None when that is not known.
        steps: what each node of a graph did; empty for others.
        turns: what each turn of a conversation was answered; empty for a single question.
    """

    text: str
    output: Json = None
    tools: tuple[ToolUse, ...] = attrs.field(default=(), validator=_tools)
    usage: Usage = NO_USAGE
    cost: Decimal | None = None
    seconds: float | None = None
    steps: tuple[Step, ...] = ()
    turns: tuple[TurnAnswered, ...] = ()

    def of_node(self, node: str) -> Answer | None:
        """Return the last output of a node of the graph as the answer; None when it gave none."""
        outputs = [step.output for step in self.steps if step.node == node and not step.error]
        return attrs.evolve(self, text=outputs[-1], output=None) if outputs else None


@attrs.frozen(kw_only=True)
class TurnAnswered:
    """A turn of a conversation is over: what the user said, and what was answered."""

    query: str
    answer: Answer


@attrs.frozen(kw_only=True)
class Turn:
    """One question of a conversation, with what should come of it.

    Attributes:
        user: what the user says.
        expected: the reference answer; None when there is none.
        tools: the tools that should be called; None when that is open.
    """

    user: str
    expected: str | None = None
    tools: tuple[ToolUse, ...] | None = attrs.field(default=None, validator=_tools)


SCENARIO = "conversation_scenario"
"""The field of a case that says how a simulated user talks."""


@attrs.frozen(kw_only=True)
class Scenario:
    """What a simulated user says first, and what it is after."""

    starting_prompt: str
    conversation_plan: str


@attrs.frozen(kw_only=True)
class Case:
    """One real input with its ground truth.

    Attributes:
        id: unique in its data set.
        input: what the agent is asked: a text, or an object with the parameters of a prompt.
        expected: the ground truth, in whatever form the metrics want it; None when there is none.
        tools: the tools that should be called; None when that is open.
        turns: the conversation, for cases with several turns; ``input``, ``expected`` and
            ``tools`` are those of the last one. Empty for a single question.
        context: what was said before.
        state: what the session of the agent begins with.
        recorded: an answer that was recorded earlier and is judged instead of a new one.
        hints: what the user knows of the trouble with this case, by metric; under the empty
            name for all metrics. For reflectors only.
        critical: whether a winner must not be worse here than the baseline.
        fields: everything else that the file says of the case, for splits and templates.
        origin: where it stands, such as ``cases.jsonl:14``; for messages.
    """

    id: str
    input: Json
    expected: Json = None
    tools: tuple[ToolUse, ...] | None = attrs.field(default=None, validator=_tools)
    turns: tuple[Turn, ...] = ()
    context: tuple[Message, ...] = ()
    state: Mapping[str, Json] = attrs.field(default=_NO_JSON, converter=_json_map)
    recorded: Answer | None = None
    hints: Mapping[str, str] = attrs.field(default=_NO_TEXTS, converter=_text_map)
    critical: bool = False
    fields: Mapping[str, Json] = attrs.field(default=_NO_JSON, converter=_json_map)
    origin: str = attrs.field(default="", eq=False)

    @property
    def scenario(self) -> Scenario | None:
        """How a simulated user talks, among the ``fields``; None where the turns are given."""
        match self.fields.get(SCENARIO):
            case {"starting_prompt": str(first), "conversation_plan": str(plan)}:
                return Scenario(starting_prompt=first, conversation_plan=plan)
        return None


@attrs.frozen(kw_only=True)
class TaughtCase(Case):
    """A case whose ``expected`` is what a teacher answered.

    Attributes:
        teacher: the prompt or graph, and what answered it.
    """

    teacher: str

    @classmethod
    def of(cls, case: Case, *, expected: Json, teacher: str) -> TaughtCase:
        """Return ``case`` with what a teacher answered."""
        known = {one.name: getattr(case, one.name) for one in attrs.fields(Case)}
        return cls(**{**known, "expected": expected, "teacher": teacher})

    @property
    def remark(self) -> str:
        """Where ``expected`` comes from, in one line."""
        return f"what is expected here is what the teacher `{self.teacher}` answered"


@attrs.frozen(kw_only=True)
class Verdict:
    """What one metric says of one answer.

    Attributes:
        metric: its name.
        score: from 0 to 1; None when the metric could not judge: the answer is *unscored*. A
            ``bool``, a ``Decimal`` and a number of numpy become a float.
        passed: whether the score reaches the metric's threshold; None when there is no score.
        reason: what was expected, what was found, where they differ, in words that help a
            writer to improve a prompt; for an unscored answer what went wrong.
        amount: what was measured, in its own unit (US dollars, tokens, seconds), for objectives
            that want less of it; None for metrics that measure nothing.
        node: the node of a graph whose output was judged; empty for the answer.

    Raises:
        ConfigError: the score is no number from 0 to 1, or ``passed`` stands without a score.
    """

    metric: str
    score: float | None
    passed: bool | None
    reason: str = attrs.field(converter=joined)
    amount: float | None = None
    node: str = ""

    def __attrs_post_init__(self) -> None:
        number = None if self.score is None else plain_number(self.score)
        object.__setattr__(self, "score", number)
        if number is not None and SHARE.fits(number) is None:
            raise ConfigError(
                f"metric `{self.metric}`: expected a score from 0 to 1, found {shown(self.score)}"
            )
        if self.passed is not None:
            object.__setattr__(self, "passed", bool(self.passed))
        if (self.score is None) != (self.passed is None):
            raise ConfigError(f"metric `{self.metric}`: score and passed are known together")


class Metric(Protocol):
    """Judges answers; ``judge`` may be ``def`` or ``async def``.

    A plain one may be called from several threads at once; an ``async`` one runs in the event loop
    of the run.
    """

    @property
    def name(self) -> str:
        """How it is called in reports; unique among the metrics of an evaluation."""
        ...

    @property
    def threshold(self) -> float:
        """The least score that passes, 0 to 1."""
        ...

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict | Awaitable[Verdict]:
        """Judge one answer.

        ``session`` is that of the evaluation, None without one. A metric that asks models pays from
        its budget, ends at its deadline and dispatches a ``ModelCalled`` for every call to it, and
        nothing else.

        Raises ``ConfigError`` when the case lacks what the metric needs, which is found before the
        first call where possible, ``PermanentProviderError`` when a model refuses for good,
        ``LimitReachedError`` when the evaluation has no time or money left.
        """
        ...


@attrs.frozen(kw_only=True)
class MetricKind:
    """A kind of metric, and how one is made of plain data.

    Attributes:
        name: how metric files call it.
        build: makes a metric of an object with its options (``name``, ``threshold`` and
            ``required`` among them), or notes faults at their places and returns None.
        takes_criterion: whether the option ``criterion`` of other tools' files is understood;
            it is handed to ``build`` as it stands in the file.
    """

    name: str
    build: Callable[[Node], Metric | None]
    takes_criterion: bool = False
