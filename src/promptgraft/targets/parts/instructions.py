"""Instructions: the text of a section, and what is said of a tool or of a field of the answer."""

from __future__ import annotations

import attrs

from promptgraft.parts.body import kept_names, marker_names, proposed_body, shown_body, spell
from promptgraft.parts.descriptors import SectionPath
from promptgraft.parts.entry import UNBOUND
from promptgraft.parts.output_field import OutputFieldOverride
from promptgraft.parts.section import SectionOverride
from promptgraft.parts.tool import ToolOverride
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.parts.part import PromptModule, View
from promptgraft.targets.replies import read_names, read_said, write_names, write_said
from promptgraft.targets.types import MetaPrompt, ModuleDescription

_DESCRIPTION = "description"
_ALIASES = "aliases"


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


@attrs.frozen
class ToolModule(PromptModule):
    """What is said of one tool and its parameters."""

    tool_name: str

    @property
    def blank(self) -> ToolOverride:
        return ToolOverride(name=self.tool_name, expected_hash=UNBOUND)

    def describe(self, view: View) -> ModuleDescription:
        return self.described(
            view,
            meta_prompt=MetaPrompt.TOOL,
            as_json=True,
            title=self.tool_name,
            text=write_said(self._said(view)),
            schema=f"Parameters: {view.params_schema(self.tool_name)}",
        )

    def read(self, view: View, text: str) -> ToolOverride:
        now = self._said(view)
        said = {**now, **read_said(text, now)}
        params = {name: said[_param(name)] for name in view.tool(self.tool_name).param_descriptions}
        return attrs.evolve(
            self.blank,
            description=said[_DESCRIPTION] or None,
            param_descriptions={name: text for name, text in params.items() if text},
        )

    def _said(self, view: View) -> dict[str, str]:
        now = view.tool(self.tool_name)
        params = {_param(name): text for name, text in now.param_descriptions.items()}
        return {_DESCRIPTION: now.description, **params}


def _param(name: str) -> str:
    return f"param {name}"


@attrs.frozen
class OutputFieldModule(PromptModule):
    """What is said of one field of the answer."""

    field: str

    @property
    def blank(self) -> OutputFieldOverride:
        return OutputFieldOverride(field=self.field, expected_hash=UNBOUND)

    def describe(self, view: View) -> ModuleDescription:
        field, now = view.field(self.field), view.parts.fields[self.field]
        said = {_DESCRIPTION: now.description}
        if field.name:
            said[_ALIASES] = write_names(now.aliases)
        said.update((_value(option), now.values.get(option, "")) for option in field.options)
        return self.described(
            view,
            meta_prompt=MetaPrompt.OUTPUT_FIELD,
            as_json=True,
            title=self.field,
            text=write_said(said),
        )

    def read(self, view: View, text: str) -> OutputFieldOverride:
        field, now = view.field(self.field), view.parts.fields[self.field]
        names = [_DESCRIPTION, *([_ALIASES] if field.name else []), *map(_value, field.options)]
        said = read_said(text, names)
        aliases = read_names(said[_ALIASES]) if _ALIASES in said else now.aliases
        values = {
            option: said.get(_value(option), now.values.get(option, "")) for option in field.options
        }
        return attrs.evolve(
            self.blank,
            description=said.get(_DESCRIPTION, now.description) or None,
            aliases=aliases if field.name else None,
            value_descriptions={option: text for option, text in values.items() if text},
        )


def _value(option: str) -> str:
    return f"value {option}"
