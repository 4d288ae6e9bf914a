"""Overrides written back into the Markdown files of their prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import attrs
import yaml

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json, MismatchError, canonical_json, parse_json
from promptgraft.ground.strict.nodes import Node, spelled
from promptgraft.ground.yaml_text import YamlPath, plain_scalar
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
from promptgraft.project.markdown.loading import (
    DEFAULT_NAME,
    EXAMPLES,
    TOOLS,
    Loaded,
    load_texts,
)
from promptgraft.project.markdown.outline import (
    BREAK,
    INTRO,
    OutlineBlock,
    escaped,
    slug_of,
    stays_open,
    with_breaks,
    with_hidden,
)
from promptgraft.project.markdown.values import nested_name
from promptgraft.project.python_source import PythonSource
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import SectionSource
from promptgraft.prompt.template import PromptTemplate

_EMPTIED = re.compile(rf"\A#+ \{{#{INTRO}\}}")
_TRIMS = re.compile(r"\A\{[{%]-|-[}%]\}\Z")


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
    after = {loaded.path: with_sections(loaded, fresh, _with_output(loaded, parts))}
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


def _with_output(loaded: Loaded, parts: EffectiveParts) -> str | None:
    """Return the front matter with the overridden fields of the answer."""
    text = loaded.outline.front
    places = dict(_places(loaded))
    source = EffectiveParts.of_source(loaded.template.descriptor).fields
    for field in loaded.template.descriptor.output_fields:
        now = parts.fields[field.field]
        if text is None or now == source[field.field]:
            continue
        if field.field not in places:
            message = f"output field `{field.field}` is written in Python; change it there"
            raise ConfigError(loaded.front.line(("output",), message))
        text = _with_field(text, places[field.field].path, field, now)
    return text


def _places(loaded: Loaded) -> Iterator[tuple[str, Node]]:
    """Yield the key and node of each field of the answer in the front matter."""
    output = loaded.front.root.member("output")
    if "choices" in output.members():
        yield loaded.template.descriptor.output_fields[0].field, output
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
    text = loaded.attached[TOOLS].text
    for index, tool in enumerate(loaded.template.descriptor.tools):
        now, here = parts.tools[tool.name], (TOOLS, index)
        text = changed(text, (*here, "description"), tool.description, now.description)
        for name, description in tool.param_descriptions.items():
            place = (*here, "parameters", name, "description")
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


_NAME_CHARACTER = re.compile(r"[_a-zA-Z0-9]")
# The beginning of a tag, or a final brace that would begin one with what follows.
_OPENING = re.compile(r"\{(?:[{%#])+|\{\Z")
_DEFINES = re.compile(r"\{%[-+]?\s*(?:set|macro)\b")


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
    raw, count = _EMPTIED.subn(lambda heading: with_hidden(heading[0], hidden=hidden), block.raw)
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
    parts = ["", *_tagged(pieces, source), ""]
    return "".join(
        _bare(part.name, before, after)
        if isinstance(part, Slot)
        else _as_text(part, tag_follows=isinstance(after, Slot))
        for before, part, after in zip(parts, parts[1:], parts[2:], strict=False)
    )


def _dollar(piece: Piece, following: Piece) -> str:
    if isinstance(piece, str):
        return piece.replace("$", "$$")
    glued = isinstance(following, str) and _NAME_CHARACTER.match(following)
    return f"${{{piece.name}}}" if glued else f"${piece.name}"


def _tagged(pieces: Sequence[Piece], source: SectionSource) -> Iterator[Piece]:
    """Yield text, and slots as Jinja source together with the definitions before them."""
    slots = [piece.name for piece in pieces if isinstance(piece, Slot)]
    # Blocks between which nothing moved keep their source, with comments and definitions.
    is_moved = [name for name in slots if name in source.opaque] != list(source.opaque)
    if is_moved and any(_DEFINES.search(text) for _, text in source.blocks):
        raise ConfigError(
            "the new text moves or repeats blocks of a template that sets names; write it by hand"
        )
    blocks = iter(() if is_moved else source.blocks)
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif piece.name not in source.opaque:
            yield Slot(f"{{{{ {piece.name} }}}}")
        elif is_moved:
            yield Slot(source.opaque[piece.name])
        else:
            for name, text in blocks:
                yield Slot(text)
                if name is not None:
                    break
    yield from (Slot(text) for _, text in blocks)


def _bare(tag: str, before: Piece, after: Piece) -> str:
    """Return a tag without markers that would trim whitespace of the text around it."""
    if isinstance(before, str) and before[-1:].isspace():
        tag = re.sub(r"\A(\{[{%])-", r"\1", tag)
    if isinstance(after, str) and after[:1].isspace():
        tag = re.sub(r"-([}%]\})\Z", r"\1", tag)
    return tag


def _as_text(text: str, *, tag_follows: bool) -> str:
    def raw(match: re.Match[str]) -> str:
        if match[0] == "{" and not tag_follows:
            return "{"
        return f"{{% raw %}}{match[0]}{{% endraw %}}"

    return _OPENING.sub(raw, text)


_LAST_BREAKS = re.compile(r"(?:(?:\r\n|\r|\n)[ \t]*)+\Z")
# Words that some YAML readers do not take for strings.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_SIMPLE = re.compile(r"[A-Za-z](?:[A-Za-z0-9 _./-]*[A-Za-z0-9_./])?")


def changed(text: str, path: YamlPath, old: Json, new: Json) -> str:
    """Change the value at ``path`` of a YAML text from ``old`` to ``new``.

    Only what differs is rewritten. ``old`` includes the defaults of keys that the text leaves out.

    Raises:
        ConfigError: the parent of the value is not written in the text.
    """
    # As JSON, in which 1 and true differ.
    if canonical_json(old) == canonical_json(new):
        return text
    place = _find(text, path)
    if place is None:
        return _added(text, path, new)
    is_object, items = isinstance(place.node, yaml.MappingNode), _items(place.node)
    if is_object and isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            text = changed(text, (*path, key), old[key], new[key])
        return text
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == len(items):
        for at, (before, after) in enumerate(zip(old, new, strict=True)):
            text = changed(text, (*path, at), before, after)
        return text
    return _replaced(text, place, new)


def with_items(
    text: str, path: YamlPath, items: Sequence[tuple[Json, Json]], added: Sequence[Json]
) -> str:
    """Change the items of the list at ``path`` of a YAML text, and append ``added`` ones.

    ``items`` has the old and the new value of each item; None removes it.

    Raises:
        ConfigError: the list is not written in the text.
    """
    place = _written(text, path)
    new_items = [new for _, new in items if new is not None]
    is_resized = bool(added) or len(new_items) < len(items)
    if is_resized and (place.is_flow or not new_items):
        return _replaced(text, place, [*new_items, *added])
    if added:
        lines = "\n".join(_block(added, place.node.start_mark.column))
        text = _inserted(text, _items(place.node)[-1], lines)
        place = _written(text, path)
    # From the end, so that the ranges of earlier items stay valid.
    for index, (old, new) in reversed(list(enumerate(items))):
        if new is None:
            text = _removed(text, place.node, index)
        else:
            text = changed(text, (*path, index), old, new)
    return text


@attrs.frozen
class _Place:
    """A value in the text, with its key; ``in_flow`` if it is inside ``{}`` or ``[]``."""

    node: yaml.Node
    in_flow: bool = False
    key: yaml.Node | None = None

    @property
    def is_flow(self) -> bool:
        """Whether its members or items are written in ``{}`` or ``[]``."""
        is_open = isinstance(self.node, yaml.CollectionNode) and bool(self.node.flow_style)
        return self.in_flow or is_open

    def below(self, step: str | int) -> _Place | None:
        """Return a member or an item; None if it is not written."""
        if isinstance(self.node, yaml.MappingNode):
            for key, value in self.node.value:
                if key.value == step:
                    return _Place(value, self.is_flow, key)
        elif isinstance(step, int) and step < len(_items(self.node)):
            return _Place(_items(self.node)[step], self.is_flow)
        return None


def _items(node: yaml.Node) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _find(text: str, path: YamlPath) -> _Place | None:
    # The pure Python loader, because its marks count characters; those of libyaml count bytes.
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    place = None if root is None else _Place(root)
    for step in path:
        place = place and place.below(step)
    return place


def _written(text: str, path: YamlPath) -> _Place:
    place = _find(text, path)
    if place is None:
        raise _not_written(path)
    return place


def _not_written(path: YamlPath) -> ConfigError:
    return ConfigError(f"`{spelled(path)}` is not written where it could be changed")


def _spliced(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + with_breaks(new, text) + text[end:]


def _end(text: str, node: yaml.Node) -> int:
    """Return where a value ends; for a block, the parser includes what follows it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
        after = _LAST_BREAKS.search(text, start, end)
        return after.start() if after else end
    return end


