"""The best answers that a run has seen to each training example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from promptgraft.search.scores import Scorer
from promptgraft.targets.types import GepaExample, RolloutRecord

Remembered: TypeAlias = Mapping[str, Sequence[tuple[float, RolloutRecord]]]
"""Answers with their scores, by example, the best first."""


class History:
    """Remembers a few answers to each training example, of whatever candidate.

    Args:
        top_k: how many answers to an example, at least 1.
        scorer: says which are better.
    """

    def __init__(self, top_k: int, scorer: Scorer) -> None:
        self._top_k = top_k
        self._scorer = scorer
        self._best: dict[str, list[tuple[float, RolloutRecord]]] = {}

    def add(self, records: Sequence[RolloutRecord]) -> None:
        """Take account of rollouts; of equally good answers the earlier one stays."""
        for record in records:
            score = self._scorer.score(record)
            held = self._best.setdefault(record.example_id, [])
            if score is None or any(record.output_repr == one.output_repr for _, one in held):
                continue
            held.append((score, record))
            held.sort(key=lambda pair: -pair[0])
            del held[self._top_k :]

    def of(self, examples: Iterable[GepaExample]) -> Remembered:
        """Return what is remembered now of some examples."""
        return {example.id: tuple(self._best.get(example.id, ())) for example in examples}


def better_answers(
    remembered: Remembered, records: Sequence[RolloutRecord], scorer: Scorer
) -> Mapping[str, tuple[RolloutRecord, ...]]:
    """Return for each example the remembered answers that are better than its record's."""
    found = {}
    for record in records:
        score = scorer.score(record)
        held = remembered.get(record.example_id, ())
        found[record.example_id] = tuple(
            one for height, one in held if score is not None and height > score
        )
    return found
