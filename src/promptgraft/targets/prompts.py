"""Several prompts that are used by one function and improved together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import attrs

from promptgraft.adapters.abilities import check_serves
from promptgraft.adapters.base import PromptResponse, ProviderAdapter, evaluated
from promptgraft.errors import CallerError, ConfigError
from promptgraft.ground.functions import call_fault, function_name
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.strict.checks import instance
from promptgraft.ground.text import listed
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.validation import check_ns
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.part import PartOf, PromptPart
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompt_rollout import Flow
from promptgraft.targets.texts import answer_of, as_errors, by_name
from promptgraft.targets.types import GepaExample


class PromptSet(ABC):
    """Prompts that answer together and are improved together; a run takes one like a prompt.

    Attributes:
        name: its name in runs, in the form of a namespace.
        max_steps: steps that an answer may take; 0 if there are none.
        max_step_chars: longest input, output or error of a step that is kept; 0 if there are no
            steps.
    """

    __slots__ = ()

    name: str
    max_steps: int = 0
    max_step_chars: int = 0

    @property
    @abstractmethod
    def by_address(self) -> Mapping[str, Prompt[object]]:
        """The prompts by ``namespace/key``, sorted."""

    @property
    @abstractmethod
    def parts(self) -> tuple[PartOf, ...]:
        """The parts that may change; raises ``ConfigError`` if there are none."""

    @property
    @abstractmethod
    def function(self) -> Callable[..., Any]:
        """The function that answers with the prompts."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes whose outputs metrics may judge; empty if it is not a graph."""
        return ()

    @property
    def details(self) -> Mapping[str, Json]:
        """What else decides its answers, by names that users understand."""
        return {}

    @property
    def adapters(self) -> Mapping[str, ProviderAdapter]:
        """Its own adapters, by the names of what they answer."""
        return {}

    def answered_by(self, adapter: ProviderAdapter) -> Self:
        """Return a copy with ``adapter`` in place of all its own adapters."""
        return self

    def opening(self, parts: Collection[str]) -> PromptSet:
        """Return a copy with only those of the parts open that it has; all if it has none.

        Targets of a project also name parts of its other prompts.
        """
        return self

    def stand_in(self) -> StandIn | None:
        """Return the prompt that stands for a graph; None for other prompts."""
        return None

    @abstractmethod
    def flow_on(self, adapter: ProviderAdapter | None) -> Flow:
        """Return the flow that answers with the prompts; ``adapter`` is that of the run.

        Raises:
            ConfigError: something has no adapter.
        """


@attrs.frozen
class StandIn(TextsPrompt):
    """Stands for the prompts of a graph where one prompt is expected; bound to the input of a case.

    Attributes:
        graph: the graph.
    """

    graph: PromptSet = attrs.field(kw_only=True)

    @abstractmethod
    def asked_on(self, adapter: ProviderAdapter | None) -> ProviderAdapter:
        """Return the adapter that answers with the graph.

        ``adapter`` answers the nodes that have none of their own; None if all have one.
        """


@attrs.frozen(kw_only=True)
class Ask:
    """Evaluates the prompts of one candidate, for one example.

    Attributes:
        prompts: the prompts, by their names in :class:`Prompts`.
        adapter: the adapter that answers.
        session: where prompts are evaluated.
        deadline: when to stop.
    """

    prompts: Mapping[str, Prompt[object]]
    adapter: ProviderAdapter
    session: Session
    deadline: Deadline | None

    def __call__(self, name: str, *params: object) -> PromptResponse[object]:
        """Return the answer to a prompt that is bound to ``params``.

        Raises:
            CallerError: there is no such prompt, or ``params`` do not fit it.
            CandidateError, ProviderError, LimitReachedError: from the adapter; do not catch these.
        """
        if name not in self.prompts:
            raise CallerError(
                f"there is no prompt {name!r}{did_you_mean(name, list(self.prompts))}; prompts: "
                f"{listed(self.prompts)}"
            )
        prompt = self.prompts[name].bind(*params)
        return evaluated(self.adapter, prompt, session=self.session, deadline=self.deadline)


def _as_prompts(prompts: Mapping[str, Prompt[object]]) -> Mapping[str, Prompt[object]]:
    return by_name(prompts, instance(Prompt), "prompts", '{"router": ROUTER}')


