"""The rejected texts of a proposal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from promptgraft.search.acceptance import Compared
from promptgraft.search.events import Emit, MutationRejected
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.modules import Module, names_of
from promptgraft.targets.types import ModuleDescription

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.proposal import Change


class Rejections:
    """Keeps what is rejected, and emits it.

    Args:
        step: number of the step.
        parent: position of the parent.
        emit: takes events.

    Attributes:
        all: every rejection, in order.
    """

    def __init__(self, step: int, parent: int, emit: Emit) -> None:
        self._step = step
        self._parent = parent
        self._emit = emit
        self.all: list[MutationRejected] = []

    def add(
        self,
        module: Module,
        description: ModuleDescription,
        error: InvalidProposalError,
        *,
        text: str,
        compared: Compared | None = None,
        final: bool = True,
    ) -> None:
        """Keep a rejection; it is not ``final`` when more of the same proposal follows."""
        rejection = MutationRejected(
            step=self._step,
            parent=self._parent,
            module=module.name,
            reason=error.reason,
            detail=error.detail,
            text=text,
            before=description.text,
            parent_score=compared.before if compared is not None else None,
            child_score=compared.after if compared is not None else None,
            final=final,
        )
        self.all.append(rejection)
        self._emit(rejection)

    def add_all(
        self,
        changes: Sequence[Change],
        reason: RejectionReason,
        detail: str,
        *,
        compared: Compared,
    ) -> list[MutationRejected]:
        """Keep the rejection of a child, with every change that it was made by."""
        for change in changes:
            others = names_of(one.module for one in changes if one is not change)
            said = f"{detail}; changed together with {others}" if others else detail
            self.add(
                change.module,
                change.before,
                InvalidProposalError(reason, said),
                text=change.text,
                compared=compared,
                final=change is changes[-1],
            )
        return self.all[-len(changes) :]

    def name_parent(self, position: int) -> None:
        """Name the parent by the position that it has got after the step had begun."""
        self._parent = position
        self.all[:] = [replace(one, parent=position) for one in self.all]
