"""What a search asks, and what it is sent.

A search is a generator: it yields an ask, is sent the answer, and does nothing else with the
outside. ``records = yield from Rollouts(...)`` has the type of the answer. So a search needs no
threads, no journal and no ledger, can be read beside the paper that it comes from, and is tested by
sending it answers. :class:`promptgraft.search.driver.Driver` finds the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import attrs

from promptgraft.evals.spending import Role
from promptgraft.prompt.template import Prompt
from promptgraft.search.population import Pool
from promptgraft.search.stopping import RunStoppedError
from promptgraft.serde import HexDigest
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Records: TypeAlias = tuple[RolloutRecord, ...]
"""One record for each example, in their order."""


class Ask(Generic[T]):
    """Something that a search wants to know; ``answer = yield from ask``."""

    def __iter__(self) -> Asking[T]:
        answer: T = yield self
        return answer


Asking: TypeAlias = Generator[Ask[Any], Any, T]
"""A part of a search: a generator that asks, and returns what it has come to."""


def answered(value: T) -> Asking[T]:
    """A part of a search that asks nothing."""
    yield from ()
    return value


@attrs.frozen(kw_only=True, eq=False)
class Rollouts(Ask[Records]):
    """One candidate on some examples.

    Answers are recorded under ``POSITION/I``, where I is the place of an example; with
    ``by_example`` it is a digest of the example's id and content instead, for examples that may be
    others when a run is resumed.

    Attributes:
        position: where in the run.
        candidate: the candidate.
        examples: the examples; none is a valid question.
        by_example: whether other examples may be asked for there when the run is resumed.
    """

    position: str
    candidate: Candidate
    examples: Sequence[GepaExample]
    by_example: bool = False


@attrs.frozen(kw_only=True)
class Reply:
    """What the reflection model replied.

    Attributes:
        text: its reply.
        finish_reason: why it stopped, in its provider's word.
        fault: why there is no reply; empty when there is one.
    """

    text: str
    finish_reason: str
    fault: str = ""

    def check(self) -> None:
        """Do nothing when there is a reply.

        Raises:
            InvalidProposalError: there is none.
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
        prompt: the question, bound.
        digest: SHA-256 of everything that the question shows; a recorded answer to another
            question is refused.
        role: what it is for, as the ledger counts it.
    """

    position: str
    prompt: Prompt[object]
    digest: HexDigest
    role: Role = Role.REFLECTION


@attrs.frozen(eq=False)
class Together(Ask[list[T]]):
    """Several asks side by side; their answers in order.

    Rollouts share one batch, questions another one. A part that is a generator runs as a branch.
    Either all or none of the parts are rollouts, and the same holds for questions.

    Attributes:
        parts: what is asked.
        in_turns: whether rollouts are begun in turns, the first example of each part before the
            second one of any, so that what changes with time changes for all parts alike.
    """

    parts: Sequence[Ask[T] | Asking[T]]
    in_turns: bool = attrs.field(default=False, kw_only=True)


class Branch(Protocol[T_co]):
    """A part of a search that runs beside the rest."""

    @property
    def has_ended(self) -> bool:
        """Whether it has come to its end."""
        ...

    @property
    def error(self) -> Exception | None:
        """What it ended with; None while it runs, and when it has come to its own end."""
        ...

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used so far."""
        ...


@attrs.frozen(eq=False)
class Start(Ask[Branch[T]]):
    """Start a part of a search beside the rest.

    What it emits is held back until it is joined, and so are its counts. Branches are ordered by
    their start: wherever a limit could be reached by one of two, it is the later one.

    Attributes:
        part: the part.
        most_questions: questions that it can ask; None where that is not known, so that with a
            limit on questions later branches wait for its end.
        held: whether it asks nothing until it is released.
    """

    part: Asking[T]
    most_questions: int | None = None
    held: bool = False


@attrs.frozen(eq=False)
class Release(Ask[None]):
    """Let a branch run that was started held.

    Where calls are made side by side, it begins once the line that released it waits.

    Attributes:
        branch: the branch.
    """

    branch: Branch[Any]


@attrs.frozen(eq=False)
class Join(Ask[T]):
    """Wait for a branch and take account of it: its counts, its events, its result.

    To be asked in the order in which branches were started. What ended the branch is raised.

    Attributes:
        branch: the branch.
        amend: changes each event of the branch before it is published; None leaves them.
    """

    branch: Branch[T]
    amend: Callable[[object], object] | None = None


class AnyEnded(Ask[None]):
    """Wait until one more branch has ended."""


class GiveUp(Ask[int]):
    """End the branches that are not joined; the answer is how many rollouts they have used.

    Nothing more is asked for them. What is in flight is waited for and recorded: it is paid for.
    """


@attrs.frozen
class Standing:
    """How a search stands between two steps.

    Attributes:
        pool: the candidates so far.
        steps: steps made.
        proposals: proposals tried.
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
        stop: why not; None when it may.
        is_close: whether there would be a reason to stop if the means of the best candidate were no
            estimates.
    """

    stop: RunStoppedError | None
    is_close: bool = False


@attrs.frozen
class Checkpoint(Ask[Outlook]):
    """The end of a step: what was recorded is made durable, and reasons to stop are looked at.

    A search that is to stop finishes what is under way. Time and money that are used up are raised
    instead.

    Attributes:
        standing: how the search stands.
    """

    standing: Standing
