"""From the pieces of prompt files to sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from promptgraft.errors import PromptDefinitionError
from promptgraft.parts.body import BodySyntax, kept_names
from promptgraft.parts.descriptors import SectionPath, show_path
from promptgraft.project.markdown.outline import Block, Line
from promptgraft.project.markdown.tool_files import AnyTool
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.task_examples import TaskExample, TaskExamplesSection

TOOLS = "tools"
EXAMPLES = "examples"


@attrs.frozen(kw_only=True)
class Assembly:
    """Puts sections together, with the tools and examples that belong to them.

    Attributes:
        syntax: how placeholders look.
        placeholders: those of a plain text; a section keeps the ones that it holds.
        tools: the tools.
        examples: the worked examples.
        sections_of: the section that ``tools`` and ``examples`` belong to, as far as there is
            a file of them.
        faults: what is wrong with the texts of sections.
    """

    syntax: str
    placeholders: tuple[str, ...]
    tools: tuple[AnyTool, ...]
    examples: tuple[TaskExample, ...]
    sections_of: Mapping[str, SectionPath]
    faults: list[Line] = attrs.field(factory=list, init=False)

    def sections(self, blocks: tuple[Block, ...]) -> tuple[MarkdownSection, ...]:
        """Return the sections of the file, and those that only tools and examples need."""
        return (*self._below((), blocks), *self._implicit({block.path for block in blocks}))

    def _below(self, above: SectionPath, blocks: tuple[Block, ...]) -> Iterator[MarkdownSection]:
        for block in blocks:
            if block.path[:-1] == above:
                inside = tuple(
                    found for found in blocks if found.path[: len(block.path)] == block.path
                )
                yield self._of_block(block, tuple(self._below(block.path, inside)))

    def _of_block(self, block: Block, children: tuple[MarkdownSection, ...]) -> MarkdownSection:
        said: dict[str, Any] = {
            "title": block.title,
            "children": children,
            "overridable": not block.frozen,
        }
        try:
            return self._section(block.path, template=block.body, **said)
        except PromptDefinitionError as error:
            where, _, text = str(error).partition(": ")
            line = where.rpartition(":")[2]
            within = int(line) - 1 if line.isdecimal() else 0
            fault = f"section `{show_path(block.path)}`: {text}"
            self.faults.append(Line(block.body_line + within, fault))
            return MarkdownSection(key=block.path[-1], title=block.title, children=children)

    def _implicit(self, known: set[SectionPath]) -> Iterator[MarkdownSection]:
        for path in dict.fromkeys(self.sections_of.values()):
            if path not in known:
                has_examples = self._is_for(EXAMPLES, path)
                shows = has_examples or any(tool.examples for tool in self.tools)
                title = path[-1].replace("-", " ").replace("_", " ").capitalize() if shows else ""
                yield self._section(path, title=title, overridable=has_examples)

    def _section(self, path: SectionPath, **said: Any) -> MarkdownSection:
        said |= {"key": path[-1], "syntax": self.syntax}
        if self.syntax == BodySyntax.PLAIN:
            template, names = said.get("template", ""), frozenset(self.placeholders)
            held = kept_names(template, BodySyntax.PLAIN, names)
            said["placeholders"] = [name for name in self.placeholders if name in held]
        if self._is_for(TOOLS, path):
            said["tools"] = self.tools
        if self._is_for(EXAMPLES, path):
            return TaskExamplesSection(**said, examples=self.examples)
        return MarkdownSection(**said)

    def _is_for(self, kind: str, path: SectionPath) -> bool:
        return self.sections_of.get(kind) == path
