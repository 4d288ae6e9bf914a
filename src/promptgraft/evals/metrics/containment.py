"""The metric of texts that occur in an answer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import attrs

from promptgraft.evals.metrics.base import Needed, ReferenceMetric, each_of, texts_in
from promptgraft.evals.metrics.reading import Folding, quoted, says
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import FLAG, TEXT
from promptgraft.prompt.fields import without_annotation

_TRUTHS = (True, False)


@attrs.frozen
class _Truth(Needed):
    """Texts of which an answer that is true or false has to say one."""

    texts: tuple[str, ...]

    def misfit(self, output_type: object) -> str:
        is_truth = without_annotation(output_type) is bool
        if not is_truth or any(says(text, output) for text in self.texts for output in _TRUTHS):
            return ""
        return (
            f"no answer of the prompt contains the expected {shown(self.texts[0])}: it is true or "
            "false; expect `yes` or `no`, or list the answers as the choices of the prompt"
        )


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

    def needed(self, case: Case) -> Iterator[Needed]:
        if not self.answer_path:
            yield _Truth((), (), self.reference(case))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        pattern_of_case = self.reference(case)
        text_found = self.found_text(answer)
        folded = self.fold(text_found)
        missing = [
            text
            for text in pattern_of_case
            if self.fold(text) not in folded and not says(text, answer.output)
        ]
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
