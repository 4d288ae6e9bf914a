"""The words of a text, whatever its script.

A character of a script that puts no space between words is a word of its own. Accents, vowel
signs and joiners belong to the word that they stand in.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache, lru_cache

_MARKS = ("Mn", "Mc", "Me", "Cf")
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
)
_CHARACTER = re.compile(f"[{_SPACELESS}]")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")


def words_in(text: str) -> list[str]:
    """Return the words as they are spelled, in order, in linear time."""
    return _pattern(text).findall(text)


def folded_words(text: str) -> list[str]:
    """Return the words without case, accents and marks, in order, in linear time."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return [word for word in map(_folded, words_in(text)) if word]


def folded_spans(text: str) -> list[tuple[int, int]]:
    """Return where in the text each of its :func:`folded_words` begins and ends."""
    found = _pattern(text).finditer(text)
    return [match.span() for match in found if text.isascii() or _folded(match[0])]


def pieces_in(text: str) -> list[str]:
    """Return the words and what is between them: line ends, other space, single characters.

    Joined, they are the text.
    """
    return _piece_pattern().findall(text)


def is_spaced(text: str) -> bool:
    """Tell whether a text holds no character of a script without spaces."""
    return text.isascii() or _CHARACTER.search(text) is None


@lru_cache(maxsize=1 << 12)
def _folded(word: str) -> str:
    if word.isascii():
        return word.lower()
    # Before it is decomposed too: sorting a long row of marks would take quadratic time.
    bare = "".join(filter(str.isalnum, word))
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", bare))).casefold()


def _pattern(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else _word_pattern()


@cache
def _word_pattern() -> re.Pattern[str]:
    letter = f"[^\\W_{_SPACELESS}]"
    return re.compile(f"[{_SPACELESS}]|{letter}(?:{letter}|[{_mark_ranges()}])*")


@cache
def _piece_pattern() -> re.Pattern[str]:
    return re.compile(rf"{_word_pattern().pattern}|\n|[^\S\n]+|.", re.DOTALL)


def _mark_ranges() -> str:
    """Return accents, vowel signs, joiners and soft hyphens as a character class."""
    points = itertools.chain(range(0x80, 0x1F000), range(0xE0000, 0xE01F0))
    codes = [point for point in points if unicodedata.category(chr(point)) in _MARKS]
    ranges = []
    for _, group in itertools.groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        row = [code for _, code in group]
        ranges.append(f"\\U{row[0]:08x}-\\U{row[-1]:08x}")
    return "".join(ranges)
