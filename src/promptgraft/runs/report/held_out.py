"""What a run is worth: baseline and winner on cases that the search never saw."""

from __future__ import annotations

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.statistics import differences, interval, least_changed
from promptgraft.search.outcomes import HeldOut
from promptgraft.search.scores import Score

LEVEL = 0.95


@attrs.frozen(kw_only=True)
class HeldOutView:
    """The held-out result as the page shows it.

    Attributes:
        before: the baseline's mean over the cases that both have a score for.
        after: the winner's.
        gain: their difference.
        cases: how many cases that are.
        won: cases that scored higher than before.
        lost: cases that scored lower.
        unscored: cases that one side or both have no score for.
        low: the lower end of the interval of the gain; None when there is none.
        high: the upper end.
        no_interval: why there is no interval; empty when there is one.
    """

    before: float
    after: float
    gain: float
    cases: int
    won: int
    lost: int
    unscored: int
    low: Score = None
    high: Score = None
    no_interval: str = ""

    @property
    def tied(self) -> int:
        """Cases that scored the same."""
        return self.cases - self.won - self.lost

    @property
    def verdict(self) -> str:
        """What the interval says, in words."""
        if self.low is None or self.high is None:
            return ""
        if self.low > 0:
            return "The whole interval lies above zero: the winner is better on unseen cases."
        if self.high < 0:
            return "The whole interval lies below zero: the winner is worse on unseen cases."
        return "The interval holds zero: chance alone can explain this difference."


def measured(data: HeldOut) -> HeldOutView | None:
    """Return the held-out result; None when nothing was measured on both sides."""
    pairs = [
        (before, after)
        for before, after in zip(data.baseline_scores, data.winner_scores, strict=False)
        if before is not None and after is not None
    ]
    if not pairs:
        return None
    gains = differences([before for before, _ in pairs], [after for _, after in pairs])
    ends, why_not = _interval(gains)
    return HeldOutView(
        before=sum(before for before, _ in pairs) / len(pairs),
        after=sum(after for _, after in pairs) / len(pairs),
        gain=sum(gains) / len(pairs),
        cases=len(pairs),
        won=sum(gain > 0 for gain in gains),
        lost=sum(gain < 0 for gain in gains),
        unscored=len(data.ids) - len(pairs),
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        no_interval=why_not,
    )


def _interval(gains: list[float]) -> tuple[tuple[float, float] | None, str]:
    try:
        found = interval(gains, LEVEL)
    except ConfigError:
        return None, 'An interval needs scipy: run pip install "promptgraft[stats]".'
    if found is None:
        least = least_changed(LEVEL)
        return None, f"No interval: it takes {least} changed cases at {LEVEL:.0%}."
    return found, ""


@attrs.frozen
class Plot:
    """Where the interval is in a drawing 560 wide, with the same room on both sides of zero."""

    low: float
    gain: float
    high: float
    zero: float = 280.0


def interval_plot(view: HeldOutView) -> Plot | None:
    """Return the drawing of the interval; None when there is none."""
    if view.low is None or view.high is None:
        return None
    reach = max(abs(view.low), abs(view.high), abs(view.gain)) * 1.1 or 1.0
    low, gain, high = (
        round(280 + value / reach * 250, 1) for value in (view.low, view.gain, view.high)
    )
    return Plot(low, gain, high)
