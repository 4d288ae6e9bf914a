"""What is being optimized, as the algorithms see it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import PromptgraftError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides.types import Provenance
from promptgraft.parts.validation import MAX_BODY_CHARS
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.serde import HexDigest, Json, digest_json
from promptgraft.targets.estimating import Estimate
from promptgraft.targets.types import (
    Candidate,
    Change,
    GepaExample,
    Module,
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
    DUPLICATE = "already seen"
    CONFLICT = "conflicts"
    DOES_NOT_FIT = "does not fit the part"
    DOES_NOT_RENDER = "does not render"
    REFLECTION_FAILED = "reflection failed"
    NOT_BETTER = "not better"
    TOO_DEAR = "too expensive"
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


def check_length(text: str, longest: int) -> None:
    """Refuse a proposal of more than ``longest`` characters.

    Raises:
        InvalidProposalError: with both lengths.
    """
    if len(text) > longest:
        raise InvalidProposalError(
            RejectionReason.TOO_LONG,
            f"the text has {len(text)} characters; at most {longest} are allowed",
        )


def longest_text(limit: int, present: str) -> int:
    """Return how long a new text may be: ``limit``, or twice as long as the present one."""
    return max(limit, min(2 * len(present), MAX_BODY_CHARS))


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


@attrs.frozen(kw_only=True)
class Identity:
    """What a target is: its name, and what decides how it answers.

    Attributes:
        name: how events, run directories and reports name it; ``namespace/key`` of a prompt.
        model: what answers, as plans and reports name it.
        details: what decides its answers besides the settings of a run, by names that a user
            understands, in plain data. A journal belongs to equal ones, and a run that is resumed
            with others is refused with the names of what differs.
        functions: identities of the functions that decide its answers, by name. A run can be
            resumed with others on the scores that are recorded, with ``reuse_scores``.
    """

    name: str
    model: str = "unknown"
    details: Mapping[str, Json] = attrs.field(factory=dict)
    functions: Mapping[str, Json] = attrs.field(factory=dict)

    @property
    def digest(self) -> HexDigest:
        """SHA-256 over all of it."""
        return digest_json([self.name, self.model, dict(self.details), dict(self.functions)])


@runtime_checkable
class Target(Protocol):
    """Something whose parts can be improved.

    A class derived from it writes what is abstract, and what else it has; :class:`TextTarget`
    leaves least to write. ``rollout`` is called from several threads at the same time, everything
    else from one at a time.
    """

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """What it is; equal as long as its answers may be."""

    @property
    @abstractmethod
    def modules(self) -> tuple[Module, ...]:
        """The parts that may be mutated, in the order in which they take their turn."""

    @abstractmethod
    def baseline(self) -> Candidate:
        """Return the candidate that changes nothing."""

    @abstractmethod
    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        """Return what a reflector may know of ``module`` as ``candidate`` has it."""

    def text(self, module: Module, candidate: Candidate) -> str:
        """Return the text that :meth:`describe` gives, without the rest of what it says."""
        return self.describe(module, candidate).text

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        """Return whether ``module`` may be tried: a list of examples can be full."""
        del module, candidate
        return True

    @abstractmethod
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

        ``examples`` are those that the child is tried on first.

        Raises:
            InvalidProposalError: the text cannot be used.
        """

    @abstractmethod
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
            examples: what it is tried on first.
            keep_both: whether new examples of both sides that have one key are both kept.

        Raises:
            InvalidProposalError: the changes cannot stand together.
        """

    def additions(self, candidate: Candidate) -> Mapping[tuple[str, ...], str]:
        """Return the parts that the candidate has added: their texts, by path."""
        del candidate
        return {}

    def estimate(self, examples: Sequence[GepaExample]) -> Estimate:
        """Return how much the rollouts of the baseline send and receive."""
        del examples
        return Estimate()

    def check(self, examples: Sequence[GepaExample]) -> None:
        """Find out whether the baseline can be tried on ``examples``, without a call.

        Raises:
            PromptgraftError: naming the example.
        """
        del examples

    @property
    def in_force(self) -> Json:
        """What is in force now, which may change during a run; None for nothing.

        A run records it at its beginning, because a winner changes it.
        """
        return None

    def over(self, in_force: Json) -> Target:
        """Return the target as it was when ``in_force`` was.

        Raises:
            DataFormatError: it is something else.
        """
        del in_force
        return self

    @abstractmethod
    def rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        """Try ``candidate`` on ``example`` in a session of its own.

        Faults of the candidate score zero and faults of the provider stay unscored; both
        are in the record.

        Raises:
            PermanentProviderError, DeadlineExceededError: the run cannot continue.
            FeedbackError: the user's function failed.
        """

    def persist(
        self, candidate: Candidate, provenance: Provenance, *, pool: Sequence[Candidate]
    ) -> bool:
        """Keep ``candidate`` in one atomic write; False when there is nowhere to keep it.

        Args:
            candidate: the winner.
            provenance: where it comes from.
            pool: every candidate that the run has accepted. What is kept now may be one of them,
                if the run has ended before and was resumed; nothing of it stays beside the winner.

        Raises:
            StoreError: the store refuses, or keeps what neither the run nor its baseline is.
        """
        del candidate, provenance, pool
        return False


def texts_of(target: Target, candidate: Candidate) -> Mapping[str, str]:
    """Return a candidate's text of each module by name; a new example has no text before it."""
    found = ((one.name, target.text(one, candidate)) for one in target.modules if not one.is_new)
    return FrozenMap(found)


class TextTarget(Target):
    """A target whose parts are texts in no prompt; each candidate has the text of each, by name.

    A class derived from it writes ``identity``, ``modules``, ``source`` and ``rollout``, and
    ``persist`` where a winner can be kept. To refuse texts, it extends ``graft``.

    Attributes:
        max_part_chars: how long a new text may be, or twice as long as its source.
    """

    max_part_chars = 6_000

    @abstractmethod
    def source(self, module: Module) -> str:
        """Return the text of a part as it is without any change."""

    def baseline(self) -> Candidate:
        return Candidate(changes={one.name: self.source(one) for one in self.modules})

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        others = [one for one in self.modules if one != module]
        return ModuleDescription(
            name=module.name,
            title=module.name,
            text=self.text(module, candidate),
            max_chars=longest_text(self.max_part_chars, self.source(module)),
            neighbours=[(one.name, self.text(one, candidate)) for one in others],
        )

    def text(self, module: Module, candidate: Candidate) -> str:
        return str(candidate.changes[module.name])

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        del examples
        check_length(proposal, longest_text(self.max_part_chars, self.source(module)))
        if proposal == self.text(module, candidate):
            raise InvalidProposalError(
                RejectionReason.UNCHANGED, "the text is the same as the current one"
            )
        changes = {**candidate.changes, module.name: proposal}
        return Candidate(changes=changes, parents=parents, modules=(module,))

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
        del examples, keep_both
        merged: dict[str, Change] = {}
        for name, before in base.changes.items():
            one, other = first.changes[name], second.changes[name]
            merged[name] = other if one == before else one
        return Candidate(changes=merged, parents=parents)
