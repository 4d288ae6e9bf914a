"""Proposed texts that are usable, and those that are rejected."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from msgspec.structs import replace

from promptgraft.search.acceptance import Compared
from promptgraft.search.events import Emit, MutationRejected
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.types import Candidate, Module, ModuleDescription, names_of


@attrs.frozen
class Change:
    """A module with the text that was proposed for it, and the child that it makes.

    Attributes:
        module: what is changed.
        before: the module as the parent has it.
        text: the proposed text.
        candidate: the child, with the changes of the same proposal before this one.
        reason: why, in one line, where the model that proposed it said so.
    """

    module: Module
    before: ModuleDescription
    text: str
    candidate: Candidate
    reason: str = ""


@attrs.define
class Rejections:
    """Keeps what is rejected, and emits it.

    Attributes:
        step: number of the step.
        parent: position of the parent.
        emit: takes events.
        all: every rejection, in order.
    """

    step: int
    parent: int
    emit: Emit
    all: list[MutationRejected] = attrs.field(factory=list)

    def add(
        self,
        module: str,
        before: str,
        error: InvalidProposalError,
        *,
        text: str,
        compared: Compared | None = None,
        final: bool = True,
    ) -> None:
        """Keep a rejection.

        Args:
            module: the name of what was to be changed, or several.
            before: its present text; empty for several.
            error: why it is rejected.
            text: what was proposed.
            compared: how the child did against its parent, where there was one.
            final: false when more of the same proposal follows.
        """
        rejection = MutationRejected(
            step=self.step,
            parent=self.parent,
            module=module,
            reason=error.reason,
            detail=error.detail,
            text=text,
            before=before,
            parent_score=compared.before if compared is not None else None,
            child_score=compared.after if compared is not None else None,
            final=final,
        )
        self.all.append(rejection)
        self.emit(rejection)

    def add_all(
        self, changes: Sequence[Change], reason: RejectionReason, detail: str, *, compared: Compared
    ) -> list[MutationRejected]:
        """Keep the rejection of a child, with every change that it was made by."""
        for change in changes:
            others = names_of(one.module for one in changes if one is not change)
            said = f"{detail}; changed together with {others}" if others else detail
            self.add(
                change.module.name,
                change.before.text,
                InvalidProposalError(reason, said),
                text=change.text,
                compared=compared,
                final=change is changes[-1],
            )
        return self.all[-len(changes) :]

    def name_parent(self, position: int) -> None:
        """Name the parent by the position that it has got after the step had begun."""
        self.parent = position
        self.all[:] = [replace(one, parent=position) for one in self.all]
