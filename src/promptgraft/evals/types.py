"""Cases, answers and verdicts: what metrics judge, and what they return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.errors import ConfigError
from promptgraft.evals.spending import Spending, spent_to_json
from promptgraft.ground.content import Content, Input
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, Json, shown
from promptgraft.ground.strict.checks import FLAG, SHARE, plain_score
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import clip, joined
from promptgraft.runtime.session import SessionProtocol

T = TypeVar("T")

_NO_JSON: FrozenMap[str, Json] = FrozenMap()
_NO_TEXTS: FrozenMap[str, str] = FrozenMap()
_NO_PARTS: Mapping[str, HexDigest] = FrozenMap()
_PLAIN_OF_STEP = ("id", "node", "kind", "input", "output", "error")


# There may be hundreds of thousands of cases, most without these: they share one empty map.
def _json_map(items: Mapping[str, Json]) -> FrozenMap[str, Json]:
    return FrozenMap(_mapping(items)) if items else _NO_JSON


def _text_map(items: Mapping[str, str]) -> FrozenMap[str, str]:
    return FrozenMap(_mapping(items)) if items else _NO_TEXTS


def _mapping(items: Mapping[str, T]) -> Mapping[str, T]:
    if not isinstance(items, Mapping):
        raise ConfigError(f"expected an object, found {shown(items)}")
    return items


def _tools(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value and not (
        isinstance(value, tuple) and all(isinstance(tool, ToolUse) for tool in value)
    ):
        raise ConfigError(f"{field.name}: expected a tuple of ToolUse, found {shown(value)}")


class Speaker(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@attrs.frozen
class Message:
    """An earlier message of a conversation."""

    speaker: Speaker
    text: str | Content


@attrs.frozen(kw_only=True)
class ToolUse:
    """A call of a tool, made or expected.

    Attributes:
        arguments: by name.
        result: what the tool returned or is expected to return; None if unknown.
    """

    name: str
    arguments: Mapping[str, Json] = attrs.field(default=_NO_JSON, converter=_json_map, hash=False)
    result: Json = attrs.field(default=None, hash=False)


@attrs.frozen(kw_only=True)
class Step:
    """One step of a rollout: a run of one node of a graph.

    Attributes:
        id: its position in the flow, such as ``3``, or ``4.1.2`` for the second step of the first
            branch of step 4; the same for the same flow with any number of threads.
        node: the name of the node.
        kind: ``prompt``, ``graph``, or ``function`` for a node without a text.
        after: ids of the steps that it follows; empty for the first.
        input: what the node received, as clipped text.
        output: what the node returned, as clipped text; empty if it failed.
        error: why it failed, on one line; empty if it did not.
        parts: the parts in use, by name: the SHA-256 of each text.
        tools: the tools that it called, one line each.
        spent: the cost of its model calls.
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
        """Return the step with its texts cut to ``limit`` characters and marked where cut."""
        if max(len(self.input), len(self.output), len(self.error)) <= limit:
            return self
        return attrs.evolve(
            self,
            input=clip(self.input, limit),
            output=clip(self.output, limit),
            error=clip(self.error, limit, around=" "),
        )


def step_to_json(step: Step) -> Json:
    """Return a step as the journal keeps it: its fields by name, without empty ones."""
    fields: dict[str, Json] = {
        **{name: getattr(step, name) for name in _PLAIN_OF_STEP},
        "after": list(step.after),
        "parts": dict(step.parts),
        "tools": list(step.tools),
        "spent": spent_to_json(step.spent),
    }
    return {name: value for name, value in fields.items() if value}


def _refusing_texts(kind: type[T]) -> type[T]:
    """Refuse to compare with what is never equal: a metric that does would score 0 in silence."""
    equal = kind.__eq__

    def __eq__(self: T, other: object) -> bool:  # noqa: N807 - it becomes that method
        if isinstance(other, (Case, str, int, float, list, dict)):
            raise TypeError(
                f"an answer is compared with {shown(other)}; compare its `text`, or its `output` "
                "if that is data, with `case.expected`"
            )
        return equal(self, other)

    setattr(kind, "__eq__", __eq__)  # noqa: B010 - a method cannot be assigned for mypy
    return kind


