"""Baselines: scores kept in a file, and the comparison of later scores with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.gains import ANSWERS, Gain, gain, is_lost, is_settled, least_cases
from promptgraft.evals.gate.report import GateReport, TriedPrompt
from promptgraft.ground.files import write_atomically
from promptgraft.ground.serde import Json, canonical_json, parse_json, shown, unstructure
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.checks import ROUNDING, SHARE
from promptgraft.ground.text import counted

VERSION = 1
"""The version of the file format."""

_SHORT = 12


@attrs.frozen(kw_only=True)
class BaselineCase:
    """One case of a baseline; ``score`` and ``passed`` are None if it is unscored."""

    id: str
    score: float | None = attrs.field(validator=SHARE.or_none)
    passed: bool | None
    critical: bool


@attrs.frozen(kw_only=True)
class Baseline(TriedPrompt):
    """The scores of one evaluation.

    Attributes:
        version: the version of the file format.
        mean_score: mean over the scored cases; None without any.
        pass_rate: share of the scored answers that pass; None without any.
        cases: in the order of their ids.
    """

    version: int
    mean_score: float | None
    pass_rate: float | None
    cases: tuple[BaselineCase, ...]

    @classmethod
    def of(cls, report: GateReport) -> Baseline:
        """Return the baseline of a report."""
        baseline_cases = (
            BaselineCase(id=case.id, score=case.score, passed=case.passed, critical=case.critical)
            for case in report.cases
        )
        return cls(
            **report.head(),
            version=VERSION,
            mean_score=report.mean_score,
            pass_rate=report.pass_rate,
            # Sorted, one case a line, so that a diff of two baselines shows what changed.
            cases=tuple(sorted(baseline_cases, key=lambda case: case.id)),
        )

    @property
    def scores(self) -> Mapping[str, float | None]:
        """The score of each case, by its id."""
        return {case.id: case.score for case in self.cases}

    def text(self) -> str:
        """Return the canonical text: JSON with sorted keys and one line per case."""
        fields = attrs.asdict(self, recurse=False)
        cases = ",\n  ".join(map(canonical_json, self.cases))
        values = {name: canonical_json(value) for name, value in fields.items()}
        values["cases"] = f"[\n  {cases}\n ]"
        return (
            "{\n " + ",\n ".join(f'"{name}": {values[name]}' for name in sorted(values)) + "\n}\n"
        )


def parse_baseline(text: str | bytes, *, where: str) -> Baseline:
    """Parse a baseline.

    Raises:
        DataFormatError: the text is not JSON or has another version, wrong types, unknown or
            missing keys, a score outside 0 to 1, or an id twice. Messages begin with ``where``.
    """
    plain = parse_json(text, where=where)
    version = plain.get("version") if isinstance(plain, dict) else None
    # First, because a file of another version may have other keys. A version that is no integer is
    # left to `structure`, which reports it with all other faults.
    # `type` and not `isinstance`, because a bool is an integer too.
    if type(version) is int and version != VERSION:
        raise DataFormatError(
            f"{where}: version: expected {VERSION}, found {shown(version)}; save a new one with "
            "`--save-baseline`, or use the promptgraft that wrote it"
        )
    parsed = structure(plain, Baseline, where=where)
    ids: set[str] = set()
    for case in parsed.cases:
        if case.id in ids:
            raise DataFormatError(f"{where}: two cases have the id {shown(case.id)}")
        ids.add(case.id)
    return parsed


def read_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Read a baseline from a file; see :func:`parse_baseline`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"baseline {path}: cannot be read: {error.strerror}; "
            "make it with `promptgraft eval --save-baseline`"
        ) from None
    return parse_baseline(data, where=f"baseline {path}")


def write_baseline(path: str | os.PathLike[str], report: GateReport) -> None:
    """Write the scores of a report to a file, atomically."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # A lone surrogate becomes its JSON escape.
    write_atomically(file, Baseline.of(report).text().encode("utf-8", "backslashreplace"))


@attrs.frozen(kw_only=True)
class Change:
    """A case whose score differs from that of the baseline, ``before``."""

    case_id: str
    before: float
    after: float
    critical: bool


class Standing(StrEnum):
    """The result of a comparison with a baseline."""

    NOT_WORSE = "not worse"
    """No case scored lower, or the interval excludes a loss of more than the tolerance."""
    UNCLEAR = "unclear"
    """The mean may or may not have fallen by more than the tolerance."""
    WORSE = "worse"
    """The mean has fallen by more than the tolerance, by more than chance explains."""


