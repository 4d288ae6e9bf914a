"""How much better one set of answers is than another, with its interval and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import attrs

from promptgraft.evals.statistics import Score, differences, interval, least_cases, mean
from promptgraft.notebook import Card, Shown
from promptgraft.serde import Json
from promptgraft.strict.checks import number
from promptgraft.text import counted, score


class Outcome(StrEnum):
    """The position of a gain's interval relative to 0."""

    IMPROVED = "improved"
    NOT_SHOWN = "not shown"
    WORSE = "worse"


@attrs.frozen(kw_only=True)
class Gain(Shown):
    """The difference between two evaluations of the same cases.

    Means, gain and interval are over the cases with a score on both sides, and None without any.

    Attributes:
        mean_before: mean score before, and ``mean_after`` after.
        mean_gain: their difference.
        level: the confidence of the interval, above 0 and below 1.
        low: the lower end of the interval of the mean gain, and ``high`` the upper end.
        won: ids of the cases that scored higher than before.
        lost: ids of the cases that scored lower.
        tied: ids of the cases that scored the same.
        unscored: ids of the cases without a score on one side or both.
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

    @property
    def cases(self) -> int:
        """The number of cases with a score on both sides."""
        return len(self.won) + len(self.lost) + len(self.tied)

    @property
    def verdict(self) -> Outcome:
        """The side of 0 on which the interval lies; not shown if it includes 0."""
        if self.low is not None and self.low > 0:
            return Outcome.IMPROVED
        if self.high is not None and self.high < 0:
            return Outcome.WORSE
        return Outcome.NOT_SHOWN

    @property
    def interval(self) -> str:
        """The interval in words; empty without cases."""
        if self.low is None:
            return ""
        return f"{self.level * 100:g} % interval {self.low:+.3f} to {self.high:+.3f}"

    @property
    def short(self) -> str:
        """The gain with its interval for a cell of a table; empty without cases."""
        if self.low is None:
            return ""
        return f"{self.mean_gain:+.3f} ({self.low:+.2f} to {self.high:+.2f})"

    @property
    def counts(self) -> str:
        """The numbers of cases that are better, worse, the same and unscored, in words."""
        won, lost, tied = map(len, (self.won, self.lost, self.tied))
        return f"{won} better, {lost} worse, {tied} the same{self._missing}"

    @property
    def _missing(self) -> str:
        return f"; {len(self.unscored)} unscored" if self.unscored else ""

    @property
    def meaning(self) -> str:
        """Whether the gain is significant, in words."""
        sure = f"at {self.level * 100:g} %"
        if self.verdict is Outcome.IMPROVED:
            return f"significant {sure}"
        if self.verdict is Outcome.WORSE:
            return f"significantly worse {sure}"
        if self.cases < (least := least_cases(self.level)):
            few = counted(self.cases, "case")
            return f"not significant: {few} cannot prove a gain, use {least} or more, better 50"
        return f"not significant {sure}"

    def line(self) -> str:
        """Return the gain as one line for reports."""
        if self.mean_gain is None:
            return f"gain unknown: no case has a score before and after{self._missing}"
        on = counted(self.cases, "case")
        return f"gain {self.mean_gain:+.3f} ({self.interval}) on {on}, {self.counts}"

    @property
    def details(self) -> str:
        """Counts, interval and their meaning, in words; empty without cases."""
        return f"{self.counts}; {self.interval}; {self.meaning}" if self.cases else ""

    def to_json(self) -> dict[str, Json]:
        """Return the gain as plain data, with numbers of cases instead of ids."""
        cases = {name: len(getattr(self, name)) for name in ("won", "lost", "tied", "unscored")}
        ends = {"low": self.low, "high": self.high, "level": self.level}
        return {"gain": self.mean_gain, **ends, **cases}

    def __repr__(self) -> str:
        return f"<Gain {self.verdict}: {self.line()}>"

    def _card(self) -> Card:
        return Card(
            title=str(self.verdict),
            lead=self.line(),
            fields=(
                ("mean", f"{score(self.mean_before)} -> {score(self.mean_after)}"),
                ("meaning", self.meaning),
                ("won", _ids(self.won)),
                ("lost", _ids(self.lost)),
                ("unscored", _ids(self.unscored)),
            ),
        )


def _ids(ids: tuple[str, ...]) -> str:
    shown = ", ".join(ids[:10]) or "none"
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


def gain(
    before: Mapping[str, Sequence[Score]],
    after: Mapping[str, Sequence[Score]],
    *,
    level: float = 0.95,
    spent: float | None = None,
) -> Gain:
    """Compare the scores of the same cases before and after.

    Args:
        before: by case id, the scores of its answers, one or more; None for an unscored answer.
            Repeated answers are averaged first, because cases are counted, not answers. Take the
            same number before and after.
        after: the same for the other side. A case on one side only is unscored.
        level: the confidence of the interval, above 0 and below 1.
        spent: for one of several looks, the error of each side that this look spends, see
            :func:`spent_error`; together the intervals of all looks then hold the gain with
            confidence ``level`` (Jennison and Turnbull 1989). By default all of the error.

    Raises:
        ConfigError: the level is not such a number, or the difference of two scores overflows.
    """
    number(above=0, below=1).hold("level", level)
    ids = tuple(dict.fromkeys((*before, *after)))
    means = {id_: (mean(before.get(id_, ())), mean(after.get(id_, ()))) for id_ in ids}
    scored = {
        id_: (one, other)
        for id_, (one, other) in means.items()
        if one is not None and other is not None
    }
    first, second = ([pair[side] for pair in scored.values()] for side in (0, 1))
    gains = dict(zip(scored, differences(first, second), strict=True))
    # Scores usually range from 0 to 1; scores beyond widen the range.
    reach = max([1.0, *first, *second]) - min([0.0, *first, *second])
    sure = level if spent is None else 1 - 2 * spent
    low, high = interval(tuple(gains.values()), sure, reach=reach) if gains else (None, None)
    return Gain(
        mean_before=mean(first),
        mean_after=mean(second),
        mean_gain=mean(gains.values()),
        level=level,
        low=low,
        high=high,
        won=tuple(id_ for id_, gained in gains.items() if gained > 0),
        lost=tuple(id_ for id_, gained in gains.items() if gained < 0),
        tied=tuple(id_ for id_, gained in gains.items() if not gained),
        unscored=tuple(id_ for id_ in ids if id_ not in gains),
    )
