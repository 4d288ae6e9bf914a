"""Metrics of texts: equality, containment and length."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import ClassVar, Literal

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import BaseMetric, Needed, ReferenceMetric, each_of
from promptgraft.evals.metrics.reading import (
    Folding,
    difference,
    parse_path,
    quoted,
)
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import TEXT, integer, one_of


@attrs.frozen(kw_only=True)
class Exact(ReferenceMetric, Folding):
    """1 if the answer is the expected text (or one of several), else 0.

    White space at the ends never counts: models add line breaks, spreadsheets hide spaces.
    """

    kind: ClassVar[str] = "exact"

    def fold(self, text: str) -> str:
        return super().fold(text.strip())

    def reference(self, case: Case) -> tuple[str, ...]:
        return self.expected_texts(case)

    def needed(self, case: Case) -> Iterator[Needed]:
        yield Needed(parse_path(self.answer_path), self.reference(case))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        value = self.expected(case)
        spellings = map(_otherwise, value if isinstance(value, list) else [value])
        references = [self.fold(text) for text in (*self.reference(case), *filter(None, spellings))]
        text = self.fold(self.found_text(answer))
        if text in references:
            return self.verdict(1.0, f"found the expected {quoted(text)}")
        alternatives = (
            f" ({len(references) - 1} more would be right)" if len(references) > 1 else ""
        )
        return self.verdict(0.0, difference(references[0], text) + alternatives)


def _otherwise(value: Json) -> str:
    """Return another spelling of a value that is no text; empty if it has none."""
    if isinstance(value, bool):
        return str(value)
    # Columns of whole numbers with gaps are floats in pandas.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else ""


@attrs.frozen(kw_only=True)
class Contains(ReferenceMetric, Folding):
    """The share of the expected texts that occur in the answer.

    Attributes:
        texts: the texts that must occur; empty for the ``expected`` of each case.
        any_of: the score is 1 if any of them occurs, else 0.
    """

    kind: ClassVar[str] = "contains"
    is_whole: ClassVar[bool] = False

    texts: tuple[str, ...] = attrs.field(
        default=(), validator=each_of("texts", functools.partial(TEXT.hold, "texts"))
    )
    any_of: bool = False

    @property
    def wording(self) -> tuple[str, ...]:
        return self.texts

    def reference(self, case: Case) -> tuple[str, ...]:
        return self.texts or self.expected_texts(case)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        pattern_of_case = self.reference(case)
        text_found = self.found_text(answer)
        folded = self.fold(text_found)
        missing = [text for text in pattern_of_case if self.fold(text) not in folded]
        if not missing or (self.any_of and len(missing) < len(pattern_of_case)):
            return self.verdict(
                1.0, f"found {_listed(sorted(set(pattern_of_case) - set(missing)))}"
            )
        score = 0.0 if self.any_of else (len(pattern_of_case) - len(missing)) / len(pattern_of_case)
        near = [text for text in missing if text.casefold() in text_found.casefold()]
        hint = f"; {_listed(near)} occurs in other upper and lower case" if near else ""
        what = "one of " if self.any_of and len(pattern_of_case) > 1 else ""
        return self.verdict(
            score,
            f"expected {what}{_listed(missing)} in the answer, found {quoted(text_found)}{hint}",
        )


def _listed(texts: list[str]) -> str:
    return ", ".join(quoted(text) for text in texts)


@attrs.frozen(kw_only=True)
class Length(BaseMetric):
    """1 if the length of the answer is within limits; outside, less the farther it is from them.

    Attributes:
        min: the minimum length.
        max: the maximum length; None for no limit.
        unit: the unit of length: characters, words (separated by white space) or lines.
    """

    kind: ClassVar[str] = "length"

    min: int = attrs.field(default=0, validator=integer(0))
    max: int | None = attrs.field(default=None, validator=integer(0).or_none)
    unit: Literal["characters", "words", "lines"] = attrs.field(
        default="characters", validator=one_of("characters", "words", "lines")
    )

    def __attrs_post_init__(self) -> None:
        if self.max is None and self.min == 0:
            raise ConfigError("expected `min` or `max`, found neither")
        if self.max is not None and self.max < self.min:
            raise ConfigError(f"max: expected at least min={self.min}, found {self.max}")

    def assess(self, case: Case, answer: Answer) -> Verdict:
        text = answer.text
        counted = {"characters": text, "words": text.split(), "lines": text.splitlines()}
        count = len(counted[self.unit])
        reason = f"expected {self._limits()} {self.unit}, found {count}"
        if count < self.min:
            return self.verdict(count / self.min, f"{reason}: {self.min - count} too few")
        if self.max is not None and count > self.max:
            return self.verdict(self.max / count, f"{reason}: {count - self.max} too many")
        return self.verdict(1.0, reason)

    def _limits(self) -> str:
        if self.max is None:
            return f"at least {self.min}"
        return f"{self.min} to {self.max}" if self.min else f"at most {self.max}"
