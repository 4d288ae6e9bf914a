"""Changes to a YAML text that leave everything else in it as it is, to the last byte."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs

from promptgraft.errors import ConfigError
from promptgraft.project.markdown.escapes import BREAK
from promptgraft.project.markdown.yaml_writing import (
    block_items,
    flow,
    inline,
    key_text,
    literal,
    member,
)
from promptgraft.serde import Json, canonical_json
from promptgraft.strict.nodes import spelled
from promptgraft.yaml_text import YamlPath

if TYPE_CHECKING:
    import yaml

_LAST_BREAKS = re.compile(r"(?:(?:\r\n|\r|\n)[ \t]*)+\Z")


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


class YamlEdits:
    """Collects changes to a YAML text.

    Args:
        text: the text; the strict reader takes it.
    """

    def __init__(self, text: str) -> None:
        import yaml

        self._text = text
        # The reader in Python, because it counts characters where the other one counts bytes.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise ConfigError("expected YAML with content, found nothing")
        self._root = node
        self.splices: list[Splice] = []

    def change(self, path: YamlPath, old: Json, new: Json) -> None:
        """Make the value at ``path``, which means ``old``, mean ``new``.

        Only what differs is written. What the text leaves out means what ``old`` says of it.
        """
        if canonical_json(old) == canonical_json(new):
            return
        place = self._find(path)
        if place is None:
            self._add(path, new)
        elif self._is_mapping(place) and _same_keys(old, new):
            for key, value in old.items() if isinstance(old, dict) else ():
                self.change((*path, key), value, new[key] if isinstance(new, dict) else None)
        elif isinstance(old, list) and isinstance(new, list) and self._has_items(place, old, new):
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
        if is_resized and (self._is_flow(place) or not kept):
            self._replace(place, [*kept, *added])
            return
        for index, (old, new) in enumerate(items):
            if new is not None:
                self.change((*path, index), old, new)
        nodes = self._items(place.node)
        for index, (_, new) in enumerate(items):
            if new is None:
                self._remove(nodes, index, place.node.start_mark.index)
        if added:
            column = place.node.start_mark.column
            at = self._line_end(self._end(nodes[-1]))
            self.splices.append(Splice(at, at, "\n" + "\n".join(block_items(added, column))))

    def _find(self, path: YamlPath) -> _Place | None:
        place = _Place(self._root)
        for step in path:
            found = self._below(place, step)
            if found is None:
                return None
            place = found
        return place

    def _below(self, place: _Place, step: str | int) -> _Place | None:
        import yaml

        in_flow = self._is_flow(place)
        if isinstance(place.node, yaml.MappingNode):
            for key, value in place.node.value:
                if key.value == step:
                    return _Place(value, in_flow, key)
        items = self._items(place.node)
        if isinstance(step, int) and step < len(items):
            return _Place(items[step], in_flow)
        return None

    def _is_flow(self, place: _Place) -> bool:
        import yaml

        flowing = isinstance(place.node, yaml.CollectionNode) and bool(place.node.flow_style)
        return place.in_flow or flowing

    def _is_mapping(self, place: _Place) -> bool:
        import yaml

        return isinstance(place.node, yaml.MappingNode)

    def _items(self, node: yaml.Node) -> list[yaml.Node]:
        import yaml

        return list(node.value) if isinstance(node, yaml.SequenceNode) else []

    def _has_items(self, place: _Place, old: list[Json], new: list[Json]) -> bool:
        return len(old) == len(new) == len(self._items(place.node))

    def _end(self, node: yaml.Node) -> int:
        """Return where a value ends; the parser counts what follows it to a block."""
        import yaml

        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._end(last[1] if isinstance(last, tuple) else last)
        start, end = node.start_mark.index, node.end_mark.index
        if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
            after = _LAST_BREAKS.search(self._text, start, end)
            return after.start() if after else end
        return end

    def _ends_line(self, place: int) -> bool:
        return not self._text[place : self._line_end(place)].strip()

    def _line_end(self, place: int) -> int:
        found = BREAK.search(self._text, place)
        return found.start() if found else len(self._text)

    def _add(self, path: YamlPath, new: Json) -> None:
        """Add a member that the text leaves out."""
        above, key = self._find(path[:-1]), path[-1]
        if above is None or not isinstance(key, str) or not self._is_mapping(above):
            raise ConfigError(f"`{spelled(path)}` is not written where it could be changed")
        members = above.node.value
        if self._is_flow(above):
            at = self._end(members[-1][1]) if members else above.node.end_mark.index - 1
            text = f"{', ' if members else ''}{key_text(key)}: {flow(new)}"
        else:
            column = above.node.start_mark.column
            at = self._line_end(self._end(members[-1][1]))
            text = f"\n{' ' * column}{key_text(key)}:{member(new, column)}"
        self.splices.append(Splice(at, at, text))

    def _replace(self, place: _Place, new: Json) -> None:
        node = place.node
        start, end = node.start_mark.index, self._end(node)
        if place.in_flow:
            gap = " " if start == end else ""
            self.splices.append(Splice(start, end, gap + flow(new)))
        elif place.key is not None:
            self._replace_member(place, place.key, new, end)
        else:
            block = literal(new, node.start_mark.column) if isinstance(new, str) else None
            fits = block is not None and self._ends_line(end)
            self.splices.append(Splice(start, end, block if block and fits else inline(new)))

    def _replace_member(self, place: _Place, key: yaml.Node, new: Json, end: int) -> None:
        """Replace the value of a key in a block, beginning behind its colon where needed."""
        start = place.node.start_mark.index
        # A comment behind several lines would belong to the last one, or to the text.
        one_line = not self._ends_line(end)
        text = f" {inline(new)}" if one_line else member(new, key.start_mark.column)
        is_beside = key.end_mark.line == place.node.start_mark.line and start < end
        if not is_beside or text.startswith("\n"):
            start = self._text.index(":", key.end_mark.index) + 1
            self.splices.append(Splice(start, end, text))
        else:
            self.splices.append(Splice(start, end, text.removeprefix(" ")))

    def _remove(self, items: list[yaml.Node], index: int, first: int) -> None:
        """Remove an item of a list in a block, with the lines that it stands in."""
        begin = items[index].start_mark.index
        dash = self._text.rindex("-", self._end(items[index - 1]), begin) if index else first
        before = list(BREAK.finditer(self._text, 0, dash))
        start = before[-1].start() if before else dash
        self.splices.append(Splice(start, self._line_end(self._end(items[index])), ""))


def _same_keys(old: Json, new: Json) -> bool:
    return isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys()
