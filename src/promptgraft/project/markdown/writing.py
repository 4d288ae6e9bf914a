"""Overrides written back into the Markdown files of their prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json, parse_json
from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.yaml_edits import BREAK, changed, with_breaks, with_items
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.overrides.parts.body import BodySyntax, Piece, Slot, write_body
from promptgraft.overrides.parts.descriptors import (
    OutputFieldDescriptor,
    SectionPath,
    SectionVisibility,
    section_part,
    task_example_part,
    tool_part,
)
from promptgraft.overrides.parts.entry import EffectiveParts
from promptgraft.overrides.parts.examples import WorkedExample, plain_call
from promptgraft.overrides.resolution import effective_parts, resolve_override
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.files import FileChange
from promptgraft.project.markdown.classes import nested_name
from promptgraft.project.markdown.json_schema import is_schema, schema_fields, unwrapped
from promptgraft.project.markdown.loading import (
    DEFAULT_NAME,
    EXAMPLES,
    OUTPUT_TYPE,
    TOOLS,
    Loaded,
    load_texts,
)
from promptgraft.project.markdown.outline import (
    INTRO,
    OutlineBlock,
    escaped,
    slug_of,
    stays_open,
    with_hidden,
)
from promptgraft.project.markdown.values import ToolPlaces
from promptgraft.project.python_source import PythonSource
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import SectionSource, doubled
from promptgraft.prompt.template import PromptTemplate

# Below empty lines, which are kept.
_EMPTIED = re.compile(rf"(\A\s*)(#+ \{{#{INTRO}\}})")
_TRIMS = re.compile(r"\A\{[{%]-|-[}%]\}\Z")
_NAME_CHARACTER = re.compile(r"[_a-zA-Z0-9]")
# The beginning of a tag, or a final brace that would begin one with what follows.
_DEFINES = re.compile(r"\{%[-+]?\s*(?:set|macro)\b")


def rewritten(
    loaded: Loaded, override: PromptOverride, python: PythonSource
) -> tuple[FileChange, ...]:
    """Return the changes of a prompt's files that apply ``override``, without writing them.

    The new files are read back and compared with the overridden prompt.

    Raises:
        ConfigError: a text cannot be written, or would not read back the same.
    """
    fresh = resolve_override(loaded.template.descriptor, override).fresh
    if fresh is None:
        return ()
    parts = effective_parts(loaded.template.descriptor, fresh)
    front, after = loaded.outline.front, {}
    if OUTPUT_TYPE in loaded.attached:
        attached = loaded.attached[OUTPUT_TYPE]
        after[attached.path] = _with_output(attached.text, loaded, parts)
    elif front is not None:
        front = _with_output(front, loaded, parts)
    after[loaded.path] = with_sections(loaded, fresh, front)
    if TOOLS in loaded.attached:
        after[loaded.attached[TOOLS].path] = _with_tools(loaded, parts)
    if EXAMPLES in loaded.attached:
        after[loaded.attached[EXAMPLES].path] = _with_examples(loaded, parts)
    before = loaded.texts
    changes = {path: text for path, text in after.items() if text != before[path]}
    # Read back before anything is written: a prompt must mean the same in the file as in the
    # run.
    _check(loaded, fresh, {**before, **changes}, python)
    return tuple(FileChange(path, before[path], text) for path, text in changes.items())


def _with_output(text: str, loaded: Loaded, parts: EffectiveParts) -> str:
    """Return the text that describes the answer with its overridden fields."""
    places = dict(_places(loaded))
    source = EffectiveParts.of_source(loaded.template.descriptor).fields
    for field in loaded.template.descriptor.output_fields:
        now = parts.fields[field.field]
        if now == source[field.field]:
            continue
        if field.field not in places:
            message = f"output field `{field.field}` is written in Python; change it there"
            raise ConfigError(loaded.front.line(("output",), message))
        text = _with_field(text, places[field.field].path, field, now)
    return text


def _places(loaded: Loaded) -> Iterator[tuple[str, Node]]:
    """Yield the key of each field of the answer, and where it is described."""
    attached, fields = loaded.attached.get(OUTPUT_TYPE), loaded.template.descriptor.output_fields
    output = loaded.front.root.member(OUTPUT_TYPE) if attached is None else attached.file.root
    if not isinstance(output.value, dict):
        return
    if fields and not fields[0].name:
        yield fields[0].field, unwrapped(output)
    elif is_schema(output.value):
        yield from schema_fields(output, DEFAULT_NAME)
    else:
        yield from _fields(output, DEFAULT_NAME)


def _fields(owner: Node, name: str) -> Iterator[tuple[str, Node]]:
    field_name = owner.member("name").value
    name = field_name if isinstance(field_name, str) else name
    for field, node in owner.member("fields").members().items():
        yield f"{name}.{field}", node
        yield from _fields(node, nested_name(name, field))


def _with_field(
    text: str, path: YamlPath, field: OutputFieldDescriptor, now: OutputFieldDescriptor
) -> str:
    text = changed(text, (*path, "description"), field.description, now.description)
    text = changed(text, (*path, "aliases"), list(field.aliases), list(now.aliases))
    before: dict[str, Json] = {option: field.values.get(option) for option in field.options}
    after: dict[str, Json] = {option: now.values.get(option) for option in field.options}
    return changed(text, (*path, "choices"), before, after)


def _with_tools(loaded: Loaded, parts: EffectiveParts) -> str:
    attached = loaded.attached[TOOLS]
    text, items = attached.text, attached.items(TOOLS)
    for node, tool in zip(items, loaded.template.descriptor.tools, strict=True):
        now, places = parts.tools[tool.name], ToolPlaces.of(node)
        here = places.entry.path
        text = changed(text, (*here, "description"), tool.description, now.description)
        for name, description in tool.param_descriptions.items():
            place = (*places.parameter(name).path, "description")
            text = changed(text, place, description, now.param_descriptions[name])
        for at, (before, after) in enumerate(zip(tool.examples, now.examples, strict=True)):
            text = changed(text, (*here, "examples", at), plain_call(before), plain_call(after))
    return text


def _with_examples(loaded: Loaded, parts: EffectiveParts) -> str:
    attached = loaded.attached[EXAMPLES]
    items: list[tuple[Json, Json]] = []
    examples = {example.path: example for example in loaded.template.descriptor.task_examples}
    for path, example in examples.items():
        frozen: dict[str, Json] = {} if example.overridable else {"frozen": True}
        now = parts.examples[path[:-1]].get(path[-1])
        hidden = _if_hidden(parts.hides(path))
        after = {**_example(path[-1], now), **frozen, **hidden} if now else None
        was_hidden = _if_hidden(example.visibility is SectionVisibility.HIDDEN)
        items.append(({**_example(path[-1], example.example), **frozen, **was_hidden}, after))
    added: list[Json] = [
        {name: value for name, value in _example(key, example).items() if value != []}
        for key, example in parts.examples[attached.section].items()
        if (*attached.section, key) not in examples
    ]
    return with_items(attached.text, (EXAMPLES,), items, added)


def _if_hidden(is_hidden: bool) -> dict[str, Json]:
    return {"hidden": True} if is_hidden else {}


def _example(key: str, example: WorkedExample) -> dict[str, Json]:
    return {
        "key": key,
        "objective": example.objective,
        "steps": [{"tool": step.tool_name, **plain_call(step)} for step in example.steps],
        "outcome": parse_json(example.outcome_json, where="outcome"),
    }


def _check(
    loaded: Loaded, fresh: PromptOverride, texts: dict[Path, str], python: PythonSource
) -> None:
    mend = "this cannot be written back; write it by hand"
    try:
        written = load_texts(loaded.path, texts, python).template
    except DataFormatError as error:
        raise ConfigError(f"{error.faults[0]}; {mend}") from None
    expected = dict(_meanings(loaded.template, fresh))
    actual = dict(_meanings(written, None))
    for part in [*expected, *actual]:
        if expected.get(part) != actual.get(part):
            raise ConfigError(f"{loaded.path}: {part} would not read back the same; {mend}")
    if list(expected) != list(actual):
        raise ConfigError(f"{loaded.path}: its parts would read back in another order; {mend}")


def _meanings(
    template: PromptTemplate[object], fresh: PromptOverride | None
) -> Iterator[tuple[str, object]]:
    """Yield the name of each part of a prompt, with everything that a model is shown of it."""
    descriptor = template.descriptor
    parts = effective_parts(descriptor, fresh)
    for path, section in template.walked:
        body, source = parts.bodies.get(path), section.source
        pieces = source.pieces if body is None else source.parse(body)
        meaning = tuple(_meaning(within(pieces), source))
        visibility = parts.visibility_of(path)
        yield section_part(path), (section.title, section.overridable, visibility, meaning)
    for tool in descriptor.tools:
        yield tool_part(tool.name), (parts.tools[tool.name], tool.overridable)
    for container, examples in parts.examples.items():
        for key, example in examples.items():
            hidden = parts.hides((*container, key))
            yield task_example_part((*container, key)), (example, hidden)
    for name, field in parts.fields.items():
        yield f"output field {name}", field


def _meaning(pieces: Sequence[Piece], source: SectionSource) -> Iterator[Piece]:
    """Yield text and slots; opaque slots by their source, as their names depend on the order."""
    for piece in pieces:
        if isinstance(piece, Slot) and piece.name in source.opaque:
            yield Slot(_TRIMS.sub(lambda trim: trim[0].replace("-", ""), source.opaque[piece.name]))
        else:
            yield piece


def with_sections(loaded: Loaded, fresh: PromptOverride, front: str | None) -> str:
    """Return the Markdown file with the section bodies of an override and a new front matter.

    Raises:
        ConfigError: a body cannot be written in the file.
    """
    new = dict(_new_texts(loaded, fresh))
    hidden = dict(_newly_hidden(loaded, fresh))
    blocks = loaded.outline.blocks
    written = {block.path for block in blocks}
    missing = [section for section in loaded.template.sections if (section.key,) not in written]
    if not any((section.key,) in {*new, *hidden} for section in missing):
        missing = []
    rewritten = list(blocks)
    for at, block in enumerate(blocks):
        if block.path in new:
            is_last = at == len(blocks) - 1 and not missing
            raw = _raw(loaded, at, new[block.path], is_last=is_last)
            rewritten[at] = attrs.evolve(block, raw=raw)
        if block.path in hidden:
            rewritten[at] = _with_mark(loaded, rewritten[at], hidden=hidden[block.path])
    text = attrs.evolve(loaded.outline, front=front, blocks=tuple(rewritten)).text
    for section in missing:
        path = (section.key,)
        text = _appended(text, section, new.get(path, ""), hidden=hidden.get(path, False))
    return text


def _newly_hidden(loaded: Loaded, fresh: PromptOverride) -> Iterator[tuple[SectionPath, bool]]:
    """Yield the sections that an override hides or shows, and whether it hides them."""
    descriptor = loaded.template.descriptor
    for path, entry in fresh.visibilities.items():
        section = descriptor.section(path)
        if section is not None and section.visibility is not entry.visibility:
            yield path, entry.visibility is SectionVisibility.HIDDEN


def _with_mark(loaded: Loaded, block: OutlineBlock, *, hidden: bool) -> OutlineBlock:
    """Return a block whose heading says whether it is hidden; the text before it all gets one."""
    if block.heading:
        return attrs.evolve(block, heading=with_hidden(block.heading, hidden=hidden))
    raw, count = _EMPTIED.subn(
        lambda found: found[1] + with_hidden(found[2], hidden=hidden), block.raw
    )
    if count:
        return attrs.evolve(block, raw=raw)
    following = [each for each in loaded.outline.blocks if each is not block and each.level]
    level = following[0].level if following else 1
    heading = with_hidden(f"{'#' * level} {{#{INTRO}}}", hidden=hidden)
    return attrs.evolve(block, raw=with_breaks(f"{heading}\n\n", loaded.outline.text) + block.raw)


def _new_texts(loaded: Loaded, fresh: PromptOverride) -> Iterator[tuple[SectionPath, str]]:
    """Yield the bodies that differ from their source, as they are written in the file."""
    for path, entry in fresh.sections.items():
        source = loaded.template.section(path).source
        pieces = within(source.parse(entry.body))
        if pieces == within(source.pieces):
            continue
        where = f"{loaded.path}: {section_part(path)}"
        if any(isinstance(piece, str) and "\r" in piece for piece in pieces):
            raise ConfigError(
                f"{where}: the new text has a carriage return, which a Markdown file does not "
                "keep; write it by hand"
            )
        try:
            yield path, escaped(_template_text(pieces, source))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None


def within(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Strip the line feeds at both ends of a text, which are not rendered."""
    inside = list(pieces)
    if inside and isinstance(inside[0], str):
        # Line feeds only: spaces at the ends are rendered.
        inside[0] = inside[0].lstrip("\n")
    if inside and isinstance(inside[-1], str):
        inside[-1] = inside[-1].rstrip("\n")
    return tuple(piece for piece in inside if piece != "")


