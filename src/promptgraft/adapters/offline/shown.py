"""What prompts and logs show of an agent's work: calls, worked examples, and the values in them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import attrs

from promptgraft.adapters.offline.words import form_of
from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, parse_json

_MOST_LEAVES = 2_000
_CALL = re.compile(r"\s*(?:\[([^\]]{1,64})\]|\d{1,6}\. `([^`]{1,64})`: (.*))\s*")
_VALUE = re.compile(r" {2,3}(params|input|result|output|error): (.*)")

Path = tuple[str | int, ...]
"""Keys and positions from the top of a JSON value down to a leaf."""


@attrs.frozen(kw_only=True)
class Call:
    """A call of a tool, and when or why one would make it; a failed one has the output None."""

    tool: str
    input: Json
    output: Json
    description: str = ""


@attrs.frozen(kw_only=True)
class Pattern:
    """A worked example: what was asked, the calls in order, and the answer."""

    objective: str
    calls: Sequence[Call] = ()
    outcome: Json = None


def read_pattern(text: str) -> Pattern:
    """Read a worked example; an outcome that is no JSON is text."""
    body, _, outcome = text.rpartition("\nOutcome: ")
    objective, _, steps = body.partition("\n\nSteps:\n")
    return Pattern(
        objective=objective.removeprefix("Objective: "),
        calls=tuple(read_calls(steps)),
        outcome=read_json(outcome),
    )


def read_calls(text: str) -> Iterator[Call]:
    """Yield the calls in a log or in the steps of a worked example; other lines are passed over."""
    tool = description = given = ""
    for line in text.split("\n"):
        if head := _CALL.fullmatch(line):
            tool, description, given = head[1] or head[2], head[3] or "", ""
        elif value := _VALUE.fullmatch(line):
            if value[1] in {"params", "input"}:
                given = value[2]
            elif tool and given:
                output = None if value[1] == "error" else read_json(value[2])
                yield Call(
                    tool=tool, input=read_json(given), output=output, description=description
                )
                tool = ""


def read_json(text: str) -> Json:
    """Return JSON, or the text itself where it is none."""
    try:
        return parse_json(text, where="text")
    except DataFormatError:
        return text


def object_in(text: str) -> dict[str, Json]:
    """Return the fields of a JSON object; none where the text is something else."""
    read = read_json(text)
    return read if isinstance(read, dict) else {}


def leaves(value: Json) -> Iterator[tuple[Path, Json]]:
    """Yield texts, numbers and truth values of a JSON value with their places, in order."""
    return itertools.islice(_leaves(value), _MOST_LEAVES)


def texts_in(value: Json) -> Iterator[str]:
    """Yield the texts of a JSON value, in order."""
    return (leaf for _, leaf in leaves(value) if isinstance(leaf, str))


def _leaves(value: Json) -> Iterator[tuple[Path, Json]]:
    waiting: list[tuple[Path, Json]] = [((), value)]
    while waiting:
        path, found = waiting.pop()
        if isinstance(found, dict):
            waiting.extend(((*path, key), item) for key, item in reversed(found.items()))
        elif isinstance(found, list):
            places = range(min(len(found), _MOST_LEAVES) - 1, -1, -1)
            waiting.extend(((*path, place), found[place]) for place in places)
        elif found is not None:
            yield path, found


class Nearness:
    """Tells how near texts are to one another by form: cosine over words, the rare ones more.

    A word that is in ``n`` of the ``N`` texts of a collection weighs ``ln(1 + N / n)``. Words
    that none of them has are passed over: nothing is known of them.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in form_of(text))
        self._weights = {word: math.log(1 + len(texts) / n) ** 2 for word, n in counts.items()}

    def between(self, text: str, other: str) -> float:
        """Return how near ``text`` is to ``other``, 0 to 1."""
        first, second = form_of(text), form_of(other)
        shared = self._sum(first & second)
        return shared / math.sqrt(self._sum(first) * self._sum(second)) if shared else 0.0

    def nearest(self, text: str, others: Sequence[str]) -> tuple[int, float]:
        """Return position and nearness of the nearest of ``others``; 0 and 0 when none is near."""
        values = [self.between(text, other) for other in others]
        best = max(values, default=0.0)
        return (values.index(best) if best else 0), best

    def _sum(self, words: Iterable[str]) -> float:
        # Sums of floats depend on their order, and that of a set on the process.
        return sum(self._weights.get(word, 0.0) for word in sorted(words))
