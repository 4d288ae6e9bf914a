"""The types that all optimizers share: modules, examples, feedback, rollouts, candidates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import attrs

from promptgraft.adapters.base import PromptResponse
from promptgraft.errors import ConfigError, DataFormatError, FeedbackError, InvalidIdentifierError
from promptgraft.evals.spending import Spending
from promptgraft.evals.types import Step, Verdict
from promptgraft.ground.frozenmap import FrozenMap, isolated
from promptgraft.ground.serde import HexDigest, Json, digest_json, shown
from promptgraft.ground.strict.checks import FINITE, plain_number
from promptgraft.ground.text import joined
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.replacements import ToolExampleOverride
from promptgraft.overrides.parts.task_example import AddedTaskExample, TaskExampleOverride
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import PromptOverride, read_entries
from promptgraft.prompt.template import PromptTemplate
from promptgraft.runtime.session import SessionProtocol


class Module(ABC):
    """A part that may change: hashable, with a name and a kind.

    Write your own as an attrs class (``@attrs.frozen``) or a frozen dataclass.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of part, such as ``section`` or ``tool example``."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in messages and meta-prompts; unique in its target."""

    @property
    def owner(self) -> str | None:
        """The part that shows it to a model, as in ``RolloutRecord.hidden``; None if always."""
        return None

    @property
    def is_example(self) -> bool:
        """Whether it is an example, or which are shown; they take turns at a rate of their own."""
        return False

    @property
    def is_new(self) -> bool:
        """Whether a proposal adds a part rather than changing one."""
        return False

    @property
    def question(self) -> PromptTemplate[object] | None:
        """The meta-prompt of its kind; None if the algorithm chooses it.

        Descriptions refer to it by its key.
        """
        return None


def names_of(modules: Iterable[Module]) -> str:
    """Return the names of modules as one text."""
    return ", ".join(module.name for module in modules)


def names_in(text: str | None) -> list[str]:
    """Return the names in a text of :func:`names_of`; names have no commas."""
    return text.split(", ") if text else []


def _as_params(params: Iterable[object]) -> tuple[object, ...]:
    if isinstance(params, (list, tuple)):
        return tuple(params)
    raise ConfigError(
        f"params: expected a tuple of parameters such as (question,), found {shown(params)}"
    )


