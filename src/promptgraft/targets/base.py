"""What is being optimized, as the algorithms see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import PromptgraftError
from promptgraft.overrides.types import Provenance
from promptgraft.parts.descriptors import SectionPath
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.targets.modules import Module
from promptgraft.targets.types import (
    Candidate,
    GepaExample,
    ModuleDescription,
    RolloutRecord,
)


class RejectionReason(StrEnum):
    """Why a proposal did not become a candidate, or a candidate not a member of the pool."""

    UNPARSABLE = "unparsable reply"
    EMPTY = "empty text"
    UNUSABLE_TEXT = "unusable characters"
    LOST_PLACEHOLDER = "lost placeholder"
    INVENTED_PLACEHOLDER = "invented placeholder"
    TOO_LONG = "too long"
    UNCHANGED = "unchanged"
    DUPLICATE = "tried before"
    CONFLICT = "conflicts"
    DOES_NOT_FIT = "does not fit the part"
    DOES_NOT_RENDER = "does not render"
    REFLECTION_FAILED = "reflection failed"
    NOT_BETTER = "not better"
    TOO_DEAR = "too dear"
    COPIED_ANSWER = "copied answer"
    UNSCORED = "unscored"


class InvalidProposalError(PromptgraftError):
    """A proposal that cannot become a candidate.

    Attributes:
        reason: the kind of fault.
        detail: one line that tells the reflector what to mend.
    """

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@runtime_checkable
class Subject(Protocol):
    """What is improved, together with what answers it, such as ``Texts``."""

    @property
    def prompt(self) -> Prompt[object]:
        """The prompt whose parts may change."""
        ...

    @property
    def adapter(self) -> ProviderAdapter:
        """What answers the prompt, where the surroundings of a run do not say it."""
        ...


def prompt_of(subject: Prompt[object] | Subject) -> Prompt[object]:
    """Return the prompt whose parts may change."""
    return subject if isinstance(subject, Prompt) else subject.prompt


class Target(Protocol):
    """Something whose parts can be improved.

    ``rollout`` is called from several threads at the same time, everything else from one at a
    time.
    """

    @property
    def modules(self) -> tuple[Module, ...]:
        """What may be mutated, in the order in which it takes its turn."""
        ...

    @property
    def leaves_traces(self) -> bool:
        """Whether rollouts show what happened on the way, such as calls of tools."""
        ...

    def baseline(self) -> Candidate:
        """Return the candidate that changes nothing."""
        ...

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        """Return what a reflector may know of ``module`` as ``candidate`` has it."""
        ...

    def text(self, module: Module, candidate: Candidate) -> str:
        """Return the text that :meth:`describe` gives, without the rest of what it says."""
        ...

    def merge(
        self,
        base: Candidate,
        first: Candidate,
        second: Candidate,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
        keep_both: bool = False,
    ) -> Candidate:
        """Three-way merge: each part as the side has it that changed it.

        A part that both sides changed is taken from ``first``, one that neither changed from
        ``base``; a part that a side went back on is changed too.

        Args:
            base: what both sides came of.
            first: one side.
            second: the other one.
            parents: positions of the parents of what comes of it.
            examples: what it must render with.
            keep_both: whether new examples of both sides that have one key are both kept.

        Raises:
            InvalidProposalError: the changes cannot stand together.
        """
        ...

    def additions(self, candidate: Candidate) -> Mapping[SectionPath, str]:
        """Return what the candidate has added to the source: objectives of examples, by path."""
        ...

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        """Tell whether ``module`` may be tried: a section of examples can be full."""
        ...

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        """Return ``candidate`` with the text of ``module`` replaced by ``proposal``.

        ``examples`` are those that the child must render with.

        Raises:
            InvalidProposalError: the text cannot be used.
        """
        ...

    def rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        """Try ``candidate`` on ``example`` in a session of its own.

        Faults of the candidate score zero and faults of the provider stay unscored; both
        are in the record.

        Raises:
            PermanentProviderError, DeadlineExceededError: the run cannot go on.
            FeedbackError: the user's function failed.
        """
        ...

    def persist(self, candidate: Candidate, provenance: Provenance) -> bool:
        """Keep ``candidate`` in one atomic write; False when there is nowhere to keep it.

        Raises:
            StoreError: the store refuses.
        """
        ...
