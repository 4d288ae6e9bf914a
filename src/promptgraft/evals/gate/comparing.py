"""Scores held against a baseline, case by case."""

from __future__ import annotations

import math

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.aggregate import mean
from promptgraft.evals.gain import Gain, gain
from promptgraft.evals.gate.baseline import Baseline
from promptgraft.evals.gate.report import GateReport
from promptgraft.serde import Json, unstructure

_SHORT = 12


@attrs.frozen(kw_only=True)
class Change:
    """A case whose score is another one than before.

    Attributes:
        case_id: which.
        before: in the baseline.
        after: now.
        critical: whether it must never get worse.
    """

    case_id: str
    before: float
    after: float
    critical: bool

    @property
    def worse(self) -> bool:
        """Whether the score fell."""
        return self.after < self.before


@attrs.frozen(kw_only=True)
class Comparison:
    """What changed since the baseline, over the cases with a score on both sides.

    Attributes:
        before: their mean in the baseline; None without such cases.
        after: their mean now.
        changes: the cases whose score changed, in the order of the data set.
        unscored: ids of the cases without a score on one side or both.
        gain: with its interval; None when there is no library for it, or no such case.
        no_gain: why there is no gain.
    """

    before: float | None
    after: float | None
    changes: tuple[Change, ...]
    unscored: tuple[str, ...]
    gain: Gain | None
    no_gain: str = ""

    @property
    def worse(self) -> tuple[Change, ...]:
        """The cases whose score fell."""
        return tuple(change for change in self.changes if change.worse)

    @property
    def critical_worse(self) -> tuple[Change, ...]:
        """The critical cases whose score fell."""
        return tuple(change for change in self.worse if change.critical)

    def line(self) -> str:
        """Return what changed as one line; with an interval where there can be one."""
        if self.gain is not None:
            return self.gain.line()
        if self.before is None or self.after is None:
            return "gain unknown: no case has a score before and after"
        better = len(self.changes) - len(self.worse)
        return (
            f"gain {self.after - self.before:+.3f}, {better} won, {len(self.worse)} lost; "
            f"no interval: {self.no_gain}"
        )

    def to_json(self) -> dict[str, Json]:
        """Return the comparison as plain data."""
        found = self.gain
        return {
            "before": self.before,
            "after": self.after,
            "low": None if found is None else found.low,
            "high": None if found is None else found.high,
            "level": None if found is None else found.level,
            "changes": unstructure(self.changes),
            "unscored": list(self.unscored),
        }


def check_comparable(baseline: Baseline, report: GateReport, *, where: str = "baseline") -> None:
    """Refuse a baseline of another prompt, other cases or other metrics.

    Raises:
        ConfigError: naming the first that differs, in one line.
    """
    pairs = {
        "prompt": (report.prompt, baseline.prompt),
        "dataset digest": (report.dataset[:_SHORT], baseline.dataset[:_SHORT]),
        "metrics": (report.metrics, baseline.metrics),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            raise ConfigError(
                f"{where} is of other data: {what} `{here}` here, `{there}` there; save a new one "
                "with `--save-baseline`, or restore the data"
            )


def compare(baseline: Baseline, report: GateReport, *, where: str = "baseline") -> Comparison:
    """Hold a report against a baseline of the same prompt, cases and metrics.

    Raises:
        ConfigError: the baseline is of something else; names what differs.
    """
    check_comparable(baseline, report, where=where)
    kept = baseline.scores
    before: list[float] = []
    after: list[float] = []
    changes: list[Change] = []
    unscored: list[str] = []
    for case in report.cases:
        one, other = kept.get(case.id), case.score
        if one is None or other is None:
            unscored.append(case.id)
            continue
        before.append(one)
        after.append(other)
        if not math.isclose(one, other, rel_tol=1e-12):
            changes.append(Change(case_id=case.id, before=one, after=other, critical=case.critical))
    found, why = _gain(baseline, report) if before else (None, "no case has two scores")
    return Comparison(
        before=mean(before),
        after=mean(after),
        changes=tuple(changes),
        unscored=tuple(unscored),
        gain=found,
        no_gain=why,
    )


def _gain(baseline: Baseline, report: GateReport) -> tuple[Gain | None, str]:
    before = {case_id: (score,) for case_id, score in baseline.scores.items()}
    after = {case.id: (case.score,) for case in report.cases}
    try:
        return gain(before, after), ""
    except ConfigError as error:  # the extra `stats` is not installed
        return None, str(error)
