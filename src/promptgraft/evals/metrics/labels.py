"""The metric of classifications: a label, or a set of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import UnusableAnswerError
from promptgraft.evals.metrics.reading import ReferenceMetric, as_text
from promptgraft.evals.metrics.reasons import quoted
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.serde import Json, did_you_mean, shown

_BETWEEN = re.compile(r"[,;\n]")


def _labels(_: object, attribute: attrs.Attribute[tuple[str, ...]], value: Sequence[str]) -> None:
    folded = [_fold(label) for label in value] if not isinstance(value, str) else []
    if not folded or "" in folded or len(set(folded)) < len(folded):
        raise ConfigError(
            f"{attribute.name}: expected labels that differ in more than case and white space, "
            f"found {shown(value)}"
        )


def _fold(label: str) -> str:
    return " ".join(label.split()).casefold()


@attrs.frozen(kw_only=True)
class Classification(ReferenceMetric):
    """How much the labels of the answer are the expected ones: the shared by all of both.

    Case and white space do not count. A label that is not known scores 0.

    Attributes:
        labels: every label that there is.
        several: a case may have several labels; in texts they stand between commas, semicolons or
            line ends. Without it exactly one is expected.
        within_text: the label is looked for as a word in a longer answer.
    """

    kind: ClassVar[str] = "classification"

    labels: tuple[str, ...] = attrs.field(validator=_labels)
    several: bool = False
    within_text: bool = False

    def reference(self, case: Case) -> frozenset[str]:
        named = self._named(self.expected(case))
        if not named or (len(named) > 1 and not self.several):
            count = "labels" if self.several else "one label"
            raise self.lacking(case, f"needs {count} as `expected`, found {shown(case.expected)}")
        try:
            return frozenset(self._known(name) for name in named)
        except UnusableAnswerError as error:
            raise self.lacking(case, f"has an unknown label as `expected`: {error}") from None

    def assess(self, case: Case, answer: Answer) -> Verdict:
        wanted, found = self.reference(case), self._found(answer)
        if wanted == found:
            return self.verdict(1.0, f"found {self._listed(wanted)}")
        score = len(wanted & found) / len(wanted | found)
        return self.verdict(
            score, f"expected {self._listed(wanted)}, found {self._listed(found) or 'no label'}"
        )

    def _found(self, answer: Answer) -> frozenset[str]:
        if self.within_text:
            return self._inside(self.found_text(answer))
        value: Json = self.found(answer) if self.answer_path else self._whole(answer)
        named = self._named(value)
        if len(named) > 1 and not self.several:
            raise UnusableAnswerError(f"expected one label, found {len(named)} in {shown(value)}")
        return frozenset(self._known(name) for name in named)

    def _whole(self, answer: Answer) -> Json:
        return answer.output if isinstance(answer.output, (str, list)) else answer.text

    def _named(self, value: Json) -> list[str]:
        if isinstance(value, list):
            return [as_text(item) for item in value]
        text = as_text(value)
        parts = _BETWEEN.split(text) if self.several else [text]
        return [part for part in parts if part.strip()]

    def _known(self, name: str) -> str:
        for label in self.labels:
            if _fold(label) == _fold(name):
                return label
        near = did_you_mean(name, list(self.labels))
        raise UnusableAnswerError(
            f"expected one of {self._listed(frozenset(self.labels))}, found {quoted(name)}{near}"
        )

    def _inside(self, text: str) -> frozenset[str]:
        folded = _fold(text)
        found = [label for label in self.labels if _occurs(_fold(label), folded)]
        # `not urgent` holds `urgent`: the longer label is the one that was meant.
        meant = frozenset(
            label
            for label in found
            if not any(label != other and _fold(label) in _fold(other) for other in found)
        )
        if not meant or (len(meant) > 1 and not self.several):
            what = "none" if not meant else self._listed(meant)
            raise UnusableAnswerError(
                f"expected one of {self._listed(frozenset(self.labels))} in the answer, "
                f"found {what} in {quoted(text)}"
            )
        return meant

    def _listed(self, labels: frozenset[str]) -> str:
        return ", ".join(f"`{label}`" for label in self.labels if label in labels)


def _occurs(label: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text) is not None
