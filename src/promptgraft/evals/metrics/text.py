"""Metrics of texts: equality, containment, length and similarity."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import BaseMetric, Needed, ReferenceMetric, each_of
from promptgraft.evals.metrics.reading import (
    Folding,
    check_library,
    difference,
    parse_path,
    quoted,
)
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import SHARE, TEXT, integer, one_of
from promptgraft.ground.text import words_in


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


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return words_in(text.casefold())


@attrs.frozen(kw_only=True)
class Rouge(ReferenceMetric):
    """The words, pairs of words, or words in sequence that the answer shares with ``expected``.

    With several expected texts, the best score counts.

    Attributes:
        variant: ``rouge1`` counts words, ``rouge2`` pairs, ``rougeL`` the longest common sequence.
        measure: ``recall`` is the share of the expected that was found, ``precision`` the share
            of the found that was expected, ``f1`` their harmonic mean.
    """

    kind: ClassVar[str] = "rouge"

    threshold: float = attrs.field(default=0.5, validator=SHARE)
    variant: Literal["rouge1", "rouge2", "rougeL"] = attrs.field(
        default="rougeL", validator=one_of("rouge1", "rouge2", "rougeL")
    )
    measure: Literal["f1", "precision", "recall"] = attrs.field(
        default="f1", validator=one_of("f1", "precision", "recall")
    )

    def __attrs_post_init__(self) -> None:
        check_library("rapidfuzz", "3.10", self.kind)

    def reference(self, case: Case) -> tuple[str, ...]:
        texts = self.expected_texts(case)
        if not all(self._units(words(text)) for text in texts):
            raise self.lacking(case, f"needs words for {self.variant} in `expected`, found too few")
        return texts

    def assess(self, case: Case, answer: Answer) -> Verdict:
        word_list = words(self.found_text(answer))
        scored = [(self._score(words(text), word_list), text) for text in self.reference(case)]
        score, text = max(scored, key=lambda pair: pair[0])
        parts = [f"{self.variant} {self.measure} is {score:.4f}"]
        if missing := Counter(words(text)) - Counter(word_list):
            parts.append(f"missing: {quoted(' '.join(missing.elements()))}")
        if surplus := Counter(word_list) - Counter(words(text)):
            parts.append(f"not expected: {quoted(' '.join(surplus.elements()))}")
        if not missing and not surplus and score < 1:
            parts.append("the words are the expected ones in another order")
        return self.verdict(score, "; ".join(parts))

    def _units(self, tokens: list[str]) -> Sequence[object]:
        return list(itertools.pairwise(tokens)) if self.variant == "rouge2" else tokens

    def _score(self, expected: list[str], found: list[str]) -> float:
        wanted_units, found_units = self._units(expected), self._units(found)
        if not wanted_units or not found_units:
            return 0.0
        if self.variant == "rougeL":
            from rapidfuzz.distance import LCSseq

            shared = LCSseq.similarity(expected, found)
        else:
            shared = (Counter(wanted_units) & Counter(found_units)).total()
        recall, precision = shared / len(wanted_units), shared / len(found_units)
        f1 = 2 * shared / (len(wanted_units) + len(found_units))
        return {"f1": f1, "precision": precision, "recall": recall}[self.measure]


@attrs.frozen(kw_only=True)
class EditSimilarity(ReferenceMetric, Folding):
    """1 minus the edit distance (Levenshtein) as a share of the longer text.

    With several expected texts, the best score counts.
    """

    kind: ClassVar[str] = "edit_similarity"

    threshold: float = attrs.field(default=0.8, validator=SHARE)

    def __attrs_post_init__(self) -> None:
        check_library("rapidfuzz", "3.10", self.kind)

    def reference(self, case: Case) -> tuple[str, ...]:
        return self.expected_texts(case)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        from rapidfuzz.distance import Levenshtein

        text_found = self.fold(self.found_text(answer))
        texts = [self.fold(text) for text in self.reference(case)]
        scores = [Levenshtein.normalized_similarity(text, text_found) for text in texts]
        score = max(scores)
        if score == 1:
            return self.verdict(score, f"found the expected {quoted(text_found)}")
        nearest = texts[scores.index(score)]
        return self.verdict(
            score, f"the similarity is {score:.4f}; {difference(nearest, text_found)}"
        )