def _line_end(text: str, place: int) -> int:
    line_break = BREAK.search(text, place)
    return line_break.start() if line_break else len(text)


def _has_room(text: str, end: int, new: Json) -> bool:
    """Return whether several lines may replace a value that ends at ``end``.

    A comment after the value would become part of the last line. A literal block that ends with a
    line break needs one in the text.
    """
    line_end = _line_end(text, end)
    is_cut = line_end == len(text) and isinstance(new, str) and new.endswith("\n")
    return not is_cut and not text[end:line_end].strip()


def _inserted(text: str, last: yaml.Node, lines: str) -> str:
    at = _line_end(text, _end(text, last))
    return _spliced(text, at, at, f"\n{lines}")


def _added(text: str, path: YamlPath, new: Json) -> str:
    """Add a member that the text leaves out."""
    above, key = _find(text, path[:-1]), path[-1]
    if above is None or not isinstance(key, str) or not isinstance(above.node, yaml.MappingNode):
        raise _not_written(path)
    members = above.node.value
    if not above.is_flow:
        column = above.node.start_mark.column
        line = f"{' ' * column}{_key(key)}:{_member(new, column)}"
        return _inserted(text, members[-1][1], line)
    at = _end(text, members[-1][1]) if members else above.node.end_mark.index - 1
    return _spliced(text, at, at, f"{', ' if members else ''}{_key(key)}: {_flow(new)}")