@_refusing_texts
@attrs.frozen(kw_only=True)
class Answer:
    """The answer of an agent to one input.

    Attributes:
        text: the final answer.
        output: the same as data, if data was requested; else None.
        tools: the tools that were called, in order.
        usage: tokens.
        cost: US dollars; None if unknown.
        seconds: wall time; None if unknown.
        steps: the steps of a graph; empty for other agents.
        turns: the turns of a conversation with their answers; empty for a single question.
        notes: how the answer was repaired before it fitted the output type, one line each.
    """

    text: str
    output: Json = attrs.field(default=None, hash=False)
    tools: tuple[ToolUse, ...] = attrs.field(default=(), validator=_tools)
    usage: Usage = NO_USAGE
    cost: Decimal | None = None
    seconds: float | None = None
    steps: tuple[Step, ...] = ()
    turns: tuple[TurnAnswered, ...] = ()
    notes: tuple[str, ...] = ()

    def of_node(self, node: str) -> Answer | None:
        """Return the last output of a node of the graph as an answer; None if it has none."""
        outputs = [step.output for step in self.steps if step.node == node and not step.error]
        return attrs.evolve(self, text=outputs[-1], output=None) if outputs else None


@attrs.frozen(kw_only=True)
class TurnAnswered:
    """A finished turn of a conversation: what the user said, and the answer."""

    query: str
    answer: Answer


@attrs.frozen(kw_only=True)
class Turn:
    """One question of a conversation with the expected answer.

    Attributes:
        user: what the user says.
        expected: the reference answer, if there is one.
        tools: the expected tool calls; None if any are allowed.
    """

    user: str | Content
    expected: str | None = None
    tools: tuple[ToolUse, ...] | None = attrs.field(default=None, validator=_tools)


@attrs.frozen(kw_only=True)
class Conversation:
    """The messages of a user that a graph is asked, one after the other.

    Attributes:
        messages: at least one.
        context: earlier messages.
    """

    messages: tuple[str | Content, ...]
    context: tuple[Message, ...] = ()


SCENARIO = "conversation_scenario"
"""The field of a case that holds the scenario of a simulated user."""


@attrs.frozen(kw_only=True)
class Scenario:
    """The first message of a simulated user, and its goal."""

    starting_prompt: str
    conversation_plan: str


@attrs.frozen(kw_only=True)
class Case:
    """One real input with its ground truth.

    Cases compare by value and always hash, for their JSON values take no part in it.

    Attributes:
        id: unique in its data set.
        input: the input of the agent: a text, or an object with the parameters of a prompt.
        expected: the ground truth, in the form that the metrics need; None if there is none.
        tools: the expected tool calls; None if any are allowed.
        turns: the conversation of a case with several turns, whose ``input``, ``expected`` and
            ``tools`` are those of the last turn. Empty for a single question.
        context: earlier messages.
        state: the initial state of the agent's session.
        recorded: an answer from an earlier run, judged instead of a new one.
        hints: the user's notes on what makes this case hard, by metric; under the empty name for
            all metrics. Shown to reflectors only.
        critical: whether a winner must not score lower than the baseline here.
        fields: other data of the case in the file, for splits and templates.
        origin: file and line, such as ``cases.jsonl:14``; for messages.
    """

    id: str
    input: Input = attrs.field(hash=False)
    expected: Json = attrs.field(default=None, hash=False)
    tools: tuple[ToolUse, ...] | None = attrs.field(default=None, validator=_tools)
    turns: tuple[Turn, ...] = ()
    context: tuple[Message, ...] = ()
    state: Mapping[str, Json] = attrs.field(default=_NO_JSON, converter=_json_map, hash=False)
    recorded: Answer | None = None
    hints: Mapping[str, str] = attrs.field(default=_NO_TEXTS, converter=_text_map)
    critical: bool = attrs.field(default=False, validator=FLAG)
    fields: Mapping[str, Json] = attrs.field(default=_NO_JSON, converter=_json_map, hash=False)
    # A case that has moved in its file is the same case.
    origin: str = attrs.field(default="", eq=False)

    @property
    def family(self) -> str:
        """The kept column ``family``: what the cases that answer like this one share, or empty."""
        name = self.fields.get("family")
        return "" if name is None else str(name)

    @property
    def scenario(self) -> Scenario | None:
        """The scenario of a simulated user in ``fields``; None if the turns are given."""
        match self.fields.get(SCENARIO):
            case {"starting_prompt": str(first), "conversation_plan": str(plan)}:
                return Scenario(starting_prompt=first, conversation_plan=plan)
        return None


@attrs.frozen(kw_only=True)
class TaughtCase(Case):
    """A case whose ``expected`` is the answer of a teacher, and ``tools`` its calls if it had any.

    Attributes:
        teacher: the prompt or graph of the teacher, and the model that answered it.
    """

    teacher: str

    @classmethod
    def of(
        cls, case: Case, *, expected: Json, tools: tuple[ToolUse, ...] | None, teacher: str
    ) -> TaughtCase:
        """Return ``case`` with the answer of a teacher, and its calls unless the case has some."""
        values = {field.name: getattr(case, field.name) for field in attrs.fields(Case)}
        calls = tools if case.tools is None else case.tools
        return cls(**{**values, "expected": expected, "tools": calls, "teacher": teacher})

    @property
    def remark(self) -> str:
        """The origin of ``expected`` on one line."""
        return f"what is expected here is what the teacher `{self.teacher}` answered"


