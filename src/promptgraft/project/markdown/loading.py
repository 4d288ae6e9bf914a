"""From Markdown and YAML files to a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.parts.body import BodySyntax, kept_names
from promptgraft.parts.descriptors import SectionPath, show_path
from promptgraft.project.markdown.front_matter import (
    FRONT_MATTER,
    Answer,
    FrontMatter,
    answer_of,
)
from promptgraft.project.markdown.outline import Block, Outline, read_outline, slug_of
from promptgraft.project.markdown.tool_files import (
    EXAMPLE,
    AnyTool,
    read_examples,
    read_tools,
)
from promptgraft.project.python_source import PythonSource
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.task_examples import TaskExample, TaskExamplesSection
from promptgraft.prompt.template import PromptTemplate
from promptgraft.serde import Json, did_you_mean
from promptgraft.strict.checks import TEXT, Kind
from promptgraft.strict.kinds import Key, record
from promptgraft.strict.nodes import Node, Source, decoded, raise_lines
from promptgraft.yaml_text import Note

TOOLS = "tools"
EXAMPLES = "examples"


def _read_list(node: Node) -> list[Json] | None:
    """Return a list as it is: its items are read when more is known of the prompt."""
    if isinstance(node.value, list):
        return node.value
    node.expected("a list")
    return None


_FILES: Mapping[str, Kind[dict[str, object]]] = {
    kind: record(dict, {"section": Key(TEXT), kind: Key(Kind(_read_list), about, required=True)})
    for kind, about in ((TOOLS, "the tools"), (EXAMPLES, "the worked examples"))
}


@attrs.frozen(kw_only=True)
class Beside:
    """A file of tools or examples, and the section that what it holds belongs to."""

    path: Path
    text: str
    file: Source = attrs.field(repr=False)
    section: SectionPath


@attrs.frozen(kw_only=True)
class Loaded:
    """A prompt and the files that it was read from.

    Attributes:
        template: the prompt.
        path: the Markdown file.
        outline: what it is made of.
        front: its front matter with places.
        beside: the files of tools and examples, by ``tools`` and ``examples``.
    """

    template: PromptTemplate[object]
    path: Path
    outline: Outline
    front: Source = attrs.field(repr=False)
    beside: Mapping[str, Beside]

    @property
    def texts(self) -> dict[Path, str]:
        """The text of each file."""
        others = {found.path: found.text for found in self.beside.values()}
        return {self.path: self.outline.text, **others}


def _text_of(path: Path) -> str:
    """Return a file as it is: line breaks and byte order mark are kept.

    Raises:
        DataFormatError: it cannot be read, or is not UTF-8.
    """
    source = Source(str(path))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
    decoded(raw, 1, source.note)
    source.raise_all()
    return raw.decode()


def load_texts(path: Path, texts: Mapping[Path, str], python: PythonSource) -> Loaded:
    """Return the prompt that a Markdown file holds.

    Args:
        path: the file.
        texts: what files hold instead of what is on the disk.
        python: what loads handlers and types.

    Raises:
        DataFormatError: with every fault of all its files, one line each.
    """
    return _Loader(path, texts, python).load()


class _Loader:
    """Reads the files of one prompt, and collects what is wrong with them."""

    def __init__(self, path: Path, texts: Mapping[Path, str], python: PythonSource) -> None:
        self._path = path
        self._texts = texts
        self._python = python
        self._front = Source(str(path))
        # Faults of the files beside it that nothing more is read of.
        self._lines: list[str] = []

    def load(self) -> Loaded:
        front, faults = self._front, list[tuple[int, str]]()
        outline = read_outline(self._text(self._path), lambda *fault: faults.append(fault))
        if outline.front is not None:
            front.take_yaml(f"\n{outline.front}")  # so that its lines count as those of the file
        said = FrontMatter() if front.root.value is None else FRONT_MATTER.read(front.root)
        answer = None
        if said is not None:
            answer = answer_of(said.output, front.root.member("output"), self._python)
        said = said or _what_is_right(front.root)
        _check_placeholders(said, front.root, outline)
        beside = dict(self._beside(said, {block.path for block in outline.blocks}))
        tools, examples = self._read_beside(beside, answer)
        for fault in sorted(faults):
            front.note(*fault)
        sections_of = {kind: found.section for kind, found in beside.items()}
        assembly = _Assembly(said, tools, examples, sections_of, front.note)
        sections = assembly.sections(outline.blocks)
        self._lines.extend(front.faults)
        for found in beside.values():
            self._lines.extend(found.file.faults)
        raise_lines(str(self._path), self._lines)
        template = _template(self._path, said, answer or Answer(), sections)
        return Loaded(
            template=template, path=self._path, outline=outline, front=front, beside=beside
        )

    def _text(self, path: Path) -> str:
        return self._texts[path] if path in self._texts else _text_of(path)

    def _beside(self, said: FrontMatter, known: set[SectionPath]) -> Iterator[tuple[str, Beside]]:
        """Yield the files of tools and examples that can be read."""
        for kind, name in ((TOOLS, said.tools), (EXAMPLES, said.examples)):
            path = self._path.parent / name
            if not name:
                continue
            if path not in self._texts and not path.is_file():
                self._front.root.member(kind).fault(f"there is no file {path}")
                continue
            try:
                text = self._text(path)
            except DataFormatError as error:
                self._lines.extend(error.faults)
                continue
            file = Source(str(path))
            file.take_yaml(text.removeprefix("\ufeff"))
            if not file.is_right(()):
                self._lines.extend(file.faults)
                continue
            section = self._section_of(kind, file, known)
            yield kind, Beside(path=path, text=text, file=file, section=section)

    def _section_of(self, kind: str, file: Source, known: set[SectionPath]) -> SectionPath:
        """Return the section that a file is for; one that cannot be made is a fault."""
        found = _FILES[kind].read(file.root)
        name = found.get("section") if found else None
        if not isinstance(name, str):
            return (kind,)
        section = tuple(name.split("/"))
        if section not in known and (len(section) > 1 or slug_of(name) != name):
            names = [show_path(path) for path in known]
            near = did_you_mean(show_path(section), names)
            file.root.member("section").fault(
                f"{self._path} has no section `{show_path(section)}`{near}; "
                f"sections: {', '.join(sorted(names)) or 'none'}"
            )
        return section

    def _read_beside(
        self, beside: Mapping[str, Beside], answer: Answer | None
    ) -> tuple[tuple[AnyTool, ...], tuple[TaskExample, ...]]:
        tools: tuple[AnyTool, ...] = ()
        is_right = answer is not None
        if (found := beside.get(TOOLS)) is not None:
            tools = read_tools(found.file.root.member(TOOLS).items(), self._python)
            is_right = is_right and found.file.is_right(())
        if (shown := beside.get(EXAMPLES)) is None:
            return tools, ()
        nodes = shown.file.root.member(EXAMPLES).items()
        if answer is not None and is_right:
            return tools, read_examples(nodes, tools, answer.type)
        # What they say of tools and answers would be compared with what is not there.
        for node in nodes:
            EXAMPLE.read(node)
        return tools, ()


def _template(
    path: Path, said: FrontMatter, answer: Answer, sections: tuple[MarkdownSection, ...]
) -> PromptTemplate[object]:
    if not sections:
        raise DataFormatError(f"{path}: expected a prompt, found no text")
    key = said.key or slug_of(path.stem)
    if not key:
        raise DataFormatError(f"{path}: the name makes no key; write `key:` above it")
    try:
        return PromptTemplate(
            ns=said.ns,
            key=key,
            name=said.name,
            sections=sections,
            output_type=answer.type,
            choice=answer.choice,
        )
    except PromptDefinitionError as error:
        raise DataFormatError(f"{path}: {error}") from None


def _check_placeholders(said: FrontMatter, root: Node, outline: Outline) -> None:
    """Note the placeholders of a plain text that none of its sections holds."""
    names = frozenset(said.placeholders)
    held = {
        name for block in outline.blocks for name in kept_names(block.body, BodySyntax.PLAIN, names)
    }
    for name, node in zip(said.placeholders, root.member("placeholders").items(), strict=False):
        if name not in held:
            node.fault(f"no section holds `{name}`; write it into one, or leave it out here")


def _what_is_right(root: Node) -> FrontMatter:
    """Return of a front matter with faults what leads to further ones."""

    def said(name: str) -> str:
        value = root.member(name).value
        return value if isinstance(value, str) else ""

    is_known = said("syntax") in list(BodySyntax)
    return FrontMatter(
        tools=said(TOOLS),
        examples=said(EXAMPLES),
        syntax=said("syntax") if is_known else BodySyntax.DOLLAR,
    )


@attrs.frozen
class _Assembly:
    """Puts sections together, with the tools and examples that belong to them.

    Attributes:
        said: the front matter. Of its placeholders a section keeps the ones that it holds.
        tools: the tools.
        examples: the worked examples.
        sections_of: the section that ``tools`` and ``examples`` belong to, as far as there is
            a file of them.
        note: takes what is wrong with the texts of sections.
    """

    said: FrontMatter
    tools: tuple[AnyTool, ...]
    examples: tuple[TaskExample, ...]
    sections_of: Mapping[str, SectionPath]
    note: Note

    def sections(self, blocks: tuple[Block, ...]) -> tuple[MarkdownSection, ...]:
        """Return the sections of the file, and those that only tools and examples need."""
        return (*self._below((), blocks), *self._implicit({block.path for block in blocks}))

    def _below(self, above: SectionPath, blocks: tuple[Block, ...]) -> Iterator[MarkdownSection]:
        for block in blocks:
            if block.path[:-1] == above:
                yield self._of_block(block, tuple(self._below(block.path, blocks)))

    def _of_block(self, block: Block, children: tuple[MarkdownSection, ...]) -> MarkdownSection:
        try:
            return self._section(
                block.path,
                template=block.body,
                title=block.title,
                children=children,
                overridable=not block.frozen,
            )
        except PromptDefinitionError as error:
            where, _, text = str(error).partition(": ")
            line = where.rpartition(":")[2]
            within = int(line) - 1 if line.isdecimal() else 0
            fault = f"section `{show_path(block.path)}`: {text}"
            self.note(block.body_line + within, fault)
            return MarkdownSection(key=block.path[-1], title=block.title, children=children)

    def _implicit(self, known: set[SectionPath]) -> Iterator[MarkdownSection]:
        for path in dict.fromkeys(self.sections_of.values()):
            if path not in known:
                has_examples = self._is_for(EXAMPLES, path)
                shows = has_examples or any(tool.examples for tool in self.tools)
                title = path[-1].replace("-", " ").replace("_", " ").capitalize() if shows else ""
                yield self._section(path, title=title, overridable=has_examples)

    def _section(self, path: SectionPath, **given: Any) -> MarkdownSection:
        given |= {"key": path[-1], "syntax": self.said.syntax}
        if self.said.syntax == BodySyntax.PLAIN:
            template, names = given.get("template", ""), frozenset(self.said.placeholders)
            held = kept_names(template, BodySyntax.PLAIN, names)
            given["placeholders"] = [name for name in self.said.placeholders if name in held]
        if self._is_for(TOOLS, path):
            given["tools"] = self.tools
        if self._is_for(EXAMPLES, path):
            return TaskExamplesSection(**given, examples=self.examples)
        return MarkdownSection(**given)

    def _is_for(self, kind: str, path: SectionPath) -> bool:
        return self.sections_of.get(kind) == path
