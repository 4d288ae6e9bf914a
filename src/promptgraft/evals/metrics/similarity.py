"""Metrics of how similar texts are, in words or in characters."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

import attrs

from promptgraft.evals.metrics.base import ReferenceMetric
from promptgraft.evals.metrics.reading import Folding, check_library, difference, quoted
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.strict.checks import SHARE, one_of
from promptgraft.ground.text import words_in


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
