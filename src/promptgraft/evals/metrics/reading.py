"""Reading answers and quoting them in reasons: texts, JSON, and paths into JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import time
from decimal import Decimal
from typing import TypeAlias
from unicodedata import normalize

import attrs

from promptgraft.errors import ConfigError, DataFormatError, OutputError
from promptgraft.evals.rows import DEEPEST
from promptgraft.evals.types import Answer
from promptgraft.ground.environment import check_package
from promptgraft.ground.serde import Json, canonical_json, is_deeper, parse_json, shown
from promptgraft.ground.strict.checks import FLAG
from promptgraft.ground.text import clip
from promptgraft.prompt.answers import read_output

_SAID = (bool, int, float, Decimal, time)
PathStep: TypeAlias = "str | int | None"
"""A key, an index, or None for all items of a list."""
Path: TypeAlias = "tuple[PathStep, ...]"

# Characters; the middle of a longer text is left out.
LONGEST_QUOTE = 200
LONGEST_VALUE = 100

_BEFORE, _AFTER = 40, 80
# Control characters and ends of lines that `json` leaves unescaped.
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")
# Characters that are invisible, and those that look like a space.
_UNSEEN = re.compile("[\xad\u200b-\u200f\u2060\ufeff]")
_LIKE_SPACES = re.compile(rf"{_UNSEEN.pattern}|[^\S ]")
_STEP = re.compile(r'\.?([^\s.\[\]"$*]+)|\[(-?\d+|\*)\]|\[("(?:[^"\\]|\\.)*")\]')
_FENCE = re.compile(r"\s*(`{3,})[\w-]*\n(.*?)\n?\1\s*", re.DOTALL)


class UnusableAnswerError(ValueError):
    """The answer lacks the form that a metric judges; it scores 0 with this reason."""


def quoted(text: str, limit: int = LONGEST_QUOTE) -> str:
    """Return ``text`` in quotation marks on one line; the middle of a long text is left out."""
    return _one_line(clip(text, limit, around=" "))


def brief(value: Json, limit: int = LONGEST_VALUE) -> str:
    """Return a value as JSON on one line; the middle of a long value is left out."""
    if isinstance(value, str):
        return quoted(value, limit)
    return clip(_BREAKS.sub(_escaped, canonical_json(value)), limit, around=" ")


_LEAST_ALIKE = 12
"""Characters at the beginning that two short texts share before it is said where they differ."""


def difference(expected: str, found: str) -> str:
    """Describe two different texts: both of them, and their first difference."""
    pairs = enumerate(zip(expected, found, strict=False))
    shorter = min(len(expected), len(found))
    at = next((index for index, (first, second) in pairs if first != second), shorter)
    manner, spell = "", _one_line
    if expected.casefold() == found.casefold():
        manner = "; they differ in upper and lower case only"
    elif _seen(expected) == _seen(found):
        manner = "; they differ in white space only"
        spell = _spelled_out  # otherwise both may look the same
    if max(len(expected), len(found)) <= LONGEST_QUOTE:
        place = f"; the first difference is at character {at + 1}" if at >= _LEAST_ALIKE else ""
        return f"expected {spell(expected)}, found {spell(found)}{place}{manner}"
    around = (_around(text, at, spell) for text in (expected, found))
    return (
        f"the first difference is at character {at + 1}: expected {next(around)}, "
        f"found {next(around)}{manner}"
    )


def _seen(text: str) -> str:
    return " ".join(_UNSEEN.sub("", text).split())


def _around(text: str, at: int, spell: Callable[[str], str]) -> str:
    start, end = max(0, at - _BEFORE), at + _AFTER
    if at >= len(text):
        return f"{spell(text[start:])} and then its end"
    head = "…" if start else ""
    tail = "…" if end < len(text) else ""
    return f"{head}{spell(text[start:end])}{tail}"


def _spelled_out(text: str) -> str:
    return _LIKE_SPACES.sub(_escaped, _one_line(text))


def _one_line(text: str) -> str:
    # Half a surrogate pair cannot be sent or stored.
    plain = text.encode("utf-8", "replace").decode("utf-8")
    spelled = json.dumps(plain, ensure_ascii=False)
    return _BREAKS.sub(_escaped, spelled)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


# Without slots, so that metrics can inherit it beside their own base.
@attrs.frozen(kw_only=True, slots=False)
class Folding:
    """Differences that are ignored when texts are compared.

    Attributes:
        ignore_case: upper and lower case are the same.
        ignore_space: white space at the ends does not count; inside, any run of it is one space.
    """

    ignore_case: bool = attrs.field(default=False, validator=FLAG)
    ignore_space: bool = attrs.field(default=False, validator=FLAG)

    def fold(self, text: str) -> str:
        # A letter with a mark may be written as one character or as two.
        composed = normalize("NFC", text)
        spaced = " ".join(composed.split()) if self.ignore_space else composed
        return spaced.casefold() if self.ignore_case else spaced


def parse_path(text: str) -> Path:
    """Return the steps of a path; the empty path is the whole value."""
    steps: list[PathStep] = []
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ConfigError(
                f"expected a path such as `items[0].price`, found {shown(text)}, which is invalid "
                f"at character {position + 1}"
            )
        key, index, in_quotes = match.groups()
        if index is not None:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(str(key if in_quotes is None else json.loads(in_quotes)))
        position = match.end()
    return tuple(steps)


def spelled(path: Path) -> str:
    """Return the text of a path."""
    text = "".join(_spelled_step(step) for step in path).removeprefix(".")
    return text or "$"


def _spelled_step(step: PathStep) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    plain = _STEP.fullmatch(step) is not None and not step.startswith((".", "["))
    return f".{step}" if plain else f"[{json.dumps(step, ensure_ascii=False)}]"


def places(value: Json, path: Path, done: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield every place that matches a path, with its value."""
    if not path:
        yield done, value
        return
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        yield from places(value[step], rest, (*done, step))
    elif isinstance(value, list):
        chosen = range(len(value)) if step is None else _index(step, len(value))
        for index in chosen:
            yield from places(value[index], rest, (*done, index))


