"""Reading of Markdown and YAML files as prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import attrs

from promptgraft.errors import ConfigError, DataFormatError, PromptDefinitionError
from promptgraft.ground.files import is_file
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.checks import TEXT, Kind, one_of
from promptgraft.ground.strict.kinds import Key, checked, either, listed, named, record, record_of
from promptgraft.ground.strict.nodes import Node, Source, decoded, raise_lines, read_fault
from promptgraft.ground.text import listed as listed_names
from promptgraft.overrides.parts.body import BodySyntax, is_placeholder, kept_names
from promptgraft.overrides.parts.descriptors import SectionPath, SectionVisibility, show_path
from promptgraft.overrides.parts.validation import check_key, check_ns
from promptgraft.project.markdown import values
from promptgraft.project.markdown.json_schema import is_schema, read_schema
from promptgraft.project.markdown.outline import (
    Outline,
    OutlineBlock,
    key_of,
    read_outline,
    slug_of,
)
from promptgraft.project.python_source import ObjectKind, PythonSource
from promptgraft.prompt.fields import Described
from promptgraft.prompt.rendered import RenderedSection, check_output_type
from promptgraft.prompt.sections import MarkdownSection, Role, TaskExample, TaskExamplesSection
from promptgraft.prompt.template import PromptTemplate

OUTPUT_TYPE = "output"
TOOLS = "tools"
EXAMPLES = "examples"
DEFAULT_NAME = "Answer"
_TEXT = "text"


@attrs.frozen(kw_only=True)
class FrontMatter:
    """The front matter, in which all keys are optional.

    Attributes:
        key: the key of the prompt; empty for the stem of the file's name.
        placeholders: strings that a plain text must keep.
        output: the type of answers, if it is written as an object in the form of this project.
        repair: whether answers that are not strict JSON are repaired, with a note.
        verbatim: whether headings and empty lines are sent as they are written.
        roles: ``system`` or ``user`` by section; by default, what stands before the first section
            with a placeholder is the system's.
        tools: a file of tools beside this one; empty for none.
        handlers: a file or module of Python with the functions of these tools, by their names,
            which are called with the parameters by name.
        examples: a file of worked examples beside this one; empty for none.
    """

    ns: str = "prompts"
    key: str = ""
    name: str | None = None
    syntax: str = BodySyntax.DOLLAR.value
    placeholders: tuple[str, ...] = ()
    output: values.Value | None = None
    repair: bool = True
    verbatim: bool = False
    roles: Mapping[str, Role] = attrs.field(factory=dict)
    tools: str = ""
    handlers: str | None = None
    examples: str = ""

    def __attrs_post_init__(self) -> None:
        if self.placeholders and self.syntax != BodySyntax.PLAIN:
            raise ConfigError(
                "placeholders: expected only beside `syntax: plain`; the text spells those of "
                f"`{self.syntax}`"
            )
        if self.handlers is not None and not self.tools:
            raise ConfigError("handlers: expected only beside `tools`, whose functions they are")


@attrs.frozen
class AnswerFormat:
    """The type of answers, and the description of a choice."""

    type: Any = attrs.field(default=str, hash=False)
    choice: Described = attrs.field(factory=Described)


_EXPECTED = (
    "`text`, an object with `type`, `choices` or `fields`, a JSON Schema or a file of one, or "
    "`file.py:NAME`"
)


def _read_name(node: Node) -> None:
    if node.value != _TEXT and ":" not in str(node.value) and not _is_file_name(node.value):
        node.expected(_EXPECTED)


def _is_file_name(value: Json) -> bool:
    return isinstance(value, str) and value.endswith((".json", ".yaml", ".yml"))


def _read_object(node: Node) -> values.Value | None:
    return None if is_schema(node.value) else values.OUTPUT.read(node)


_OUTPUT: Kind[values.Value] = either(_EXPECTED, (str, Kind(_read_name)), (dict, Kind(_read_object)))


def _read_placeholder(node: Node) -> str | None:
    if isinstance(node.value, str) and is_placeholder(node.value):
        return node.value
    # Unquoted, `{query}` is an object in YAML.
    node.expected('printable text in quotation marks, such as `"{query}"`')
    return None


FRONT_MATTER: Kind[FrontMatter] = record_of(
    FrontMatter,
    special={
        "ns": checked(TEXT, check_ns),
        "key": checked(TEXT, lambda key: check_key(key, "key")),
        "name": TEXT,
        "syntax": one_of(*(str(one.value) for one in BodySyntax)),
        "placeholders": listed(Kind(_read_placeholder)),
        "output": _OUTPUT,
        "roles": named(one_of(*get_args(Role)), "an object such as `{task: system, mail: user}`"),
        "tools": TEXT,
        "handlers": TEXT,
        "examples": TEXT,
    },
)


_ANSWER: ObjectKind[object] = ObjectKind(
    expected="a class or another type, such as list[str]",
    plural="types",
    read=lambda value: value if isinstance(value, type) or get_origin(value) else None,
)


def answer_of(output: values.Value | None, node: Node, python: PythonSource) -> AnswerFormat | None:
    """Return the type of answers; None, with faults noted at ``node``, if there are any."""
    if is_schema(node.value):
        return _schema_answer(node)
    if output is None:
        return AnswerFormat() if node.value in (None, _TEXT) else _python_answer(node, python)
    if not output.choices and output.description and not output.type:
        node.member("description").fault("expected a description only beside `choices`")
    if output.choices and output.fields is None and output.name:
        node.member("name").fault("expected a name only beside `fields`")
    if not output.choices and output.fields is None and not output.type:
        node.expected(_EXPECTED)
        return None
    if output.fields is not None and not output.fields:
        node.member("fields").expected("at least one field")
        return None
    kind = values.kind_of(output, DEFAULT_NAME, node)
    if kind is None or output.optional:
        return None if kind is None else AnswerFormat(kind | None)
    return AnswerFormat(kind, values.described(output))


def _schema_answer(node: Node) -> AnswerFormat | None:
    schema = read_schema(node, DEFAULT_NAME)
    if schema is None:
        return None
    if Any in (schema.kind, *get_args(schema.kind)[:1]) and get_origin(schema.kind) in (
        None,
        Annotated,
    ):
        node.expected("a JSON Schema with `type`, `properties`, `enum` or `$ref`")
        return None
    try:
        check_output_type(schema.kind, "")
    except PromptDefinitionError as error:
        node.fault(str(error).removeprefix(": "))
        return None
    return AnswerFormat(schema.kind, schema.described)


def _python_answer(node: Node, python: PythonSource) -> AnswerFormat | None:
    kind = python.read(node, _ANSWER)
    if kind is None:
        return None
    try:
        check_output_type(kind, f"`{node.value}`")
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None
    return AnswerFormat(kind)


def _read_list(node: Node) -> list[Json] | None:
    """Return a list as it is: its items can only be checked against the rest of the prompt."""
    if isinstance(node.value, list):
        return node.value
    node.expected("a list")
    return None


_FILES: Mapping[str, Kind[dict[str, object]]] = {
    kind: record(
        dict,
        {"section": Key(TEXT), kind: Key(Kind(_read_list), about, required=True)},
        left_out=left_out,
    )
    for kind, about, left_out in (
        # Keys that MCP servers add.
        (TOOLS, "the tools", ("_meta", "nextCursor", "ttlMs", "cacheScope", "resultType")),
        (EXAMPLES, "the worked examples", ()),
    )
}


@attrs.frozen
class AttachedFile:
    """A file of tools or examples, and the section that they belong to.

    Attributes:
        section: empty for the type of answers.
    """

    path: Path
    text: str
    file: Source = attrs.field(repr=False)
    section: SectionPath = ()

    def items(self, kind: str) -> list[Node]:
        """Return the tools or examples; a file of tools may be just their list."""
        root = self.file.root
        return root.items() or root.member(kind).items()


@attrs.frozen
class Loaded:
    """A prompt and its files: the Markdown file, and those of ``tools`` and ``examples``."""

    template: PromptTemplate[object]
    path: Path
    outline: Outline
    front: Source = attrs.field(repr=False)
    attached: Mapping[str, AttachedFile]

    @property
    def has_leads(self) -> bool:
        """Whether headings and empty lines are sent as they are written."""
        return any(section.lead is not None for _, section in self.template.walked)

    @property
    def texts(self) -> dict[Path, str]:
        """The text of each file."""
        other_files = {file.path: file.text for file in self.attached.values()}
        return {self.path: self.outline.text, **other_files}


def _text_of(path: Path) -> str:
    """Return the text of a file, with its line breaks and byte order mark."""
    source = Source(str(path))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise read_fault(path, error) from None
    decoded(raw, 1, source.note)
    source.raise_all()
    return raw.decode()


def load_texts(path: Path, texts: Mapping[Path, str], python: PythonSource) -> Loaded:
    """Read a prompt from a Markdown file; ``texts`` replace files on the disk.

    Raises:
        DataFormatError: all faults of all its files, one line each.
    """
    return _Loader(path, texts, python, Source(str(path))).load()


def written_leads(outline: Outline) -> Iterator[tuple[SectionPath, str]]:
    """Yield for each section what stands in the file between the text before it and its own."""
    behind = ""
    for block in outline.blocks:
        yield block.path, behind + block.before
        behind = block.after


def sent_differently(loaded: Loaded) -> str:
    """Return in words how the text that is sent differs from the file; empty if it does not."""
    if loaded.has_leads:
        return ""
    pairs = list(zip(written_leads(loaded.outline), _usual_leads(loaded.outline), strict=True))
    headings = [
        (written.strip("\n"), usual.strip("\n"))
        for (_, written), (_, usual) in pairs
        if written.strip("\n") != usual.strip("\n")
    ]
    ways = [f"`{written}` is sent as `{usual}`" for written, usual in headings[:1]]
    if any(_gaps(written) != _gaps(usual) for (_, written), (_, usual) in pairs):
        ways.append("one empty line is sent around headings")
    return " and ".join(ways)


def _gaps(lead: str) -> tuple[int, int]:
    """Return the line breaks at the beginning and at the end of a lead."""
    after = len(lead) - len(lead.rstrip("\n"))
    return len(lead) - len(lead.lstrip("\n")), after


def _usual_leads(outline: Outline) -> Iterator[tuple[SectionPath, str]]:
    """Yield what :func:`written_leads` does, for a file that is written as it is sent."""
    gap = ""
    for block in outline.blocks:
        lead = gap + RenderedSection(path=block.path, title=block.title, segments=()).heading
        yield block.path, lead + ("\n\n" if block.title and block.body else "")
        gap = "\n\n"


@attrs.define
class _Loader:
    """Reads the files of one prompt and collects their faults."""

    path: Path
    texts: Mapping[Path, str]
    python: PythonSource
    front: Source
    said: FrontMatter = attrs.field(factory=FrontMatter)
    attached: dict[str, AttachedFile] = attrs.field(factory=dict)
    tools: tuple[values.AnyTool, ...] = ()
    examples: tuple[TaskExample, ...] = ()
    # Faults of files beside it that could not be parsed.
    unread: list[str] = attrs.field(factory=list)
    leads: Mapping[SectionPath, str] = attrs.field(factory=dict)

    def load(self) -> Loaded:
        faults: list[tuple[int, str]] = []
        outline = read_outline(self.text(self.path), lambda *fault: faults.append(fault))
        answer = self.read_front(outline.front)
        self.find_attached({block.path for block in outline.blocks})
        self.read_attached(answer)
        for fault in sorted(faults):
            self.front.note(*fault)
        self.leads = dict(written_leads(outline)) if self.said.verbatim else {}
        sections = (*self.sections_below((), outline.blocks), *self.implicit_sections(outline))
        self.check_placeholders(outline)
        self.check_roles({*(block.path for block in outline.blocks)})
        files = (self.front, *(file.file for file in self.attached.values()))
        lines = (line for file in files for line in file.faults)
        raise_lines(str(self.path), [*self.unread, *lines])
        template = self.template(answer or AnswerFormat(), sections)
        return Loaded(template, self.path, outline, self.front, self.attached)

    def text(self, path: Path) -> str:
        return self.texts[path] if path in self.texts else _text_of(path)

    def read_front(self, text: str | None) -> AnswerFormat | None:
        """Read the front matter and return the answer type; None if either has a fault."""
        if text is not None:
            self.front.take_yaml(f"\n{text}")  # so that its lines count as those of the file
        root = self.front.root
        front = FrontMatter() if root.value is None else FRONT_MATTER.read(root)
        self.said = front or _what_is_right(root)
        node = root.member(OUTPUT_TYPE)
        if front and _is_file_name(node.value):
            file = self.attach(OUTPUT_TYPE, str(node.value))
            if file is None:
                return None
            return _schema_answer(file.file.root)
        return answer_of(front.output, node, self.python) if front else None

    def find_attached(self, paths: set[SectionPath]) -> None:
        """Parse the files of tools and examples."""
        for kind, name in ((TOOLS, self.said.tools), (EXAMPLES, self.said.examples)):
            if name and (file := self.attach(kind, name)) is not None:
                section = self.section_of(kind, file.file, paths)
                self.attached[kind] = attrs.evolve(file, section=section)

    def attach(self, kind: str, name: str) -> AttachedFile | None:
        """Parse a file that the front matter names; None, with faults noted, if it has any."""
        path = self.path.parent / name
        if path not in self.texts and not is_file(path):
            self.front.root.member(kind).fault(f"there is no file {path}")
            return None
        file = Source(str(path))
        try:
            text = self.text(path)
            file.take(text.removeprefix("\ufeff"))
        except DataFormatError as error:
            self.unread.extend(error.faults)
            return None
        if not file.is_right(()):
            self.unread.extend(file.faults)
            return None
        self.attached[kind] = AttachedFile(path, text, file)
        return self.attached[kind]

    def section_of(self, kind: str, file: Source, paths: set[SectionPath]) -> SectionPath:
        """Return the section of a file of tools or examples, which may need to be added."""
        if kind == TOOLS and isinstance(file.root.value, list):
            return (kind,)
        if file.root.member("nextCursor").value is not None:
            file.root.member("nextCursor").fault("further tools follow on the server; add them")
        section_read = _FILES[kind].read(file.root)
        name = section_read.get("section") if section_read else None
        if not isinstance(name, str):
            return (kind,)
        section = tuple(name.split("/"))
        if section not in paths and (len(section) > 1 or slug_of(name) != name):
            names = [show_path(path) for path in sorted(paths)]
            near = did_you_mean(show_path(section), names)
            file.root.member("section").fault(
                f"{self.path} has no section `{show_path(section)}`{near}; "
                f"sections: {', '.join(sorted(names)) or 'none'}"
            )
        return section

    def read_attached(self, answer: AnswerFormat | None) -> None:
        is_right = answer is not None
        if tools := self.attached.get(TOOLS):
            handlers = values.Handlers(self.python, self.front.root.member("handlers"))
            self.tools = values.read_tools(tools.items(TOOLS), handlers)
            is_right = is_right and tools.file.is_right(()) and handlers.module.is_right()
        examples = self.attached.get(EXAMPLES)
        nodes = examples.items(EXAMPLES) if examples else []
        if answer is not None and is_right:
            self.examples = values.read_examples(nodes, self.tools, answer.type)
        else:
            # Tools and answers are not known, so examples cannot be checked against them.
            for node in nodes:
                values.EXAMPLE.read(node)

    def sections_below(
        self, above: SectionPath, blocks: Sequence[OutlineBlock]
    ) -> Iterator[MarkdownSection]:
        for block in blocks:
            if block.path[:-1] == above:
                yield self.section_of_block(block, tuple(self.sections_below(block.path, blocks)))

    def section_of_block(
        self, block: OutlineBlock, children: tuple[MarkdownSection, ...]
    ) -> MarkdownSection:
        try:
            return self.section(
                block.path,
                template=block.body,
                title=block.title,
                children=children,
                overridable=not block.frozen,
                visibility=SectionVisibility.HIDDEN if block.hidden else SectionVisibility.FULL,
            )
        except PromptDefinitionError as error:
            where, _, text = str(error).partition(": ")
            line = where.rpartition(":")[2]
            within = int(line) - 1 if line.isdecimal() else 0
            self.front.note(block.body_line + within, f"section `{show_path(block.path)}`: {text}")
            return MarkdownSection(key=block.path[-1], title=block.title, children=children)

    def implicit_sections(self, outline: Outline) -> Iterator[MarkdownSection]:
        """Yield sections for tools and examples that have no heading in the file."""
        paths = {block.path for block in outline.blocks}
        for path in dict.fromkeys(file.section for file in self.attached.values()):
            if path and path not in paths:
                has_examples = self.is_for(EXAMPLES, path)
                shows = has_examples or any(tool.examples for tool in self.tools)
                title = path[-1].replace("-", " ").replace("_", " ").capitalize() if shows else ""
                yield self.section(path, title=title, overridable=has_examples)

    def section(self, path: SectionPath, **given: Any) -> MarkdownSection:
        given |= {"key": path[-1], "syntax": self.said.syntax}
        given |= {"role": self.said.roles.get(show_path(path)), "lead": self.leads.get(path)}
        if self.said.syntax == BodySyntax.PLAIN:
            # Each section must keep only the placeholders that it contains.
            template, names = given.get("template", ""), frozenset(self.said.placeholders)
            names_kept = kept_names(template, BodySyntax.PLAIN, names)
            given["placeholders"] = [name for name in self.said.placeholders if name in names_kept]
        if self.is_for(TOOLS, path):
            given["tools"] = self.tools
        if self.is_for(EXAMPLES, path):
            return TaskExamplesSection(**given, examples=self.examples)
        return MarkdownSection(**given)

    def is_for(self, kind: str, path: SectionPath) -> bool:
        return kind in self.attached and self.attached[kind].section == path

    def check_placeholders(self, outline: Outline) -> None:
        """Note placeholders of a plain text that no section contains."""
        bodies = "\n".join(block.body for block in outline.blocks)
        names_kept = kept_names(bodies, BodySyntax.PLAIN, frozenset(self.said.placeholders))
        nodes = self.front.root.member("placeholders").items()
        for name, node in zip(self.said.placeholders, nodes, strict=False):
            if name not in names_kept:
                node.fault(f"no section holds `{name}`; write it into one, or leave it out here")

    def check_roles(self, paths: set[SectionPath]) -> None:
        """Note roles of sections that the file does not have."""
        paths_known = sorted({show_path(path) for path in paths})
        for name, node in self.front.root.member("roles").members().items():
            if name not in paths_known:
                near = (
                    did_you_mean(name, paths_known)
                    or f"; sections: {listed_names(paths_known) or 'none'}"
                )
                node.fault(f"no section has the key `{name}`{near}")

    def template(
        self, answer: AnswerFormat, sections: tuple[MarkdownSection, ...]
    ) -> PromptTemplate[object]:
        if not sections:
            raise DataFormatError(
                f"{self.path}: expected a prompt, found no text; write the instructions into it"
            )
        key = self.said.key or key_of(self.path)
        try:
            return PromptTemplate(
                ns=self.said.ns,
                key=key,
                name=self.said.name,
                sections=sections,
                output_type=answer.type,
                choice=answer.choice,
                repair=self.said.repair,
            )
        except PromptDefinitionError as error:
            raise DataFormatError(f"{self.path}: {error}") from None


def _what_is_right(root: Node) -> FrontMatter:
    """Return the usable part of a front matter with faults, to find further faults."""

    def said(name: str) -> str:
        value = root.member(name).value
        return value if isinstance(value, str) else ""

    syntax = said("syntax") if said("syntax") in list(BodySyntax) else BodySyntax.DOLLAR
    return FrontMatter(tools=said(TOOLS), examples=said(EXAMPLES), syntax=syntax)
