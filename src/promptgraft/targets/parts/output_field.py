"""What is said of a field of the answer: a few named texts."""

from __future__ import annotations

import attrs

from promptgraft.parts.entry import UNBOUND
from promptgraft.parts.output_field import OutputFieldOverride
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.view import View
from promptgraft.targets.replies import read_names, read_said, write_names, write_said
from promptgraft.targets.types import MetaPrompt, ModuleDescription

_DESCRIPTION = "description"
_ALIASES = "aliases"


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
            view, meta_prompt=MetaPrompt.OUTPUT_FIELD, title=self.field, text=write_said(said)
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
