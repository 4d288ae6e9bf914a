"""The best answers that a run has seen to each example that mutations learn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from promptgraft.search.scores import Scorer
from promptgraft.targets.types import GepaExample, RolloutRecord


class History:
    """Remembers a few answers to each example of D_feedback, of whatever candidate.

    Args:
        top_k: how many answers to an example; 0 remembers nothing.
        scorer: says which are better.
    """

    def __init__(self, top_k: int, scorer: Scorer) -> None:
        self._top_k = top_k
        self._scorer = scorer
        self._best: dict[str, list[tuple[float, RolloutRecord]]] = {}

    def add(self, records: Sequence[RolloutRecord]) -> None:
        """Take account of rollouts; of equally good answers the earlier one stays."""
        for record in records if self._top_k else ():
            score = self._scorer.score(record)
            held = self._best.setdefault(record.example_id, [])
            if score is None or any(record.output_repr == one.output_repr for _, one in held):
                continue
            held.append((score, record))
            held.sort(key=lambda pair: -pair[0])
            del held[self._top_k :]

    def of(self, examples: Iterable[GepaExample]) -> Remembered:
        """Return what is remembered now of some examples."""
        held = {example.id: tuple(self._best.get(example.id, ())) for example in examples}
        return Remembered(held, self._scorer)


class Remembered:
    """The best answers that a run had seen to some examples when a step began."""

    def __init__(
        self, held: Mapping[str, Sequence[tuple[float, RolloutRecord]]], scorer: Scorer
    ) -> None:
        self._held = held
        self._scorer = scorer

    def better_than(
        self, records: Sequence[RolloutRecord]
    ) -> Mapping[str, tuple[RolloutRecord, ...]]:
        """Return for each example the earlier answers that are better than its record's."""
        found = {}
        for record in records:
            score = self._scorer.score(record)
            held = self._held.get(record.example_id, ())
            found[record.example_id] = tuple(
                one for height, one in held if score is not None and height > score
            )
        return found
