"""How much better one set of answers is than another, and whether it is more than chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING

import attrs

from promptgraft.errors import ConfigError
from promptgraft.extras import check_package
from promptgraft.notebook import Card, Shown
from promptgraft.serde import Json, digest
from promptgraft.strict.checks import number
from promptgraft.text import counted, score

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


Score = float | None
"""A mean score on one example; None when it is unscored."""

ANSWERS = 3
"""How often a critical case is answered before a lower score counts."""

# Student's quantile at 99 %, by degrees of freedom; with more the last one is on the safe side.
_STUDENT = (31.82, 6.965, 4.541, 3.747, 3.365)
_RESAMPLES = 9_999
_LEAST_RESAMPLES = 999
_CELLS = 3_000_000
_DECIMALS = 9
_FUZZ = 1e-9
_EXACT = 1e-7
_NEGLIGIBLE = 1e7


def mean(scores: Iterable[Score]) -> Score:
    """Return the mean of the scores that are known, the same in every order; None of none."""
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known else None


@attrs.frozen(kw_only=True)
class PairedTest:
    """How likely a gain is when there is no difference.

    Attributes:
        pairs: number of examples with a score on both sides.
        mean_gain: mean of after minus before over the pairs; 0 without pairs.
        p_value: one-sided, above 0 and at most 1: how often chance alone would gain as much.
    """

    pairs: int
    mean_gain: float
    p_value: float


def paired_test(before: Sequence[Score], after: Sequence[Score]) -> PairedTest:
    """Test whether ``after`` is better than ``before``; one entry for each example.

    Repeated answers to an example are averaged by the caller: pairs are examples, not answers.
    The test flips the signs of the differences. Its level holds exactly, for every number of
    pairs, ties and scores of any kind, when both sides of a pair would be exchangeable without
    a difference: so take equally many answers on both sides. All flips are counted where they
    are few or all differences are of one size; otherwise 9,999 of them, fewer above 300 pairs,
    by a generator seeded with the data.

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
    """Return after minus before where both are scored; 0 for what differs by rounding only."""
    if len(before) != len(after):
        raise ConfigError(
            f"paired scores: expected as many after as before, found {len(before)} and {len(after)}"
        )
    gains: list[float] = []
    for one, other in zip(before, after, strict=True):
        if one is None or other is None:
            continue
        if not math.isfinite(other - one):
            raise ConfigError(f"paired scores: expected finite numbers, found {one} and {other}")
        gains.append(0.0 if math.isclose(one, other, rel_tol=1e-12) else other - one)
    return gains


def interval(gains: Sequence[float], level: float, *, reach: float = 1.0) -> tuple[float, float]:
    """Return the confidence interval of the mean gain on cases like these.

    No case can gain or lose more than ``reach``: so much scores may differ. The lower end is the
    quantile ``(1 - level) / 2`` of the mean of ``gains`` and one loss of ``reach``, under weights
    that are uniform among all that add up to 1; the upper end mirrors it. For gains of two values
    these are the ends of Clopper and Pearson (1934). For won, lost and tied cases of one size the
    interval excludes 0 exactly where the two-sided sign test rejects it. For gains of any kind
    see Gaffke (2005), and Learned-Miller and Thomas (2019, arXiv:1905.06208): no distribution
    is known for which it holds the mean less often than ``level``, whatever the number of cases.

    Args:
        gains: one for each case; at least one.
        level: above 0 and below 1.
        reach: at least the largest of ``gains``, whatever its sign.
    """
    share = (1 - level) / 2
    scaled = [gain / reach for gain in gains]
    low, high = _quantile((*scaled, -1.0), share), _quantile((*scaled, 1.0), 1 - share)
    return low * reach, high * reach


def spent_error(error: float, fraction: float) -> float:
    """Return how much of a test's error may be spent once a fraction of the answers is known.

    This is the spending function of Lan and DeMets (1983, Biometrika 70) that resembles the
    bounds of O'Brien and Fleming: next to nothing at first, so that a look before the end costs
    almost no power. A test whose looks each spend what has been added since the one before has
    ``error`` at most in all, however the looks depend on each other.

    Args:
        error: of the whole test, one-sided; above 0 and below 0.5.
        fraction: share of the answers that are known, above 0 and at most 1.
    """
    normal = NormalDist()
    return 2 * normal.cdf(normal.inv_cdf(error / 2) / math.sqrt(fraction))


def least_cases(level: float) -> int:
    """Return how many cases it takes before an interval at ``level`` can exclude 0."""
    return max(1, math.ceil(math.log2(2 / (1 - level)) - _FUZZ))


