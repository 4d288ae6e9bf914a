"""Named texts of a Python function: a prompt of plain sections that the function answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import attrs

from promptgraft import errors
from promptgraft.adapters.base import PromptExecuted, PromptResponse, ProviderAdapter, free_call
from promptgraft.evals.spending import Spending
from promptgraft.evals.types import Case
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import call_fault, function_name
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import STRING, Check
from promptgraft.overrides.parts.validation import check_key
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import Placeholders, TextsPrompt, texts_in
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol, Watch

T = TypeVar("T")
OutputT = TypeVar("OutputT")


@runtime_checkable
class OwnCodeAdapter(Protocol):
    """An adapter that calls the user's own code, and so is kept by a dry run."""

    @property
    def own_functions(self) -> Mapping[str, object]:
        """The functions that decide its answers, by the names that a fingerprint has for them."""
        ...


@runtime_checkable
class PlayingAdapter(ProviderAdapter, Protocol):
    """An adapter of an agent, which plays the turns of cases and is tried before a run."""

    @property
    def agent_name(self) -> str:
        """The name under which the agent's calls are counted."""
        ...

    @property
    def unknown_cost(self) -> str:
        """Which calls of the agent have no known cost, for the plan; empty if each has a bound."""
        ...

    @property
    def missing_tokens(self) -> str:
        """Which tokens of the agent ``max_tokens`` does not see, for the plan of a run."""
        ...

    @property
    def first_call(self) -> str:
        """What :meth:`rehearse` asks, for the plan of a run."""
        ...

    def most_turns(self, case: Case) -> int:
        """Return the largest number of turns that a case may take."""
        ...

    def rehearse(
        self,
        prompt: Prompt[object],
        cases: Iterable[Case],
        *,
        watch: Watch,
        deadline: Deadline | None,
    ) -> tuple[Spending, ...]:
        """Ask the agent the first turn of a case, and of others while it fails.

        Returns what the calls have cost.

        Raises:
            CallerError: it failed every time; with file and line of the user's code.
            ProviderError: it was unreachable every time.
            LimitReachedError: time ran out.
        """
        ...


def by_name(values: object, kind: Check[T], field: str, example: str) -> Mapping[str, T]:
    """Return a user's mapping of names to values as an immutable mapping.

    Raises:
        ConfigError: it is not a mapping, is empty, or holds another kind of value.
    """
    if not isinstance(values, Mapping) or not values:
        raise errors.ConfigError(
            f"{field}: expected {field} by name such as {example}, found {shown(values)}"
        )
    for name, value in values.items():
        kind.hold(f"{field}: {name!r}", value)
    return FrozenMap(values)