def _replaced(text: str, place: _Place, new: Json) -> str:
    node, key = place.node, place.key
    start, end = node.start_mark.index, _end(text, node)
    fits = _has_room(text, end, new)
    if place.in_flow:
        written = f"{' ' if start == end else ''}{_flow(new)}"
    elif key is not None:
        written = _member(new, key.start_mark.column) if fits else f" {_inline(new)}"
        is_beside = key.end_mark.line == node.start_mark.line and start < end
        if is_beside and not written.startswith("\n"):
            written = written.removeprefix(" ")
        else:
            # From the colon on: a block or an empty value begins in a line of its own.
            start = text.index(":", key.end_mark.index) + 1
    else:
        written = (fits and _literal(new, node.start_mark.column)) or _inline(new)
    if "\n" in written:
        end = _line_end(text, end)  # trailing spaces would become part of its last line
    return _spliced(text, start, end, written)


def _removed(text: str, owner: yaml.Node, index: int) -> str:
    """Remove an item of a block list, with its lines."""
    items, dash = _items(owner), owner.start_mark.index
    if index:
        # The last dash between the two items: comments there may hold others.
        dash = text.rindex("-", _end(text, items[index - 1]), items[index].start_mark.index)
    before = list(BREAK.finditer(text, 0, dash))
    start = before[-1].start() if before else dash
    return text[:start] + text[_line_end(text, _end(text, items[index])) :]


def _flow(value: Json) -> str:
    """Return data in one line, in a form that is valid anywhere."""
    if isinstance(value, dict):
        members = (f"{_key(key)}: {_flow(item)}" for key, item in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if _SIMPLE.fullmatch(value) and _is_plain(value) else _quoted(value)
    text = json.dumps(value)
    # Some readers take `1e9` without a point for a string.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _key(key: str) -> str:
    return _quoted(key) if " " in key else _flow(key)


def _inline(value: Json) -> str:
    """Return data in one line, in a form that is valid after a key or a dash of a block."""
    if not isinstance(value, str):
        return _flow(value)
    plain = (
        value[:1].isalpha()
        and value.isprintable()
        and not value.endswith((":", " "))
        and ": " not in value
        and " #" not in value
        and _is_plain(value)
    )
    return value if plain else _quoted(value)


def _member(value: Json, indent: int) -> str:
    """Return what follows the colon of a key at a column: in the same line, or below it."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n" + "\n".join(_block(value, indent + 2))
    return f" {_literal(value, indent + 2) or _inline(value)}"


def _block(items: Sequence[Json], indent: int) -> Iterator[str]:
    """Yield the lines of a block list with its dashes at a column."""
    for item in items:
        begin = f"{' ' * indent}- "
        if not isinstance(item, dict) or not item:
            yield f"{begin}{_inline(item)}"
            continue
        for key, value in item.items():
            yield f"{begin}{_key(key)}:{_member(value, indent + 2)}"
            begin = " " * (indent + 2)


def _literal(value: Json, indent: int) -> str | None:
    """Return a text of several lines as an indented literal block; None if it cannot be one."""
    lines = value.removesuffix("\n").split("\n") if isinstance(value, str) else []
    clean = all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    if len(lines) < 2 or not clean or not lines[-1] or not lines[0] or lines[0][0] == " ":
        return None
    header = "|" if str(value).endswith("\n") else "|-"
    return "\n".join([header, *(" " * indent + line if line else "" for line in lines)])


def _quoted(text: str) -> str:
    """Return a text in double quotes, with unprintable characters escaped."""
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)


def _is_plain(text: str) -> bool:
    try:
        return text.lower() not in _WORDS and plain_scalar(text) == text
    except MismatchError:
        return False
