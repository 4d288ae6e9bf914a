"""How much better answers are than others: differences, intervals and verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from statistics import NormalDist, fmean, stdev

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.environment import check_package
from promptgraft.ground.notebook import Card, Shown
from promptgraft.ground.serde import Json, digest
from promptgraft.ground.strict.checks import ROUNDING, number
from promptgraft.ground.text import counted, score

Score = float | None
"""A mean score on one example; None if it is unscored."""

ANSWERS = 3
"""The number of answers to a critical case before a lower score counts."""

# Student's quantile at 99 % by degrees of freedom from 1; for more, the last is conservative.
_STUDENT = (31.82, 6.965, 4.541, 3.747, 3.365)
# Together with the data itself 10,000: the library counts it as one of the flips.
_RESAMPLES = 9_999
_LEAST_RESAMPLES = 999
_CELLS = 3_000_000  # numbers in one array of resamples: 24 MB
_DECIMALS = 9
_EXACT = 1e-7
_MOST_CASES = 100_000
# The series of `_share_below` ends at a term below the inverse of this.
_NEGLIGIBLE = 1e7


def mean(scores: Iterable[Score]) -> Score:
    """Return the mean of the known scores, which does not depend on their order; None of none."""
    known_scores = [score for score in scores if score is not None]
    return math.fsum(known_scores) / len(known_scores) if known_scores else None


@attrs.frozen(kw_only=True)
class PairedTest:
    """The result of a paired test.

    Attributes:
        pairs: number of examples with a score on both sides.
        mean_gain: mean of after minus before over the pairs; 0 without pairs.
        p_value: one-sided, above 0 and at most 1: the probability of at least this gain by chance.
    """

    pairs: int
    mean_gain: float
    p_value: float


def paired_test(before: Sequence[Score], after: Sequence[Score]) -> PairedTest:
    """Test whether ``after`` is better than ``before``, with one entry per example.

    The caller averages repeated answers to an example: pairs are examples, not answers. The test
    flips the signs of the differences. Its level is exact for any number of pairs, ties and kind
    of scores, provided that both sides of a pair are exchangeable under the null hypothesis: so
    take the same number of answers on both sides. All flips are counted if there are few or if
    all differences have the same size; otherwise 9,999 of them (fewer above 300 pairs), by a
    generator seeded with the data.

    Raises:
        ConfigError: the library is not installed, the lengths differ, or a score is not finite.
    """
    gains = differences(before, after)
    moved = [gain for gain in gains if gain]
    return PairedTest(
        pairs=len(gains),
        mean_gain=math.fsum(gain / len(gains) for gain in gains),
        p_value=_p_value(moved) if moved else 1.0,
    )


def differences(before: Sequence[Score], after: Sequence[Score]) -> list[float]:
    """Return after minus before where both are scored; 0 if they differ by rounding only."""
    if len(before) != len(after):
        raise ConfigError(
            f"paired scores: expected as many after as before, found {len(before)} and {len(after)}"
        )
    gains: list[float] = []
    for first, second in zip(before, after, strict=True):
        if first is None or second is None:
            continue
        if not math.isfinite(second - first):
            raise ConfigError(f"paired scores: expected finite numbers, found {first} and {second}")
        gains.append(0.0 if math.isclose(first, second, rel_tol=1e-12) else second - first)
    return gains


def interval(gains: Sequence[float], level: float, *, reach: float = 1.0) -> tuple[float, float]:
    """Return the confidence interval of the mean gain on cases like these.

    The lower end is the quantile ``(1 - level) / 2`` of the weighted mean of ``gains`` and one
    loss of ``reach``, under weights that are uniform among all that add up to 1; the upper end
    mirrors it. For gains of two values, these are the ends of Clopper and Pearson (1934). For won,
    lost and tied cases of equal size, the interval excludes 0 exactly where the two-sided sign
    test rejects it. For gains of any kind see Gaffke (2005), and Learned-Miller and Thomas (2019,
    arXiv:1905.06208): no distribution is known for which it holds the mean less often than
    ``level``, for any number of cases.

    Args:
        gains: one for each case; at least one.
        level: above 0 and below 1.
        reach: the most that a case can gain or lose; at least the largest absolute gain.
    """
    share = (1 - level) / 2
    scaled = [gain / reach for gain in gains]
    low, high = _quantile((*scaled, -1.0), share), _quantile((*scaled, 1.0), 1 - share)
    return low * reach, high * reach


def spent_error(error: float, fraction: float) -> float:
    """Return how much of a test's error may be spent once a fraction of the answers is known.

    This is the spending function of Lan and DeMets (1983, Biometrika 70) that resembles the
    bounds of O'Brien and Fleming: almost nothing at first, so that an early look costs almost no
    power. If each look spends what was added since the previous one, the error of the whole test
    is at most ``error``, however the looks depend on each other.

    Args:
        error: of the whole test, one-sided; above 0 and below 0.5.
        fraction: share of the answers that are known, above 0 and at most 1.
    """
    normal = NormalDist()
    return 2 * normal.cdf(normal.inv_cdf(error / 2) / math.sqrt(fraction))


def sign_test(won: int, lost: int) -> float:
    """Return the probability that at least ``won`` cases are won if each change is a coin toss.

    Exact for any number of cases; 1 without any.
    """
    pairs, term, total = won + lost, 1, 0
    # The probability of at most `lost` heads: each binomial coefficient follows from the last.
    for heads in range(lost + 1):
        total += term
        term = term * (pairs - heads) // (heads + 1)
    return total / (1 << pairs)


def outweighs(gains: Sequence[float], error: float, *, worst: float, factor: float = 1.0) -> bool:
    """Return whether the mean gain is above 0 although one more case could gain ``worst`` only.

    This is whether the lower end of :func:`interval` would be above 0 if no case could lose more
    than ``worst`` says.

    Args:
        gains: one for each case; at least one.
        error: the error of this side.
        worst: the gain of the additional case, at most 0.
        factor: how many times as many cases of the same kind to assume.
    """
    if min(worst, *gains) >= 0:
        return max(gains) > 0
    if max(gains) <= 0:
        return False
    counts = {value: factor * count for value, count in Counter(gains).items()}
    counts[worst] = counts.get(worst, 0.0) + 1
    return _share_below(0.0, counts) <= error


def cases_to_show(gains: Sequence[float], error: float, *, reach: float = 1.0) -> int | None:
    """Return how many cases of the same kind would show the mean gain, to two digits.

    Args:
        gains: one for each case; at least one.
        error: the error of one statement on this side, see :func:`gain`.
        reach: the most that a case can gain or lose.

    Returns:
        None if the mean is not above 0, or if more than 100,000 cases would be needed.
    """
    signs = [math.copysign(1, gain) if gain else 0.0 for gain in gains]
    worst = min(0.0, *gains)

    def shows(cases: int) -> bool:
        factor = cases / len(gains)
        by_cases = outweighs(signs, error, worst=-1.0, factor=factor)
        if by_cases and outweighs(gains, error, worst=worst, factor=factor):
            return True
        return outweighs(gains, error, worst=-reach, factor=factor)

    if math.fsum(gains) <= 0 or not shows(_MOST_CASES):
        return None
    few, enough = 0, _MOST_CASES
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if shows(middle) else (middle, enough)
    unit: int = 10 ** max(0, len(str(enough)) - 2)
    return -(-enough // unit) * unit


def least_cases(level: float) -> int:
    """Return the number of cases from which an interval at ``level`` can exclude 0."""
    # By chance, all of `n` cases are won with 2**-n, which may be at most (1 - level) / 2.
    return max(1, math.ceil(math.log2(2 / (1 - level)) - ROUNDING))


@lru_cache(maxsize=64)  # the summary, the report and the events of a run need the same few
def _quantile(values: tuple[float, ...], share: float) -> float:
    """Return a quantile of the mean of values under uniform weights that add up to 1."""
    counts = Counter(values)
    low, high = min(counts), max(counts)
    while high - low > _EXACT:
        middle = (low + high) / 2
        if _share_below(middle, counts) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _share_below(bound: float, counts: Mapping[float, float]) -> float:
    """Return the probability that such a mean is at most ``bound``.

    Uniform weights are exponential variables divided by their sum, so this is the probability
    that a weighted sum of exponential variables is negative. Its characteristic function is a
    product and is inverted as in Davies (1973). The step covers the mean of the sum, 8 of its
    standard deviations and 20 times its largest term, which makes the result exact to about 1e-6.
    """
    terms = [(value - bound, count) for value, count in counts.items() if value != bound]
    spread = math.sqrt(math.fsum(count * term**2 for term, count in terms))
    drift = abs(math.fsum(count * term for term, count in terms))
    step = math.tau / (drift + 8 * spread + 20 * max(abs(term) for term, _ in terms))
    total, place, inverse = 0.0, 0.5, 1 + 0j
    while abs(inverse) * place < _NEGLIGIBLE:
        at = -step * place
        inverse = math.prod((complex(1, at * term) ** count for term, count in terms), start=1 + 0j)
        total += (1 / inverse).imag / place
        place += 1
    return 0.5 - total / math.pi


def _p_value(moved: Sequence[float]) -> float:
    """Return the share of sign flips whose sum is at least as large; ties do not change it."""
    sizes = [abs(gain) for gain in moved]
    if math.isclose(min(sizes), max(sizes), rel_tol=1e-9):
        # Without the library, which takes a second to import.
        won = sum(gain > 0 for gain in moved)
        return sign_test(won, len(moved) - won)

    check_installed()
    import numpy as np
    from scipy import stats

    test = stats.permutation_test(
        # Sorted like the seed, so that the order of the cases does not count; scaled for rounding.
        (np.sort(np.asarray(moved, dtype=np.float64)) / max(sizes),),
        # Rounded, so that a tie does not depend on the order of the sum.
        lambda values, axis: values.mean(axis=axis).round(_DECIMALS),
        permutation_type="samples",
        vectorized=True,
        n_resamples=min(_RESAMPLES, max(_LEAST_RESAMPLES, _CELLS // len(moved))),
        batch=max(1, _CELLS // len(moved)),
        alternative="greater",
        rng=np.random.default_rng(int(digest(sorted(moved))[:16], 16)),
    )
    return float(test.pvalue)


def is_lost(before: Sequence[float], after: Sequence[float], *, runs: int | None = None) -> bool:
    """Return whether a case scores lower than before by more than its answers vary.

    If all answers on each side score the same, any lower score counts. Otherwise the means are
    compared by a t test at 1 % with the larger of the two standard deviations.

    Args:
        before: the scores before; at least one.
        after: the scores after; at least one.
        runs: the number of answers of which ``before`` is the mean; by default its length.
    """
    spread = max(stdev(side) if len(side) > 1 else 0.0 for side in (before, after))
    freedom = max(1, min(len(_STUDENT), max(len(before), len(after)) - 1))
    # One side may be a single mean without a spread; the larger of the two stands for both.
    scale = math.sqrt(1 / (runs or len(before)) + 1 / len(after))
    return fmean(before) - fmean(after) > _STUDENT[freedom - 1] * spread * scale + ROUNDING


def is_settled(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a case has enough answers to decide whether it is lost."""
    return len(after) >= ANSWERS or max(after) >= fmean(before) - ROUNDING


@cache  # comparisons ask again and again, and looking up a version reads files
def check_installed() -> None:
    """Raise a ``ConfigError``, before any call is paid for, if the library is missing."""
    check_package("scipy", "1.15", extra="stats", what="a paired test")


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