def as_texts(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return texts by name as an immutable mapping; refuse anything else."""
    return by_name(texts, STRING, "texts", '{"router": "…"}')


def as_errors(kinds: type[Exception] | Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    """Return the exceptions that are the fault of a candidate as a tuple."""
    # Users may pass anything, whatever the annotation says.
    error_types: tuple[Any, ...] = (kinds,) if isinstance(kinds, type) else tuple(kinds)
    for kind in error_types:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise errors.ConfigError(
                "candidate_errors: expected exception classes such as (ValueError,), "
                f"found {shown(kind)}"
            )
    return error_types


def _key_of_function(texts: Texts) -> str:
    name = function_name(texts.run).rpartition(".")[2]
    return check_key(name.lower().strip("_"), "key (give one; by default the name of the function)")


@attrs.frozen
class Texts:
    """Named texts that a function of your own uses, so that they can be improved.

    They form a prompt of plain sections, with an adapter that calls the function; a run accepts
    the object in place of a prompt.

    Attributes:
        texts: the texts by name. Every character is literal.
        run: ``run(texts, *params)``, plain or ``async``, called with the texts of one candidate
            by name, in a read-only mapping, and with the ``params`` of the example, which are
            copies during a run. It returns a text, an object, or a ``PromptResponse``. An object
            becomes the response's ``output``, and its text is its canonical JSON, or ``str`` of
            it if it has no JSON form. Called from several threads if there is an executor.
        ns: namespace of the prompt.
        key: key of the prompt; by default the name of the function.
        placeholders: strings that must be kept, such as ``{query}``: every text keeps those of the
            list that it contains. Or lists by the name of the text that must contain them.
        frozen: names of texts that are passed to the function and never changed.
        candidate_errors: exceptions of the function that are the fault of the texts: the example
            scores 0, and the reflection model sees the reason.
        prompt: the prompt, with one section for each text. Parameters of any type can be bound.
        adapter: calls the function.

    Raises:
        ConfigError: an argument is invalid; names it.
        InvalidIdentifierError: a name, ``ns`` or ``key`` is not an identifier.
        PromptDefinitionError: a text does not contain its placeholder.
    """

    texts: Mapping[str, str] = attrs.field(converter=as_texts)
    run: Callable[..., Any] = attrs.field(kw_only=True)
    ns: str = attrs.field(default="texts", kw_only=True)
    key: str = attrs.field(default=attrs.Factory(_key_of_function, takes_self=True), kw_only=True)
    placeholders: Placeholders = attrs.field(default=(), kw_only=True)
    frozen: tuple[str, ...] = attrs.field(default=(), converter=tuple, kw_only=True)
    candidate_errors: tuple[type[Exception], ...] = attrs.field(
        default=(), converter=as_errors, kw_only=True
    )
    prompt: Prompt[object] = attrs.field(init=False, repr=False)
    adapter: ProviderAdapter = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not callable(self.run):
            raise errors.ConfigError(f"run: expected a function, found {shown(self.run)}")
        prompt = TextsPrompt.of(
            self.texts, ns=self.ns, key=self.key, placeholders=self.placeholders, frozen=self.frozen
        )
        adapter = TextsAdapter(self.run, names=tuple(self.texts), faults=self.candidate_errors)
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "adapter", adapter)

    def prompt_in(self, store: PromptOverridesStore, tag: str = DEFAULT_TAG) -> Prompt[object]:
        """Return the prompt with the overrides that ``store`` holds under ``tag``."""
        return attrs.evolve(self.prompt, overrides_store=store, overrides_tag=tag)

    def current(self, store: PromptOverridesStore, tag: str = DEFAULT_TAG) -> Mapping[str, str]:
        """Return the texts in force: those of ``store`` that still apply, else the source's.

        Raises:
            StoreError: the store cannot be read.
        """
        return texts_in(self.prompt_in(store, tag).render())


@attrs.frozen
class TextsAdapter:
    """Answers by calling a function with the texts of a prompt and its parameters.

    Can be pickled if the function can.

    Attributes:
        run: the function.
        names: the texts that it is called with.
        faults: exceptions of the function that are the candidate's fault.
    """

    kept_whole: ClassVar[bool] = False

    run: Callable[..., Any]
    names: tuple[str, ...] = attrs.field(kw_only=True)
    faults: tuple[type[Exception], ...] = attrs.field(kw_only=True)

    @property
    def identity(self) -> str:
        """File and name of the function, or its own attribute ``identity``."""
        run_identity = getattr(self.run, "identity", None)
        return (
            run_identity if isinstance(run_identity, str) else f"function {function_name(self.run)}"
        )

    @property
    def own_functions(self) -> Mapping[str, object]:
        """The function."""
        return {"run": self.run}

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        """Call the function; raises as :func:`answer_of` and :meth:`check_bound` do."""
        if deadline is not None:
            deadline.check()
        texts = self._texts_of(prompt.render(session))
        example = session.tags.get("example") or session.tags.get("case")
        where = f"{self.identity} on example `{example}`" if example else self.identity
        try:
            arguments = texts, *prompt.params
            response = answer_of(
                self.run,
                *arguments,
                where=where,
                session=session,
                deadline=deadline,
                faults=self.faults,
            )
        except (errors.CandidateError, errors.ProviderError):
            session.dispatch(free_call(self.identity))
            raise
        session.dispatch(PromptExecuted(response=response))
        return response

    def check_bound(self, prompt: Prompt[object]) -> None:
        """Refuse a prompt that is not that of the function, or parameters that it does not take."""
        self._texts_of(prompt.render())
        arguments = "texts", *(type(param).__name__ for param in prompt.params)
        if fault := call_fault(self.run, *arguments):
            raise errors.ConfigError(f"{self.identity}: {fault}")

    def _texts_of(self, rendered: RenderedPrompt[object]) -> Mapping[str, str]:
        texts = texts_in(rendered)
        if tuple(texts) != self.names:
            raise errors.ConfigError(
                f"{self.identity}: expected the texts {', '.join(self.names)}, found the prompt "
                f"`{rendered.ns}/{rendered.key}`; give the context a reflection_adapter or "
                "another adapter"
            )
        return texts


def answer_of(
    function: Callable[..., Any], *arguments: object, **settings: Any
) -> PromptResponse[Any]:
    """Call a function: see :func:`promptgraft.targets.functions.answer_of`."""
    from promptgraft.targets import functions  # most programs call a model

    return functions.answer_of(function, *arguments, **settings)