@attrs.frozen
class Prompts(PromptSet):
    """Several prompts and the function that answers with them; a run takes it like a prompt.

    Attributes:
        prompts: the prompts by name.
        run: ``run(ask, *params)``, plain or ``async``, called with an :class:`Ask` and the
            ``params`` of the example; ``ask("router", ticket).text`` is the answer of the run's
            adapter to one prompt. It returns a text, an object or a ``PromptResponse``, as the
            function of ``Texts`` does. Called from several threads if there is an executor.
        name: the name in runs, in the form of a namespace; by default the name of the function.
        modules: the parts that may change, by the name of their prompt; by default every section
            with a text.
        candidate_errors: exceptions of the function that are the fault of the texts, such as those
            of a parser: the example scores 0, and the reflection model sees the reason.

    Raises:
        ConfigError: an argument is invalid, or two prompts have the same namespace and key.
        InvalidIdentifierError: ``name`` is not a namespace.
    """

    prompts: Mapping[str, Prompt[object]] = attrs.field(converter=_as_prompts)
    run: Callable[..., Any] = attrs.field(kw_only=True)
    name: str = attrs.field(kw_only=True)
    modules: Mapping[str, Sequence[PromptPart]] = attrs.field(factory=dict, kw_only=True)
    candidate_errors: tuple[type[Exception], ...] = attrs.field(
        default=(), converter=as_errors, kw_only=True
    )

    @name.default
    def _name_of_run(self) -> str:
        return function_name(self.run).rpartition(".")[2].lower().strip("_")

    def __attrs_post_init__(self) -> None:
        check_ns(self.name)
        if not callable(self.run):
            raise ConfigError(f"run: expected a function, found {shown(self.run)}")
        if len(self.by_address) < len(self.prompts):
            raise ConfigError(
                "prompts: expected different prompts, found two with one namespace and key among "
                f"{listed(address_of(prompt) for prompt in self.prompts.values())}"
            )
        for name in self.modules:
            if name not in self.prompts:
                raise ConfigError(f"modules: there is no prompt {name!r}; {listed(self.prompts)}")

    @property
    def by_address(self) -> Mapping[str, Prompt[object]]:
        prompts_by_address = {address_of(prompt): prompt for prompt in self.prompts.values()}
        return dict(sorted(prompts_by_address.items()))

    @property
    def parts(self) -> tuple[PartOf, ...]:
        return parts_of(
            self.name, [(prompt, self.modules.get(at)) for at, prompt in self.prompts.items()]
        )

    @property
    def function(self) -> Callable[..., Any]:
        return self.run

    def flow_on(self, adapter: ProviderAdapter | None) -> Flow:
        if adapter is None:
            raise no_adapter("what answers the prompts")
        addresses = {name: address_of(prompt) for name, prompt in self.prompts.items()}
        return PromptsFlow(self.run, addresses, adapter, self.candidate_errors)


def no_adapter(what: str) -> ConfigError:
    """Return the error of a run that has no adapter for ``what``."""
    return ConfigError(
        f"adapter: expected {what}, found None; give the OptimizationContext an adapter"
    )


def parts_of(
    name: str, prompts: Iterable[tuple[Prompt[object], Sequence[PromptPart] | None]]
) -> tuple[PartOf, ...]:
    """Return the parts of several prompts that may change: named ones, or all sections with text.

    Raises:
        ConfigError: there are none.
    """
    all_parts = []
    for prompt, parts in prompts:
        free = map(SectionModule, free_sections(prompt)) if parts is None else parts
        all_parts += [PartOf(address_of(prompt), part) for part in free]
    if not all_parts:
        raise ConfigError(f"modules: no part of `{name}` may change; name some")
    return tuple(all_parts)


def free_sections(prompt: Prompt[object]) -> tuple[SectionPath, ...]:
    """Return the sections of a prompt that have a text and may change by default.

    Sections that are nothing but placeholders are among them only if all others are, too.
    """
    # A heading without a text of its own only groups others; a text with rules may begin empty.
    may_change = [
        (section, body)
        for section in prompt.descriptor.sections
        if section.overridable
        and ((body := prompt.section_body(section.path)).strip() or section.fault)
    ]
    with_text = [section for section, body in may_change if section.fault or section.has_text(body)]
    return tuple(section.path for section in with_text or [section for section, _ in may_change])


@attrs.frozen
class PromptsFlow:
    """The function of :class:`Prompts` as a flow; can be pickled if the function can.

    Attributes:
        run: the function.
        addresses: ``namespace/key`` of each prompt, by name.
        adapter: the adapter that answers.
        faults: exceptions of the function that are the candidate's fault.
    """

    run: Callable[..., Any]
    addresses: Mapping[str, str]
    adapter: ProviderAdapter
    faults: tuple[type[Exception], ...]

    def __call__(
        self,
        prompts: Mapping[str, Prompt[object]],
        example: GepaExample,
        *,
        session: Session,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        ask = Ask(
            prompts={name: prompts[address] for name, address in self.addresses.items()},
            adapter=self.adapter,
            session=session,
            deadline=deadline,
        )
        where = f"function {function_name(self.run)} on example `{example.id}`"
        return answer_of(
            self.run,
            *(ask, *example.params),
            where=where,
            session=session,
            deadline=deadline,
            faults=self.faults,
        )

    def check(self, prompts: Mapping[str, Prompt[object]], params: Sequence[object]) -> None:
        """Check that the function takes ``params``, and that the adapter serves every prompt.

        Raises:
            ConfigError: it does not.
        """
        if fault := call_fault(self.run, "ask", *(type(param).__name__ for param in params)):
            raise ConfigError(f"function {function_name(self.run)}: {fault}")
        for name, address in self.addresses.items():
            try:
                check_serves(self.adapter, prompts[address].with_placeholders())
            except ConfigError as error:
                raise ConfigError(f"prompts: `{name}`: {error}") from None


def address_of(prompt: Prompt[object]) -> str:
    """Return ``namespace/key`` of a prompt."""
    return f"{prompt.descriptor.ns}/{prompt.descriptor.key}"


Improvable = Prompt[object] | Subject | PromptSet | Target
"""Anything that a run can improve."""


def prompts_of(subject: Improvable) -> Mapping[str, Prompt[object]]:
    """Return the prompts whose parts may change, by ``namespace/key``."""
    match subject:
        case Prompt():
            return {address_of(subject): subject}
        case PromptSet():
            return subject.by_address
        # Last, because whatever has `prompt` and `adapter` matches the protocol.
        case Subject():
            return {address_of(subject.prompt): subject.prompt}
    return {}


def without_stores(prompts: Mapping[str, Prompt[object]]) -> dict[str, Prompt[object]]:
    """Return prompts without the stores that they read overrides from."""
    return {at: attrs.evolve(prompt, overrides_store=None) for at, prompt in prompts.items()}


def name_of(subject: Improvable) -> str:
    """Return the name of a subject in runs: ``namespace/key`` for a prompt."""
    match subject:
        case PromptSet():
            return subject.name
        case Target():
            return subject.identity.name
    return next(iter(prompts_of(subject)))
