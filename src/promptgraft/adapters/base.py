"""The contract between promptgraft and a model, and the function that calls an adapter."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import attrs

from promptgraft.adapters.facts import TOKENS_OF_IMAGE, ModelEnd
from promptgraft.errors import (
    AdapterError,
    ConfigError,
    EmptyAnswerError,
    JournalCorruptError,
    OutputError,
    PromptgraftError,
    TransientProviderError,
    user_errors,
)
from promptgraft.ground.content import File, Image
from promptgraft.ground.folders import temporary_folder
from promptgraft.ground.functions import raised_at
from promptgraft.ground.serde import HexDigest, Json, digest, shown
from promptgraft.ground.under_way import doing
from promptgraft.prompt.answers import ONLY_THOUGHTS, answer_text
from promptgraft.prompt.rendered import PromptRendered, RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import Session, SessionProtocol, places_of

_MICROSECONDS = 1_000_000

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)

_TOKENS_OF_PDF = 3_000  # two pages, as text and as images
CHARS_PER_TOKEN = 4
"""A common estimate for English."""


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one evaluation, as counted by the provider.

    Attributes:
        input_tokens: tokens sent, including cached ones.
        output_tokens: tokens received.
        cached_tokens: the part of the input tokens that the provider read from its cache.
        reasoning_tokens: the part of the output tokens that the model thought and did not show.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage()


@attrs.frozen(kw_only=True)
class PromptResponse(Generic[OutputT_co]):
    """The answer of a model.

    Attributes:
        text: the answer as text.
        output: the answer parsed into the prompt's output type; None when it has none.
        usage: tokens; all 0 if the provider does not count them.
        finish_reason: why the model stopped, in the provider's terms.
        notes: how the answer was repaired before it fitted the output type, one line each.
    """

    text: str
    output: OutputT_co | None = attrs.field(default=None, hash=False)
    usage: Usage = NO_USAGE
    finish_reason: str = "stop"
    notes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PromptExecuted:
    """A prompt was answered."""

    response: PromptResponse[object]


@attrs.frozen(kw_only=True)
class ToolInvoked:
    """A tool was called during an evaluation.

    Attributes:
        params: its parameters, as an instance of its parameter type if they are valid.
        result: its return value; None if it failed.
        error: the reason for the failure, in one line; empty if it succeeded.
    """

    name: str
    params: object = attrs.field(hash=False)
    result: object = attrs.field(hash=False)
    error: str = ""


@attrs.frozen(kw_only=True)
class ModelCalled:
    """A call of a model has ended: it was answered or given up.

    Attributes:
        model: the provider's name of the model.
        requests: requests sent, including retries; 0 if the call was given up before the first.
        usage: tokens that the provider counted.
        cost: US dollars; None if the price of the model is unknown.
        seconds: wall time, including waits.
        fault: why the call was given up, in one line; empty if it was answered.
    """

    model: str
    requests: int
    usage: Usage = NO_USAGE
    cost: Decimal | None
    seconds: float
    fault: str = ""


def called_to_json(call: ModelCalled) -> Json:
    """Return an answered call as the journal keeps it."""
    usage: list[Json] = [*attrs.astuple(call.usage)]
    return [
        call.model,
        call.requests,
        usage,
        None if call.cost is None else f"{call.cost:f}",
        round(call.seconds * _MICROSECONDS),
    ]


def _usage_from_json(plain: Json) -> Usage:
    match plain:
        case [int(sent), int(received), int(cached), int(thought)]:
            return Usage(
                input_tokens=sent,
                output_tokens=received,
                cached_tokens=cached,
                reasoning_tokens=thought,
            )
    return NO_USAGE


def called_from_json(plain: Json, key: str) -> ModelCalled:
    """Return the call that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: ``plain`` is not what :func:`called_to_json` wrote.
    """
    match plain:
        case [str(model), int(requests), usage, cost, int(passed)]:
            with contextlib.suppress(InvalidOperation):
                return ModelCalled(
                    model=model,
                    requests=requests,
                    usage=_usage_from_json(usage),
                    cost=None if cost is None else Decimal(str(cost)),
                    seconds=passed / _MICROSECONDS,
                )
    raise JournalCorruptError(
        f"the journal's record `{key}` holds no call where one should be; restore the journal"
    )


def free_call(model: str) -> ModelCalled:
    """Return the event of a call that costs neither money nor time."""
    return ModelCalled(model=model, requests=1, cost=Decimal(0), seconds=0.0)


@attrs.frozen(kw_only=True)
class CallWaiting:
    """A notice: a call will wait long enough to look like a hang.

    ``seconds`` is None if the duration is unknown.
    """

    model: str
    seconds: float | None
    reason: str


@attrs.frozen(kw_only=True)
class PromptAsked:
    """A notice: an adapter has answered or failed; published in the thread that called it.

    Attributes:
        adapter: the adapter.
        events: the events that it dispatched: the rendered prompt, calls of models and tools, and
            the answer.
        seconds: wall time, including waits.
    """

    adapter: ProviderAdapter
    events: tuple[object, ...] = attrs.field(repr=False, hash=False)
    seconds: float


class ProviderAdapter(Protocol):
    """Evaluates prompts; ``evaluate`` may be ``def`` or ``async def``.

    A plain ``evaluate`` may be called from several threads at once; an ``async`` one always runs in
    the event loop of the run.

    An optional attribute or property ``identity`` holds a name and version, without secrets. It is
    part of a run's fingerprint; it defaults to the name of the class.
    """

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT] | Awaitable[PromptResponse[OutputT]]:
        """Render ``prompt``, get an answer, and parse it.

        Dispatches ``PromptRendered`` and ``PromptExecuted`` to ``session``, and ``ModelCalled`` for
        every call of a model that costs something, which is charged to the session's budget.

        Raises:
            PromptRenderError: the prompt does not render (the candidate's fault).
            OutputError: the answer does not fit the output type (the candidate's fault).
            BindingError: a placeholder has no value (the caller's fault).
            ProviderError: the provider failed, after the adapter's own retries.
            LimitReachedError: ``deadline`` passed, the run was cancelled, or the budget of
                ``session`` is exhausted.
        """
        ...


@runtime_checkable
class MeteredAdapter(Protocol):
    """An adapter that can estimate the cost of calls before they are made.

    ``longest_answer`` is in tokens, None if the model decides; ``price_of`` returns US dollars,
    None if the price of the model is unknown.
    """

    @property
    def longest_answer(self) -> int | None: ...

    def price_of(self, usage: Usage) -> Decimal | None: ...


@runtime_checkable
class ChoosyAdapter(Protocol):
    """An adapter that can tell before a call whether it answers a prompt."""

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Raise a ``ConfigError`` if the adapter cannot answer a prompt."""
        ...


def check_serves(adapter: object, rendered: RenderedPrompt[object]) -> None:
    """Raise a ``ConfigError`` if an adapter says that it cannot answer a prompt."""
    if isinstance(adapter, ChoosyAdapter):
        adapter.check_prompt(rendered)


PRICES_LINE = "prices: {input: IN, output: OUT}"
"""The line of a project file that gives a model its prices, in US dollars for a million tokens."""

GIVE_PRICES = (
    f"give the model the line `{PRICES_LINE}` in the project file, or the adapter `prices=` in "
    "Python, in US dollars for a million tokens; or leave max_cost out"
)
"""Advice for a run with ``max_cost`` and a model without a known price."""


@runtime_checkable
class ThinkingAdapter(Protocol):
    """An adapter for a model that may think before it answers; ``thinking`` is in tokens."""

    @property
    def thinking(self) -> int: ...


@runtime_checkable
class CachingAdapter(Protocol):
    """An adapter whose provider caches the beginnings of prompts.

    ``cached_from`` is the length of the shortest beginning that is cached, in tokens; 0 for none.
    """

    @property
    def cached_from(self) -> int: ...


@runtime_checkable
class ForeseenAdapter(Protocol):
    """An adapter that knows what is to come of its model.

    ``end`` is the announced end of the model, ``is_thinking_assumed`` whether its ``thinking`` is
    not known but assumed.
    """

    @property
    def end(self) -> ModelEnd | None: ...

    @property
    def is_thinking_assumed(self) -> bool: ...


@runtime_checkable
class SeeingAdapter(Protocol):
    """An adapter that knows whether its model sees images, and how many tokens one is.

    ``sees`` is None if that is not known.
    """

    @property
    def sees(self) -> bool | None: ...

    def tokens_of_image(self, image: Image) -> int: ...


def tokens_of_image(adapter: object, image: Image) -> int:
    """Return the tokens that an image is expected to cost with an adapter's model."""
    return adapter.tokens_of_image(image) if isinstance(adapter, SeeingAdapter) else TOKENS_OF_IMAGE


def tokens_of_file(adapter: object, file: File) -> int:
    """Return the tokens that a file is expected to cost with an adapter's model."""
    if isinstance(file, Image):
        return tokens_of_image(adapter, file)
    return _TOKENS_OF_PDF if file.text is None else len(file.text) // CHARS_PER_TOKEN


def sees_images(adapter: object) -> bool:
    """Return whether the model of an adapter is known to see images."""
    return isinstance(adapter, SeeingAdapter) and adapter.sees is True


@runtime_checkable
class OpenedAdapter(Protocol):
    """An adapter that acquires something for the duration of a run, such as files."""

    def opened(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context for one run; the adapter keeps its files below ``folder``."""
        ...


@runtime_checkable
class ChecksOpening(Protocol):
    """Something that can tell, without a change, whether it could be opened now."""

    def check_opening(self) -> None:
        """Raise a ``ConfigError`` if it could not."""
        ...


def check_opening(adapter: object) -> None:
    """Raise a ``ConfigError`` if an adapter says that it cannot be opened for a run now."""
    if isinstance(adapter, ChecksOpening):
        adapter.check_opening()


@contextlib.contextmanager
def opened(adapter: object, folder: Path | None = None) -> Iterator[None]:
    """Open an adapter for a run if it is an :class:`OpenedAdapter`; may be nested.

    Args:
        adapter: any adapter, or None.
        folder: the folder of the run; None for a temporary one.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(adapter, OpenedAdapter):
            if folder is None:
                folder = stack.enter_context(temporary_folder())
            stack.enter_context(adapter.opened(folder))
        yield


def adapter_identity(adapter: ProviderAdapter) -> str:
    """Return the ``identity`` of an adapter, or the name of its class."""
    identity: object = getattr(adapter, "identity", None)
    return type(adapter).__name__ if identity is None else str(identity)


def is_in_batches(adapter: object) -> bool:
    """Return whether an adapter is set to have its calls answered in batches."""
    return getattr(adapter, "in_batches", False) is True


def is_nameless(adapter: ProviderAdapter) -> bool:
    """Return whether an adapter lacks an ``identity``."""
    return getattr(adapter, "identity", None) is None


EVALUATE = "method `evaluate(prompt, *, session, deadline=None)`"


def has_evaluate(value: object) -> bool:
    """Return whether a value, or an instance of it if it is a class, evaluates prompts."""
    return callable(getattr(value, "evaluate", None))


def check_adapter(value: object, what: str) -> None:
    """Raise ``ConfigError`` if a value is not an adapter, such as a class or a function."""
    answers = has_evaluate(value)
    if answers and not isinstance(value, type):
        return
    why = "it is a class, not an instance" if answers else f"it has no {EVALUATE}"
    raise ConfigError(f"{what}: expected an adapter, found {shown(value)}; {why}")


def evaluated(
    adapter: ProviderAdapter,
    prompt: Prompt[OutputT],
    *,
    session: SessionProtocol,
    deadline: Deadline | None = None,
) -> PromptResponse[OutputT]:
    """Call an adapter, whether its ``evaluate`` is plain or ``async``, and return its response.

    Raises what :meth:`ProviderAdapter.evaluate` does. ``ConnectionError`` and ``TimeoutError``
    become a ``TransientProviderError``. Any other exception, and a return value that is not a
    response, become an ``AdapterError`` that names the adapter and the example or question. An
    answer without a ``ModelCalled`` event counts as one call.

    In a run with a journal, an answer that it keeps is not asked for again; see ``kept_whole``.
    """
    places = places_of(session) if kept_whole(adapter) else None
    if places is None:
        return _answer(adapter, prompt, session, deadline)[0]
    place = places.next()
    places.kept.begin()
    if places.kept.holds_any:
        question = _question_of(adapter, prompt.render())
        recalled = _recalled(prompt, places.kept.find(place, question), place, session)
        if recalled is not None:
            return recalled
    places_taken = places.taken
    response, events = _answer(adapter, prompt, session, deadline)
    # Unless it has made calls that are kept themselves, such as those of a model that it wraps.
    if places.taken == places_taken:
        places.kept.keep(place, partial(_kept_answer, adapter, response, events))
    return response


def _answer(
    adapter: ProviderAdapter,
    prompt: Prompt[OutputT],
    session: SessionProtocol,
    deadline: Deadline | None,
) -> tuple[PromptResponse[OutputT], tuple[object, ...]]:
    """Return the response of an adapter, and the events of its making."""
    where = f"adapter `{adapter_identity(adapter)}` on {_subject(prompt, session)}"
    # A session may hold events of earlier evaluations, such as other steps of a graph.
    before, began = len(session.select_all(object)), time.perf_counter()
    try:
        with doing(where):
            answer = adapter.evaluate(prompt, session=session, deadline=deadline)
            response = awaited(answer, deadline=deadline)
    except PromptgraftError:
        raise
    # What the standard library raises for a network; an adapter need not know our errors.
    except (ConnectionError, TimeoutError) as error:
        raise TransientProviderError(f"{where} raised {raised_at(error)}") from error
    except user_errors() as error:
        raise AdapterError(
            f"{where} raised {raised_at(error)}; raise a TransientProviderError for failures that "
            "may pass"
        ) from error
    finally:
        # Also after a failure: what was spent on it is counted and shown all the same.
        seconds = time.perf_counter() - began
        events = session.select_all(object)[before:]
        if not any(isinstance(event, ModelCalled) for event in events):
            events = _counted(adapter, session, events)
        session.notify(PromptAsked(adapter=adapter, events=events, seconds=seconds))
    if fault := _fault_of(response):
        raise AdapterError(
            f"{where}: `evaluate` must return a PromptResponse, {fault}; "
            "`promptgraft.adapters.base.answered` builds one"
        )
    return response, events


def _subject(prompt: Prompt[OutputT], session: SessionProtocol) -> str:
    """Return the name of what is answered: an example, or a prompt by its purpose."""
    tags = session.tags
    if example := tags.get("example") or tags.get("case"):
        return f"example `{example}`"
    return f"the {tags.get('scope', 'prompt')} `{prompt.descriptor.key}`"


def kept_whole(adapter: ProviderAdapter) -> bool:
    """Return whether a journal keeps what ``evaluate`` returns.

    Adapters set ``kept_whole`` to False if their answers cost nothing, or if each of their calls is
    kept by itself, as those of models over HTTP and of the steps of a graph are.
    """
    return getattr(adapter, "kept_whole", True) is not False


def _question_of(adapter: ProviderAdapter, rendered: RenderedPrompt[object]) -> HexDigest:
    tools = [[tool.tool.name, tool.description, tool.param_descriptions] for tool in rendered.tools]
    return digest([adapter_identity(adapter), rendered.text, rendered.output_schema, tools])


def _kept_answer(
    adapter: ProviderAdapter, response: PromptResponse[object], events: Sequence[object]
) -> tuple[HexDigest, Json] | None:
    """Return question and answer as the journal keeps them; None if they cannot be made again."""
    rendered = [event.prompt for event in events if isinstance(event, PromptRendered)]
    calls = [event for event in events if isinstance(event, ModelCalled)]
    if len(rendered) != 1 or len(events) != len(calls) + 2:
        return None  # it called tools, asked several prompts, or told of something else
    usage = attrs.astuple(response.usage)
    answer_json: dict[str, Json] = {
        "text": response.text,
        "usage": [*usage],
        "finish_reason": response.finish_reason,
    }
    if _made_again(rendered[0], answer_json, Session()) != response:
        return None  # parsed in a way of its own
    plain: list[Json] = [called_to_json(call) for call in calls]
    return _question_of(adapter, rendered[0]), {"calls": plain, "response": answer_json}


def _made_again(
    rendered: RenderedPrompt[OutputT], told: Json, session: SessionProtocol
) -> PromptResponse[OutputT] | None:
    match told:
        case {"text": str(text), "usage": counted, "finish_reason": str(why)}:
            usage = _usage_from_json(counted)
            return answered(rendered, text, session=session, usage=usage, finish_reason=why)
    return None


def _recalled(
    prompt: Prompt[OutputT], kept: Json, place: str, session: SessionProtocol
) -> PromptResponse[OutputT] | None:
    """Return the answer that an earlier process has paid for, with the events of its making."""
    match kept:
        case {"calls": list(calls), "response": told}:
            rendered = prompt.render(session)
            for call in calls:
                session.dispatch(called_from_json(call, place))
            return _made_again(rendered, told, session)
    return None


def _counted(
    adapter: ProviderAdapter, session: SessionProtocol, events: tuple[object, ...]
) -> tuple[object, ...]:
    """Count a call of an adapter that reported none, if it answered."""
    answers = [event for event in events if isinstance(event, PromptExecuted)]
    if not answers:
        return events
    # A simple adapter still counts as one call, of unknown cost rather than 0.
    model, usage = adapter_identity(adapter), answers[-1].response.usage
    call = ModelCalled(model=model, requests=1, usage=usage, cost=None, seconds=0.0)
    session.dispatch(call)
    return (*events, call)


def _fault_of(response: object) -> str:
    """Return why a value is not a valid response; empty if it is."""
    if not isinstance(response, PromptResponse):
        return f"found {shown(response)}"
    for name, kind in (("text", str), ("usage", Usage), ("finish_reason", str)):
        value: object = getattr(response, name)
        if not isinstance(value, kind):
            return f"its {name}: expected a {kind.__name__}, found {shown(value)}"
    return ""


def answered(
    rendered: RenderedPrompt[OutputT],
    text: str,
    *,
    session: SessionProtocol,
    usage: Usage = NO_USAGE,
    finish_reason: str = "stop",
) -> PromptResponse[OutputT]:
    """Build the response for a text, for implementations of :class:`ProviderAdapter`.

    Thoughts before the answer are left out. ``PromptExecuted`` is dispatched even if parsing the
    text raises ``OutputError``, so that the session also records answers that do not fit the output
    type.
    """
    answer = answer_text(text)
    try:
        if text.strip() and not answer.strip():
            raise EmptyAnswerError(ONLY_THOUGHTS)
        parsed = rendered.read(answer)
    except OutputError:
        unparsed = PromptResponse[object](text=text, usage=usage, finish_reason=finish_reason)
        session.dispatch(PromptExecuted(response=unparsed))
        raise
    response = PromptResponse(
        text=answer,
        output=parsed.output,
        usage=usage,
        finish_reason=finish_reason,
        notes=parsed.notes,
    )
    session.dispatch(PromptExecuted(response=response))
    return response
