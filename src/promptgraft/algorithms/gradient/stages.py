"""The three stages of a round that users may replace: blame, merge, rewrite.

A stage is a function of one request. It returns its result, or is a generator that asks the
reflection model on its way (``reply = yield from Question(...)``), at most twice for a request and
under positions that begin with that of the request. A run repeats its stages when it is resumed or
replayed, so equal requests must have equal results; what is not repeatable is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs

from promptgraft.errors import CallerError, PromptgraftError, user_errors
from promptgraft.evals.types import Step
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.ground.text import listed, raised
from promptgraft.search.asks import Asking
from promptgraft.search.round_events import Blame, Loss, Problem
from promptgraft.search.scores import Score

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class BackwardRequest:
    """A failed answer to a training case.

    Attributes:
        position: where in the run, such as ``round/3/backward/case-7``.
        losses: what failed.
        steps: the steps of the answer, in the order of the flow.
        texts: the texts that may be blamed, by part.
    """

    position: str
    case: str
    losses: Sequence[Loss]
    steps: Sequence[Step]
    texts: Mapping[str, str]


@attrs.frozen(kw_only=True)
class AggregateRequest:
    """The problems that failures blame on one part, the most severe first.

    Attributes:
        position: where in the run.
        problems: the problems, with the case of each.
    """

    position: str
    part: str
    text: str
    problems: Sequence[tuple[str, Problem]]


@attrs.frozen(kw_only=True)
class RewriteRequest:
    """A part to be rewritten.

    Attributes:
        position: where in the run.
        problems: what is to be fixed.
        refused: the latest texts that were tried in vain, with the score of the current text and
            their own.
    """

    position: str
    part: str
    text: str
    problems: Sequence[Problem]
    refused: Sequence[tuple[str, Score, Score]] = ()


@attrs.frozen
class NewText:
    """A new text of a part, and the reason for it."""

    text: str
    why: str = ""


class Backward(Protocol):
    """Blames parts for a failed answer; returns nothing if none is to blame."""

    def __call__(self, request: BackwardRequest, /) -> Sequence[Blame] | Asking[Sequence[Blame]]:
        """Return a :class:`Blame` for each problem, ``to`` being one of ``request.texts``."""
        ...


class Aggregate(Protocol):
    """Merges the problems of one part."""

    def __call__(
        self, request: AggregateRequest, /
    ) -> Sequence[Problem] | Asking[Sequence[Problem]]:
        """Return what is to be fixed; nothing leaves the part as it is."""
        ...


class Rewrite(Protocol):
    """Writes the new text of a part."""

    def __call__(self, request: RewriteRequest, /) -> NewText | Asking[NewText]:
        """Return the new text, which is checked as a model's is."""
        ...


def staged(name: str, stage: Callable[..., Any] | None, request: Any) -> Asking[Any]:
    """Return the result of a stage.

    Raises:
        CallerError: it raised an exception; naming the stage and where it was called.
    """
    assert stage is not None  # noqa: S101 - called for stages that are set
    try:
        result = stage(request)
        if isinstance(result, Generator):
            result = yield from result
    except user_errors() as error:
        if isinstance(error, PromptgraftError):
            raise
        raise CallerError(f"{name} at {request.position}: {raised(error)}") from error
    return result


def results_of(kind: type[T], result: object, *, name: str, position: str) -> tuple[T, ...]:
    """Return the list that a stage returned, empty for None.

    Raises:
        CallerError: it is no ``kind``, and no list of them.
    """
    returned = () if result is None else result
    values = tuple(returned) if isinstance(returned, (list, tuple)) else (returned,)
    for value in values:
        if not isinstance(value, kind):
            raise CallerError(
                f"{name} at {position}: expected {kind.__name__}, found {shown(value)}"
            )
    return values


def check_blames(blames: Sequence[Blame], request: BackwardRequest) -> None:
    """Raise a ``CallerError`` if a stage blames something that is no part of the failure."""
    for blame in blames:
        if blame.to not in request.texts:
            near = did_you_mean(blame.to, list(request.texts))
            raise CallerError(
                f"backward at {request.position}: no part {blame.to!r}{near}; there: "
                f"{listed(request.texts)}"
            )
