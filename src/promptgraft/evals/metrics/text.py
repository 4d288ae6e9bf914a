"""Metrics of texts: equality and containment."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import attrs

from promptgraft.errors import OutputError
from promptgraft.evals.metrics.base import Needed, ReferenceMetric, each_of, texts_in
from promptgraft.evals.metrics.reading import Folding, brief, difference, parse_path, quoted
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import FLAG, TEXT
from promptgraft.prompt.answers import read_output


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
        if text in references or any(map(partial(_reads_as, answer.output), references)):
            return self.verdict(1.0, f"found the expected {quoted(text)}")
        alternatives: list[Json] = [*references[1 : len(self.reference(case))]]
        also = f"; also right: {brief(alternatives)}" if alternatives else ""
        return self.verdict(0.0, difference(references[0], text) + also)


def _reads_as(output: object, text: str) -> bool:
    """Return whether a text says the number or truth value that is the output of the prompt."""
    kind = type(output)
    try:
        return kind in (bool, int, float) and read_output(kind, text).output == output
    except OutputError:
        return False


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
        default=(), converter=texts_in, validator=each_of("texts", partial(TEXT.hold, "texts"))
    )
    any_of: bool = attrs.field(default=False, validator=FLAG)

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
