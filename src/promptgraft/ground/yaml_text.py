"""Strict YAML: ``no`` is a text, a date is a text, ``1e3`` is refused unless it is quoted.

Values are built from parser events without recursion: a document cannot exhaust the stack, name a
Python type, or multiply itself through aliases. The line of every value and key is kept, so that
later checks can say where a fault is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, MismatchError, shown
from promptgraft.ground.text import clip

_DEEPEST = 100  # far below the depth at which Python itself fails, without a line
_TOO_DEEP = f"nested deeper than {_DEEPEST} levels"

YamlPath: TypeAlias = "tuple[str | int, ...]"
"""Keys and positions that lead to a value, outermost first."""

Note: TypeAlias = "Callable[[int, str], None]"
"""Reports a fault: its line, from 1 (0 for the whole text), and a message."""

# Not `yes` and `no`, which only YAML 1.1 takes for booleans.
_CONSTANTS: dict[str, Json] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
# What YAML 1.1 and 1.2 both read as a float: with a dot, and a sign in the exponent.
_FLOAT = re.compile(r"(\.[0-9]+|[-+]?(0|[1-9][0-9]*)\.[0-9]*)([eE][-+][0-9]+)?")
# YAML 1.1 and 1.2 disagree whether these are texts or numbers.
_AMBIGUOUS = re.compile(
    r"[-+]?0[0-9]+(\.[0-9]*)?|0[xob][0-9a-fA-F_]+|[-+]?[0-9]+(_[0-9]+)+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)(e[-+]?[0-9]+)?|[-+]?\.inf|\.nan",
    re.IGNORECASE,
)
TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}


def spelled(path: YamlPath) -> str:
    """Return a path as messages write it after the name of the root: ``.metrics[0].name``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


@attrs.frozen
class YamlDocument:
    """A parsed YAML text with line numbers.

    Attributes:
        value: the plain data; None for an empty text.
        lines: the line of each value, from 1; ``()`` is the root.
        key_lines: the line of each key, by the path of its value.
    """

    value: Json = attrs.field(hash=False)
    lines: Mapping[YamlPath, int] = attrs.field(repr=False)
    key_lines: Mapping[YamlPath, int] = attrs.field(repr=False)

    def line_of(self, path: YamlPath) -> int:
        """Return the line of the key at ``path``, or of the value, or of the nearest parent."""
        for end in range(len(path), -1, -1):
            line = self.key_lines.get(path[:end]) or self.lines.get(path[:end])
            if line is not None:
                return line
        return 1


def read_yaml(text: str, note: Note) -> YamlDocument | None:
    """Parse ``text`` and note every fault; return None if it cannot be parsed.

    Refused are: invalid YAML, duplicate keys, keys that are not texts, unquoted scalars that mean
    different things to different parsers, tags, aliases, merge keys, a second document, and more
    than 100 levels.
    """
    return build(text, note, Builder(note))


def build(text: str, note: Note, builder: Builder) -> YamlDocument | None:
    """Let a builder build a document from a text, as :func:`read_yaml` does."""
    import yaml

    # PyYAML that was built on a machine without libyaml has only the slower one.
    loader: type[yaml.SafeLoader | yaml.CSafeLoader]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        # libyaml may have a nesting limit of its own, reached before the first event.
        is_deep = "nesting depth" in (problem := str(error.problem))
        opened = error.context_mark.line + 1 if error.context_mark else 0
        open_mend = next((mend for what, mend in _OPEN.items() if what in str(error.context)), "")
        if open_mend and opened:
            note(opened, f"not YAML: {problem}; {open_mend}")
        else:
            note(line, _TOO_DEEP if is_deep else f"not YAML: {problem}{_mend(text, line, problem)}")
    except yaml.YAMLError:
        note(0, "not YAML: it holds control characters")
    except UnicodeEncodeError:
        note(0, "not YAML: it holds half of a surrogate pair")
    except (MismatchError, DataFormatError) as error:
        note(builder.line, str(error))
    else:
        return builder.document()
    return None


def _mend(text: str, line: int, problem: str) -> str:
    """Return what is usually wrong in a line that libyaml cannot read; empty if that is unclear."""
    written = text.split("\n")[line - 1] if 0 < line <= text.count("\n") + 1 else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "; indent with spaces instead of tabs"
    if "escape" in problem or "hexdecimal" in problem:
        return "; between double quotes write `\\\\` for `\\`, or use single quotes"
    if "cannot start any token" in problem:
        return "; put the value in quotes"
    before = next((row for row in reversed(text.split("\n")[: line - 1]) if row.strip()), "")
    if _ODD_SPACE.search(before) or _ODD_SPACE.search(written):
        return "; write a plain space for the no-break space behind the colon"
    for candidate in (before, written):
        word = candidate.strip().lstrip("- ")
        if word and ":" not in word and not word.startswith(("#", "[", "{", "'", '"', "|", ">")):
            return f"; is the colon missing in `{clip(word, 60)}`? Write `key: value`"
    if _SECOND_COLON.search(written):
        return "; put the value in quotes: it holds a colon"
    if written.strip():
        return f"; indent `{clip(written.strip(), 60)}` as the other keys of its object"
    return ""


