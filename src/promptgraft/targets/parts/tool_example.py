"""An example of a tool."""

from __future__ import annotations

import attrs

from promptgraft.parts.entry import UNBOUND
from promptgraft.parts.tool_example import ToolExampleOverride
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.view import View
from promptgraft.targets.replies import read_tool_example, write_tool_example
from promptgraft.targets.types import MetaPrompt, ModuleDescription


@attrs.frozen
class ToolExampleModule(PromptModule):
    """One example of a tool."""

    tool_name: str
    example_index: int

    is_example = True

    @property
    def blank(self) -> ToolExampleOverride:
        return ToolExampleOverride(
            tool_name=self.tool_name, example_index=self.example_index, expected_hash=UNBOUND
        )

    def describe(self, view: View) -> ModuleDescription:
        examples = [write_tool_example(call) for call in view.tool(self.tool_name).examples]
        own = examples.pop(self.example_index)
        return self.described(
            view,
            meta_prompt=MetaPrompt.TOOL_EXAMPLE,
            title=self.tool_name,
            text=own,
            schema=view.tool_schema(self.tool_name),
            siblings=examples,
        )

    def read(self, view: View, text: str) -> ToolExampleOverride:
        del view
        read = read_tool_example(text)
        return attrs.evolve(
            self.blank,
            description=read.description,
            input_json=read.input_json,
            output_json=read.output_json,
        )
