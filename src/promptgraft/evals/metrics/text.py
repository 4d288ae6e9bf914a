"""The metric of equal texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from promptgraft.evals.metrics.base import Needed, ReferenceMetric
from promptgraft.evals.metrics.reading import (
    Folding,
    brief,
    difference,
    parse_path,
    quoted,
    says,
)
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import Json


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
        if text in references or any(says(text, answer.output) for text in references):
            return self.verdict(1.0, f"found the expected {quoted(text)}")
        alternatives: list[Json] = [*references[1 : len(self.reference(case))]]
        also = f"; also right: {brief(alternatives)}" if alternatives else ""
        return self.verdict(0.0, difference(references[0], text) + also)


def _otherwise(value: Json) -> str:
    """Return another spelling of a value that is no text; empty if it has none."""
    if isinstance(value, bool):
        return str(value)
    # Columns of whole numbers with gaps are floats in pandas.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else ""
