"""The requests that a search can make of the engine, and the answers that it receives.

A search is a generator that yields asks and is sent answers; it has no other contact with the
outside. ``records = yield from Rollouts(...)`` has the type of the answer. So a search needs no
threads, journal or ledger, can be read side by side with the paper that describes it, and is
tested by sending it answers. :class:`promptgraft.search.driver.Driver` finds the answers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import attrs

from promptgraft.evals.spending import Role
from promptgraft.ground.serde import HexDigest
from promptgraft.prompt.template import Prompt
from promptgraft.search.population import Pool
from promptgraft.search.stopping import RunStoppedError
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Records: TypeAlias = tuple[RolloutRecord, ...]
"""One record for each example, in their order."""


class Ask(Generic[T]):
    """A request of a search; ``answer = yield from ask``."""

    def __iter__(self) -> Asking[T]:
        answer: T = yield self
        return answer


Asking: TypeAlias = Generator[Ask[Any], Any, T]
"""A part of a search: a generator that yields asks and returns a result."""


def answered(value: T) -> Asking[T]:
    """Return a part of a search that asks nothing and returns ``value``."""
    yield from ()
    return value


@attrs.frozen(kw_only=True, eq=False)
class Rollouts(Ask[Records]):
    """Rollouts of one candidate on some examples.

    Answers are recorded under ``POSITION/I``, where I is the place of the example. With
    ``by_example``, I is a digest of the example's id and content, for examples that may be
    replaced before a run is resumed.

    Attributes:
        position: where in the run.
        examples: the examples; may be empty.
        by_example: whether a resumed run may ask for other examples at the same position.
    """

    position: str
    candidate: Candidate
    examples: Sequence[GepaExample]
    by_example: bool = False


@attrs.frozen(kw_only=True)
class Reply:
    """A reply of the reflection model.

    Attributes:
        finish_reason: why it ends, in the provider's term.
        fault: why there is no reply; empty when there is one.
    """

    text: str
    finish_reason: str
    fault: str = ""

    def check(self) -> None:
        """Raise if there is no reply.

        Raises:
            InvalidProposalError: the reflection model failed.
        """
        if self.fault:
            raise InvalidProposalError(
                RejectionReason.REFLECTION_FAILED, f"the reflection model failed: {self.fault}"
            )


@attrs.frozen(kw_only=True, eq=False)
class Question(Ask[Reply]):
    """A question to the reflection model.

    Attributes:
        position: where in the run; the key of the answer.
        prompt: the question, with its parameters bound.
        digest: SHA-256 of what the question is about; a recorded answer to another question is
            refused.
        former: the digest that earlier versions recorded; None if it is the same.
        role: the purpose under which the ledger counts it.
        records: the rollouts in it; images of those with the lowest scores are shown first.
    """

    position: str
    prompt: Prompt[object]
    digest: HexDigest
    former: HexDigest | None = None
    role: Role = Role.REFLECTION
    records: Sequence[RolloutRecord] = ()


@attrs.frozen(eq=False)
class Together(Ask[list[T]]):
    """Several asks in parallel; the answers come in order.

    Rollouts share one batch, and so do questions. A part that is a generator runs as a branch.
    Either all or none of the parts are rollouts, and the same holds for questions.

    Attributes:
        parts: the asks.
        in_turns: whether the first example of each part begins before the second of any, so that
            a provider that changes over time affects all parts alike.
    """

    parts: Sequence[Ask[T] | Asking[T]]
    in_turns: bool = attrs.field(default=False, kw_only=True)


class Branch(Protocol[T_co]):
    """A part of a search that runs concurrently with the rest."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def error(self) -> Exception | None:
        """The exception that ended it; None while it runs, and after a normal end."""
        ...

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used so far."""
        ...


@attrs.frozen(eq=False)
class Start(Ask[Branch[T]]):
    """Start a part of a search as a branch.

    Its events and counts are held back until it is joined. Branches are ordered by their start:
    if either of two could reach a limit, the later one does.

    Attributes:
        most_questions: how many questions it can ask; None if that is unknown, so that with a
            limit on questions later branches wait for its end.
        released: whether it runs at once; if not, it does nothing until it is released.
    """

    part: Asking[T]
    most_questions: int | None = None
    released: bool = True


@attrs.frozen(eq=False)
class Release(Ask[None]):
    """Let a branch run that was not released when it was started.

    If calls are made in parallel, it begins once the part that released it waits.
    """

    branch: Branch[Any]


@attrs.frozen(eq=False)
class Join(Ask[T]):
    """Wait for a branch, merge its counts and events, and return its result.

    Join branches in the order in which they were started; one that asks no question may be joined
    later. The exception of a branch is raised.
    """

    branch: Branch[T]


class AnyEnded(Ask[None]):
    """Wait until one more branch has ended."""


class GiveUp(Ask[int]):
    """Abandon the branches that are not joined; the answer is how many rollouts they have used.

    They make no further calls. Calls in flight are awaited and recorded, because they are paid for.
    """


@attrs.frozen
class Standing:
    """The state of a search between two steps.

    Attributes:
        pool: the candidates so far.
        steps: steps made.
        proposals: proposals evaluated.
        estimated: whether the means of the best candidate are estimates.
    """

    pool: Pool
    steps: int
    proposals: int
    estimated: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Outlook:
    """Whether a search may begin another step.

    Attributes:
        stop: why not; None if it may.
        is_close: whether there would be a reason to stop if the means of the best candidate were
            not estimates.
    """

    stop: RunStoppedError | None
    is_close: bool = False


@attrs.frozen
class Checkpoint(Ask[Outlook]):
    """The end of a step: syncs the journal and checks for reasons to stop.

    A search that is told to stop finishes its branches. Exhausted time and money are raised
    instead.
    """

    standing: Standing
