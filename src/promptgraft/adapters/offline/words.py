"""What the embedded model sees in a text: words, names, calls and values; no task is built in."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, parse_json
from promptgraft.ground.text import is_spaced, words_in

LONGEST_TEXT = 20_000

# Bounded before the character that decides, so that a hostile text is read in linear time.
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
    """A name in a text, without quotes.

    The kind is ``path``, ``constant``, ``type``, ``identifier``, ``text`` (several words) or
    ``number``.
    """

    value: str
    kind: str


def terms(text: str) -> list[str]:
    """Return the stems of the content words of ``text``, in order, in linear time."""
    return [stem for stem in map(term, words_in(text.lower())) if stem]


def content_words(text: str) -> list[str]:
    """Return the distinct content words of ``text``, in lower case but not stemmed.

    Web and mail addresses, words of two letters and words with digits are left out: they identify
    one thing rather than a kind.
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

    A light stemmer after Lovins (1968, "Development of a stemming algorithm"): removes the longest
    ending that leaves at least four letters including a vowel, then undoubles a final consonant.
    """
    is_letter = len(word) == 1 and is_spaced(word)
    if word in _STOP_WORDS or is_letter or len(word) > _LONGEST_WORD or word.isdigit():
        return ""
    # "process" is no plural, and the endings are those of English.
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
    """Return the names in ``text``, in order, without duplicates.

    A name is in backticks or double quotes, or is spelled like one: with a slash, a file extension,
    an underscore, or a capital letter inside.
    """
    names: dict[Name, None] = {}
    for match in _NAME.finditer(text[:LONGEST_TEXT]):
        value = match[match.lastgroup or 0].strip()
        if match.lastgroup == "number":
            names[Name(value, "number")] = None
        elif value and (match.lastgroup != "word" or _JOINED.search(value)):
            kinds = (kind for kind, pattern in _KINDS.items() if pattern.fullmatch(value))
            names[Name(value, next(kinds, "text"))] = None
    return tuple(names)


def plain_words(text: str) -> list[str]:
    """Return the content words of ``text`` that are not part of a name, in lower case."""
    return content_words(_NAME.sub(_unless_name, text[:LONGEST_TEXT]))


def _unless_name(match: re.Match[str]) -> str:
    word = match["word"]
    return word if word and not _JOINED.search(word) else " "


@functools.lru_cache(maxsize=4096)
def form_of(text: str) -> frozenset[str]:
    """Return the form of a text, in which similar texts resemble each other.

    It consists of the stems of its plain words and the kinds of its names in angle brackets.
    """
    kinds = {f"<{name.kind}>" for name in names_in(text) if name.kind != "number"}
    return frozenset(kinds | {term(word) for word in plain_words(text)})


def counterparts(pattern: str, text: str) -> dict[str, str]:
    """Return the counterparts in ``text`` of the names in ``pattern``.

    The n-th name of a kind corresponds to the n-th name of that kind, or otherwise the n-th of all
    names to the n-th of all.
    """
    before, after = names_in(pattern), names_in(text)
    pairs: dict[str, str] = {}
    for index, name in enumerate(before):
        place = [
            name_before.value for name_before in before if name_before.kind == name.kind
        ].index(name.value)
        alike = [name_after.value for name_after in after if name_after.kind == name.kind]
        if place < len(alike):
            pairs[name.value] = alike[place]
        elif name.kind != "number" and index < len(after) and after[index].kind != "number":
            pairs[name.value] = after[index].value
    return pairs


def replaced(text: str, pairs: Mapping[str, str]) -> str:
    """Return ``text`` with the keys replaced wherever they are whole words."""
    keys = sorted(filter(None, pairs), key=len, reverse=True)
    if not keys:
        return text
    any_of = "|".join(re.escape(key) for key in keys)
    return re.sub(rf"(?<!\w)(?:{any_of})(?!\w)", lambda match: pairs[match[0]], text)


def invented(text: str) -> dict[str, str]:
    """Return a made-up name of the same kind for each name in ``text``."""
    used: dict[str, list[str]] = {}
    for name in names_in(text):
        used.setdefault(name.kind, []).append(name.value)
    return {
        value: pool[count] if count < len(pool) else f"{pool[-1]}{count}"
        for kind, pool in _INVENTED.items()
        for count, value in enumerate(used.get(kind, ()))
    }


# Bounds the work on the result of a tool, which may be of any size.
_MOST_LEAVES = 2_000
_CALL = re.compile(r"\s*(?:\[([^\]]{1,64})\]|\d{1,6}\. `([^`]{1,64})`: (.*))\s*")
_VALUE = re.compile(r" {2,3}(params|input|result|output|error): (.*)")

Place = tuple[str | int, ...]
"""Keys and positions from the top of a JSON value down to a leaf."""


@attrs.frozen(kw_only=True)
class Call:
    """A call of a tool, and a description of its purpose; the output of a failed one is None."""

    tool: str
    input: Json = attrs.field(hash=False)
    output: Json = attrs.field(hash=False)
    description: str = ""


@attrs.frozen(kw_only=True)
class Pattern:
    """A worked example: the objective, the calls in order, and the outcome."""

    objective: str
    calls: Sequence[Call] = ()
    outcome: Json = attrs.field(default=None, hash=False)


def read_pattern(text: str) -> Pattern:
    """Parse a worked example; an outcome that is not JSON is text."""
    body, _, outcome = text.rpartition("\nOutcome: ")
    objective, _, steps = body.removeprefix("Objective: ").partition("\n\nSteps:\n")
    return Pattern(objective=objective, calls=tuple(read_calls(steps)), outcome=read_json(outcome))


def read_calls(text: str) -> Iterator[Call]:
    """Yield the calls in a log or in the steps of a worked example; other lines are skipped."""
    tool = description = arguments = ""
    for line in text.split("\n"):
        if head := _CALL.fullmatch(line):
            tool, description, arguments = head[1] or head[2], head[3] or "", ""
        elif value := _VALUE.fullmatch(line):
            if value[1] in {"params", "input"}:
                arguments = value[2]
            elif tool and arguments:
                output = None if value[1] == "error" else read_json(value[2])
                parsed = read_json(arguments)
                yield Call(tool=tool, input=parsed, output=output, description=description)
                tool = ""


def read_json(text: str) -> Json:
    """Return the parsed JSON, or the text itself if it is not JSON."""
    try:
        return parse_json(text, where="text")
    except DataFormatError:
        return text


def object_in(text: str) -> dict[str, Json]:
    """Return the fields of a JSON object; empty if the text is anything else."""
    read = read_json(text)
    return read if isinstance(read, dict) else {}


def leaves(value: Json) -> Iterator[tuple[Place, Json]]:
    """Yield the strings, numbers and booleans of a JSON value with their places, in order."""
    waiting: list[tuple[Place, Json]] = [((), value)]
    leaves_left = _MOST_LEAVES
    while waiting and leaves_left:
        path, node = waiting.pop()
        if isinstance(node, dict):
            # Reversed, because the last one added is taken first. No recursion: depth is not
            # bounded.
            waiting.extend(((*path, key), item) for key, item in reversed(node.items()))
        elif isinstance(node, list):
            places = range(min(len(node), _MOST_LEAVES) - 1, -1, -1)
            waiting.extend(((*path, place), node[place]) for place in places)
        elif node is not None:
            leaves_left -= 1
            yield path, node


def texts_in(value: Json) -> Iterator[str]:
    """Yield the strings of a JSON value, in order."""
    return (leaf for _, leaf in leaves(value) if isinstance(leaf, str))


class Nearness:
    """Similarity of texts by form: cosine over words, weighted by rarity.

    A word in ``n`` of the ``N`` texts of a collection weighs ``ln(1 + N / n)``. Words that occur in
    none of them are ignored, because they have no weight.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in form_of(text))
        self._weights = {word: math.log(1 + len(texts) / n) ** 2 for word, n in counts.items()}

    def between(self, text: str, other: str) -> float:
        """Return the similarity of two texts, from 0 to 1."""
        first, second = form_of(text), form_of(other)
        shared = self._sum(first & second)
        return shared / math.sqrt(self._sum(first) * self._sum(second)) if shared else 0.0

    def nearest(self, text: str, others: Sequence[str]) -> tuple[int, float]:
        """Return index and similarity of the nearest of ``others``; 0 and 0 if none is related."""
        values = [self.between(text, text_of_other) for text_of_other in others]
        best = max(values, default=0.0)
        return (values.index(best) if best else 0), best

    def _sum(self, words: Iterable[str]) -> float:
        # Sort: float sums depend on the order, and the order of a set on the process.
        return sum(self._weights.get(word, 0.0) for word in sorted(words))
