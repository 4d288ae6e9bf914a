"""What a search found, call by call."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from search.worlds import RuleWorld, Texts


@attrs.frozen(kw_only=True)
class Curve:
    """The best candidate of a search after so many calls of the task model.

    Attributes:
        points: calls used, and the test score without noise of what was best by then.
        calls: all calls that were really made.
        reflections: calls of the reflection model.
    """

    points: tuple[tuple[int, float], ...]
    calls: int
    reflections: int

    @property
    def final(self) -> float:
        """The score that the search ended with."""
        return self.points[-1][1]

    def at(self, calls: int) -> float:
        """Return the score after so many calls."""
        return [score for used, score in self.points if used <= calls or not used][-1]

    def area(self, calls: int) -> float:
        """Return the mean score over the first so many calls."""
        total, used, score = 0.0, 0, self.points[0][1]
        for begun, better in self.points:
            total += (min(begun, calls) - used) * score
            used, score = min(begun, calls), better
        return (total + (calls - used) * score) / calls

    def reaches(self, score: float) -> int | None:
        """Return the calls after which it had ``score`` for good; None when it never had."""
        reached = None
        for used, found in self.points:
            if found < score:
                reached = None
            elif reached is None:
                reached = used
        return reached


class Recorder:
    """Notes what was best when; the test items are tried here and nowhere else."""

    def __init__(self, world: RuleWorld) -> None:
        self._world = world
        self._known: dict[tuple[tuple[str, str], ...], float] = {}
        self.points: list[tuple[int, float]] = [(0, self._score(world.first))]

    def note(self, texts: Texts) -> None:
        """Take note of what is best now."""
        score = self._score(texts)
        if score != self.points[-1][1]:
            self.points.append((self._world.calls, score))

    def curve(self, reflections: int) -> Curve:
        """Return everything noted."""
        return Curve(points=tuple(self.points), calls=self._world.calls, reflections=reflections)

    def _score(self, texts: Texts) -> float:
        key = tuple(sorted(texts.items()))
        if key not in self._known:
            self._known[key] = self._world.expected(texts, self._world.test)
        return self._known[key]


def median(values: Sequence[float]) -> float:
    """Return the middle one."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper one."""
    ordered = sorted(values)
    return median(ordered[: (len(ordered) + 1) // 2]), median(ordered[len(ordered) // 2 :])
