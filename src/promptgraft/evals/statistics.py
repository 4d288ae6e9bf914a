"""How much better one set of answers is than another, and whether it is more than chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from promptgraft.errors import ConfigError
from promptgraft.notebook import Card, Shown
from promptgraft.serde import digest
from promptgraft.strict.checks import number
from promptgraft.text import counted, score

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


def interval(gains: Sequence[float], level: float) -> tuple[float, float] | None:
    """Return the confidence interval of the mean gain; None when too few cases changed for one.

    The ends are ranks among the means of the subsets of ``gains`` (Hartigan 1969): the
    interval holds just those gains that the two-sided sign-flip test does not refuse, so it
    excludes 0 when that test refuses 0. Its width never comes from a spread that is zero by
    accident: three cases that all gain 1 have no interval at 95 %, not one of width 0.
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
        return np.sort(np.round(chosen @ values / chosen.sum(axis=1), _DECIMALS))
    generator = _generator(values.tolist())
    wanted = _resamples(len(values))
    rows = max(1, _CELLS // len(values))
    means = []  # in batches, because all choices at once may not fit into memory
    for first in range(0, wanted, rows):
        picked = generator.random((min(rows, wanted - first), len(values))) < 0.5
        sizes = picked.sum(axis=1)
        means.append((picked @ values)[sizes > 0] / sizes[sizes > 0])
    return np.sort(np.round(np.concatenate(means), _DECIMALS))


def _rounded_mean(values: Floats, axis: int) -> Floats:
    means: Floats = values.mean(axis=axis).round(_DECIMALS)
    return means


def _generator(gains: Sequence[float]) -> np.random.Generator:
    """Return a generator seeded with the gains, whatever their order."""
    import numpy as np

    return np.random.default_rng(int(digest(sorted(gains))[:16], 16))


def _resamples(cases: int) -> int:
    return min(_RESAMPLES, max(_LEAST_RESAMPLES, _CELLS // cases))


def check_installed() -> None:
    """Raise if the library for paired tests is missing, before any call is paid for."""
    try:
        import scipy  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            "paired tests need the library scipy, which is not installed; "
            'run `pip install "promptgraft[stats]"`'
        ) from error


class Outcome(StrEnum):
    """On which side of 0 the interval of a gain lies."""

    IMPROVED = "improved"
    NO_IMPROVEMENT = "no improvement"
    WORSE = "worse"


@attrs.frozen(kw_only=True)
class Gain(Shown):
    """What changed between two evaluations of the same cases.

    Attributes:
        mean_before: mean over the cases with a score on both sides, and ``mean_after`` afterwards;
            None without such cases.
        mean_gain: their difference.
        level: the confidence of the interval, above 0 and below 1.
        low: the lower end of the interval of the mean gain, and ``high`` the upper one; None when
            too few cases changed for one (6 at 95 %).
        won: ids of the cases that scored higher than before; ``lost`` and ``tied`` alike.
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
        """What the interval says; no improvement where it holds 0."""
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
            f"gain {self.mean_gain:+.3f} ({self._interval()}) on {counted(self.cases, 'case')}, "
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
        return Card(
            title=str(self.verdict),
            lead=self.line(),
            fields=(
                ("mean", f"{score(self.mean_before)} -> {score(self.mean_after)}"),
                ("p-value", f"{self.p_value:.3g}"),
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
    means = {id_: (mean(before.get(id_, ())), mean(after.get(id_, ()))) for id_ in ids}
    scored = [id_ for id_ in ids if None not in means[id_]]
    first, second = [means[id_][0] for id_ in scored], [means[id_][1] for id_ in scored]
    gains = dict(zip(scored, differences(first, second), strict=True))
    low, high = interval(tuple(gains.values()), level) or (None, None)
    tested = paired_test(first, second)
    return Gain(
        mean_before=mean(first),
        mean_after=mean(second),
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
