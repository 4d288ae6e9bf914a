"""Words: how the embedded model cuts text up. Nothing here knows of any task."""

from __future__ import annotations

import functools
import re

from promptgraft.adapters.offline.stop_words import STOP_WORDS

_TOKEN = re.compile(r"[^\W_]+")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[^\s@]{1,64}@[^\s@]{1,255}")
_LONGEST_WORD = 30
_VOWEL = re.compile(r"[aeiouy]")
_SHORTEST_STEM = 4

_ENDINGS = (
    "ization", "isation", "ations", "ation", "ements", "ement", "ments", "ment", "nesses", "ness",
    "ities", "ity", "ances", "ance", "ences", "ence", "ables", "able", "ibly", "ably", "ings",
    "ing", "ions", "ion", "ally", "edly", "ers", "ors", "ies", "ied", "ives", "ive", "ed", "er",
    "or", "ly", "es", "al", "s", "y", "e",
)  # fmt: skip


def terms(text: str) -> list[str]:
    """Return the stems of the content words of ``text``, in order, in linear time."""
    return [stem for stem in map(term, _TOKEN.findall(text.lower())) if stem]


def content_words(text: str) -> list[str]:
    """Return the different content words of ``text`` as they are spelled, in lower case.

    Web and mail addresses, words of two letters and words with digits are left out: they name
    one thing, not a kind.
    """
    tokens = _TOKEN.findall(_ADDRESS.sub(" ", text).lower())
    words = (token for token in tokens if token.isalpha() and len(token) > 2 and term(token))
    return list(dict.fromkeys(words))


@functools.lru_cache(maxsize=16384)
def term(word: str) -> str:
    """Return the stem of a lower-case word; empty for stop words, numbers and single letters."""
    if word in STOP_WORDS or not 1 < len(word) <= _LONGEST_WORD or word.isdigit():
        return ""
    return stem(word)


def stem(word: str) -> str:
    """Cut one common English ending off, as long as a word remains.

    A light stemmer after Lovins (1968, "Development of a stemming algorithm"): the longest
    ending that leaves at least four letters with a vowel among them goes, and then a doubled
    last consonant is made single.
    """
    if word.endswith("ss") or not word.isascii():
        return word
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        if len(word) > len(rest) >= _SHORTEST_STEM and _VOWEL.search(rest):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "aeiouls"
            return rest[:-1] if doubled else rest
    return word
