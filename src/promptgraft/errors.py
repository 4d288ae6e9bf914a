"""Every error that promptgraft raises on purpose.

The second level of the tree says whose fault an error is: the optimizer treats each kind
differently (``specs/errors.md``).

.. code-block:: text

    PromptgraftError
    ├── CallerError                      raised at once, names the field or the example
    │   ├── ConfigError                  (ValueError)  a setting is unusable
    │   │   └── MissingHereError         this machine lacks a key, a package or a program
    │   ├── DataFormatError              (ValueError)  data from outside has the wrong shape
    │   ├── PromptDefinitionError        (ValueError)  a template contradicts itself
    │   ├── BindingError                 (ValueError)  bound parameters do not fit the prompt
    │   ├── InvalidIdentifierError       (ValueError)  ns, key or tag is not an identifier
    │   ├── UnknownPartError             (LookupError) the prompt has no such part
    │   ├── InvalidOverrideError         (ValueError)  an override that must not be written
    │   ├── HashMismatchError            (ValueError)  an override made for another source text
    │   ├── AdapterError                 the user's adapter broke the contract of adapters
    │   ├── FeedbackError                the user's feedback function failed
    │   ├── FlowError                    the user's flow of a graph failed
    │   └── StopperError                 the user's stopper failed
    ├── PromptEvaluationError            a prompt has no usable answer
    │   ├── CandidateError               the candidate's fault: the rollout scores 0
    │   │   ├── PromptRenderError        (ValueError)  the prompt does not render
    │   │   ├── PromptTooLongError       (ValueError)  the prompt does not fit the model
    │   │   ├── AgentFaultError          an agent failed, or returned an invalid answer
    │   │   └── OutputError              (ValueError)  the answer does not fit the output type
    │   │       ├── TruncatedAnswerError the model ran into its length limit
    │   │       ├── RefusedAnswerError   the model refused, or a filter did
    │   │       ├── EmptyAnswerError     the model answered nothing
    │   │       └── ToolRoundsError      the model kept calling tools
    │   └── ProviderError                the provider's fault: the rollout stays unscored
    │       ├── TransientProviderError   a retry may succeed
    │       │   └── RateLimitedError     too many requests; may say when to retry
    │       ├── RejectedRequestError     refuses this one request, however often it is sent
    │       └── PermanentProviderError   fails until its cause is fixed
    ├── LimitReachedError                the run stops cleanly with the best so far
    │   ├── DeadlineExceededError        (TimeoutError)
    │   ├── RunCancelledError            the run was asked to stop
    │   │   └── StopFileFoundError       with a stop file
    │   ├── RunPausedError               the run was asked to pause
    │   └── BudgetExhaustedError
    ├── StoreError                       the override store cannot read or write
    │   ├── RevisionNotFoundError        (LookupError)
    │   ├── OverrideConflictError        another writer has changed the same part
    │   └── WinnerNotStoredError         carries the result of the run
    └── JournalError                     the journal of a run cannot be used
        ├── JournalLockedError           another process runs on it
        ├── JournalCorruptError          its bytes are not what was written
        ├── JournalMismatchError         it belongs to another run
        ├── LeaseLostError               another worker has taken over the job
        └── JournalWriteError            it cannot be written
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Self

from promptgraft.ground.text import clip, visible_line

LONGEST_MESSAGE = 500
"""Characters of an error message; the middle of a longer one is left out."""


def _bounded(message: str) -> str:
    # Names of models, files and cases in it may be hostile to terminals.
    line = visible_line(" ".join(message.splitlines()))
    return clip(line, LONGEST_MESSAGE, around=" ")


def user_errors() -> tuple[type[BaseException], ...]:
    """Return what boundaries to user code take for its failure, to be named after ``except``.

    Not only ``Exception``: a script may call ``sys.exit``, asyncio's ``CancelledError`` and the
    outcomes of pytest derive from ``BaseException``, and so does a panic in an extension written in
    Rust. Ctrl+C passes, and the end of a generator.
    """
    # Evaluated when an exception is on its way; a class cannot be named that excludes another one.
    passes = isinstance(sys.exc_info()[1], (KeyboardInterrupt, GeneratorExit))
    return () if passes else (BaseException,)


def joined_faults(lines: Sequence[str], more: int = 0) -> str:
    """Join faults to one message; those that do not fit, and ``more``, are counted at its end."""
    # Room for the longest count that may follow.
    room = LONGEST_MESSAGE - len("; and 99,999 more")
    count_shown = len(lines)
    while count_shown > 1 and len("; ".join(lines[:count_shown])) > room:
        count_shown -= 1
    more += len(lines) - count_shown
    return "; ".join(lines[:count_shown]) + (f"; and {more:,} more" if more else "")


class Lasting(StrEnum):
    """How long a fault lasts: one notion for providers, agents, batches and databases."""

    TRANSIENT = "transient"
    """It passes by itself: the same call may succeed later."""
    PERMANENT = "permanent"
    """It lasts until somebody removes its cause: asking again is in vain."""
    UNKNOWN = "unknown"
    """Either; callers ask again for a limited time."""


_PERMANENT_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 410, 412, 415, 426, 451})
# 409 is a lock timeout to the SDKs of providers, which retry it too, 424 a failed generation of TGI
# and 498 a lack of capacity at Groq.
_TRANSIENT_STATUSES = frozenset({408, 409, 424, 425, 429, 498})


def lasting_of_status(status: int) -> Lasting:
    """Return how long the refusal lasts that an HTTP status stands for; 0 for no status.

    A status of the single request, such as 400, is ``UNKNOWN``: other requests may succeed.
    """
    if status in _TRANSIENT_STATUSES or status >= 500:
        return Lasting.TRANSIENT
    # A redirect is not followed, so that keys do not reach another host.
    if status in _PERMANENT_STATUSES or 100 <= status < 400:
        return Lasting.PERMANENT
    return Lasting.UNKNOWN


# Base classes that HTTP libraries and SDKs use for connection errors and timeouts; none of them
# derives from ConnectionError or TimeoutError.
_TRANSIENT_NAMES = frozenset(
    {"APIConnectionError", "ClientConnectionError", "PoolError", "TimeoutError", "TransportError"}
)


def lasting_of(error: BaseException) -> Lasting:
    """Return how long the cause of an exception lasts, also of one of an HTTP library.

    Connection errors, timeouts, and the statuses 429 and 5xx are ``TRANSIENT``.
    """
    if isinstance(error, PromptgraftError):
        return error.lasting
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, OSError) else error  # as urllib wraps it
    is_named = any(kind.__name__ in _TRANSIENT_NAMES for kind in type(cause).__mro__)
    if is_named or isinstance(cause, (ConnectionError, TimeoutError)):
        return Lasting.TRANSIENT
    return lasting_of_status(status_of(error))


def status_of(error: BaseException) -> int:
    """Return the HTTP status that an exception of a library carries; 0 for none."""
    response: object = getattr(error, "response", None)
    for holder in (error, response):
        for name in ("status_code", "status"):
            status: object = getattr(holder, name, None)
            # A library may have a property `status` of another kind, such as a text.
            if isinstance(status, int) and not isinstance(status, bool):
                return status
    return 0


def _blank(kind: type[PromptgraftError], *args: object) -> PromptgraftError:
    return kind.__new__(kind, *args)


class PromptgraftError(Exception):
    """Base of every error that promptgraft raises on purpose.

    ``str`` is one line of at most ``LONGEST_MESSAGE`` characters; ``args`` hold the full message.

    Attributes:
        result: the best so far of the run that the error ended; None outside of a search.
        lasting: whether the same call may succeed later.
    """

    result: Any = None  # a `RunResult`, which this layer does not know
    lasting: Lasting = Lasting.UNKNOWN

    def __str__(self) -> str:
        return _bounded(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses have constructors of their own; a copy is made without calling them.
        return _blank, (type(self), *self.args), vars(self)

    def at(self, position: str) -> Self:
        """Add the position in the run to the message, and return the error."""
        Exception.__init__(self, f"{super().__str__()}; at `{position}` of the run", *self.args[1:])
        return self


class CallerError(PromptgraftError):
    """The calling code or its data is wrong; no call was paid for."""

    lasting = Lasting.PERMANENT


class ConfigError(CallerError, ValueError):
    """A setting is out of range, unknown, or contradicts another one."""


class MissingHereError(ConfigError):
    """This machine lacks what a setting needs: a key, a package or a program."""


class DataFormatError(CallerError, ValueError):
    """Data from outside does not have the expected shape.

    Attributes:
        faults: one line per fault, with the path to it.
    """

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults: tuple[str, ...] = tuple(map(_bounded, faults or (message,)))

    @classmethod
    def of(cls, faults: Iterable[str]) -> DataFormatError:
        """Return the error with these faults, a line each; the message shows the first ones."""
        lines = tuple(faults)
        return cls(joined_faults(lines), lines)


class PromptDefinitionError(CallerError, ValueError):
    """A prompt template contradicts itself (duplicate keys, broken syntax, ...)."""


class BindingError(CallerError, ValueError):
    """The parameters bound to a prompt do not fit its placeholders."""


class InvalidIdentifierError(CallerError, ValueError):
    """A namespace, key, tag or revision is not a valid identifier."""


class UnknownPartError(CallerError, LookupError):
    """The prompt has no part of that name, or the part may not be overridden."""


class InvalidOverrideError(CallerError, ValueError):
    """An override has the wrong type or content and was not written."""


class HashMismatchError(CallerError, ValueError):
    """An override was made for another version of the source part."""


class AdapterError(CallerError):
    """The user's adapter raised an unknown exception, or did not return a response."""


