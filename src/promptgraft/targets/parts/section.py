"""Section bodies: free text around placeholders."""

from __future__ import annotations

import attrs

from promptgraft.parts.body import kept_names, marker_names, proposed_body, shown_body, spell
from promptgraft.parts.descriptors import SectionPath
from promptgraft.parts.entry import UNBOUND
from promptgraft.parts.section import SectionOverride
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.view import View
from promptgraft.targets.types import MetaPrompt, ModuleDescription


@attrs.frozen
class SectionModule(PromptModule):
    """The body of one section."""

    path: SectionPath

    @property
    def blank(self) -> SectionOverride:
        return SectionOverride(path=self.path, expected_hash=UNBOUND, body="")

    def text(self, view: View) -> str:
        syntax = view.template.section(self.path).source.syntax
        return shown_body(view.body(self.path), syntax)

    def describe(self, view: View) -> ModuleDescription:
        section = view.template.section(self.path)
        source = section.source
        return self.described(
            view,
            meta_prompt=MetaPrompt.SECTION,
            title=section.title,
            text=self.text(view),
            placeholders=tuple(spell(name, source.syntax) for name in source.placeholders),
            opaque={spell(name, source.syntax): text for name, text in source.opaque.items()},
        )

    def read(self, view: View, text: str) -> SectionOverride:
        source = view.template.section(self.path).source
        syntax, names = source.syntax, frozenset(source.placeholders)
        before = view.body(self.path)
        body = proposed_body(text, syntax, names, like=before)
        view.check_length(shown_body(body, syntax))
        kept = kept_names(body, syntax, names)
        if lost := [name for name in source.placeholders if name not in kept]:
            markers = ", ".join(spell(name, syntax) for name in lost)
            raise InvalidProposalError(
                RejectionReason.LOST_PLACEHOLDER, f"the text lost the placeholders {markers}"
            )
        known = names | marker_names(before, syntax)
        if invented := sorted(marker_names(body, syntax) - known):
            markers = ", ".join(spell(name, syntax) for name in invented)
            raise InvalidProposalError(
                RejectionReason.INVENTED_PLACEHOLDER,
                f"the text uses {markers}, which nothing will replace; leave that out",
            )
        return attrs.evolve(self.blank, body=body)
