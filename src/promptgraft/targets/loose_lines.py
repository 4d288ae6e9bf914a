"""Values on lines as models write them: JSON, fenced or not, YAML's blocks, or plain text."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, shown
from promptgraft.targets.loose_json import (
    JSON_STARTS,
    MAX_DEPTH,
    is_silent,
    read_constant,
    read_json,
    unquoted,
)

_ITEM = re.compile(r"-(?:\s+|$)")
_KEY = re.compile(
    r"""(?:"(?P<straight>(?:[^"\\]|\\.)*+)"|'(?P<single>(?:[^']|'')*+)'"""
    r"""|(?!-\s)(?P<word>[^\s"'{}\[\]#,|>](?:[^:]|:(?!\s|$))*+))\s*+:(?=\s|$)"""
)
_NAME = re.compile(r"[a-z_][\w.-]*")
_BLOCK = re.compile(r"(?P<style>[|>])[-+1-9]{0,2}+\s*+(?:#.*+)?")
_FENCE = re.compile(r"(?P<run>`{3,}+|~{3,}+)\s*+(?P<info>[^`]*+)")
_CODE = re.compile(r"(?P<run>`++)(?:json\s++(?=[\[{]))?(?P<body>[^`]++)(?P=run)")
_AFTER_JSON = re.compile(r"[\s,;]*+(?:(?:#|//).*+)?")
_COMMENT = re.compile(r"\s(?:#|//)\s")


class Lines:
    """The lines of a text, walked from the first to the last.

    Attributes:
        rows: the lines.
        row: index of the current one.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.rows = text.split("\n")
        self._starts = [0, *itertools.accumulate(len(row) + 1 for row in self.rows)]
        self.row = 0

    @property
    def is_done(self) -> bool:
        """Whether there is no current line any more."""
        return self.row >= len(self.rows)

    @property
    def line(self) -> str:
        """The current line."""
        return self.rows[self.row]

    @property
    def indent(self) -> int:
        """How far the current line is indented."""
        return _indent(self.line)

    def more(self) -> bool:
        """Pass over blank lines and comments; tell whether a line is left."""
        while not self.is_done and is_silent(self.line.strip()):
            self.row += 1
        return not self.is_done

    def is_deeper(self, indent: int) -> bool:
        """Tell whether the next line that is not blank is indented more than ``indent``."""
        return _indent(self.next_line(self.row)) > indent

    def next_line(self, row: int) -> str:
        """Return the first line from ``row`` on that is not blank; nothing if there is none."""
        ahead = (self.rows[index] for index in range(row, len(self.rows)))
        return next((line for line in ahead if line.strip()), "")

    def json_at(self, column: int, *, where: str) -> Json:
        """Return the JSON that begins on the current line; go to the line after its end.

        Raises:
            DataFormatError: it is none, or something follows it on its last line.
        """
        value, end = read_json(self._text, self._starts[self.row] + column, where=where)
        self.row = bisect_right(self._starts, end) - 1
        rest = self.line[end - self._starts[self.row] :]
        if not _AFTER_JSON.fullmatch(rest):
            raise DataFormatError(f"{where}: expected nothing after the JSON, found {shown(rest)}")
        self.row += 1
        return value

    def block(self, header: re.Match[str]) -> str:
        """Return the indented lines that follow, as YAML's ``|`` and ``>`` mean them."""
        start = self.row
        depth = _indent(self.next_line(self.row))
        while not self.is_done and (not self.line.strip() or self.indent >= depth):
            self.row += 1
        text = "\n".join(row[depth:] for row in self.rows[start : self.row]).strip("\n")
        if header["style"] == "|":
            return text
        return re.sub(r"\n++(?=\S)", lambda ends: ends[0][1:] or " ", text)

    def fenced(self, fence: re.Match[str], *, where: str) -> str:
        """Return the lines up to the fence that closes the one on the current line.

        Raises:
            DataFormatError: there is none.
        """
        self.row += 1
        start = self.row
        while not self.is_done:
            mark = self.line.strip()
            self.row += 1
            if mark.startswith(fence["run"]) and not mark.strip(fence["run"][0]):
                return "\n".join(self.rows[start : self.row - 1])
        raise DataFormatError(f"{where}: expected the fence to be closed, found the end")

    def plain(self, column: int, ends: Callable[[], bool]) -> str:
        """Return the text from ``column`` of the current line to the line where ``ends`` holds."""
        first = [self.line[column:].strip()] if self.line[:column].strip() else []
        start = self.row + len(first)
        self.row += 1
        while not self.is_done and not ends():
            self.row += 1
        rows = self.rows[start : self.row]
        depth = min((_indent(row) for row in rows if row.strip()), default=0)
        return "\n".join([*first, *(row[depth:].rstrip() for row in rows)]).strip()


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def block_header(text: str) -> re.Match[str] | None:
    """Return a match if ``text`` announces a text in one of YAML's block styles."""
    return _BLOCK.fullmatch(text)