class FeedbackError(CallerError):
    """The user's feedback function raised or returned an unusable score."""


class FlowError(CallerError):
    """The user's flow of a graph raised, or left the edges of the graph.

    Attributes:
        graph: the graph.
        case: the case being answered; empty outside of runs and evaluations.
        step: the step at which it failed; empty before the first.
        node: the node of that step.
    """

    def __init__(
        self, message: str, *, graph: str, case: str = "", step: str = "", node: str = ""
    ) -> None:
        at = [f"case `{case}`"] if case else []
        at += [f"step {step} (`{node}`)"] if step else []
        super().__init__(f"{', '.join([f'graph `{graph}`', *at])}: {message}")
        self.graph, self.case, self.step, self.node = graph, case, step, node


class StopperError(CallerError):
    """The user's stopper raised, or returned neither None nor a reason."""


class PromptEvaluationError(PromptgraftError):
    """A prompt got no usable answer, because of the prompt or of the model's provider."""


class CandidateError(PromptEvaluationError):
    """The candidate made the rollout fail; it scores zero."""


class PromptRenderError(CandidateError, ValueError):
    """The prompt cannot be rendered with the bound parameters."""


class PromptTooLongError(CandidateError, ValueError):
    """The rendered prompt is longer than the model can take."""


class AgentFaultError(CandidateError):
    """An agent failed, or returned an invalid answer.

    Attributes:
        place: where in the user's code, such as ``agent.py:12``; empty if unknown.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place

    @property
    def located(self) -> str:
        """The message with the place, for people."""
        return f"{self}{f' ({self.place})' if self.place else ''}"


class OutputError(CandidateError, ValueError):
    """The model's answer does not fit the prompt's output type."""


class TruncatedAnswerError(OutputError):
    """The model stopped at its length limit before the answer was complete."""


class RefusedAnswerError(OutputError):
    """The model, or a filter of its provider, refused to answer."""


class EmptyAnswerError(OutputError):
    """The model answered without text."""


class ToolRoundsError(OutputError):
    """The model kept calling tools until its rounds were used up."""


class ProviderError(PromptEvaluationError):
    """The model's provider failed; the rollout has no score."""


