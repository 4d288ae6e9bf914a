"""Whether a difference between paired scores is more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.errors import ConfigError
from promptgraft.serde import digest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Score = float | None
"""A mean score on one example; None when it is unscored."""

_RESAMPLES = 9_999
_LEAST_RESAMPLES = 999
_ENUMERATED = 13  # cases; their 2 ** 13 - 1 subsets are fewer than the resamples
_CELLS = 3_000_000
_DECIMALS = 9
_FUZZ = 1e-9


@attrs.frozen(kw_only=True)
class PairedTest:
    """How likely a gain is when there is no difference.

    Attributes:
        pairs: examples with a score on both sides.
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
    """Return after minus before where both are scored; 0 for what differs by rounding only.

    Raises:
        ConfigError: the lengths differ, or a score is not finite.
    """
    if len(before) != len(after):
        raise ConfigError(
            f"paired scores: expected as many after as before, found {len(before)} and {len(after)}"
        )
    pairs = [
        (one, other)
        for one, other in zip(before, after, strict=True)
        if one is not None and other is not None
    ]
    return [_difference(one, other) for one, other in pairs]


def interval(gains: Sequence[float], level: float) -> tuple[float, float] | None:
    """Return the confidence interval of the mean gain; None when too few cases changed for one.

    The ends are ranks among the means of the subsets of ``gains`` (Hartigan 1969): the
    interval holds just those gains that the two-sided sign-flip test does not refuse, so it
    excludes 0 when that test refuses 0. Its width never comes from a spread that is zero by
    accident: three cases that all gain 1 have no interval at 95 %, not one of width 0.

    Raises:
        ConfigError: the library is not installed.
    """
    if sum(gain != 0 for gain in gains) < least_changed(level):
        return None
    scale = max(map(abs, gains))
    means = _subset_means([gain / scale for gain in gains])
    rank = math.floor((1 - level) / 2 * (len(means) + 1) + _FUZZ)
    low, high = float(means[rank - 1]) * scale, float(means[-rank]) * scale
    # Means are rounded, so that an end may lie beyond every gain by a hair.
    return max(low, min(gains)), min(high, max(gains))


def least_changed(level: float) -> int:
    """Return how many cases must change before an interval at ``level`` can exclude 0."""
    return max(1, math.ceil(math.log2(2 / (1 - level)) - _FUZZ))


def _difference(before: float, after: float) -> float:
    gain = after - before
    if not math.isfinite(gain):
        raise ConfigError(f"paired scores: expected finite numbers, found {before} and {after}")
    return 0.0 if math.isclose(before, after, rel_tol=1e-12) else gain


def _p_value(moved: Sequence[float]) -> float:
    """Return the share of sign flips with at least this sum; ties never change it."""
    check_installed()
    from scipy import stats

    sizes = [abs(gain) for gain in moved]
    if math.isclose(min(sizes), max(sizes), rel_tol=1e-9):
        won = sum(gain > 0 for gain in moved)
        return float(stats.binomtest(won, len(moved), alternative="greater").pvalue)
    # Rounded, because what is a tie on paper must not depend on the order of a sum.
    found = stats.permutation_test(
        (_scaled(moved),),
        _rounded_mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_resamples(len(moved)),
        batch=max(1, _CELLS // len(moved)),
        alternative="greater",
        rng=_generator(moved),
    )
    return float(found.pvalue)


def _subset_means(gains: Sequence[float]) -> Floats:
    """Return the sorted means of all non-empty subsets, or of many random ones."""
    check_installed()
    import numpy as np

    values = np.sort(np.asarray(gains, dtype=np.float64))
    if len(values) <= _ENUMERATED:
        codes = np.arange(1, 2 ** len(values))
        chosen = codes[:, None] >> np.arange(len(values)) & 1
        means = chosen @ values / chosen.sum(axis=1)
    else:
        means = _random_subset_means(values)
    return np.sort(np.round(means, _DECIMALS))


def _random_subset_means(values: Floats) -> Floats:
    import numpy as np

    generator = _generator(values.tolist())
    wanted = _resamples(len(values))
    rows = max(1, _CELLS // len(values))
    means = []
    for first in range(0, wanted, rows):
        chosen = generator.random((min(rows, wanted - first), len(values))) < 0.5
        sizes = chosen.sum(axis=1)
        means.append((chosen @ values)[sizes > 0] / sizes[sizes > 0])
    return np.concatenate(means)


def _rounded_mean(values: Floats, axis: int) -> Floats:
    import numpy as np

    mean: Floats = np.round(values.mean(axis=axis), _DECIMALS)
    return mean


def _scaled(gains: Sequence[float]) -> Floats:
    import numpy as np

    values: Floats = np.sort(np.asarray(gains, dtype=np.float64))
    scaled: Floats = values / np.abs(values).max()
    return scaled


def _generator(gains: Sequence[float]) -> np.random.Generator:
    """Return a generator seeded with the gains, whatever their order."""
    import numpy as np

    return np.random.default_rng(int(digest(sorted(gains))[:16], 16))


def _resamples(cases: int) -> int:
    return min(_RESAMPLES, max(_LEAST_RESAMPLES, _CELLS // cases))


def check_installed() -> None:
    """Find out before anything is paid for that there is no library for paired tests.

    Raises:
        ConfigError: naming what to install.
    """
    try:
        import scipy  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            "paired tests need the library scipy, which is not installed; "
            'run `pip install "promptgraft[stats]"`'
        ) from error
