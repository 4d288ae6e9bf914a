"""Section bodies: free text around placeholders."""

from __future__ import annotations

from promptgraft.overrides.body import marker_names, proposed_body, shown_body, spell
from promptgraft.overrides.entries import SectionOverride
from promptgraft.overrides.parts import SectionDescriptor
from promptgraft.overrides.validation import lost_placeholders
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.editing.view import View
from promptgraft.targets.modules import SectionModule
from promptgraft.targets.types import MetaPrompt, ModuleDescription


def describe_section(
    view: View, module: SectionModule, section: SectionDescriptor
) -> ModuleDescription:
    """Return what a reflector may know of a section."""
    source = view.template.section(module.path)
    opaque = source.source.opaque
    return ModuleDescription(
        name=module.name,
        meta_prompt=MetaPrompt.SECTION,
        title=source.title,
        text=shown_body(view.body(module.path), section.syntax),
        placeholders=tuple(spell(name, section.syntax) for name in section.placeholders),
        opaque={spell(name, section.syntax): text for name, text in opaque.items()},
        max_chars=view.max_part_chars,
        output=view.output(),
        neighbours=view.neighbours(module.name),
    )


def edit_section(
    view: View, module: SectionModule, section: SectionDescriptor, text: str
) -> SectionOverride:
    """Return the override that gives a section the proposed text.

    Raises:
        InvalidProposalError: it is too long, or loses or invents a placeholder.
    """
    names = frozenset(section.placeholders)
    view.check_length(text)
    before = view.body(module.path)
    body = proposed_body(text, section.syntax, names, like=before)
    view.check_length(shown_body(body, section.syntax))
    if lost := lost_placeholders(section, body):
        markers = ", ".join(spell(name, section.syntax) for name in lost)
        raise InvalidProposalError(
            RejectionReason.LOST_PLACEHOLDER, f"the text lost the placeholders {markers}"
        )
    known = names | marker_names(before, section.syntax)
    if invented := sorted(marker_names(body, section.syntax) - known):
        markers = ", ".join(spell(name, section.syntax) for name in invented)
        raise InvalidProposalError(
            RejectionReason.INVENTED_PLACEHOLDER,
            f"the text uses {markers}, which nothing will replace; leave that out",
        )
    return SectionOverride(path=module.path, expected_hash=section.content_hash, body=body)
