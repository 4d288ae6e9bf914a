"""Targets: what is being optimized, as the algorithms see it."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import PromptgraftError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, Json, digest_json
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.overrides.types import Provenance
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
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
        detail: one line that tells the reflection model what to fix.
    """

    def __init__(self, reason: RejectionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def unreadable(detail: str) -> InvalidProposalError:
    """Return the refusal of a reply that cannot be read."""
    return InvalidProposalError(RejectionReason.UNPARSABLE, detail)


# Control characters, and surrogates without their other half: no file or request takes them.
_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def check_usable(text: str, where: str) -> None:
    """Refuse a text with unusable characters; the message begins with ``where``."""
    if match := _UNUSABLE.search(text):
        detail = f"{where} holds the character U+{ord(match[0]):04X}; leave it out"
        raise InvalidProposalError(RejectionReason.UNUSABLE_TEXT, detail)


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
    """Return the maximum length of a new text: ``limit``, or twice that of the current one."""
    # With the limit alone, a part that is longer already could only be cut down.
    return max(limit, min(2 * len(present), MAX_BODY_CHARS))


@runtime_checkable
class Subject(Protocol):
    """A prompt together with the adapter that answers it, such as ``Texts``."""

    @property
    def prompt(self) -> Prompt[object]:
        """The prompt whose parts may change."""
        ...

    @property
    def adapter(self) -> ProviderAdapter:
        """The adapter that answers the prompt."""
        ...


@attrs.frozen(kw_only=True)
class Identity:
    """The identity of a target: its name, and what decides its answers.

    Attributes:
        name: its name in events, run directories and reports; ``namespace/key`` for a prompt.
        model: the model that answers, as plans and reports name it.
        details: what decides its answers besides the settings of a run, as plain data, by names
            that users understand. A run is not resumed with other details; the message names
            those that differ.
        functions: identities of the functions that decide its answers, by name. With
            ``reuse_scores``, a run can be resumed with other functions on the recorded scores.
    """

    name: str
    model: str = "unknown"
    details: Mapping[str, Json] = attrs.field(factory=dict, hash=False)
    functions: Mapping[str, Json] = attrs.field(factory=dict, hash=False)

    @property
    def digest(self) -> HexDigest:
        """SHA-256 over all of it."""
        return digest_json([self.name, self.model, dict(self.details), dict(self.functions)])


@runtime_checkable
class Target(Protocol):
    """Something whose parts can be improved.

    Subclasses implement the abstract methods, and override others as needed; :class:`TextTarget`
    needs the fewest. ``rollout`` is called from several threads at the same time, everything else
    from one at a time.
    """

    @property
    @abstractmethod
    def identity(self) -> Identity:
        """The identity; it changes whenever answers may change."""

    @property
    @abstractmethod
    def modules(self) -> tuple[Module, ...]:
        """The parts that may change, in the order in which they take turns."""

    @abstractmethod
    def baseline(self) -> Candidate:
        """Return the candidate that changes nothing."""

    @abstractmethod
    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        """Return what the reflection model may know about ``module`` of ``candidate``."""

    def text(self, module: Module, candidate: Candidate) -> str:
        """Return only the text of :meth:`describe`."""
        return self.describe(module, candidate).text

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        """Return whether ``module`` can be changed now; a list of examples can be full."""
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

        ``examples`` are those on which the child is evaluated first.

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
        """Return a three-way merge: each part is taken from the side that changed it.

        A part that both sides changed is taken from ``first``, one that neither changed from
        ``base``. Reverting a part counts as changing it.

        Args:
            base: the common ancestor.
            first: one side.
            second: the other side.
            parents: positions of the parents of the merge.
            examples: those on which the merge is evaluated first.
            keep_both: whether to keep the new examples of both sides if they have the same key.

        Raises:
            InvalidProposalError: the changes conflict.
        """

    def additions(self, candidate: Candidate) -> Mapping[tuple[str, ...], str]:
        """Return the texts of the parts that the candidate has added, by path."""
        return {}

    def estimate(self, examples: Sequence[GepaExample]) -> Estimate:
        """Return how much the rollouts of the baseline send and receive."""
        return Estimate()

    def check(self, examples: Sequence[GepaExample]) -> None:
        """Check that the baseline can be evaluated on ``examples``, without a call.

        Raises:
            PromptgraftError: naming the example.
        """
        del examples

    @property
    def in_force(self) -> Json:
        """What is in force now, which a stored winner changes; None for nothing.

        A run records it at its beginning, so that a resumed run starts from the same state.
        """
        return None

    def over(self, in_force: Json) -> Target:
        """Return the target as it was with ``in_force``.

        Raises:
            DataFormatError: ``in_force`` does not belong to the target.
        """
        return self

    @abstractmethod
    def rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        """Evaluate ``candidate`` on ``example`` in a session of its own.

        Faults of the candidate score 0, and faults of the provider stay unscored; both are in the
        record.

        Raises:
            PermanentProviderError, DeadlineExceededError: the run cannot continue.
            FeedbackError: the user's function failed.
        """

    def persist(
        self, candidate: Candidate, provenance: Provenance, *, pool: Sequence[Candidate]
    ) -> bool:
        """Store ``candidate`` in one atomic write; return False if there is no store.

        Args:
            candidate: the winner.
            provenance: where it comes from.
            pool: every candidate that the run has accepted. The store may hold one of them, if the
                run has ended before and was resumed; nothing of it remains beside the winner.

        Raises:
            StoreError: the store refuses, or holds neither a candidate of the run nor its baseline.
        """
        return False


def texts_of(target: Target, candidate: Candidate) -> Mapping[str, str]:
    """Return a candidate's text of each module by name, except for modules that add examples."""
    texts = (
        (module.name, target.text(module, candidate))
        for module in target.modules
        if not module.is_new
    )
    return FrozenMap(texts)


class TextTarget(Target):
    """A target whose parts are texts outside of prompts; a candidate has all texts by name.

    Subclasses implement ``identity``, ``modules``, ``source`` and ``rollout``, and ``persist`` if a
    winner can be stored. To refuse texts, they extend ``graft``.

    Attributes:
        max_part_chars: maximum length of a new text, or twice the length of its source if longer.
    """

    max_part_chars = 6_000

    @abstractmethod
    def source(self, module: Module) -> str:
        """Return the original text of a part."""

    def baseline(self) -> Candidate:
        return Candidate(changes={module.name: self.source(module) for module in self.modules})

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        return ModuleDescription(
            name=module.name,
            title=module.name,
            text=self.text(module, candidate),
            max_chars=longest_text(self.max_part_chars, self.source(module)),
            neighbours=[
                (neighbour.name, self.text(neighbour, candidate))
                for neighbour in self.modules
                if neighbour != module
            ],
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
        merged: dict[str, Change] = {}
        for name, before in base.changes.items():
            first_change, second_change = first.changes[name], second.changes[name]
            merged[name] = second_change if first_change == before else first_change
        return Candidate(changes=merged, parents=parents)
