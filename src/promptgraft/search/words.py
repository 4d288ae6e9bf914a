"""The passages of a text by which a copy of it is told."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from functools import cached_property
from operator import itemgetter

from promptgraft.words import folded_spans, folded_words, is_spaced

CODE_CHARS = 24
"""How long a code or an address is, at least."""
# Quotes, brackets and emphasis wrap a code or an address and are no part of it.
_WRAPPING = "\\s\"'`*<>()\\[\\]{}|,;“”„‘’«»「」『』（），、。"
_RUN = re.compile(f"[^{_WRAPPING}]{{{CODE_CHARS},}}")

WORD = 2
"""What a word weighs; a character of a script without spaces weighs 1, half a word."""


class Words:
    """The words of a text, without case, accents and marks.

    Characters of scripts without spaces are words of their own. Everything here takes time
    that grows with the length of the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = folded_words(text)

    def passages(self, weight: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield what a copy is told by: where it starts, and its words.

        These are the shortest passage of ``weight`` from each word on, and the codes and
        addresses. A long word is no code: that takes a digit, or a mark between its letters.
        """
        yield from self._windows(weight)
        yield from self._codes()

    def passage(self, start: int, end: int) -> str:
        """Return the text of some words, on one line."""
        return " ".join(self.text[self._spans[start][0] : self._spans[end - 1][1]].split())

    def _windows(self, weight: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        weights = self._weights()
        if len(set(weights)) == 1:
            size = -(-weight // weights[0])
            yield from enumerate(zip(*(self.words[skip:] for skip in range(size)), strict=False))
            return
        end = held = 0
        for start, own in enumerate(weights):
            while held < weight and end < len(weights):
                held += weights[end]
                end += 1
            if held < weight:
                return
            yield start, tuple(self.words[start:end])
            held -= own

    def _codes(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        for found in _RUN.finditer(self.text):
            start = bisect.bisect_left(self._spans, found.start(), key=itemgetter(0))
            end = bisect.bisect_right(self._spans, found.end(), key=itemgetter(1))
            words = tuple(self.words[start:end])
            if self._length(start, end) >= CODE_CHARS and _is_code(words):
                yield start, words

    def _length(self, start: int, end: int) -> int:
        return self._spans[end - 1][1] - self._spans[start][0] if start < end else 0

    def _weights(self) -> list[int]:
        if is_spaced(self.text):
            return [WORD] * len(self.words)
        return [WORD if is_spaced(word) else 1 for word in self.words]

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """Where in the text the words stand."""
        return folded_spans(self.text)


def _is_code(words: tuple[str, ...]) -> bool:
    if not all(map(is_spaced, words)):
        return False
    return len(words) > 1 or any(map(str.isdigit, words[0]))