class TransientProviderError(ProviderError):
    """The provider failed in a way that may pass (rate limit, 5xx, network)."""

    lasting = Lasting.TRANSIENT


class RateLimitedError(TransientProviderError):
    """The provider accepts no more requests for now."""


class RejectedRequestError(ProviderError):
    """The provider refuses this request and would refuse it again; others may work."""

    lasting = Lasting.PERMANENT


class PermanentProviderError(ProviderError):
    """The provider refuses until the cause (key, quota, model) is fixed."""

    lasting = Lasting.PERMANENT


class LimitReachedError(PromptgraftError):
    """A limit that the user set has been reached."""


class DeadlineExceededError(LimitReachedError, TimeoutError):
    """There is no time left."""


class RunCancelledError(LimitReachedError):
    """The run was asked to stop by a signal, a stop file or a caller."""


class StopFileFoundError(RunCancelledError):
    """The run was asked to stop by a stop file."""


class RunPausedError(LimitReachedError):
    """The run was asked to pause while it waited for a batch."""


class BudgetExhaustedError(LimitReachedError):
    """There is no budget left.

    Attributes:
        limit: the setting that was reached, such as ``max_cost``.
    """

    def __init__(self, message: str, limit: str = "rollout_budget") -> None:
        super().__init__(message)
        self.limit = limit


class StoreError(PromptgraftError):
    """The override store cannot read or write."""


class RevisionNotFoundError(StoreError, LookupError):
    """The store holds no such revision."""


class OverrideConflictError(StoreError):
    """A part that would be replaced has changed since the writer read it."""


class JournalError(PromptgraftError):
    """The journal of a run cannot be used."""


class JournalLockedError(JournalError):
    """Another process runs on this journal."""


class JournalCorruptError(JournalError):
    """The journal does not hold the bytes that were written."""


class JournalMismatchError(JournalError):
    """The journal belongs to another run."""


class LeaseLostError(JournalError):
    """Another worker has taken over the job; nothing more is written here."""


class JournalWriteError(JournalError):
    """The journal cannot be written (disk full, permissions, ...)."""


class WinnerNotStoredError(StoreError):
    """A run is complete, but the store refused its winner.

    Attributes:
        result: what the run returned; nothing of it is lost.
    """

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result
