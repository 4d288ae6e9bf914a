"""What a search found, call by call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from search.interfaces import World
from search.worlds import Texts


@attrs.frozen(kw_only=True)
class Curve:
    """The best candidate of a search after so many calls of the task model.

    Attributes:
        points: what was used, calls or seconds, and the test score without noise of what was
            best by then.
        used: everything that was used.
        calls: all calls that were really made.
        reflections: calls of the reflection model.
        length: characters of the texts that the search ended with.
        winner: these texts; empty where nobody asks for them.
        pool: the texts of all candidates; empty where nobody asks for them.
        stages: how far each of them came: ``race``, if it never led; ``later``, if it led and was
            overtaken; ``finals``, if it was evaluated on the whole validation set. Empty if all
            were.
    """

    points: tuple[tuple[float, float], ...]
    used: float
    calls: int
    reflections: int
    length: int
    winner: Texts = attrs.field(factory=dict)
    pool: tuple[Texts, ...] = ()
    stages: tuple[str, ...] = ()

    @property
    def final(self) -> float:
        """The score that the search ended with."""
        return self.points[-1][1]

    def at(self, calls: float) -> float:
        """Return the score after so many calls."""
        return [score for used, score in self.points if used <= calls or not used][-1]

    def area(self, calls: float) -> float:
        """Return the mean score over the first so many calls."""
        total, used, score = 0.0, 0.0, self.points[0][1]
        for begun, better in self.points:
            total += (min(begun, calls) - used) * score
            used, score = min(begun, calls), better
        return (total + (calls - used) * score) / calls

    def reaches(self, score: float) -> float | None:
        """Return what was used when it had ``score`` for good; None when it never had."""
        reached = None
        for used, found in self.points:
            if found < score:
                reached = None
            elif reached is None:
                reached = used
        return reached


class Recorder:
    """Notes what was best when; the test items are tried here and nowhere else.

    They are tried when the search has ended, so that they take none of its time.

    Args:
        world: what is searched.
        used: what has been used so far; calls of the task model unless it is something else.
    """

    def __init__(self, world: World, used: Callable[[], float] | None = None) -> None:
        self._world = world
        self._used = used or (lambda: world.calls)
        self._noted: list[tuple[float, Texts]] = [(0, dict(world.first))]

    def note(self, texts: Texts) -> None:
        """Take note of what is best now."""
        if texts != self._noted[-1][1]:
            self._noted.append((self._used(), dict(texts)))

    def curve(self, reflections: int) -> Curve:
        """Return everything noted."""
        used_up = self._used()
        known: dict[tuple[tuple[str, str], ...], float] = {}
        points: list[tuple[float, float]] = []
        for used, texts in self._noted:
            key = tuple(sorted(texts.items()))
            if key not in known:
                known[key] = self._world.expected(texts, self._world.test)
            if not points or known[key] != points[-1][1]:
                points.append((used, known[key]))
        return Curve(
            points=tuple(points),
            used=used_up,
            calls=self._world.calls,
            reflections=reflections,
            length=sum(map(len, self._noted[-1][1].values())),
        )


def median(values: Sequence[float]) -> float:
    """Return the middle one."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper one."""
    ordered = sorted(values)
    return median(ordered[: (len(ordered) + 1) // 2]), median(ordered[len(ordered) // 2 :])
