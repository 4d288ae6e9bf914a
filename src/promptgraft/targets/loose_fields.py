"""Lines ``name: value`` as models write them: in bold, as items of a list, in any case."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto

import attrs

from promptgraft.serde import Json, did_you_mean, shown
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.loose_json import is_silent, unquoted
from promptgraft.targets.loose_lines import Lines, block_header, read_value

_LEAD = re.compile(
    r"\s*+(?P<bullet>(?:[-*+•]|[0-9]{1,3}[.)])\s++)?(?P<mark>\*{1,3}+|_{1,3}+|`)?",
)
_COLON = re.compile("[:：]")
_BETWEEN = re.compile(
    r"-{3,}+|[-*+•]|[0-9]{1,3}[.)]|(?:[-*+•]\s++)?[*_]*+step\s++[0-9]++\s*+[*_:.]*+", re.IGNORECASE
)
_COMMENT = re.compile(r"\s(?:#|//)\s")
_FIELD_LIKE = re.compile(r"\W*+(?P<name>\w[^:\n]{0,99}+):(?=\s|$)")
_LOWER_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_MARKUP = str.maketrans("", "", "*`\"'")
_QUOTES = ('"', "'", "“", "‘")
_AROUND_WORDS = " \t`*\"'“”‘’"
_SHOWN_NAMES = 40
_LONGEST_TYPO = 80


class FieldKind(Enum):
    """What a field holds."""

    WORD = auto()
    TEXT = auto()
    NAMES = auto()
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
        folds = Counter(map(_folded, self.names))
        self._exact = {name: name for name in self.names}
        self._folded = {_folded(name): name for name in self.names if folds[_folded(name)] == 1}
        self._colons = max((len(_COLON.findall(name)) for name in self.names), default=0)
        self._longest = max(map(len, self.names), default=0) + len(_AROUND_WORDS)

    def get(self, written: str) -> str | None:
        """Return the name that was meant: in any case, with or without markup."""
        return self._exact.get(written, self._folded.get(_folded(written)))

    def find(self, line: str) -> Head | None:
        """Return the field that a line begins, or None."""
        lead = _LEAD.match(line) if _COLON.search(line) else None
        if lead is None or line.startswith(_QUOTES, lead.end()):
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
        listed = ", ".join(f"`{name}`" for name in self.names[:_SHOWN_NAMES])
        more = ", …" if len(self.names) > _SHOWN_NAMES else ""
        hint = did_you_mean(written[:_LONGEST_TYPO], list(self.names))
        return f"{shown(written)}{hint}; expected {listed}{more}"


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
        self._kind = FieldKind.TEXT
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
            lead = _LEAD.match(lines.line)
            name = lines.line[lead.end() if lead else 0 :]
            written = _COLON.split(name, maxsplit=1)[0].strip(_AROUND_WORDS)
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
        self._kind = self._kinds[head.name]
        match self._kind:
            case FieldKind.WORD:
                return self._word(head)
            case FieldKind.TEXT | FieldKind.NAMES:
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
        if self._kind is FieldKind.NAMES:  # their quotes tell them apart
            return text or None
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
        lines = self._lines
        if self._names.find(lines.line):
            return True
        if _BETWEEN.fullmatch(lines.line.strip()):
            return self._names.find(lines.next_line(lines.row + 1)) is not None
        if lines.indent < self._indent and self._kind is FieldKind.JSON_OR_TEXT:
            return bool(lines.line.strip())
        return lines.indent <= self._indent and self._is_foreign(lines.line)


def foreign_to(names: Collection[str]) -> Callable[[str], bool]:
    """Return the test whether a line looks like a field that is none of ``names``.

    It does if it begins like a known one (`param …:`), ends like one without its kind
    (``query:`` for ``param query``), or is one word in lower case.
    """
    firsts = {name.casefold().split(" ")[0] for name in names if " " in name}
    lasts = {name.casefold().partition(" ")[2] for name in names if " " in name}

    def is_foreign(line: str) -> bool:
        field = _FIELD_LIKE.match(line)
        if field is None:
            return False
        name = field["name"].translate(_MARKUP).strip(" _")
        folded = name.casefold()
        is_like = folded in lasts or (" " in folded and folded.split(" ")[0] in firsts)
        return is_like or _LOWER_NAME.fullmatch(name) is not None

    return is_foreign