_ODD_SPACE = re.compile(r":[^\S \t\n]\S")
_SECOND_COLON = re.compile(r": .*:(?: |$)")
_OPEN = {
    "scanning a quoted scalar": "a quote opens in this line and never closes",
    "parsing a flow": "a bracket opens in this line and never closes, or lacks a comma",
}
"""What is wrong with text that libyaml is in the middle of, by its words."""


@attrs.define
class Open:
    """A list or an object that is being read."""

    path: YamlPath
    line: int
    key: str | None = None
    key_line: int = 0
    anchor: str | None = None
    size: int = 1
    items: list[Json] = attrs.field(factory=list)
    members: dict[str, Json] | None = None

    @property
    def next_path(self) -> YamlPath:
        """The path of the next value."""
        return (*self.path, len(self.items) if self.key is None else self.key)


class Builder:
    """Builds a document from parser events."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._open: list[Open] = []
        self._documents: list[Json] = []
        self._lines: dict[YamlPath, int] = {}
        self._key_lines: dict[YamlPath, int] = {}
        self.line = 1

    def take(self, event: object) -> None:
        """Take one event of the parser.

        Raises:
            MismatchError: the event is not allowed in plain data.
        """
        import yaml

        if isinstance(event, yaml.Event) and event.start_mark is not None:
            self.line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor))
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style is None or event.style == ""
            self._add(self._scalar(event.value, event.tag, plain=plain), self.line)
            self._named(event.anchor, 1)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._start(event.tag, event.anchor, is_mapping=is_mapping)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._end()

    def document(self) -> YamlDocument:
        """Return the document."""
        value = self._documents[0] if self._documents else None
        return YamlDocument(value, self._lines, self._key_lines)

    def _alias(self, anchor: str) -> None:
        raise MismatchError(
            f"expected data without aliases, found `*{anchor}`; write here what follows `&{anchor}`"
        )

    def _named(self, anchor: str | None, size: int) -> None:
        """Take note of the anchor and the size of the value that was added last."""

    def _start(self, tag: str | None, anchor: str | None, *, is_mapping: bool) -> None:
        if tag is not None:
            raise MismatchError(f"expected plain data, found the tag {shown(tag)}")
        if len(self._open) >= _DEEPEST:
            raise MismatchError(_TOO_DEEP)
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.members is not None and parent.key is None:
            raise MismatchError("expected a text as key, found a list or an object")
        path = () if parent is None else parent.next_path
        members: dict[str, Json] | None = {} if is_mapping else None
        self._open.append(Open(path, self.line, anchor=anchor, members=members))

    def _end(self) -> None:
        closed = self._open.pop()
        self._add(
            closed.items if closed.members is None else self._whole(closed.members), closed.line
        )
        self._named(closed.anchor, closed.size)

    def _whole(self, members: dict[str, Json]) -> dict[str, Json]:
        return members

    def _add(self, value: Json, line: int) -> None:
        if not self._open:
            self._add_document(value, line)
            return
        parent = self._open[-1]
        if parent.members is None:
            self._lines[parent.next_path] = line
            parent.items.append(value)
        elif parent.key is None:
            parent.key = self._key(value, parent)
            parent.key_line = line
        else:
            self._lines[parent.next_path] = line
            self._key_lines[parent.next_path] = parent.key_line
            parent.members[parent.key] = value
            parent.key = None

    def _add_document(self, value: Json, line: int) -> None:
        if self._documents:
            self.line = line
            raise MismatchError("expected one document, found a second one")
        self._lines[()] = line
        self._documents.append(value)

    def _key(self, value: Json, parent: Open) -> str:
        if not isinstance(value, str):
            raise MismatchError(f"expected a text as key, found {shown(value)}; quote it")
        if parent.members is not None and value in parent.members:
            self._note(
                self.line, f"the key {shown(value)} occurs twice in one object; leave one out"
            )
        return value

    def _scalar(self, text: str, tag: str | None, *, plain: bool) -> Json:
        if tag is not None and tag not in TEXT_TAGS:
            raise MismatchError(f"expected plain data, found the tag {shown(tag)}")
        if not plain or tag is not None:
            return text
        if text == "<<":
            raise MismatchError(
                "expected data without merge keys, found `<<`; write here each key and value that "
                "it merges, in its place"
            )
        try:
            return plain_scalar(text)
        except MismatchError as error:
            self._note(self.line, str(error))
            return text


def plain_scalar(text: str) -> Json:
    """Return the value of an unquoted YAML scalar.

    Raises:
        MismatchError: it means different things to different parsers.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    # Longer ones, which `int` may refuse, count as ambiguous.
    if _INTEGER.fullmatch(text) and len(text) <= 1000:
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    if _AMBIGUOUS.fullmatch(text):
        raise MismatchError(f"{shown(text)} is ambiguous; quote it if it is a text")
    return text
