"""Tests, intervals and error spending: whether a difference of scores is more than chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from statistics import NormalDist, fmean, stdev

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.environment import check_package
from promptgraft.ground.serde import digest

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
_FUZZ = 1e-9
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
        error: the error of one statement on this side, see :func:`promptgraft.evals.gains.gain`.
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
    return max(1, math.ceil(math.log2(2 / (1 - level)) - _FUZZ))


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
    return fmean(before) - fmean(after) > _STUDENT[freedom - 1] * spread * scale + _FUZZ


def is_settled(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a case has enough answers to decide whether it is lost."""
    return len(after) >= ANSWERS or max(after) >= fmean(before) - _FUZZ


@cache  # comparisons ask again and again, and looking up a version reads files
def check_installed() -> None:
    """Raise a ``ConfigError``, before any call is paid for, if the library is missing."""
    check_package("scipy", "1.15", extra="stats", what="a paired test")
