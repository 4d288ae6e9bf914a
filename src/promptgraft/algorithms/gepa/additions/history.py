"""Shows the reflection model better answers of earlier candidates to the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.attempt import Attempt
from promptgraft.ground.strict.checks import COUNT
from promptgraft.search.scores import Scorer
from promptgraft.targets.types import RolloutRecord

Answers = tuple[tuple[float, RolloutRecord], ...]
"""Answers with their scores, best first."""


def remember(
    best: dict[str, Answers], records: Sequence[RolloutRecord], *, most: int, scorer: Scorer
) -> None:
    """Add rollouts to the best few answers to each example.

    Ties keep the earlier answer, and equal answers are kept once.
    """
    for record in records:
        score = scorer.score(record)
        answers = best.get(record.example_id, ())
        if score is None or any(record.output_repr == old.output_repr for _, old in answers):
            continue
        ranked = sorted((*answers, (score, record)), key=lambda pair: -pair[0])  # stable
        best[record.example_id] = tuple(ranked[:most])


@attrs.define(slots=False)
class History(Addition):
    """Shows better answers of earlier candidates.

    Attributes:
        most: how many answers to an example are shown.
    """

    name: ClassVar[str] = "history"

    most: int = attrs.field(default=2, validator=COUNT)
    _best: dict[str, Answers] = attrs.field(init=False, repr=False, eq=False)

    def start(self) -> None:
        self._best = {}

    def begin(self, attempt: Attempt) -> None:
        attempt.earlier = dict(self._best)

    def learn(self, attempt: Attempt) -> None:
        for batch in attempt.compared.batches if attempt.compared is not None else ():
            remember(self._best, batch, most=self.most, scorer=self.tools.kit.scorer)