def _raw(loaded: Loaded, at: int, text: str, *, is_last: bool) -> str:
    """Return the lines below a heading with a new text, keeping the empty lines around it."""
    block = loaded.outline.blocks[at]
    if not is_last and stays_open(text):
        raise ConfigError(
            f"{loaded.path}:{block.line}: {section_part(block.path)}: the new text leaves code or "
            "HTML open, which would swallow the section below it; close it, or write it by hand"
        )
    if block.level == 0 and not text.strip():
        # Blank text before the first heading is not a section: it needs a heading of its own.
        following = loaded.outline.blocks[at + 1 :]
        level = following[0].level if following else 1
        text = f"{'#' * level} {{#{INTRO}}}\n\n{text}".rstrip("\n")
    file = loaded.outline.text
    old = block.raw.strip("\r\n")
    if not old:
        gap = "\n\n" if not is_last else "\n" if block.raw else ""
        return with_breaks(f"\n\n{text}{gap}", file)
    lead, _, tail = block.raw.partition(old)
    gap = "" if is_last else "\n" * (2 - len(BREAK.findall(tail)))
    return lead + with_breaks(text + gap, file) + tail


def _appended(text: str, section: MarkdownSection, body: str, *, hidden: bool) -> str:
    """Append a heading for a section that so far exists only because of a file beside it."""
    key = "" if section.title and slug_of(section.title) == section.key else f"#{section.key}"
    marks = "" if section.overridable else ".frozen", ".hidden" if hidden else ""
    attributes = " ".join(filter(None, (key, *marks)))
    title = " ".join(filter(None, ("#", section.title, f"{{{attributes}}}" if attributes else "")))
    content = text.rstrip("\r\n")
    gap = "\n\n" if content.removeprefix("\ufeff") else ""
    end = f"{gap}{title}\n" + (f"\n{body}\n" if body else "")
    return content + with_breaks(end, text)


def _template_text(pieces: Sequence[Piece], source: SectionSource) -> str:
    """Return the template source of a body that is split into text and slots."""
    if source.syntax is BodySyntax.PLAIN:
        return write_body(pieces, BodySyntax.PLAIN, frozenset())
    if source.syntax is BodySyntax.DOLLAR:
        return "".join(_dollar(piece, following) for piece, following in pairwise([*pieces, ""]))
    if source.jinja is None:
        return doubled(pieces)
    layout = source.jinja.layout
    defines = any(_DEFINES.search(stretch.written) for stretch in layout.stretches)
    if defines and layout.moves(pieces):
        raise ConfigError(
            "the new text moves or repeats blocks of a template that sets names; write it by hand"
        )
    return layout.written(pieces)


def _dollar(piece: Piece, following: Piece) -> str:
    if isinstance(piece, str):
        return piece.replace("$", "$$")
    glued = isinstance(following, str) and _NAME_CHARACTER.match(following)
    return f"${{{piece.name}}}" if glued else f"${piece.name}"
