"""How much better one set of answers is than another, said honestly."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum

import attrs

from promptgraft.evals.statistics import (
    Score,
    differences,
    interval,
    least_changed,
    paired_test,
)
from promptgraft.notebook import Card, Shown
from promptgraft.strict.checks import number


class Outcome(StrEnum):
    """What a gain amounts to."""

    IMPROVED = "improved"
    NO_IMPROVEMENT = "no improvement"
    WORSE = "worse"


@attrs.frozen(kw_only=True)
class Gain(Shown):
    """What changed between two evaluations of the same cases.

    Attributes:
        mean_before: mean over the cases with a score on both sides; None without such cases.
        mean_after: the same afterwards.
        mean_gain: their difference.
        level: the confidence of the interval, above 0 and below 1.
        low: the lower end of the interval of the mean gain; None when too few cases
            changed for one (6 at 95 %).
        high: the upper end.
        won: ids of the cases that scored higher than before.
        lost: those that scored lower.
        tied: those that scored the same.
        unscored: those without a score on one side or both; they are in no mean.
        p_value: of the one-sided test that after is better; 1 without cases.
    """

    mean_before: float | None
    mean_after: float | None
    mean_gain: float | None
    level: float
    low: float | None
    high: float | None
    won: tuple[str, ...]
    lost: tuple[str, ...]
    tied: tuple[str, ...]
    unscored: tuple[str, ...]
    p_value: float

    @property
    def cases(self) -> int:
        """Number of cases with a score on both sides."""
        return len(self.won) + len(self.lost) + len(self.tied)

    @property
    def verdict(self) -> Outcome:
        """On which side of 0 the whole interval lies; no improvement where it holds 0."""
        if self.low is not None and self.low > 0:
            return Outcome.IMPROVED
        if self.high is not None and self.high < 0:
            return Outcome.WORSE
        return Outcome.NO_IMPROVEMENT

    def line(self) -> str:
        """Return the gain as one line for reports."""
        missing = f"; {len(self.unscored)} unscored" if self.unscored else ""
        if self.mean_gain is None:
            return f"gain unknown: no case has a score before and after{missing}"
        return (
            f"gain {self.mean_gain:+.3f} ({self._interval()}) on {_cases(self.cases)}, "
            f"{len(self.won)} won, {len(self.lost)} lost, {len(self.tied)} tied{missing}"
        )

    def _interval(self) -> str:
        name = f"{self.level * 100:g} % interval"
        if self.low is None or self.high is None:
            return f"no {name}: it takes {least_changed(self.level)} changed cases"
        return f"{name} {self.low:+.3f} to {self.high:+.3f}"

    def __repr__(self) -> str:
        return f"<Gain {self.verdict}: {self.line()}>"

    def _card(self) -> Card:
        from promptgraft.evals.cards import gain_card

        return gain_card(self)


def gain(
    before: Mapping[str, Sequence[Score]],
    after: Mapping[str, Sequence[Score]],
    *,
    level: float = 0.95,
) -> Gain:
    """Compare the scores of the same cases before and after.

    Args:
        before: by case id the scores of its answers, one or more; None for an unscored answer.
            Repeated answers are averaged first: what is counted are cases, not answers. Take
            equally many before and after.
        after: the same for the other side. A case that only one side has is unscored.
        level: the confidence of the interval, above 0 and below 1.

    Raises:
        ConfigError: the level is no such number, a score is not finite, or the library of the
            extra ``stats`` is not installed.
    """
    number(above=0, below=1).hold("level", level)
    ids = tuple(dict.fromkeys((*before, *after)))
    pairs = {id_: (_mean(before.get(id_, ())), _mean(after.get(id_, ()))) for id_ in ids}
    scored = {
        id_: (one, other)
        for id_, (one, other) in pairs.items()
        if one is not None and other is not None
    }
    first = [one for one, _ in scored.values()]
    second = [other for _, other in scored.values()]
    gains = dict(zip(scored, differences(first, second), strict=True))
    low, high = interval(tuple(gains.values()), level) or (None, None)
    tested = paired_test(first, second)
    return Gain(
        mean_before=statistics.fmean(first) if first else None,
        mean_after=statistics.fmean(second) if second else None,
        mean_gain=tested.mean_gain if gains else None,
        level=level,
        low=low,
        high=high,
        won=tuple(id_ for id_, gained in gains.items() if gained > 0),
        lost=tuple(id_ for id_, gained in gains.items() if gained < 0),
        tied=tuple(id_ for id_, gained in gains.items() if not gained),
        unscored=tuple(id_ for id_ in ids if id_ not in scored),
        p_value=tested.p_value,
    )


def _mean(scores: Sequence[Score]) -> Score:
    known = [score for score in scores if score is not None]
    return statistics.fmean(known) if known else None


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
