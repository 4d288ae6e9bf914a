"""Two texts compared by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import attrs

_TOKEN = re.compile(
    r"\n|[^\S\n]+|[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]"
)
_WORD = re.compile(r"\w+")
_LARGEST = 4_000_000  # products of tokens; beyond them the comparison takes seconds
_LEAST_ALIKE = 0.4


class Kind(StrEnum):
    """What became of a piece of text."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    LEFT_OUT = "left out"


@attrs.frozen
class Piece:
    """A stretch of text.

    Attributes:
        kind: what became of it.
        text: the text; of unchanged text that is left out, how much that is.
    """

    kind: Kind
    text: str


def word_diff(before: str, after: str) -> tuple[Piece, ...]:
    """Return the pieces that make both texts, in order.

    Unchanged and removed pieces together are ``before``, unchanged and added ones ``after``.
    Lines are compared first, then lines that begin alike, and the words within these.
    """
    old, new = _lines(before), _lines(after)
    return _joined(
        piece
        for same, one, other in _runs(difflib.SequenceMatcher(None, old, new))
        for piece in (
            (Piece(Kind.SAME, "".join(old[one])),) if same else _lines_changed(old[one], new[other])
        )
    )


def collapsed(pieces: Sequence[Piece], around: int) -> tuple[Piece, ...]:
    """Return ``pieces`` with long unchanged stretches left out.

    Args:
        pieces: a comparison.
        around: about how many unchanged characters to keep beside a change.
    """
    last = len(pieces) - 1
    return tuple(
        short
        for at, piece in enumerate(pieces)
        for short in (
            _shortened(piece.text, head=at > 0, tail=at < last, around=around)
            if piece.kind is Kind.SAME
            else (piece,)
        )
    )


def words_in(text: str) -> int:
    """Return the number of words."""
    return sum(1 for _ in _WORD.finditer(text))


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


def _runs(matcher: difflib.SequenceMatcher[str]) -> Iterator[tuple[bool, slice, slice]]:
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        yield tag == "equal", slice(start, end), slice(other_start, other_end)


def _lines_changed(old: Sequence[str], new: Sequence[str]) -> Iterator[Piece]:
    matcher = difflib.SequenceMatcher(None, [*map(_beginning, old)], [*map(_beginning, new)])
    for alike, one, other in _runs(matcher):
        if alike:
            for before, after in zip(old[one], new[other], strict=True):
                yield from _words_changed(before, after)
        else:
            yield from _words_changed("".join(old[one]), "".join(new[other]))


def _beginning(line: str) -> str:
    return " ".join(_WORD.findall(line)[:2])


def _words_changed(before: str, after: str) -> Iterator[Piece]:
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    if head:
        yield Piece(Kind.SAME, "".join(old[:head]))
    yield from _middle_changed(old[head : len(old) - tail], new[head : len(new) - tail])
    if tail:
        yield Piece(Kind.SAME, "".join(old[-tail:]))


def _shared(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many tokens both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _middle_changed(old: Sequence[str], new: Sequence[str]) -> Iterator[Piece]:
    before, after = "".join(old), "".join(new)
    if not old or not new or len(old) * len(new) > _LARGEST:
        yield from _changed(before, after)
        return
    # White space may extend a match, but is none by itself; nor are words that are everywhere.
    matcher = difflib.SequenceMatcher(str.isspace, old, new)
    kept = sum(block.size for block in matcher.get_matching_blocks())
    if kept < _LEAST_ALIKE * min(len(old), len(new)):
        yield from _changed(before, after)
        return
    for equal, one, other in _calm([*_runs(matcher)], old):
        if equal:
            yield Piece(Kind.SAME, "".join(old[one]))
        else:
            yield from _changed("".join(old[one]), "".join(new[other]))


def _calm(
    runs: Sequence[tuple[bool, slice, slice]], old: Sequence[str]
) -> Iterator[tuple[bool, slice, slice]]:
    """Yield runs in which no single word stands alone between two changes."""
    open_: tuple[slice, slice] | None = None
    for at, (equal, one, other) in enumerate(runs):
        inside = 0 < at < len(runs) - 1
        lonely = inside and words_in("".join(old[one])) < 2 and "\n" not in old[one]
        if equal and not lonely:
            if open_ is not None:
                yield False, *open_
                open_ = None
            yield True, one, other
        elif open_ is None:
            open_ = one, other
        else:
            open_ = slice(open_[0].start, one.stop), slice(open_[1].start, other.stop)
    if open_ is not None:
        yield False, *open_


def _changed(before: str, after: str) -> Iterator[Piece]:
    if before:
        yield Piece(Kind.REMOVED, before)
    if after:
        yield Piece(Kind.ADDED, after)


def _joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return pieces of which no two neighbours are of one kind."""
    done: list[Piece] = []
    for piece in pieces:
        if done and done[-1].kind is piece.kind:
            done[-1] = Piece(piece.kind, done[-1].text + piece.text)
        else:
            done.append(piece)
    return tuple(done)


def _shortened(text: str, *, head: bool, tail: bool, around: int) -> Iterator[Piece]:
    """Yield the ends of an unchanged stretch, and between them how much is left out."""
    first = _cut_after(text, around) if head else 0
    last = _cut_before(text, len(text) - around) if tail else len(text)
    hidden = words_in(text[first:last])
    if hidden < 12:
        yield Piece(Kind.SAME, text)
        return
    if first:
        yield Piece(Kind.SAME, text[:first])
    yield Piece(Kind.LEFT_OUT, f"{hidden:,} words unchanged")
    if last < len(text):
        yield Piece(Kind.SAME, text[last:])


def _cut_after(text: str, place: int) -> int:
    found = re.compile(r"\s").search(text, min(place, len(text)))
    return found.end() if found and found.end() < 2 * place else min(place, len(text))


def _cut_before(text: str, place: int) -> int:
    start = max(place, 0)
    before = max((text.rfind(space, 0, start) for space in " \n"), default=-1)
    return before + 1 if before >= max(0, 2 * place - len(text)) else start
