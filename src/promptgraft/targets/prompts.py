"""Several prompts that a function answers with, so that they are improved together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter, evaluated
from promptgraft.errors import CallerError, ConfigError
from promptgraft.functions import function_name
from promptgraft.parts.validation import check_ns
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session
from promptgraft.serde import did_you_mean, shown
from promptgraft.strict.checks import instance
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.part import PromptModule
from promptgraft.targets.texts import answer_of, as_errors, by_name
from promptgraft.targets.types import GepaExample
from promptgraft.text import listed


@attrs.frozen(kw_only=True)
class Ask:
    """Has the prompts of one candidate answered, for one example.

    Attributes:
        prompts: the prompts, by the names that :class:`Prompts` gives them.
        adapter: answers.
        session: where they are evaluated.
        deadline: until when.
    """

    prompts: Mapping[str, Prompt[object]]
    adapter: ProviderAdapter
    session: Session
    deadline: Deadline | None

    def __call__(self, name: str, *params: object) -> PromptResponse[object]:
        """Return what is answered to a prompt that is bound to ``params``.

        Raises:
            CallerError: there is no such prompt, or ``params`` do not fit it.
            CandidateError, ProviderError, LimitReachedError: as adapters do; to be left alone.
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
class Prompts:
    """Several prompts and the function that answers with them; a run takes it like a prompt.

    Attributes:
        prompts: the prompts by name.
        run: ``run(ask, *params)``, plain or ``async``, called with an :class:`Ask` and the
            ``params`` of the example; ``ask("router", ticket).text`` has one prompt answered by
            the adapter of the run. It returns a text, an object or a ``PromptResponse``, as the
            function of ``Texts`` does. Called from several threads when there is an executor.
        name: how runs name all of it, in the form of a namespace; the name of the function by
            default.
        modules: the parts that may change by the name of their prompt; by default every section
            with a text.
        candidate_errors: exceptions of the function that are the fault of the texts, such as that
            of a parser: the example scores 0, and the reflector is told why.

    Raises:
        ConfigError: an argument is not what it must be, or two prompts have one namespace and key.
        InvalidIdentifierError: ``name`` is no namespace.
    """

    prompts: Mapping[str, Prompt[object]] = attrs.field(converter=_as_prompts)
    run: Callable[..., Any] = attrs.field(kw_only=True)
    name: str = attrs.field(kw_only=True)
    modules: Mapping[str, Sequence[PromptModule]] = attrs.field(factory=dict, kw_only=True)
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
        """The prompts by ``namespace/key``, in the order of these."""
        found = {address_of(prompt): prompt for prompt in self.prompts.values()}
        return dict(sorted(found.items()))


@attrs.frozen(kw_only=True)
class PromptsFlow:
    """The function of :class:`Prompts` as a flow; pickles when the function does.

    Attributes:
        run: the function.
        addresses: ``namespace/key`` of each prompt, by name.
        adapter: answers.
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
            self.run, ask, *example.params, where=where, deadline=deadline, faults=self.faults
        )


def address_of(prompt: Prompt[object]) -> str:
    """Return ``namespace/key`` of a prompt."""
    return f"{prompt.descriptor.ns}/{prompt.descriptor.key}"


Improvable = Prompt[object] | Subject | Prompts | Target
"""What a run improves."""


def prompts_of(subject: Improvable) -> Mapping[str, Prompt[object]]:
    """Return the prompts whose parts may change, by ``namespace/key``."""
    match subject:
        case Prompt():
            return {address_of(subject): subject}
        case Prompts():
            return subject.by_address
        case Subject():
            return {address_of(subject.prompt): subject.prompt}
    return {}


def name_of(subject: Improvable) -> str:
    """Return how runs name a subject: ``namespace/key`` of a prompt."""
    match subject:
        case Prompts():
            return subject.name
        case Target():
            return subject.identity.name
    return next(iter(prompts_of(subject)))
