"""The base of what a search may change in a prompt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from promptgraft.errors import CallerError
from promptgraft.overrides.checks import bound_entry, checked_entry, require_source
from promptgraft.parts.descriptors import PromptDescriptor, SectionPath
from promptgraft.parts.entry import Entry
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.modules import Module
from promptgraft.targets.parts.view import View
from promptgraft.targets.types import MetaPrompt, ModuleDescription


class PromptModule(Module):
    """A part of a prompt that a search may change: an immutable attrs class."""

    __slots__ = ()

    @property
    @abstractmethod
    def blank(self) -> Entry:
        """An override of the part that says nothing."""

    @property
    def kind(self) -> str:
        return self.blank.kind

    @property
    def name(self) -> str:
        return self.blank.part

    @property
    def owner(self) -> str | None:
        return self.blank.owner

    @abstractmethod
    def describe(self, view: View) -> ModuleDescription:
        """Return what a reflector may know of the part."""

    @abstractmethod
    def read(self, view: View, text: str) -> Entry:
        """Return the override that a proposal amounts to, not bound to a source yet.

        Raises:
            InvalidProposalError: it cannot be read.
        """

    def text(self, view: View) -> str:
        """Return the text that :meth:`describe` gives, without the rest of what it says."""
        return self.describe(view).text

    def check_entry(self, view: View, entry: Entry) -> None:
        """Refuse what was proposed although it fits the prompt.

        Raises:
            InvalidProposalError: saying why.
        """
        del view, entry

    def has_room(self, view: View) -> bool:
        """Tell whether the part may be tried: a section of examples can be full."""
        del view
        return True

    def require(self, descriptor: PromptDescriptor) -> None:
        """Refuse a part that the prompt does not have.

        Raises:
            UnknownPartError: there is no such part, or it may not be overridden; the message
                lists what exists.
        """
        require_source(descriptor, self.blank)

    def edit(self, view: View, text: str) -> Entry:
        """Return the override that a proposal amounts to, checked like a write.

        Raises:
            InvalidProposalError: it cannot be read, or does not fit the part.
        """
        view.check_length(text)
        descriptor = view.descriptor
        try:
            entry = checked_entry(descriptor, bound_entry(descriptor, self.read(view, text)))
        except CallerError as error:
            raise InvalidProposalError(RejectionReason.DOES_NOT_FIT, str(error)) from None
        self.check_entry(view, entry)
        return entry

    def described(
        self,
        view: View,
        *,
        meta_prompt: MetaPrompt,
        title: str,
        text: str,
        placeholders: tuple[str, ...] = (),
        opaque: Mapping[str, str] | None = None,
        schema: str = "",
        siblings: Sequence[str] = (),
        without: SectionPath | None = None,
    ) -> ModuleDescription:
        """Return a description with what is the same for all kinds.

        ``without`` is a section whose task examples are left out of the neighbours.
        """
        return ModuleDescription(
            name=self.name,
            meta_prompt=meta_prompt,
            title=title,
            text=text,
            placeholders=placeholders,
            opaque=opaque or {},
            max_chars=view.max_part_chars,
            output=view.output(),
            neighbours=view.neighbours(self.name, without=without),
            schema=schema,
            siblings=siblings,
        )