@attrs.frozen(kw_only=True)
class Comparison:
    """The changes since a baseline, over the cases with a score on both sides.

    Attributes:
        changes: the cases whose score changed, in the order of the data set.
        gain: the mean gain with its 95 % interval; cases of one family count as one.
        lost: the changes of critical cases that scored lower by more than their answers vary.
        tolerance: how far the mean may be below that of the baseline, 0 to 1.
    """

    changes: tuple[Change, ...]
    gain: Gain
    lost: tuple[Change, ...] = ()
    tolerance: float = attrs.field(default=0.0, validator=SHARE)

    @property
    def verdict(self) -> Standing | None:
        """The result of the comparison; None if no case has a score on both sides.

        With too few cases for any interval to exclude 0, the means decide.
        """
        if self.gain.mean_gain is None or self.gain.low is None:
            return None
        can_tell = self.gain.cases >= least_cases(self.gain.level)
        is_below = self.gain.mean_gain < -self.tolerance - ROUNDING
        # A gate is about the mean: a tolerance says nothing of how many cases may get worse.
        is_sure_loss = self.gain.high is not None and self.gain.high < 0
        if is_below and (is_sure_loss or not can_tell):
            return Standing.WORSE
        # Without a lost case, even a wide interval says nothing of a loss.
        is_sure = not self.gain.lost or self.gain.low >= -self.tolerance - ROUNDING
        return Standing.NOT_WORSE if is_sure else Standing.UNCLEAR

    @property
    def said(self) -> str:
        """The verdict in words, with the figures behind it."""
        if self.verdict is None or self.gain.low is None:
            return "no case has a score here and in the baseline"
        means = f"mean score {self.gain.mean_after:.4g}, the baseline's {self.gain.mean_before:.4g}"
        if self.verdict is Standing.UNCLEAR:
            meaning = f"a loss of up to {-self.gain.low:.2g} cannot be excluded"
        elif not self.gain.lost:
            meaning = "no case scored lower"
        elif self.gain.cases < least_cases(self.gain.level):
            meaning = f"{counted(self.gain.cases, 'case')}: too few to tell luck, the means decide"
        else:
            meaning = self.gain.interval
        allowed = f"; tolerance {self.tolerance:.4g}" if self.tolerance else ""
        return f"{self.verdict}: {means}; {meaning}{allowed}"

    @property
    def worse(self) -> tuple[Change, ...]:
        """The cases whose score fell."""
        return tuple(change for change in self.changes if change.after < change.before)

    def to_json(self) -> dict[str, Json]:
        """Return the comparison as plain data."""
        return {
            "before": self.gain.mean_before,
            "after": self.gain.mean_after,
            **{name: self.gain.to_json()[name] for name in ("low", "high", "level")},
            "verdict": None if self.verdict is None else str(self.verdict),
            "changes": unstructure(self.changes),
            "lost": [change.case_id for change in self.lost],
            "unscored": list(self.gain.unscored),
        }


def check_comparable(baseline: Baseline, report: GateReport, *, where: str = "baseline") -> None:
    """Raise a ``ConfigError`` for a baseline of another prompt, other cases or other metrics."""
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


def confirm(
    baseline: Baseline, report: GateReport, ask: Callable[[tuple[str, ...], int], GateReport]
) -> GateReport:
    """Repeat critical cases that score lower than in the baseline; return the completed report.

    Each is repeated until it has three answers, or one that reaches its score in the baseline.

    Args:
        baseline: a baseline of the same cases.
        report: a report with at least one answer to each case.
        ask: evaluates the cases with the given ids again; also receives the number of the
            repetition, from 1.
    """
    for again in range(1, ANSWERS + 1):
        ids = tuple(
            case.id
            for case in report.cases
            if case.critical
            and (before := baseline.scores.get(case.id)) is not None
            and case.score is not None
            and case.score < before
            and not is_settled((before,), case.scores)
        )
        if not ids or report.stopped:
            break
        report = report.joined(ask(ids, again))
    return report


def _by_family(
    report: GateReport, scores_before: Mapping[str, float | None]
) -> tuple[Mapping[str, list[float]], Mapping[str, list[float]]]:
    """Return the scores before and now; a family counts as one case, as in verdicts of runs."""
    before, now = dict[str, list[float]](), dict[str, list[float]]()
    for case in report.cases:
        name = f"family {case.family}" if case.family else f"case {case.id}"
        pair = before.setdefault(name, []), now.setdefault(name, [])
        score = scores_before.get(case.id)
        if score is not None and case.score is not None:
            pair[0].append(score)
            pair[1].append(case.score)
    return before, now


def compare(
    baseline: Baseline, report: GateReport, *, tolerance: float = 0.0, where: str = "baseline"
) -> Comparison:
    """Compare a report with a baseline of the same prompt, cases and metrics.

    Args:
        baseline: the baseline.
        report: the report; pass it through :func:`confirm` first.
        tolerance: how far the mean may be below that of the baseline, 0 to 1.
        where: the name of the baseline in messages.

    Raises:
        ConfigError: the baseline is of another prompt, other cases or other metrics; or the
            tolerance is out of range.
    """
    check_comparable(baseline, report, where=where)
    scores_before, now = baseline.scores, {case.id: case.score for case in report.cases}
    before = {id_: scores_before.get(id_) for id_ in now}
    of_cases = gain({id_: (before[id_],) for id_ in now}, {id_: (now[id_],) for id_ in now})
    moved = {*of_cases.won, *of_cases.lost}
    gained = gain(*_by_family(report, before))
    changes = tuple(
        Change(case_id=case.id, before=score_before, after=case.score, critical=case.critical)
        for case in report.cases
        if case.id in moved and case.score is not None
        if (score_before := scores_before[case.id]) is not None
    )
    scores = {case.id: case.scores for case in report.cases}
    lost = tuple(
        change
        for change in changes
        if change.critical
        # The baseline keeps only the mean of its answers, so their number is passed beside it.
        and is_lost((change.before,), scores[change.case_id], runs=baseline.num_runs)
    )
    gained = attrs.evolve(gained, unscored=of_cases.unscored)
    return Comparison(changes=changes, gain=gained, lost=lost, tolerance=tolerance)
