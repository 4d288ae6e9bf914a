"""The contract between promptgraft and a model, and the function that calls an adapter."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from types import FunctionType
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

import attrs

from promptgraft import errors
from promptgraft.ground.content import Image
from promptgraft.ground.functions import raised_at
from promptgraft.ground.serde import HexDigest, Json, digest, shown
from promptgraft.ground.under_way import doing
from promptgraft.prompt.answers import ONLY_THOUGHTS, answer_text
from promptgraft.prompt.rendered import OutputT_co, PromptRendered, RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import Session, SessionProtocol, places_of

_MICROSECONDS = 1_000_000

Ask: TypeAlias = Callable[[str], object]
"""Sends a text to a model and returns its reply, now or later: a text, or an object of an SDK."""
OutputT = TypeVar("OutputT")


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
        requests: requests sent, including retries; 0 if the call was given up before the first,
            or got the answer to an earlier one.
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
    raise errors.JournalCorruptError(
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


def adapter_identity(adapter: ProviderAdapter) -> str:
    """Return the ``identity`` of an adapter, or the name of its class."""
    identity: object = getattr(adapter, "identity", None)
    return type(adapter).__name__ if identity is None else str(identity)


def is_nameless(adapter: ProviderAdapter) -> bool:
    """Return whether an adapter lacks an ``identity``."""
    return getattr(adapter, "identity", None) is None


EVALUATE = "method `evaluate(prompt, *, session, deadline=None)`"


def has_evaluate(value: object) -> bool:
    """Return whether a value, or an instance of it if it is a class, evaluates prompts."""
    return callable(getattr(value, "evaluate", None))


def check_adapter(value: object, what: str) -> ProviderAdapter:
    """Return a value, or raise ``ConfigError`` if it is no adapter, such as a class."""
    answers = has_evaluate(value)
    if answers and not isinstance(value, type):
        return cast("ProviderAdapter", value)
    why = "it is a class, not an instance" if answers else f"it has no {EVALUATE}"
    if isinstance(value, FunctionType):
        why = "`FunctionAdapter(f)` of promptgraft.adapters asks a function"
    raise errors.ConfigError(f"{what}: expected an adapter, found {shown(value)}; {why}")


def evaluated(
    adapter: ProviderAdapter,
    prompt: Prompt[OutputT],
    *,
    session: SessionProtocol,
    deadline: Deadline | None = None,
) -> PromptResponse[OutputT]:
    """Call an adapter, whether its ``evaluate`` is plain or ``async``, and return its response.

    Raises what :meth:`ProviderAdapter.evaluate` does. ``ConnectionError`` and ``TimeoutError``
    become a ``TransientProviderError``, a ``PromptEvaluationError`` that does not say whose fault
    it is a ``ProviderError``. Any other exception, and a return value that is not a response,
    become an ``AdapterError`` that names the adapter and the example or question. An answer or
    a failure without a ``ModelCalled`` event counts as one call.

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
    except (errors.CandidateError, errors.ProviderError):
        raise
    except errors.PromptEvaluationError as error:
        # It does not say whose fault it is, and only a candidate's own fault is a score of 0.
        raise errors.ProviderError(f"{where}: {error}") from error
    except errors.PromptgraftError:
        raise
    # Network errors of the standard library; an adapter need not know our errors.
    except (ConnectionError, TimeoutError) as error:
        raise errors.TransientProviderError(f"{where} raised {raised_at(error)}") from error
    except errors.user_errors() as error:
        raise errors.AdapterError(
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
        raise errors.AdapterError(
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
    answer_json: dict[str, Json] = {
        "text": response.text,
        "usage": [*attrs.astuple(response.usage)],
        "finish_reason": response.finish_reason,
    }
    if _response_of(rendered[0], answer_json, Session()) != response:
        return None  # parsed in a way of its own
    plain: list[Json] = [called_to_json(call) for call in calls]
    return _question_of(adapter, rendered[0]), {"calls": plain, "response": answer_json}


def _response_of(
    rendered: RenderedPrompt[OutputT], answer_json: Json, session: SessionProtocol
) -> PromptResponse[OutputT] | None:
    match answer_json:
        case {"text": str(text), "usage": counted, "finish_reason": str(why)}:
            usage = _usage_from_json(counted)
            return answered(rendered, text, session=session, usage=usage, finish_reason=why)
    return None


def _recalled(
    prompt: Prompt[OutputT], answer_json: Json, place: str, session: SessionProtocol
) -> PromptResponse[OutputT] | None:
    """Return the answer that an earlier process has paid for, with the events of its making."""
    match answer_json:
        case {"calls": list(calls), "response": answer}:
            rendered = prompt.render(session)
            for call in calls:
                session.dispatch(called_from_json(call, place))
            return _response_of(rendered, answer, session)
    return None


def _counted(
    adapter: ProviderAdapter, session: SessionProtocol, events: tuple[object, ...]
) -> tuple[object, ...]:
    """Count a call of an adapter that reported none, if it answered or has failed to."""
    answers = [event for event in events if isinstance(event, PromptExecuted)]
    has_failed = isinstance(sys.exception(), errors.ProviderError)
    if not answers and not (has_failed and kept_whole(adapter)):
        return events
    # A simple adapter still counts as one call, of unknown cost rather than 0.
    call = free_call(adapter_identity(adapter))
    if answers:
        call = attrs.evolve(call, usage=answers[-1].response.usage, cost=None)
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
            raise errors.EmptyAnswerError(ONLY_THOUGHTS)
        parsed = rendered.read(answer)
    except errors.OutputError:
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


class FreeAdapter:
    """Base of adapters that call nothing: their answers are free and kept by no journal.

    They see images, as far as captions go.

    Args:
        identity: the name in a run's fingerprint.
    """

    kept_whole = False
    longest_answer = 0

    def __init__(self, identity: str) -> None:
        self.identity = identity

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identity}>"

    @property
    def sees(self) -> bool:
        return True

    def tokens_of_image(self, image: Image) -> int:
        return 0

    def price_of(self, usage: Usage) -> Decimal:
        return Decimal(0)