@attrs.frozen
class GepaExample:
    """One real input with its ground truth.

    Examples compare and hash by id: what users bring as parameters and labels need not do either.

    Attributes:
        id: unique in the data set.
        params: the parameters that the prompt is bound to. Each rollout has copies of these and of
            the label.
        label: the ground truth, in whatever form the feedback function expects. The task model
            never sees it.
        critical: whether a candidate must not be worse on this example than what it replaces.
        family: the name of the examples that answer like this one, which count as one case in a
            verdict; empty if it stands alone.

    Raises:
        ConfigError: ``id`` is not a text, or ``params`` is neither a tuple nor a list.
    """

    id: str
    params: tuple[object, ...] = attrs.field(converter=_as_params, eq=False)
    label: object = attrs.field(default=None, eq=False)
    critical: bool = attrs.field(default=False, eq=False)
    family: str = attrs.field(default="", eq=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise ConfigError(f"id: expected text, found {shown(self.id)}")

    def copy(self) -> GepaExample:
        """Return a copy whose parameters and label are not shared.

        Raises:
            ConfigError: they cannot be copied.
        """
        originals = self.params, self.label
        params, label = copied = isolated(originals, where=f"example `{self.id}`: params and label")
        return self if copied is originals else attrs.evolve(self, params=params, label=label)


_NONE: Mapping[str, float] = FrozenMap()


def _as_objectives(objectives: Mapping[str, float]) -> Mapping[str, float]:
    if objectives == {}:
        return _NONE
    objectives_object: object = objectives
    if isinstance(objectives_object, Mapping):
        objectives = {name: plain_number(value) for name, value in objectives_object.items()}
    if fault := named_numbers_fault(objectives):
        raise FeedbackError(f"objectives: {fault}")
    return FrozenMap((name, float(value)) for name, value in objectives.items())


def named_numbers_fault(numbers: object) -> str:
    """Return why ``numbers`` is not a mapping of names to finite numbers; empty if it is."""
    if not isinstance(numbers, Mapping):
        return f"expected numbers by name, found {shown(numbers)}"
    for name, value in numbers.items():
        if not isinstance(name, str) or not name or FINITE.fits(value) is None:
            return (
                f"expected a finite number under each name, found {shown(value)} under "
                f"{shown(name)}"
            )
    return ""


@attrs.frozen
class RolloutFeedback:
    """The verdict of a feedback function on one answer.

    Attributes:
        score: a finite number, higher is better; by default 1.0 is perfect. A ``bool``, a
            ``Decimal`` or a numpy number is converted to a float.
        feedback: the reason, in words that help to improve the prompt.
        eval_trace: a log of the evaluation, if there is one.
        objectives: further scores by name, higher is better, for searches with several objectives.

    Raises:
        FeedbackError: the score is not a finite number, or feedback or trace is not a text.
    """

    score: float
    feedback: str
    eval_trace: str | None = None
    objectives: Mapping[str, float] = _NONE

    def __attrs_post_init__(self) -> None:
        score = self.score
        # Fast if the score is a float: replaying a long run builds one of these per answer.
        if type(score) is not float or not math.isfinite(score):
            number = plain_number(score)
            if FINITE.fits(number) is None:
                raise FeedbackError(f"score: {FINITE.fault(shown(score), score)}")
            object.__setattr__(self, "score", float(number))
        if not isinstance(self.feedback, str):
            raise FeedbackError(f"feedback: expected text, found {shown(self.feedback)}")
        if self.eval_trace is not None and not isinstance(self.eval_trace, str):
            raise FeedbackError(f"eval_trace: expected text, found {shown(self.eval_trace)}")
        # ASCII, the usual case, has no surrogates to be joined.
        if not self.feedback.isascii():
            object.__setattr__(self, "feedback", joined(self.feedback))
        if self.eval_trace:
            object.__setattr__(self, "eval_trace", joined(self.eval_trace))
        if self.objectives is not _NONE:
            object.__setattr__(self, "objectives", _as_objectives(self.objectives))


class FeedbackFn(Protocol):
    """Scores an answer and says why; given by the user, as a plain or an ``async`` function."""

    def __call__(
        self, example: GepaExample, response: PromptResponse[Any], session: SessionProtocol, /
    ) -> RolloutFeedback | Awaitable[RolloutFeedback]:
        """Return the feedback on ``response``; ``session`` has the events of the rollout."""
        ...


ExampleFormatter = Callable[[GepaExample, PromptResponse[Any] | None], tuple[str, str]]
"""Returns input and answer as text for the reflection model; gets None if there is no answer."""

TraceFormatter = Callable[[SessionProtocol], str]
"""Returns what happened during a rollout as text; empty if nothing is worth showing."""


@attrs.frozen
class RolloutRecord:
    """A candidate evaluated on one example.

    Attributes:
        example_id: the example.
        inputs_repr: its input as the reflection model sees it.
        output_repr: the answer as the reflection model sees it.
        tool_trace_repr: the trace as the reflection model sees it.
        feedback: score and reason; None if the provider failed and the rollout is unscored.
        fault: what failed, in one line; empty if nothing did.
        spent: the cost of its calls.
        hidden: sections and tools of the prompt that the model was not shown.
        verdicts: the verdict of each metric; empty if a feedback function scores.
        steps: the steps of a graph's nodes, in order; empty for other targets.
        expected_repr: the expected answer, for people; empty if the example has none.
    """

    example_id: str = attrs.field(converter=joined)
    inputs_repr: str = attrs.field(default="", converter=joined)
    output_repr: str = attrs.field(default="", converter=joined)
    tool_trace_repr: str = attrs.field(default="", converter=joined)
    feedback: RolloutFeedback | None = None
    fault: str = attrs.field(default="", converter=joined)
    spent: tuple[Spending, ...] = ()
    hidden: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    steps: tuple[Step, ...] = ()
    expected_repr: str = attrs.field(default="", converter=joined)

    @property
    def score(self) -> float | None:
        """The score; None if the rollout is unscored."""
        return None if self.feedback is None else self.feedback.score


Change = PromptOverride | str
"""A change: the override of a prompt, or the text of a part outside of prompts."""


def plain_changes(changes: Mapping[str, Change]) -> dict[str, Json]:
    """Return changes as plain data, by address."""
    return {
        address: change if isinstance(change, str) else plain_lists(change.entries())
        for address, change in changes.items()
    }


def read_changes(data: object, tag: str, *, where: str) -> dict[str, Change]:
    """Return the changes from the result of :func:`plain_changes`; overrides are for ``tag``.

    Raises:
        DataFormatError: naming the place of each fault.
    """
    if not isinstance(data, Mapping):
        raise DataFormatError(f"{where}: expected changes by address, found {shown(data)}")
    return {
        address: change
        if isinstance(change, str)
        else read_entries(change, _empty(address, tag, where), where=f"{where}: {address}")
        for address, change in data.items()
    }


def _empty(address: str, tag: str, where: str) -> PromptOverride:
    ns, _, key = address.rpartition("/")
    try:
        return OverrideAddress(ns, key, tag).empty()
    except InvalidIdentifierError as error:
        raise DataFormatError(f"{where}: {error}") from None


def _in_order(changes: Mapping[str, Change]) -> Mapping[str, Change]:
    return FrozenMap(sorted(changes.items()))


@attrs.frozen(kw_only=True)
class Candidate:
    """Changes to a target, with their origin.

    Attributes:
        changes: the changes, sorted by address: for each prompt, under ``namespace/key``, the
            override relative to the source (and the base store); for each part outside of prompts,
            under its name, its text.
        parents: positions of the parents in the pool; empty for the baseline.
        modules: the changed modules; none for the baseline and for merges.
        shortened: approximate share of its parent's tokens that it saves; 0 unless it was made to
            be shorter.
        digest: SHA-256 of what is in force with the changes, by default of the changes; equal for
            equal candidates.
    """

    changes: Mapping[str, Change] = attrs.field(converter=_in_order)
    parents: tuple[int, ...] = ()
    modules: tuple[Module, ...] = ()
    shortened: float = 0.0
    digest: HexDigest = attrs.field()

    @digest.default
    def _digest_of_changes(self) -> HexDigest:
        return digest_json(plain_changes(self.changes))

    @property
    def changed(self) -> str:
        """Names of the changed modules, ``merge`` or ``baseline``."""
        if self.modules:
            return f"{names_of(self.modules)}{', shortened' if self.shortened else ''}"
        return "merge" if self.parents else "baseline"

    @property
    def overrides(self) -> Mapping[str, PromptOverride]:
        """The changes of prompts, by ``namespace/key``."""
        return {
            at: change for at, change in self.changes.items() if isinstance(change, PromptOverride)
        }

    @property
    def override(self) -> PromptOverride:
        """The change of the only prompt.

        Raises:
            ConfigError: there are several prompts, or none.
        """
        match list(self.overrides.values()):
            case [override]:
                return override
        raise ConfigError(
            "expected a candidate of one prompt, found one of "
            f"{', '.join(self.changes) or 'nothing'}; take `overrides` or `changes`, which are by "
            "address"
        )

    @property
    def section_bodies(self) -> Mapping[SectionPath, str]:
        """The bodies that a candidate of one prompt replaces, by section path."""
        return FrozenMap((path, section.body) for path, section in self.override.sections.items())

    section_overrides = section_bodies  # the name in the specification

    @property
    def parent_index(self) -> int | None:
        """Position of the parent, of a merge that of the better one; None for the baseline."""
        return self.parents[0] if self.parents else None

    @property
    def tool_example_overrides(self) -> Mapping[tuple[str, int], ToolExampleOverride]:
        """The overrides of tool examples in a candidate of one prompt, by tool and position."""
        return self.override.tool_example_overrides

    @property
    def task_example_overrides(self) -> Mapping[SectionPath, TaskExampleOverride]:
        """The overrides of task examples in a candidate of one prompt, by path."""
        return self.override.task_example_overrides

    @property
    def generated_examples(self) -> tuple[AddedTaskExample, ...]:
        """The task examples that a candidate of one prompt adds."""
        return tuple(self.override.added_task_examples.values())


class MetaPrompt(StrEnum):
    """The keys of the meta-prompts for the parts of prompts."""

    SECTION = "reflect-section"
    TOOL = "reflect-tool"
    TOOL_EXAMPLE = "reflect-tool-example"
    TASK_EXAMPLE = "reflect-task-example"
    GENERATION = "generate-task-example"
    OUTPUT_FIELD = "reflect-output-field"


@attrs.frozen
class Written:
    """The text of a module, what it defines, and neighbours by name; empty without blocks."""

    text: str = ""
    definitions: str = ""
    beside: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ModuleDescription:
    """Everything that the reflection model may know about a module of a candidate.

    Attributes:
        name: the module, such as ``section policies/refunds``.
        meta_prompt: the key of the question about it: one of :class:`MetaPrompt`, or that of the
            module's own :attr:`~promptgraft.targets.types.Module.question`.
        title: its heading.
        text: its current text, in the format that the reply must use.
        placeholders: markers that the text must keep.
        opaque: the meaning of markers that stand for more than a value.
        max_chars: maximum length of a new text.
        output: the expected form of the prompt's answers.
        answers: what the target knows of its answers, if anything, instead of ``output``.
        neighbours: name and current text of the other parts of the prompt.
        schema: types that the reply must fit; empty for free text.
        siblings: other examples of the same kind, as texts.
        as_json: whether text and reply are one JSON object, rather than free text.
        is_new: whether there is no text yet, because a part is to be added.
        written: what has blocks of Jinja, as its author would write it.
    """

    name: str
    meta_prompt: str = MetaPrompt.SECTION
    title: str
    text: str
    placeholders: tuple[str, ...] = ()
    opaque: Mapping[str, str] = attrs.field(factory=dict)
    max_chars: int
    output: str = ""
    answers: str | None = None
    neighbours: Sequence[tuple[str, str]] = ()
    schema: str = ""
    siblings: Sequence[str] = ()
    as_json: bool = False
    is_new: bool = False
    written: Written = Written()

    @property
    def as_digested(self) -> ModuleDescription:
        """The description as journals have digested it: with names in place of blocks."""
        return attrs.evolve(self, written=Written())
