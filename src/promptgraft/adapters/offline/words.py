"""What the embedded model sees in a text: words, their stems, and names. It knows no task."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.words import is_spaced, words_in

LONGEST_TEXT = 20_000

_ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[^\s@]{1,64}@[^\s@]{1,255}")
_LONGEST_WORD = 30
_SHORTEST_STEM = 4
_VOWEL = re.compile(r"[aeiouy]")
_ENDINGS = (
    "ization", "isation", "ations", "ation", "ements", "ement", "ments", "ment", "nesses", "ness",
    "ities", "ity", "ances", "ance", "ences", "ence", "ables", "able", "ibly", "ably", "ings",
    "ing", "ions", "ion", "ally", "edly", "ers", "ors", "ies", "ied", "ives", "ive", "ed", "er",
    "or", "ly", "es", "al", "s", "y", "e",
)  # fmt: skip
_STOP_WORDS = frozenset(Path(__file__).with_name("stop_words.txt").read_text("ascii").split())
_NAME = re.compile(
    r"`(?P<ticked>[^`\n]{1,200})`"
    r"|(?<![\w\"])\"(?P<quoted>[^\"\n]{1,200})\"(?![\w\"])"
    r"|(?<![\w/.-])(?P<path>(?:[\w-]{1,60}/){1,12}[\w.-]{0,59}\w|[\w-]{1,60}\.[a-z]{1,4})(?![\w/])"
    r"|(?<!\w)(?P<word>[^\W\d]\w{0,79})(?!\w)"
    r"|(?<![\w.])(?P<number>\d{1,15})(?![\w.])"
)
_JOINED = re.compile(r"\w_\w|[a-z][A-Z]")
_KINDS = {
    "path": re.compile(r"[\w.-]*/[\w./-]+|[\w-]+\.[a-z]{1,4}"),
    "constant": re.compile(r"[A-Z][A-Z0-9_]+"),
    "type": re.compile(r"[A-Z]\w*[a-z]\w*"),
    "identifier": re.compile(r"\w+"),
}
_INVENTED = {
    "path": ("folder/sample.txt", "folder/other.txt", "folder/third.txt"),
    "constant": ("SAMPLE_NAME", "OTHER_NAME", "THIRD_NAME"),
    "type": ("SampleName", "OtherName", "ThirdName"),
    "identifier": ("sample_name", "other_name", "third_name"),
    "text": ("sample text", "other text", "third text"),
}


@attrs.frozen
class Name:
    """Something called by its name.

    Attributes:
        value: the name itself, without quotes.
        kind: ``path``, ``constant``, ``type``, ``identifier``, ``text`` (quoted, several
            words) or ``number``.
    """

    value: str
    kind: str


def terms(text: str) -> list[str]:
    """Return the stems of the content words of ``text``, in order, in linear time."""
    return [stem for stem in map(term, words_in(text.lower())) if stem]


def content_words(text: str) -> list[str]:
    """Return the different content words of ``text`` as they are spelled, in lower case.

    Web and mail addresses, words of two letters and words with digits are left out: they name
    one thing, not a kind.
    """
    words = dict.fromkeys(words_in(_ADDRESS.sub(" ", text).lower()))
    return [
        word
        for word in words
        if term(word)
        and not any(map(str.isnumeric, word))
        and (len(word) > 2 or not is_spaced(word))
    ]


@functools.lru_cache(maxsize=16384)
def term(word: str) -> str:
    """Return the stem of a lower-case word; empty for stop words, numbers and single letters.

    A light stemmer after Lovins (1968, "Development of a stemming algorithm"): the longest
    ending that leaves at least four letters with a vowel among them goes, and then a doubled
    last consonant is made single.
    """
    is_letter = len(word) == 1 and is_spaced(word)
    if word in _STOP_WORDS or is_letter or len(word) > _LONGEST_WORD or word.isdigit():
        return ""
    if word.endswith("ss") or not word.isascii():
        return word
    for ending in _ENDINGS:
        rest = word.removesuffix(ending)
        if len(word) > len(rest) >= _SHORTEST_STEM and _VOWEL.search(rest):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "aeiouls"
            return rest[:-1] if doubled else rest
    return word


@functools.lru_cache(maxsize=4096)
def names_in(text: str) -> tuple[Name, ...]:
    """Return the names in ``text``, in order, each once.

    A name stands in backticks or double quotes, or it is spelled like one: with a slash, a file
    ending, an underscore, or a capital inside.
    """
    return tuple(dict.fromkeys(_found(text[:LONGEST_TEXT])))


def _found(text: str) -> Iterator[Name]:
    for match in _NAME.finditer(text):
        value = match[match.lastgroup or 0].strip()
        if match.lastgroup == "number":
            yield Name(value, "number")
        elif value and (match.lastgroup != "word" or _JOINED.search(value)):
            kinds = (kind for kind, pattern in _KINDS.items() if pattern.fullmatch(value))
            yield Name(value, next(kinds, "text"))


def plain_words(text: str) -> list[str]:
    """Return the content words of ``text`` that belong to no name, in lower case."""
    return content_words(_NAME.sub(_unless_name, text[:LONGEST_TEXT]))


def _unless_name(match: re.Match[str]) -> str:
    word = match["word"]
    return word if word and not _JOINED.search(word) else " "


@functools.lru_cache(maxsize=4096)
def form_of(text: str) -> frozenset[str]:
    """Return what a text has in common with others of its form.

    Those are the stems of its plain words, and the kinds of its names in angle brackets.
    """
    kinds = {f"<{name.kind}>" for name in names_in(text) if name.kind != "number"}
    return frozenset(kinds | {term(word) for word in plain_words(text)})


def counterparts(pattern: str, text: str) -> dict[str, str]:
    """Return what stands in ``text`` where the names of ``pattern`` stand.

    The n-th name of a kind answers to the n-th name of that kind, and else the n-th of all
    names to the n-th of all.
    """
    before, after = names_in(pattern), names_in(text)
    found: dict[str, str] = {}
    for index, name in enumerate(before):
        place = [other.value for other in before if other.kind == name.kind].index(name.value)
        alike = [other.value for other in after if other.kind == name.kind]
        if place < len(alike):
            found[name.value] = alike[place]
        elif name.kind != "number" and index < len(after) and after[index].kind != "number":
            found[name.value] = after[index].value
    return found


def replaced(text: str, pairs: Mapping[str, str]) -> str:
    """Return ``text`` with each of the keys replaced, where it stands as a word of its own."""
    keys = sorted(filter(None, pairs), key=len, reverse=True)
    if not keys:
        return text
    any_of = "|".join(re.escape(key) for key in keys)
    return re.sub(rf"(?<!\w)(?:{any_of})(?!\w)", lambda match: pairs[match[0]], text)


def invented(text: str) -> dict[str, str]:
    """Return a made-up name for each name in ``text``, of its kind."""
    used: dict[str, list[str]] = {}
    for name in names_in(text):
        used.setdefault(name.kind, []).append(name.value)
    return {
        value: pool[count] if count < len(pool) else f"{pool[-1]}{count}"
        for kind, pool in _INVENTED.items()
        for count, value in enumerate(used.get(kind, ()))
    }
