"""Changes to a YAML text that leave everything else in it as it is, to the last byte.

PyYAML says where each value begins and ends, and only those stretches are written anew. Writers
that keep comments, such as the round trip of ruamel.yaml, lay out every line of the text again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import attrs
import yaml

from promptgraft.errors import ConfigError
from promptgraft.project.markdown.outline import BREAK
from promptgraft.serde import Json, MismatchError, canonical_json
from promptgraft.strict.nodes import spelled
from promptgraft.yaml_text import YamlPath, plain_scalar

_LAST_BREAKS = re.compile(r"(?:(?:\r\n|\r|\n)[ \t]*)+\Z")
# Words that other readers of YAML take for something else than a text.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_SIMPLE = re.compile(r"[A-Za-z](?:[A-Za-z0-9 _./-]*[A-Za-z0-9_./])?")


class Splice(NamedTuple):
    """A stretch of a text and what takes its place."""

    start: int
    end: int
    text: str


def spliced(text: str, splices: Sequence[Splice]) -> str:
    """Return a text with changes, which do not overlap.

    Of insertions at one place, those that go on with the line come first, and then the lines
    that are indented most: they belong to what stands before. Line feeds in what is put in
    become the line breaks of the text.
    """
    first = BREAK.search(text)
    newline = first[0] if first else "\n"
    parts: list[str] = []
    place = 0
    for splice in sorted(splices, key=_rank):
        parts.extend((text[place : splice.start], splice.text.replace("\n", newline)))
        place = splice.end
    return "".join([*parts, text[place:]])


def _rank(splice: Splice) -> tuple[int, int, bool, int]:
    line = splice.text.removeprefix("\n")
    begins_line = line != splice.text
    return splice.start, splice.end, begins_line, len(line.lstrip(" ")) - len(line)


@attrs.frozen
class _Place:
    """A value in the text.

    Attributes:
        node: the value.
        in_flow: whether it stands inside ``{}`` or ``[]``.
        key: its key; None for an item of a list.
    """

    node: yaml.Node
    in_flow: bool = False
    key: yaml.Node | None = None

    @property
    def is_flow(self) -> bool:
        """Whether what stands in it is written in ``{}`` or ``[]``."""
        is_open = isinstance(self.node, yaml.CollectionNode) and bool(self.node.flow_style)
        return self.in_flow or is_open

    def below(self, step: str | int) -> _Place | None:
        """Return a member or an item; None when it is not written."""
        if isinstance(self.node, yaml.MappingNode):
            for key, value in self.node.value:
                if key.value == step:
                    return _Place(value, self.is_flow, key)
        elif isinstance(step, int) and step < len(_items(self.node)):
            return _Place(_items(self.node)[step], self.is_flow)
        return None


def _items(node: yaml.Node) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class YamlEdits:
    """Collects changes to a YAML text.

    Args:
        text: the text; the strict reader takes it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # The reader in Python, because it counts characters where the other one counts bytes.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise ConfigError("expected YAML with content, found nothing")
        self._root = node
        self.splices: list[Splice] = []

    def edited(self) -> str:
        """Return the text with the changes."""
        return spliced(self._text, self.splices)

    def change(self, path: YamlPath, old: Json, new: Json) -> None:
        """Make the value at ``path``, which means ``old``, mean ``new``.

        Only what differs is written. What the text leaves out means what ``old`` says of it.
        """
        if canonical_json(old) == canonical_json(new):
            return
        place = self._find(path)
        if place is None:
            self._add(path, new)
        elif (
            isinstance(place.node, yaml.MappingNode)
            and isinstance(old, dict)
            and isinstance(new, dict)
            and old.keys() == new.keys()
        ):
            for key, value in old.items():
                self.change((*path, key), value, new[key])
        elif (
            isinstance(old, list)
            and isinstance(new, list)
            and len(old) == len(new) == len(_items(place.node))
        ):
            for index, (before, after) in enumerate(zip(old, new, strict=True)):
                self.change((*path, index), before, after)
        else:
            self._replace(place, new)

    def edit_list(
        self, path: YamlPath, items: Sequence[tuple[Json, Json]], *, added: list[Json]
    ) -> None:
        """Change, remove and append items of the list at ``path``.

        Args:
            path: the list.
            items: what each of its items means, and is to mean; None removes it.
            added: what is appended.
        """
        place = self._find(path)
        if place is None:
            raise ConfigError(f"`{spelled(path)}` is not written where it could be changed")
        kept = [new for _, new in items if new is not None]
        is_resized = bool(added) or len(kept) < len(items)
        if is_resized and (place.is_flow or not kept):
            self._replace(place, [*kept, *added])
            return
        nodes = _items(place.node)
        for index, (old, new) in enumerate(items):
            if new is None:
                self._remove(nodes, index, place.node.start_mark.index)
            else:
                self.change((*path, index), old, new)
        if added:
            self._insert(nodes[-1], "\n".join(_block(added, place.node.start_mark.column)))

    def _find(self, path: YamlPath) -> _Place | None:
        place: _Place | None = _Place(self._root)
        for step in path:
            place = place and place.below(step)
        return place

    def _end(self, node: yaml.Node) -> int:
        """Return where a value ends; the parser counts what follows it to a block."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._end(last[1] if isinstance(last, tuple) else last)
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
            after = _LAST_BREAKS.search(self._text, start, end)
            return after.start() if after else end
        return end

    def _has_room(self, end: int, new: Json) -> bool:
        """Tell whether several lines may take the place of a value that ends there.

        A comment behind them would belong to the last one, or to the text; and a literal block
        has the line break at its end only where the text has one.
        """
        line_end = self._line_end(end)
        is_cut = line_end == len(self._text) and isinstance(new, str) and new.endswith("\n")
        return not is_cut and not self._text[end:line_end].strip()

    def _line_end(self, place: int) -> int:
        found = BREAK.search(self._text, place)
        return found.start() if found else len(self._text)

    def _insert(self, last: yaml.Node, lines: str) -> None:
        """Insert lines below the value that ends a block."""
        at = self._line_end(self._end(last))
        self.splices.append(Splice(at, at, f"\n{lines}"))

    def _add(self, path: YamlPath, new: Json) -> None:
        """Add a member that the text leaves out."""
        above, key = self._find(path[:-1]), path[-1]
        if (
            above is None
            or not isinstance(key, str)
            or not isinstance(above.node, yaml.MappingNode)
        ):
            raise ConfigError(f"`{spelled(path)}` is not written where it could be changed")
        members = above.node.value
        if above.is_flow:
            at = self._end(members[-1][1]) if members else above.node.end_mark.index - 1
            text = f"{', ' if members else ''}{_key(key)}: {_flow(new)}"
            self.splices.append(Splice(at, at, text))
        else:
            column = above.node.start_mark.column
            self._insert(members[-1][1], f"{' ' * column}{_key(key)}:{_member(new, column)}")

    def _replace(self, place: _Place, new: Json) -> None:
        node = place.node
        start, end = node.start_mark.index, self._end(node)
        if place.in_flow:
            text = f"{' ' if start == end else ''}{_flow(new)}"
        elif place.key is not None:
            fits = self._has_room(end, new)
            text = _member(new, place.key.start_mark.column) if fits else f" {_inline(new)}"
            is_beside = place.key.end_mark.line == node.start_mark.line and start < end
            if is_beside and not text.startswith("\n"):
                text = text.removeprefix(" ")
            else:
                start = self._text.index(":", place.key.end_mark.index) + 1
        else:
            block = _literal(new, node.start_mark.column) if self._has_room(end, new) else None
            text = block or _inline(new)
        if "\n" in text:
            end = self._line_end(end)  # spaces behind it would belong to its last line
        self.splices.append(Splice(start, end, text))

    def _remove(self, items: list[yaml.Node], index: int, first: int) -> None:
        """Remove an item of a list in a block, with the lines that it stands in."""
        begin = items[index].start_mark.index
        dash = self._text.rindex("-", self._end(items[index - 1]), begin) if index else first
        before = list(BREAK.finditer(self._text, 0, dash))
        start = before[-1].start() if before else dash
        self.splices.append(Splice(start, self._line_end(self._end(items[index])), ""))


def _flow(value: Json) -> str:
    """Return data in one line, as it may stand anywhere."""
    if isinstance(value, dict):
        members = (f"{_key(key)}: {_flow(item)}" for key, item in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if _SIMPLE.fullmatch(value) and _is_plain(value) else _quoted(value)
    text = json.dumps(value)
    # Without a point `1e9` would be a text to some readers.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text


def _key(key: str) -> str:
    return _quoted(key) if " " in key else _flow(key)


def _inline(value: Json) -> str:
    """Return data in one line, as it may stand behind a key or a dash that begins a line."""
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
    """Return what stands behind the colon of a key at a column: in its line, or below it."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "\n" + "\n".join(_block(value, indent + 2))
    return f" {_literal(value, indent + 2) or _inline(value)}"


def _block(items: list[Json], indent: int) -> Iterator[str]:
    """Yield the lines of a list whose dashes stand at a column."""
    for item in items:
        begin = f"{' ' * indent}- "
        if not isinstance(item, dict) or not item:
            yield f"{begin}{_inline(item)}"
            continue
        for key, value in item.items():
            yield f"{begin}{_key(key)}:{_member(value, indent + 2)}"
            begin = " " * (indent + 2)


def _literal(value: Json, indent: int) -> str | None:
    """Return a text of several lines as a literal block, indented; None when it cannot be one."""
    lines = value.removesuffix("\n").split("\n") if isinstance(value, str) else []
    clean = all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    if len(lines) < 2 or not clean or not lines[-1] or not lines[0] or lines[0][0] == " ":
        return None
    header = "|" if str(value).endswith("\n") else "|-"
    return "\n".join([header, *(" " * indent + line if line else "" for line in lines)])


def _quoted(text: str) -> str:
    """Return a text in double quotes, everything escaped that does not print."""
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)


def _is_plain(text: str) -> bool:
    try:
        return text.lower() not in _WORDS and plain_scalar(text) == text
    except MismatchError:
        return False
