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


class BestAnswers:
    """The best few answers of any candidate to each training example.

    Args:
        most: how many answers to keep per example, at least 1.
        scorer: ranks them.
    """

    def __init__(self, most: int, scorer: Scorer) -> None:
        self._most = most
        self._scorer = scorer
        self._best: dict[str, Answers] = {}

    def add(self, records: Sequence[RolloutRecord]) -> None:
        """Record rollouts; ties keep the earlier answer, and equal answers are kept once."""
        for record in records:
            score = self._scorer.score(record)
            answers = self._best.get(record.example_id, ())
            if score is None or any(record.output_repr == old.output_repr for _, old in answers):
                continue
            ranked = sorted((*answers, (score, record)), key=lambda pair: -pair[0])
            self._best[record.example_id] = tuple(ranked[: self._most])

    def now(self) -> dict[str, Answers]:
        """Return the answers by example, as they are at this time."""
        return dict(self._best)


@attrs.define(slots=False)
class History(Addition):
    """Shows better answers of earlier candidates.

    Attributes:
        most: how many answers to an example are shown.
    """

    name: ClassVar[str] = "history"

    most: int = attrs.field(default=2, validator=COUNT)
    _answers: BestAnswers = attrs.field(init=False, repr=False, eq=False)

    def start(self) -> None:
        self._answers = BestAnswers(self.most, self.tools.kit.scorer)

    def begin(self, attempt: Attempt) -> None:
        attempt.earlier = self._answers.now()

    def learn(self, attempt: Attempt) -> None:
        if attempt.compared is not None:
            self._answers.add([record for batch in attempt.compared.batches for record in batch])