@lru_cache(maxsize=64)  # the summary, the report and the events of a run ask for the same few
def _quantile(values: tuple[float, ...], share: float) -> float:
    """Return the quantile of the mean of values under uniform weights that add up to 1."""
    counts = Counter(values)
    low, high = min(counts), max(counts)
    while high - low > _EXACT:
        middle = (low + high) / 2
        if _share_below(middle, counts) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _share_below(bound: float, counts: Mapping[float, int]) -> float:
    """Return how likely such a mean is at most ``bound``.

    Uniform weights are exponential variables divided by their sum, so this is the probability
    that a weighted sum of these is negative. Its characteristic function is a product, inverted
    as Davies (1973) does it: the mean of the sum, 8 of its standard deviations and 20 of its
    largest terms are covered, so that the result is exact to about 1e-6.
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
    """Return the share of sign flips with at least this sum; ties never change it."""
    check_installed()
    import numpy as np
    from scipy import stats

    sizes = [abs(gain) for gain in moved]
    if math.isclose(min(sizes), max(sizes), rel_tol=1e-9):
        won = sum(gain > 0 for gain in moved)
        return float(stats.binomtest(won, len(moved), alternative="greater").pvalue)
    # Rounded, because what is a tie on paper must not depend on the order of a sum.
    found = stats.permutation_test(
        (np.sort(np.asarray(moved, dtype=np.float64)) / max(sizes),),
        _rounded_mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=min(_RESAMPLES, max(_LEAST_RESAMPLES, _CELLS // len(moved))),
        batch=max(1, _CELLS // len(moved)),
        alternative="greater",
        rng=np.random.default_rng(int(digest(sorted(moved))[:16], 16)),
    )
    return float(found.pvalue)


def _rounded_mean(values: Floats, axis: int) -> Floats:
    means: Floats = values.mean(axis=axis).round(_DECIMALS)
    return means


def is_lost(before: Sequence[float], after: Sequence[float], *, runs: int | None = None) -> bool:
    """Return whether a case scores lower than before by more than its answers vary.

    Answers that are all alike vary by nothing: then any lower score counts. Otherwise the means
    are compared by a t test at 1 % with the larger of both standard deviations.

    Args:
        before: the scores that the case had; at least one.
        after: the scores that it has now; at least one.
        runs: how many answers ``before`` is the mean of; None when they stand there one by one.
    """
    spread = max(stdev(side) if len(side) > 1 else 0.0 for side in (before, after))
    freedom = max(1, min(len(_STUDENT), max(len(before), len(after)) - 1))
    scale = math.sqrt(1 / (runs or len(before)) + 1 / len(after))
    return fmean(before) - fmean(after) > _STUDENT[freedom - 1] * spread * scale + _FUZZ


def is_settled(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether nothing needs to be asked again before a case counts as lost or not."""
    return len(after) >= ANSWERS or max(after) >= fmean(before) - _FUZZ


def check_installed() -> None:
    """Raise if the library for paired tests is missing, before any call is paid for."""
    check_package("scipy", "1.15", extra="stats", what="a paired test")


class Outcome(StrEnum):
    """On which side of 0 the interval of a gain lies."""

    IMPROVED = "improved"
    NOT_SHOWN = "not shown"
    WORSE = "worse"


@attrs.frozen(kw_only=True)
class Gain(Shown):
    """What changed between two evaluations of the same cases.

    Attributes:
        mean_before: mean over the cases with a score on both sides, and ``mean_after`` afterwards;
            None without such cases.
        mean_gain: their difference.
        level: the confidence of the interval, above 0 and below 1.
        low: the lower end of the interval of the mean gain, and ``high`` the upper one; None
            without such cases.
        won: ids of the cases that scored higher than before; ``lost`` and ``tied`` alike.
        unscored: those without a score on one side or both; they are in no mean.
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
        """Number of cases with a score on both sides."""
        return len(self.won) + len(self.lost) + len(self.tied)

    @property
    def verdict(self) -> Outcome:
        """What the interval says; not shown where it holds 0."""
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
        """How many cases were won, lost, tied and unscored, in words."""
        won, lost, tied = map(len, (self.won, self.lost, self.tied))
        return f"{won} won, {lost} lost, {tied} tied{self._missing}"

    @property
    def _missing(self) -> str:
        return f"; {len(self.unscored)} unscored" if self.unscored else ""

    @property
    def meaning(self) -> str:
        """What the interval says of luck, in words."""
        if self.verdict is not Outcome.NOT_SHOWN:
            side = "above" if self.verdict is Outcome.IMPROVED else "below"
            return f"more than luck: the whole interval is {side} 0"
        if self.cases < least_cases(self.level):
            few = "1 case is" if self.cases == 1 else f"{self.cases} cases are"
            return f"{few} too few to tell: even {self.cases} of {self.cases} won may be luck"
        return "it may be luck: the interval includes 0"

    def line(self) -> str:
        """Return the gain as one line for reports."""
        if self.mean_gain is None:
            return f"gain unknown: no case has a score before and after{self._missing}"
        on = counted(self.cases, "case")
        return f"gain {self.mean_gain:+.3f} ({self.interval}) on {on}, {self.counts}"

    @property
    def details(self) -> str:
        """Cases, interval and what that means, in words; empty without cases."""
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
        before: by case id the scores of its answers, one or more; None for an unscored answer.
            Repeated answers are averaged first: what is counted are cases, not answers. Take
            equally many before and after.
        after: the same for the other side. A case that only one side has is unscored.
        level: the confidence of the interval, above 0 and below 1.
        spent: where this is one look of several, the share of the error of each side that it
            spends, see :func:`spent_error`; the intervals of all looks then hold the gain with
            ``level`` together (Jennison and Turnbull 1989). By default all of it.

    Raises:
        ConfigError: the level is no such number, or two scores differ by more than a number holds.
    """
    number(above=0, below=1).hold("level", level)
    ids = tuple(dict.fromkeys((*before, *after)))
    means = {id_: (mean(before.get(id_, ())), mean(after.get(id_, ()))) for id_ in ids}
    scored = [id_ for id_ in ids if None not in means[id_]]
    first = [one for one, other in means.values() if one is not None and other is not None]
    second = [other for one, other in means.values() if one is not None and other is not None]
    gains = dict(zip(scored, differences(first, second), strict=True))
    # A score is between 0 and 1, or where the scores themselves go beyond that.
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