def read_value(
    lines: Lines, column: int, *, bare: bool, ends: Callable[[], bool], where: str
) -> Json:
    """Return the value that begins at ``column`` of the current line; go on after it.

    ``bare`` allows a text without quotes, which reaches to the line where ``ends`` holds.

    Raises:
        DataFormatError: it is no value, or something follows it.
    """
    rest = lines.line[column:].strip()
    is_first = not lines.line[:column].strip()
    if is_first and _begins_block(lines.line, plain_keys=bare):
        return _read_block(lines, where=where, depth=1)
    if rest[0] in JSON_STARTS:
        return lines.json_at(lines.line.index(rest[0], column), where=where)
    if fence := _FENCE.fullmatch(rest):
        is_yaml = fence["info"].strip().lower() in {"yaml", "yml"}
        text = lines.fenced(fence, where=where)
        return _read_whole(text, bare=bare, block=is_yaml or not bare, where=where)
    if header := _BLOCK.fullmatch(rest):
        lines.row += 1
        return _read_whole(lines.block(header), bare=bare, block=not bare, where=where)
    if code := _CODE.fullmatch(rest):
        lines.row += 1
        return _read_whole(code["body"], bare=bare, block=False, where=where)
    return _scalar(lines.plain(column, ends), bare=bare, where=where)


def _read_whole(text: str, *, bare: bool, block: bool, where: str) -> Json:
    """Return the value that a text of its own is."""
    lines = Lines(text)
    if not lines.more():
        raise DataFormatError(f"{where}: expected a value, found none")
    if block and _begins_block(lines.line, plain_keys=bare):
        value = _read_block(lines, where=where, depth=1)
    elif lines.line.strip()[0] in JSON_STARTS:
        value = lines.json_at(lines.indent, where=where)
    else:
        return _scalar(text.strip(), bare=bare, where=where)
    if lines.more():
        found = shown(lines.line.strip())
        raise DataFormatError(f"{where}: expected nothing after the value, found {found}")
    return value


def _scalar(text: str, *, bare: bool, where: str) -> Json:
    if constant := read_constant(text, where=where):
        return constant[0]
    inner = unquoted(text)
    if bare or inner != text:
        return inner
    raise DataFormatError(f"{where}: expected JSON, found {shown(text)}")


def _begins_block(line: str, *, plain_keys: bool) -> bool:
    """Tell whether a line begins a list or a mapping as YAML writes them.

    ``plain_keys`` takes only keys that look like names in code: ``Note: a text`` is a text.
    """
    key = _KEY.match(line, _indent(line))
    if key and plain_keys:
        return _NAME.fullmatch(key["word"] or "quoted") is not None
    return key is not None or _ITEM.match(line, _indent(line)) is not None


def _read_block(lines: Lines, *, where: str, depth: int) -> Json:
    """Return the mapping, list or value that begins with the current line, as YAML writes it.

    Scalars are numbers, true, false and null as JSON writes them, and otherwise texts.
    """
    if depth > MAX_DEPTH:
        raise DataFormatError(f"{where}: nested deeper than {MAX_DEPTH} levels")
    if _ITEM.match(lines.line, lines.indent):
        return _read_items(lines, where=where, depth=depth)
    if _KEY.match(lines.line, lines.indent):
        return _read_mapping(lines, where=where, depth=depth)
    return _read_entry(lines, lines.indent, where=where, depth=depth)


def _read_items(lines: Lines, *, where: str, depth: int) -> Json:
    indent = lines.indent
    found: list[Json] = []
    while lines.more() and lines.indent == indent and (item := _ITEM.match(lines.line, indent)):
        # What stands after the dash is a block of its own: the dash counts as indentation.
        lines.rows[lines.row] = " " * item.end() + lines.line[item.end() :]
        if is_silent(lines.line.strip()):
            found.append(_read_below(lines, indent, where=where, depth=depth))
        else:
            found.append(_read_block(lines, where=where, depth=depth + 1))
    return found


def _read_mapping(lines: Lines, *, where: str, depth: int) -> Json:
    indent = lines.indent
    found: dict[str, Json] = {}
    while lines.more() and lines.indent == indent and not _ITEM.match(lines.line, indent):
        key = _KEY.match(lines.line, indent)
        if key is None:
            raise _unexpected(lines, where)
        written = lines.line[indent : key.end() - 1].strip()
        is_json = written.startswith('"')
        name = str(read_json(written, 0, where=where)[0]) if is_json else unquoted(written)
        if name in found:
            raise DataFormatError(f"{where}: the key {shown(name)} occurs twice")
        found[name] = _read_entry(lines, key.end(), where=where, depth=depth)
    return found


def _read_entry(lines: Lines, column: int, *, where: str, depth: int) -> Json:
    indent = lines.indent
    rest = lines.line[column:].strip()
    if is_silent(rest):
        return _read_below(lines, indent, where=where, depth=depth)
    if rest[0] in JSON_STARTS:
        return lines.json_at(lines.line.index(rest[0], column), where=where)
    lines.row += 1
    if (header := _BLOCK.fullmatch(rest)) and lines.is_deeper(indent):
        return lines.block(header)
    if lines.more() and lines.indent > indent:
        raise _unexpected(lines, where)
    if constant := read_constant(rest, where=where):
        return constant[0]
    inner = unquoted(rest)
    if inner == rest and rest.startswith("'"):
        raise DataFormatError(f"{where}: expected the quote to be closed, found {shown(rest)}")
    return _COMMENT.split(rest, maxsplit=1)[0].rstrip() if inner == rest else inner


def _read_below(lines: Lines, indent: int, *, where: str, depth: int) -> Json:
    lines.row += 1
    if lines.more():
        is_list = lines.indent == indent and _ITEM.match(lines.line, indent)
        if lines.indent > indent or is_list:
            return _read_block(lines, where=where, depth=depth + 1)
    raise DataFormatError(f"{where}: expected a value after every key and dash, found none")


def _unexpected(lines: Lines, where: str) -> DataFormatError:
    return DataFormatError(
        f"{where}: expected JSON, or one `key: value` a line; found {shown(lines.line.strip())}"
    )