@attrs.frozen(kw_only=True)
class Verdict:
    """The verdict of one metric on one answer.

    Attributes:
        metric: the name of the metric.
        score: 0 to 1; None if the metric could not judge the answer, which is then *unscored*. A
            ``bool``, a ``Decimal`` or a numpy number becomes a float, and a rounding error of up to
            1e-9 beside 0 or 1 is undone.
        passed: whether the score reaches the metric's threshold; None without a score.
        reason: what was expected, what was found and where they differ, in words that help to
            improve a prompt; for an unscored answer, what went wrong.
        amount: the measured amount in its own unit (US dollars, tokens, seconds), for objectives
            that minimize it; None for metrics that measure nothing.
        node: the node of a graph whose output was judged; empty for the final answer.

    Raises:
        ConfigError: the score is not a number from 0 to 1, or ``passed`` is given without one.
    """

    metric: str
    score: float | None
    passed: bool | None
    reason: str = attrs.field(converter=joined)
    amount: float | None = None
    node: str = ""

    def __attrs_post_init__(self) -> None:
        number = None if self.score is None else plain_score(self.score)
        # Not by a converter, whose error could not name the metric.
        object.__setattr__(self, "score", number)
        if number is not None and SHARE.fits(number) is None:
            raise ConfigError(
                f"metric `{self.metric}`: expected a score from 0 to 1, found {shown(self.score)}"
            )
        if self.passed is not None:
            object.__setattr__(self, "passed", bool(self.passed))
        if (self.score is None) != (self.passed is None):
            raise ConfigError(f"metric `{self.metric}`: score and passed are known together")


def as_cases(cases: object, expected: str = "a list of cases") -> tuple[Any, ...]:
    """Return what a user passes as cases as a tuple, or raise a ``ConfigError``."""
    if not isinstance(cases, Iterable) or isinstance(cases, str):
        mend = "; `Dataset.load` reads a file" if isinstance(cases, (str, PurePath)) else ""
        raise ConfigError(f"cases: expected {expected}, found {shown(cases)}{mend}")
    return tuple(cases)


def cases_of(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return cases as a tuple, or raise a ``ConfigError`` for anything else."""
    for place, case in enumerate(chosen := as_cases(cases), start=1):
        if not isinstance(case, Case):
            what = f"expected a Case, found {shown(case)}"
            raise ConfigError(f"cases:{place}: {what}; `Dataset.of` reads mappings")
    return chosen


class ScoredObject(Protocol):
    """An object with a score and a reason, such as a prediction of DSPy."""

    score: bool | float
    feedback: str


Outcome: TypeAlias = (
    bool | float | tuple[bool | float, str] | Mapping[str, object] | ScoredObject | Verdict
)
"""A score from 0 to 1 or a boolean, alone, with a reason in a pair, or as ``score`` and
``feedback`` of a mapping or an object, where the reason may be called ``reason`` or ``comment``; or
a whole verdict."""

Judge: TypeAlias = Callable[[Case, Answer], Outcome | Awaitable[Outcome]]
"""A function that judges an answer, plain or ``async``."""


class Metric(Protocol):
    """Judges answers; ``judge`` may be ``def`` or ``async def``.

    A ``def`` may be called from several threads at once; an ``async def`` runs in the event loop
    of the run.
    """

    @property
    def name(self) -> str:
        """The name in reports; unique among the metrics of an evaluation."""
        ...

    @property
    def threshold(self) -> float:
        """The lowest score that passes, 0 to 1."""
        ...

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict | Awaitable[Verdict]:
        """Judge one answer.

        Args:
            case: the case.
            answer: the answer to it.
            session: that of the evaluation, if there is one. A metric that calls models pays from
                its budget, observes its deadline, and dispatches one ``ModelCalled`` to it for
                each call and nothing else.

        Raises:
            ConfigError: the case lacks what the metric needs; found before the first call where
                possible.
            PermanentProviderError: a model refuses permanently.
            LimitReachedError: the evaluation has run out of time or money.
        """
        ...


@attrs.frozen(kw_only=True)
class MetricKind:
    """A kind of metric that files can name.

    Attributes:
        name: its name in metric files.
        build: makes a metric from an object with its options, including ``name``, ``threshold``
            and ``required``; or notes the faults at their places and returns None.
        takes_criterion: whether the option ``criterion`` of other tools' files is supported; it is
            passed to ``build`` unchanged.
    """

    name: str
    build: Callable[[Node], Metric | None]
    takes_criterion: bool = attrs.field(default=False, validator=FLAG)