def _index(step: str | int, length: int) -> tuple[int, ...]:
    if isinstance(step, int) and -length <= step < length:
        return (step % length,)
    return ()


def without(value: Json, path: Path) -> Json:
    """Return a copy of ``value`` without the places that match a path.

    An item of a list becomes None, so that the other items keep their index.
    """
    if not path:
        return None
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        if not rest:
            return {key: item for key, item in value.items() if key != step}
        # A copy: the case and the answer are shared by all metrics.
        return {**value, step: without(value[step], rest)}
    if isinstance(value, list):
        chosen = range(len(value)) if step is None else _index(step, len(value))
        return [without(item, rest) if i in chosen else item for i, item in enumerate(value)]
    return value


def as_text(value: Json) -> str:
    """Return a text unchanged and other data as JSON."""
    return value if isinstance(value, str) else canonical_json(value)


def says(text: str, output: object) -> bool:
    """Return whether a text says the number, time or truth value that is a prompt's output."""
    kind = type(output)
    try:
        return kind in _SAID and read_output(kind, text).output == output
    except OutputError:
        return False


def answer_data(answer: Answer, *, fenced: bool = False) -> Json:
    """Return the output of an answer, or its text parsed as JSON.

    With ``fenced``, the JSON may be in a Markdown code fence.
    """
    if answer.output is not None:
        return _shallow(answer.output)
    block = _FENCE.fullmatch(answer.text) if fenced else None
    try:
        return _shallow(parse_json(block[2] if block else answer.text, where="answer"))
    except DataFormatError as error:
        hint = "; it stands in a code fence" if _FENCE.fullmatch(answer.text) else ""
        raise UnusableAnswerError(
            f"expected an answer in JSON, found {quoted(answer.text)} ({error}){hint}"
        ) from None


def _shallow(value: Json) -> Json:
    if is_deeper(value, DEEPEST):
        raise UnusableAnswerError(
            f"expected JSON with at most {DEEPEST} lists and objects inside each other, found more"
        )
    return value


def only(value: Json, path: Path) -> Json:
    """Return the one value at a path; an answer with none or several there is unusable."""
    values = [item for _, item in places(value, path)]
    if len(values) != 1:
        raise UnusableAnswerError(
            f"expected one value at `{spelled(path)}` of the answer, found {len(values)} in "
            f"{brief(value)}"
        )
    return values[0]


def check_library(library: str, at_least: str, metric: str) -> None:
    """Raise a ``ConfigError`` if the library of a metric is not installed."""
    check_package(library, at_least, extra="metrics", what=f"metric `{metric}`")
