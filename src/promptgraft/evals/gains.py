"""How much better one set of answers is than another, with its interval and verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import attrs

from promptgraft.evals.statistics import (
    Score,
    cases_to_show,
    differences,
    interval,
    least_cases,
    mean,
    outweighs,
    sign_test,
)
from promptgraft.ground.notebook import Card, Shown
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import number
from promptgraft.ground.text import counted, score

_SMALL_P = 0.001


class Outcome(StrEnum):
    """Whether a gain or a loss is more than chance."""

    IMPROVED = "improved"
    NOT_SHOWN = "not shown"
    WORSE = "worse"


class Statement(StrEnum):
    """What shows that a gain, or a loss, is more than chance."""

    CASES = "more cases"
    """More cases got better than worse (sign test), and the mean does not contradict."""
    MEAN = "mean"
    """The interval of the mean gain excludes 0."""


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
        p_value: of the sign test on the cases that differ, in the direction of most of them.
        shown_by: the statements that hold in the direction of the mean gain.
        cases_to_show: about how many cases would show a gain of this size; None if it is shown,
            or not a gain.
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
    p_value: float = 1.0
    shown_by: tuple[Statement, ...] = ()
    cases_to_show: int | None = None

    @property
    def cases(self) -> int:
        """The number of cases with a score on both sides."""
        return len(self.won) + len(self.lost) + len(self.tied)

    @property
    def verdict(self) -> Outcome:
        """Improved or worse if one of the two statements holds."""
        if not self.shown_by or not self.mean_gain:
            return Outcome.NOT_SHOWN
        return Outcome.IMPROVED if self.mean_gain > 0 else Outcome.WORSE

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
    def short_counts(self) -> str:
        """The same numbers for a cell of a table, ``24, 3, 33``."""
        return f"{len(self.won)}, {len(self.lost)}, {len(self.tied)}{self._missing}"

    @property
    def _missing(self) -> str:
        return f"; {len(self.unscored)} unscored" if self.unscored else ""

    @property
    def meaning(self) -> str:
        """Whether the gain is significant, and by what, in words."""
        if self.verdict is not Outcome.NOT_SHOWN:
            return f"{self._significant}: {self._proof}"
        sure = f"at {self.level * 100:g} %"
        if self.cases < (least := least_cases(self.level)):
            few = counted(self.cases, "case")
            return f"not significant: {few} cannot prove a gain, use {least} or more, better 50"
        if self.p_value <= (1 - self.level) / 2:
            return f"not significant {sure}: {self._most}, but the mean gain may be the opposite"
        if self.cases_to_show is None:
            return f"not significant {sure}"
        would = f"about {self.cases_to_show:,} cases would show a gain of this size"
        return f"not significant {sure}; {would}"

    @property
    def _significant(self) -> str:
        is_worse = self.verdict is Outcome.WORSE
        return f"significant{'ly worse' if is_worse else ''} at {self.level * 100:g} %"

    @property
    def _proof(self) -> str:
        side = "above" if self.verdict is Outcome.IMPROVED else "below"
        by_mean = f", interval {side} 0" if Statement.MEAN in self.shown_by else ""
        most = f"{self._most}; " if Statement.CASES in self.shown_by else ""
        return f"{most}mean {self.mean_gain:+.3f}{by_mean}"

    @property
    def _most(self) -> str:
        won, lost = len(self.won), len(self.lost)
        side = "better" if won > lost else "worse"
        p = "p < 0.001" if self.p_value < _SMALL_P else f"p = {self.p_value:.3f}"
        return f"{side} on {max(won, lost)} of {counted(won + lost, 'case')} that differ ({p})"

    def line(self) -> str:
        """Return the gain as one line for reports."""
        if self.mean_gain is None:
            return f"gain unknown: no case has a score before and after{self._missing}"
        on = counted(self.cases, "case")
        return f"gain {self.mean_gain:+.3f} ({self.interval}) on {on}, {self.counts}"

    @property
    def details(self) -> str:
        """Counts, interval and their meaning, in words; empty without cases."""
        if not self.cases:
            return ""
        # Where the interval shows it, counts and interval have said everything.
        says_it = Statement.MEAN in self.shown_by and self.verdict is not Outcome.NOT_SHOWN
        return f"{self.counts}; {self.interval}; {self._significant if says_it else self.meaning}"

    def to_json(self) -> dict[str, Json]:
        """Return the gain as plain data, with numbers of cases instead of ids."""
        cases = {name: len(getattr(self, name)) for name in ("won", "lost", "tied", "unscored")}
        ends = {"low": self.low, "high": self.high, "level": self.level}
        shown_by: list[Json] = [str(statement) for statement in self.shown_by]
        tests: dict[str, Json] = {
            "p_value": self.p_value,
            "shown_by": shown_by,
            "cases_to_show": self.cases_to_show,
        }
        return {"gain": self.mean_gain, **ends, **cases, **tests}

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
    ids_shown = ", ".join(ids[:10]) or "none"
    return f"{ids_shown} and {len(ids) - 10} more" if len(ids) > 10 else ids_shown


def gain(
    before: Mapping[str, Sequence[Score]],
    after: Mapping[str, Sequence[Score]],
    *,
    level: float = 0.95,
    spent: float | None = None,
    spent_on_cases: float | None = None,
) -> Gain:
    """Compare the scores of the same cases before and after.

    Two statements can show that a gain is more than chance: most of the cases that differ are
    better, by an exact sign test, or the interval of the mean is above 0. For the first, the mean
    must be above 0 too, even if one more case lost as much as the worst one. Each errs with at most
    half of the error that ``level`` leaves, so both together with at most all of it.

    Args:
        before: by case id, the scores of its answers, one or more; None for an unscored answer.
            Repeated answers are averaged first, because cases are counted, not answers. Take the
            same number before and after.
        after: the same for the other side. A case on one side only is unscored.
        level: the confidence of the interval, above 0 and below 1.
        spent: for one of several looks, the error of each side that this look spends, see
            :func:`spent_error`; together the intervals of all looks then hold the gain with
            confidence ``level`` (Jennison and Turnbull 1989). By default all of the error.
        spent_on_cases: the error that this look spends on the sign test; as ``spent`` by default.

    Raises:
        ConfigError: the level is not such a number, or the difference of two scores overflows.
    """
    number(above=0, below=1).hold("level", level)
    ids = tuple(dict.fromkeys((*before, *after)))
    means = {id_: (mean(before.get(id_, ())), mean(after.get(id_, ()))) for id_ in ids}
    scored = {
        id_: (mean_before, mean_after)
        for id_, (mean_before, mean_after) in means.items()
        if mean_before is not None and mean_after is not None
    }
    first, second = ([pair[side] for pair in scored.values()] for side in (0, 1))
    gains = dict(zip(scored, differences(first, second), strict=True))
    # Scores usually range from 0 to 1; scores beyond widen the range.
    reach = max([1.0, *first, *second]) - min([0.0, *first, *second])
    error = (1 - level) / 2
    spent = error if spent is None else spent
    on_cases = spent if spent_on_cases is None else spent_on_cases
    tested = _tested(tuple(gains.values()), reach, spent=spent, on_cases=on_cases)
    needed = None if tested.shown_by or not gains else _needed(gains.values(), error, reach)
    return Gain(
        mean_before=mean(first),
        mean_after=mean(second),
        mean_gain=mean(gains.values()),
        level=level,
        low=tested.low,
        high=tested.high,
        won=tuple(id_ for id_, gained in gains.items() if gained > 0),
        lost=tuple(id_ for id_, gained in gains.items() if gained < 0),
        tied=tuple(id_ for id_, gained in gains.items() if not gained),
        unscored=tuple(id_ for id_ in ids if id_ not in gains),
        p_value=tested.p_value,
        shown_by=tested.shown_by,
        cases_to_show=needed,
    )


@attrs.frozen
class _Tests:
    """The ends of the interval, the value of the sign test, and what they show."""

    low: float | None = None
    high: float | None = None
    p_value: float = 1.0
    shown_by: tuple[Statement, ...] = ()


def _tested(gains: tuple[float, ...], reach: float, *, spent: float, on_cases: float) -> _Tests:
    if not gains:
        return _Tests()
    low, high = interval(gains, 1 - 2 * spent, reach=reach)
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    p_value = sign_test(max(won, lost), min(won, lost))
    # As the mean would be if every gain were a loss, where most cases got worse.
    towards = gains if won > lost else tuple(-gain for gain in gains)
    holds = {
        Statement.CASES: p_value <= on_cases
        and outweighs(towards, on_cases, worst=min(0.0, *towards)),
        Statement.MEAN: low > 0 or high < 0,
    }
    shown_by = tuple(statement for statement, is_shown in holds.items() if is_shown)
    return _Tests(low, high, p_value, shown_by)


def _needed(gains: Collection[float], error: float, reach: float) -> int | None:
    """Return how many cases would show the gain; None if those at hand should have."""
    needed = cases_to_show(tuple(gains), error, reach=reach)
    return needed if needed is not None and needed > len(gains) else None
