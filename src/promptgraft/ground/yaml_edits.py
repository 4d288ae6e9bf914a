"""Changes of values in YAML and JSON texts, which keep comments and layout around them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import attrs
import yaml

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, MismatchError, canonical_json
from promptgraft.ground.strict.nodes import spelled
from promptgraft.ground.yaml_text import YamlPath, plain_scalar

BREAK = re.compile(r"\r\n|\r|\n")
"""A line break in Markdown and YAML."""

_LAST_BREAKS = re.compile(r"(?:(?:\r\n|\r|\n)[ \t]*)+\Z")
# Words that some YAML readers do not take for strings.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_SIMPLE = re.compile(r"[A-Za-z](?:[A-Za-z0-9 _./-]*[A-Za-z0-9_./])?")


def with_breaks(text: str, file: str) -> str:
    """Return a text with the kind of line breaks that ``file`` uses."""
    first = BREAK.search(file)
    return text.replace("\n", first[0]) if first else text


def changed(text: str, path: YamlPath, old: Json, new: Json) -> str:
    """Change the value at ``path`` of a YAML text from ``old`` to ``new``.

    Only what differs is rewritten. ``old`` includes the defaults of keys that the text leaves out.

    Raises:
        ConfigError: the parent of the value is not written in the text.
    """
    # Compared as JSON, because 1 == True in Python.
    if canonical_json(old) == canonical_json(new):
        return text
    place = find(text, path)
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
    return replaced(text, place, new)


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
        return replaced(text, place, [*new_items, *added])
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
class ValuePlace:
    """A value in a text, with its key; ``in_flow`` if it is inside ``{}`` or ``[]``."""

    node: yaml.Node
    in_flow: bool = False
    key: yaml.Node | None = None

    @property
    def is_flow(self) -> bool:
        """Whether its members or items are written in ``{}`` or ``[]``."""
        is_open = isinstance(self.node, yaml.CollectionNode) and bool(self.node.flow_style)
        return self.in_flow or is_open

    @property
    def start(self) -> int:
        """Where it begins in the text."""
        return int(self.node.start_mark.index)

    def below(self, step: str | int) -> ValuePlace | None:
        """Return a member or an item; None if it is not written."""
        if isinstance(self.node, yaml.MappingNode):
            for key, value in self.node.value:
                if key.value == step:
                    return ValuePlace(value, self.is_flow, key)
        elif isinstance(step, int) and step < len(_items(self.node)):
            return ValuePlace(_items(self.node)[step], self.is_flow)
        return None


def _items(node: yaml.Node) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def find(text: str, path: YamlPath) -> ValuePlace | None:
    """Return the value at a path of a YAML or JSON text; None if it is not written."""
    # The pure Python loader, because its marks count characters; those of libyaml count bytes.
    # It takes JSON, but for tabs, which JSON has only between values.
    spaced = text.replace("\t", " ") if is_json(text) else text
    root = yaml.compose(spaced, Loader=yaml.SafeLoader)
    place = None if root is None else ValuePlace(root)
    for step in path:
        place = place and place.below(step)
    return place


def _written(text: str, path: YamlPath) -> ValuePlace:
    place = find(text, path)
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
    above, key = find(text, path[:-1]), path[-1]
    if above is None or not isinstance(key, str) or not isinstance(above.node, yaml.MappingNode):
        raise _not_written(path)
    members = above.node.value
    if not above.is_flow:
        column = above.node.start_mark.column
        line = f"{' ' * column}{_key(key)}:{_member(new, column)}"
        return _inserted(text, members[-1][1], line)
    at = _end(text, members[-1][1]) if members else above.node.end_mark.index - 1
    member = _flow_in(text, {key: new})[1:-1]
    return _spliced(
        text, at, at, f",{_gap_before(text, members[-1][0])}{member}" if members else member
    )


def _gap_before(text: str, key: yaml.Node) -> str:
    """Return what stands in ``{}`` between a comma and the key: a line break, or a space."""
    indent = text[key.start_mark.index - key.start_mark.column : key.start_mark.index]
    return f"\n{indent}" if indent and indent.isspace() else " "


def replaced(text: str, place: ValuePlace, new: Json) -> str:
    """Return a text with another value at a place that :func:`find` has found in it."""
    node, key = place.node, place.key
    start, end = node.start_mark.index, _end(text, node)
    fits = _has_room(text, end, new)
    if place.in_flow:
        written = f"{' ' if start == end else ''}{_flow_in(text, new)}"
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


def is_json(text: str) -> bool:
    """Return whether a text is JSON, perhaps with a byte order mark."""
    try:
        json.loads(text.removeprefix("\ufeff"))
    except ValueError:
        return False
    return True


def _flow_in(text: str, value: Json) -> str:
    """Return data in one line, in a form that is valid inside of ``{}`` or ``[]`` in this text."""
    return json.dumps(value, ensure_ascii=False) if is_json(text) else _flow(value)


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
