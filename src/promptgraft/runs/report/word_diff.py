"""Comparison of two texts by word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum

import attrs

from promptgraft.ground.text import common_beginning, pieces_in, words_in

_LARGEST = 4_000_000  # product of the numbers of words; beyond it a comparison takes seconds
# Below this share of common words, the old text followed by the new one reads better.
_LEAST_ALIKE = 0.4
# Words; hiding fewer would not be worth the note in their place.
_LEAST_HIDDEN = 12

_Run = tuple[bool, str, str]  # whether two stretches are equal, and what they are


class DiffKind(StrEnum):
    """The kind of a piece of a diff."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    LEFT_OUT = "left out"


@attrs.frozen
class Piece:
    """A stretch of text, or for one that is left out, a note of its length."""

    kind: DiffKind
    text: str


def word_diff(before: str, after: str) -> tuple[Piece, ...]:
    """Return the word diff of two texts, in order.

    The unchanged and removed pieces make up ``before``, the unchanged and added ones ``after``.
    Lines are compared first, then the words of the lines that differ.
    """
    lines = _runs(before.splitlines(True), after.splitlines(True))
    words = (word for line in lines for word in ([line] if line[0] else _changed(*line[1:])))
    return tuple(_pieces(_joined(words)))


def collapsed(pieces: Sequence[Piece], around: int) -> tuple[Piece, ...]:
    """Shorten unchanged stretches to about ``around`` characters on either side of a change."""
    collapsed_pieces: list[Piece] = []
    for at, piece in enumerate(pieces):
        text = piece.text
        first = _space_after(text, around) if at else 0
        last = len(text) - (_space_after(text[::-1], around) if at < len(pieces) - 1 else 0)
        hidden = len(words_in(text[first:last]))
        if piece.kind is not DiffKind.SAME or hidden < _LEAST_HIDDEN:
            collapsed_pieces.append(piece)
            continue
        gap = Piece(DiffKind.LEFT_OUT, f"{hidden:,} words unchanged")
        collapsed_pieces += (
            Piece(DiffKind.SAME, text[:first]),
            gap,
            Piece(DiffKind.SAME, text[last:]),
        )
    return tuple(piece for piece in collapsed_pieces if piece.text)


def _runs(
    old: Sequence[str], new: Sequence[str], junk: Callable[[str], bool] | None = None
) -> list[_Run]:
    opcodes = SequenceMatcher(junk, old, new).get_opcodes()
    return [
        (tag == "equal", "".join(old[start:end]), "".join(new[new_start:other_end]))
        for tag, start, end, new_start, other_end in opcodes
    ]


def _changed(before: str, after: str) -> Iterator[_Run]:
    """Yield the runs of words in two runs of lines: line by line where all begin alike."""
    old, new = before.splitlines(True), after.splitlines(True)
    pairs = list(zip(old, new, strict=False))
    if len(old) == len(new) and all(
        words_in(line)[:1] == words_in(new_line)[:1] for line, new_line in pairs
    ):
        for line, new_line in pairs:
            yield from _by_word(line, new_line)
    else:
        yield from _by_word(before, after)


def _by_word(before: str, after: str) -> Iterator[_Run]:
    """Yield the runs of words in two runs of lines; a single run if they have little in common."""
    old, new = pieces_in(before), pieces_in(after)
    # Common ends are matched first, because the matcher ignores very frequent words.
    head = common_beginning(old, new)
    tail = common_beginning(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    yield True, "".join(old[:head]), "".join(old[:head])
    yield from _middle(old[head:old_end], new[head:new_end])
    yield True, "".join(old[old_end:]), "".join(new[new_end:])


def _middle(old: Sequence[str], new: Sequence[str]) -> list[_Run]:
    if len(old) * len(new) <= _LARGEST:
        # White space may extend a match, but does not make one by itself.
        runs = _runs(old, new, str.isspace)
        pieces_kept = sum(len(pieces_in(before)) for same, before, _ in runs if same)
        if pieces_kept >= _LEAST_ALIKE * min(len(old), len(new)):
            return runs
    return [(False, "".join(old), "".join(new))]


def _joined(runs: Iterable[_Run]) -> list[_Run]:
    """Join adjacent equal runs, and drop empty ones."""
    runs_joined: list[_Run] = []
    for same, before, after in runs:
        if runs_joined and same and runs_joined[-1][0]:
            runs_joined[-1] = (True, runs_joined[-1][1] + before, runs_joined[-1][2] + after)
        elif before or after:
            runs_joined.append((same, before, after))
    return runs_joined


def _pieces(runs: Sequence[_Run]) -> Iterator[Piece]:
    """Yield the pieces of runs; a single unchanged word between two changes counts as changed."""
    old = new = ""
    for at, (same, before, after) in enumerate([*runs, (True, "", "")]):
        is_inside = 0 < at < len(runs) - 1
        if not same or (is_inside and len(words_in(before)) < 2 and "\n" not in before):
            old, new = old + before, new + after
            continue
        changed = (
            Piece(DiffKind.REMOVED, old),
            Piece(DiffKind.ADDED, new),
            Piece(DiffKind.SAME, before),
        )
        yield from (piece for piece in changed if piece.text)
        old = new = ""


def _space_after(text: str, place: int) -> int:
    """Return where the word at ``place`` ends; ``place`` itself if the word is very long."""
    match = re.compile(r"\s").search(text, min(place, len(text)))
    return match.end() if match and match.end() < 2 * place else min(place, len(text))
