"""Metrics of likeness: ROUGE and the edit distance."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

import attrs

from promptgraft.evals.metrics.reading import Folding, ReferenceMetric, wanted
from promptgraft.evals.metrics.reasons import difference, quoted
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.strict.checks import SHARE, one_of
from promptgraft.words import words_in


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return words_in(text.casefold())


@attrs.frozen(kw_only=True)
class Rouge(ReferenceMetric):
    """How many words, pairs of words, or words in sequence the answer shares with ``expected``.

    Several expected texts: the best of them counts.

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

    def reference(self, case: Case) -> tuple[str, ...]:
        texts = self.expected_texts(case)
        if not all(self._units(words(text)) for text in texts):
            raise self.lacking(case, f"needs words for {self.variant} in `expected`, found too few")
        return texts

    def assess(self, case: Case, answer: Answer) -> Verdict:
        found = words(self.found_text(answer))
        scored = [(self._score(words(text), found), text) for text in self.reference(case)]
        score, text = max(scored, key=lambda pair: pair[0])
        said = f"{self.variant} {self.measure} is {score:.4f}"
        missing = list((Counter(words(text)) - Counter(found)).elements())
        surplus = list((Counter(found) - Counter(words(text))).elements())
        parts = [said, *_named("missing", missing), *_named("not expected", surplus)]
        if not missing and not surplus and score < 1:
            parts.append("the words are the expected ones in another order")
        return self.verdict(score, "; ".join(parts))

    def _units(self, tokens: list[str]) -> Sequence[object]:
        return list(itertools.pairwise(tokens)) if self.variant == "rouge2" else tokens

    def _score(self, expected: list[str], found: list[str]) -> float:
        wanted_units, found_units = self._units(expected), self._units(found)
        if not wanted_units or not found_units:
            return 0.0
        shared = self._shared(expected, found)
        recall, precision = shared / len(wanted_units), shared / len(found_units)
        f1 = 2 * shared / (len(wanted_units) + len(found_units))
        return {"f1": f1, "precision": precision, "recall": recall}[self.measure]

    def _shared(self, expected: list[str], found: list[str]) -> int:
        if self.variant == "rougeL":
            with wanted("rapidfuzz", self.kind):
                from rapidfuzz.distance import LCSseq
            return LCSseq.similarity(expected, found)
        return (Counter(self._units(expected)) & Counter(self._units(found))).total()


def _named(what: str, tokens: list[str]) -> list[str]:
    return [f"{what}: {quoted(' '.join(tokens))}"] if tokens else []


@attrs.frozen(kw_only=True)
class EditSimilarity(ReferenceMetric, Folding):
    """1 less the edit distance (Levenshtein) as a share of the longer text.

    Several expected texts: the best of them counts.
    """

    kind: ClassVar[str] = "edit_similarity"

    threshold: float = attrs.field(default=0.8, validator=SHARE)

    def reference(self, case: Case) -> tuple[str, ...]:
        return self.expected_texts(case)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        found = self.fold(self.found_text(answer))
        texts = [self.fold(text) for text in self.reference(case)]
        score, text = max(((_similarity(text, found), text) for text in texts), key=lambda p: p[0])
        if score == 1:
            return self.verdict(score, f"found the expected {quoted(found)}")
        return self.verdict(score, f"the similarity is {score:.4f}; {difference(text, found)}")


def _similarity(one: str, other: str) -> float:
    with wanted("rapidfuzz", EditSimilarity.kind):
        from rapidfuzz.distance import Levenshtein
    return Levenshtein.normalized_similarity(one, other)
