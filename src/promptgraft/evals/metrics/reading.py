"""What metrics read out of cases and answers: texts, data, and places in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import (
    BaseMetric,
    Path,
    Step,
    UnusableAnswerError,
    brief,
    held,
    quoted,
)
from promptgraft.evals.rows import DEEPEST
from promptgraft.evals.types import Answer, Case
from promptgraft.extras import check_package
from promptgraft.serde import Json, canonical_json, is_deeper, parse_json, shown

_STEP = re.compile(r'\.?([^\s.\[\]"$*]+)|\[(-?\d+|\*)\]|\[("(?:[^"\\]|\\.)*")\]')
_FENCE = re.compile(r"\s*(`{3,})[\w-]*\n(.*?)\n?\1\s*", re.DOTALL)


# Without slots, so that metrics can inherit it beside their own base.
@attrs.frozen(kw_only=True, slots=False)
class Folding:
    """What does not count when texts are compared; options of the metrics that compare texts.

    Attributes:
        ignore_case: upper and lower case are the same.
        ignore_space: white space at the ends does not count, and inside any is one space.
    """

    ignore_case: bool = False
    ignore_space: bool = False

    def fold(self, text: str) -> str:
        spaced = " ".join(text.split()) if self.ignore_space else text
        return spaced.casefold() if self.ignore_case else spaced


def parse_path(text: str) -> Path:
    """Return the steps of a path; the empty path is the whole value."""
    steps: list[Step] = []
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ConfigError(
                f"expected a path such as `items[0].price`, found {shown(text)}, which breaks off "
                f"at character {position + 1}"
            )
        key, index, in_quotes = found.groups()
        if index is not None:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(str(key if in_quotes is None else json.loads(in_quotes)))
        position = found.end()
    return tuple(steps)


def spelled(path: Path) -> str:
    """Return the text of a path."""
    text = "".join(_spelled_step(step) for step in path).removeprefix(".")
    return text or "$"


def _spelled_step(step: Step) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    plain = _STEP.fullmatch(step) is not None and not step.startswith((".", "["))
    return f".{step}" if plain else f"[{json.dumps(step, ensure_ascii=False)}]"


def places(value: Json, path: Path, done: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield every place that the path leads to, with the value there."""
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
    """Return a copy of ``value`` without what the path leads to; lists keep their places."""
    if not path:
        return None
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        if not rest:
            return {key: item for key, item in value.items() if key != step}
        return {**value, step: without(value[step], rest)}
    if isinstance(value, list):
        chosen = range(len(value)) if step is None else _index(step, len(value))
        return [without(item, rest) if i in chosen else item for i, item in enumerate(value)]
    return value


@attrs.frozen(kw_only=True)
class ReferenceMetric(BaseMetric):
    """A metric that compares the answer with the ``expected`` of its case.

    Attributes:
        expected_path: where in ``expected`` the reference stands; empty for all of it.
        answer_path: where in the data of the answer to look; empty for all of it.
        is_whole: whether an answer that says more than the reference is worse.
    """

    is_whole: ClassVar[bool] = True

    expected_path: str = attrs.field(default="", validator=held(parse_path))
    answer_path: str = attrs.field(default="", validator=held(parse_path))

    def check(self, case: Case) -> None:
        self.reference(case)

    def reference(self, case: Case) -> object:
        """Return what the answer is compared with; a case without one is refused."""
        return self.expected(case)

    def expected(self, case: Case) -> Json:
        """Return the chosen part of ``expected``; a missing reference never passes."""
        if case.expected is None:
            raise self.lacking(case, "needs `expected`, found none")
        found = list(places(case.expected, parse_path(self.expected_path)))
        if len(found) != 1 or found[0][1] is None:
            raise self.lacking(
                case,
                f"needs one value at `{self.expected_path}` of `expected`, "
                f"found {shown(case.expected)}",
            )
        return found[0][1]

    def expected_texts(self, case: Case) -> tuple[str, ...]:
        """Return the chosen part of ``expected`` as texts, at least one and none of them empty."""
        value = self.expected(case)
        items = value if isinstance(value, list) else [value]
        if not items or any(isinstance(item, (list, dict)) or item in (None, "") for item in items):
            raise self.lacking(
                case,
                f"needs a text or a list of texts as `expected`, none of them empty, "
                f"found {shown(value)}",
            )
        return tuple(as_text(item) for item in items)

    def found_text(self, answer: Answer) -> str:
        return as_text(self.found(answer)) if self.answer_path else answer.text

    def found(self, answer: Answer) -> Json:
        return only(answer_data(answer), parse_path(self.answer_path))


def as_text(value: Json) -> str:
    """Return a text as it is, other data as JSON."""
    return value if isinstance(value, str) else canonical_json(value)


def answer_data(answer: Answer, *, fenced: bool = False) -> Json:
    """Return the output of an answer, or its text as JSON, which may stand in a fence."""
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
    """Return the one value that a path leads to; without one the answer is unusable."""
    found = [item for _, item in places(value, path)]
    if len(found) != 1:
        raise UnusableAnswerError(
            f"expected one value at `{spelled(path)}` of the answer, found {len(found)} in "
            f"{brief(value)}"
        )
    return found[0]


def check_library(library: str, at_least: str, metric: str) -> None:
    """Refuse a metric whose library is not installed with a ``ConfigError``."""
    check_package(library, at_least, extra="metrics", what=f"metric `{metric}`")
