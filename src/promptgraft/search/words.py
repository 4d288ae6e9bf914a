"""Texts as the words that a comparison goes by, whatever their case, spacing and marks."""

from __future__ import annotations

import bisect
import itertools
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from operator import itemgetter

_MARKS = ("Mn", "Mc", "Me", "Cf")
# Scripts that put no space between words: here a character is what is compared.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
)
_CHARACTER = re.compile(f"[{_SPACELESS}]")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
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
        if text.isascii():
            self.words = _ASCII_WORD.findall(text.lower())
        else:
            plain = map(_plain, _word_pattern().findall(text))
            self.words = [word for word in plain if word]

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
        pattern = _ASCII_WORD if self.text.isascii() else _word_pattern()
        return [match.span() for match in pattern.finditer(self.text) if _plain(match[0])]


def is_spaced(text: str) -> bool:
    """Tell whether a text holds no character of a script without spaces."""
    return text.isascii() or _CHARACTER.search(text) is None


def _is_code(words: tuple[str, ...]) -> bool:
    if not all(map(is_spaced, words)):
        return False
    return len(words) > 1 or any(map(str.isdigit, words[0]))


@lru_cache(maxsize=1 << 12)
def _plain(word: str) -> str:
    """Return a word without case and marks."""
    if word.isascii():
        return word.lower()
    # Before it is decomposed too: sorting a long row of marks would take quadratic time.
    bare = "".join(filter(str.isalnum, word))
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", bare))).casefold()


@cache
def _word_pattern() -> re.Pattern[str]:
    marks = _mark_ranges()
    return re.compile(f"[{_SPACELESS}]|[^\\W_{_SPACELESS}](?:[^\\W_{_SPACELESS}]|[{marks}])*")


def _mark_ranges() -> str:
    """Return accents, vowel signs, joiners and soft hyphens as a character class."""
    points = itertools.chain(range(0x80, 0x1F000), range(0xE0000, 0xE01F0))
    codes = [point for point in points if unicodedata.category(chr(point)) in _MARKS]
    ranges = []
    for _, group in itertools.groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        row = [code for _, code in group]
        ranges.append(f"\\U{row[0]:08x}-\\U{row[-1]:08x}")
    return "".join(ranges)
