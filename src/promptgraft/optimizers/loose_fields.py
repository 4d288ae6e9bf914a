"""Lines ``name: value`` as models write them: in bold, as items of a list, in any case."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto

import attrs

from promptgraft.optimizers.loose_json import is_silent, unquoted
from promptgraft.optimizers.loose_lines import Lines, block_header, read_value
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.serde import Json, did_you_mean, shown

_LEAD = re.compile(
    r"\s*+(?P<bullet>(?:[-*+•]|[0-9]{1,3}[.)])\s++)?(?P<mark>\*{1,3}+|_{1,3}+|`)?",
)
_COLON = re.compile("[:：]")
_BETWEEN = re.compile(
    r"-{3,}+|[-*+•]|[0-9]{1,3}[.)]|(?:[-*+•]\s++)?[*_]*+step\s++[0-9]++\s*+[*_:.]*+", re.IGNORECASE
)
_COMMENT = re.compile(r"\s(?:#|//)\s")
_MARKUP = str.maketrans("", "", "*`\"'")
_AROUND_WORDS = " \t`*\"'“”‘’"
_SHOWN_NAMES = 40


class FieldKind(Enum):
    """What a field holds."""

    WORD = auto()
    TEXT = auto()
    JSON = auto()
    JSON_OR_TEXT = auto()
    STEPS = auto()


@attrs.frozen(kw_only=True)
class Head:
    """The beginning of a field.

    Attributes:
        name: the field.
        indent: how far its line is indented.
        column: where its name begins.
        end: where its value may begin.
        bulleted: whether it begins an item of a list.
    """

    name: str
    indent: int
    column: int
    end: int
    bulleted: bool


class FieldNames:
    """The names that fields may have."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(names)
        self._known = {_folded(name): name for name in reversed(self.names)}
        self._known.update((name, name) for name in self.names)
        self._colons = max((len(_COLON.findall(name)) for name in self.names), default=0)
        self._longest = max(map(len, self.names), default=0) + len(_AROUND_WORDS)

    def get(self, written: str) -> str | None:
        """Return the name that was meant: in any case, with or without markup."""
        return self._known.get(written) or self._known.get(_folded(written))

    def find(self, line: str) -> Head | None:
        """Return the field that a line begins, or None."""
        lead = _LEAD.match(line)
        if lead is None:
            return None
        mark = lead["mark"] or ""
        found, at, column = None, lead.end(), lead.end()
        for _ in range(self._colons + 1):
            colon = _COLON.search(line, at, column + self._longest)
            if colon is None:
                break
            at = colon.end()
            written = line[column : colon.start()].rstrip()
            is_closed = not mark or written.endswith(mark)
            name = self.get(written.removesuffix(mark))
            if name is not None:
                found = Head(
                    name=name,
                    indent=len(line) - len(line.lstrip()),
                    column=column,
                    end=at if is_closed or not line.startswith(mark, at) else at + len(mark),
                    bulleted=lead["bullet"] is not None,
                )
        return found

    def unknown(self, written: str) -> str:
        """Return what a message says of a name that is none of these."""
        known = list(self.names[:_SHOWN_NAMES])
        listed = ", ".join(f"`{name}`" for name in known)
        more = ", …" if len(self.names) > len(known) else ""
        return f"{shown(written)}{did_you_mean(written[:80], known)}; expected {listed}{more}"


def _folded(name: str) -> str:
    return " ".join(name.translate(_MARKUP).casefold().split())


class Fields:
    """The fields of a text, read one after the other.

    Attributes:
        kinds: what may come next, and what it holds; readers may change it on the way.
    """

    def __init__(
        self,
        text: str,
        kinds: Mapping[str, FieldKind],
        *,
        is_foreign: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._lines = Lines(text)
        self._is_foreign = is_foreign
        self._indent = 0
        self.kinds = kinds

    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        return self._kinds

    @kinds.setter
    def kinds(self, kinds: Mapping[str, FieldKind]) -> None:
        self._kinds = kinds
        self._names = FieldNames(kinds)

    def head(self) -> Head | None:
        """Return the field that comes next, or None at the end.

        Raises:
            InvalidProposalError: something else comes next.
        """
        lines = self._lines
        while lines.more() and _BETWEEN.fullmatch(lines.line.strip()):
            lines.row += 1
        if lines.is_done:
            return None
        head = self._names.find(lines.line)
        if head is None:
            written = _COLON.split(lines.line, maxsplit=1)[0].strip(_AROUND_WORDS)
            raise InvalidProposalError(
                RejectionReason.UNPARSABLE,
                f"line {lines.row + 1}: unknown field {self._names.unknown(written)}",
            )
        return head

    def value(self, head: Head) -> Json:
        """Return the value of the field on the current line; None if a text is missing.

        Raises:
            InvalidProposalError: there is no value.
            DataFormatError: it cannot be read.
        """
        self._indent = head.indent
        match self._kinds[head.name]:
            case FieldKind.WORD:
                return self._word(head)
            case FieldKind.TEXT:
                return self._text(head)
            case kind:
                return self._value(head, kind)

    def _word(self, head: Head) -> str | None:
        rest = self._lines.line[head.end :]
        self._lines.row += 1
        return _COMMENT.split(rest, maxsplit=1)[0].strip(_AROUND_WORDS) or None

    def _text(self, head: Head) -> str | None:
        lines = self._lines
        if header := block_header(lines.line[head.end :].strip()):
            lines.row += 1
            if lines.is_deeper(head.indent):
                return lines.block(header)
            lines.row -= 1
            lines.rows[lines.row] = lines.line[: head.end]
        text = lines.plain(head.end, self._ends)
        return unquoted(text) if text else None

    def _value(self, head: Head, kind: FieldKind) -> Json:
        lines = self._lines
        where = f"line {lines.row + 1}: {head.name}"
        column = head.end
        if is_silent(lines.line[head.end :].strip()):
            lines.row += 1
            is_left = lines.more()
            if kind is FieldKind.STEPS and not (is_left and lines.line.lstrip()[0] in "[`~"):
                return None
            after = self._names.find(lines.line) if is_left else None
            if not is_left or (after and after.column <= head.column):
                raise InvalidProposalError(
                    RejectionReason.EMPTY, f"{where}: expected a value, found none"
                )
            column = lines.indent
        bare = kind is FieldKind.JSON_OR_TEXT
        return read_value(lines, column, bare=bare, ends=self._ends, where=where)

    def _ends(self) -> bool:
        line = self._lines.line
        if self._names.find(line):
            return True
        return len(line) - len(line.lstrip()) <= self._indent and self._is_foreign(line)

