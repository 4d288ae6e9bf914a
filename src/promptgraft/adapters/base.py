"""Who answers: the contract between promptgraft and a model."""

from __future__ import annotations

from decimal import Decimal
from typing import Generic, Protocol, TypeVar, runtime_checkable

import attrs

from promptgraft.errors import OutputError
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one evaluation, as its provider counts them.

    Attributes:
        input_tokens: tokens sent, cached ones included.
        output_tokens: tokens received.
        cached_tokens: those of the sent tokens that the provider read from its cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


NO_USAGE = Usage()


@attrs.frozen(kw_only=True)
class PromptResponse(Generic[OutputT_co]):
    """What a model answered.

    Attributes:
        text: the answer as text.
        output: the answer parsed into the prompt's output type; None when it has none.
        usage: tokens, if the provider counts them.
        finish_reason: why the model stopped, in the provider's word.
    """

    text: str
    output: OutputT_co | None = None
    usage: Usage = NO_USAGE
    finish_reason: str = "stop"


@attrs.frozen(kw_only=True)
class PromptExecuted:
    """A prompt was answered."""

    response: PromptResponse[object]


@attrs.frozen(kw_only=True)
class ToolInvoked:
    """A tool was called during an evaluation.

    Attributes:
        name: the tool.
        params: its parameters, as an instance of its type where they fitted it.
        result: what it returned; None when it failed.
        error: why it failed, in one line; empty when it did not.
    """

    name: str
    params: object
    result: object
    error: str = ""


@attrs.frozen(kw_only=True)
class ModelCalled:
    """A call of a model is over: it was answered, or given up.

    Attributes:
        model: the model, in its provider's word.
        requests: requests that were sent for it, retries included; 0 when it was given up
            before the first.
        usage: tokens, as far as the provider counted them.
        cost: US dollars; None when the price of the model is not known.
        seconds: wall time, waits included.
        fault: why it was given up, in one line; empty when it was answered.
    """

    model: str
    requests: int
    usage: Usage = NO_USAGE
    cost: Decimal | None
    seconds: float
    fault: str = ""


def free_call(model: str) -> ModelCalled:
    """Return the event of a call that costs neither money nor time worth telling."""
    return ModelCalled(model=model, requests=1, cost=Decimal(0), seconds=0.0)


@attrs.frozen(kw_only=True)
class CallWaiting:
    """A notice: a call waits for long enough to look like a hang.

    Attributes:
        model: the model that is called.
        seconds: how long, if that is known.
        reason: why, in a few words.
    """

    model: str
    seconds: float | None
    reason: str


class ProviderAdapter(Protocol):
    """Evaluates prompts. Implementations may be called from several threads at once."""

    @property
    def identity(self) -> str:
        """Name and version of what answers, without secrets; part of a run's fingerprint."""
        ...

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Render ``prompt``, have it answered, and parse the answer.

        Dispatches ``PromptRendered`` and ``PromptExecuted`` to ``session``, and for every
        call of a model that costs something ``ModelCalled``, paid from the session's budget.

        Raises:
            PromptRenderError: the prompt does not render (the candidate's fault).
            OutputError: the answer does not fit the output type (the candidate's fault).
            BindingError: a placeholder has no value (the caller's fault).
            ProviderError: the provider failed, after the adapter's own retries.
            LimitReachedError: ``deadline`` passed, the run was cancelled, or the budget of
                ``session`` is used up.
        """
        ...


@runtime_checkable
class MeteredAdapter(Protocol):
    """An adapter that can say what calls will cost before they are made."""

    @property
    def longest_answer(self) -> int | None:
        """Tokens of the longest answer; None when the model decides."""
        ...

    def price_of(self, usage: Usage) -> Decimal | None:
        """Return US dollars for a call; None when the price of the model is not known."""
        ...


def answered(
    rendered: RenderedPrompt[OutputT],
    text: str,
    *,
    session: SessionProtocol,
    usage: Usage = NO_USAGE,
    finish_reason: str = "stop",
) -> PromptResponse[OutputT]:
    """Build the response for an answer's text and dispatch ``PromptExecuted``.

    For implementations of :class:`ProviderAdapter`. The event is dispatched before the text
    is parsed, so that an answer which does not fit is seen in the session all the same.

    Raises:
        OutputError: the text does not fit the output type.
    """
    try:
        output = rendered.parse(text)
    except OutputError:
        unparsed = PromptResponse[object](text=text, usage=usage, finish_reason=finish_reason)
        session.dispatch(PromptExecuted(response=unparsed))
        raise
    response = PromptResponse(text=text, output=output, usage=usage, finish_reason=finish_reason)
    session.dispatch(PromptExecuted(response=response))
    return response
