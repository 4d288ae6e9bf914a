"""Scores that are kept beside the source, and later ones held against them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.gate.report import GateReport, Tried
from promptgraft.evals.statistics import Gain, gain
from promptgraft.files import write_atomically
from promptgraft.serde import Json, canonical_json, parse_json, shown, unstructure
from promptgraft.strict import structure

VERSION = 1
"""Of the file."""

_SHORT = 12


@attrs.frozen(kw_only=True)
class KeptCase:
    """One case as a baseline keeps it; without a score, ``score`` and ``passed`` are None."""

    id: str
    score: float | None
    passed: bool | None
    critical: bool


@attrs.frozen(kw_only=True)
class Baseline(Tried):
    """The scores of one evaluation, and what they are of.

    Attributes:
        version: of the form.
        mean_score: of the cases with a score; None without any.
        pass_rate: of the answers with a score; None without any.
        cases: in the order of their ids.
    """

    version: int
    mean_score: float | None
    pass_rate: float | None
    cases: tuple[KeptCase, ...]

    @classmethod
    def of(cls, report: GateReport) -> Baseline:
        """Return what is kept of a report."""
        kept = (
            KeptCase(id=case.id, score=case.score, passed=case.passed, critical=case.critical)
            for case in report.cases
        )
        return cls(
            **report.head(),
            version=VERSION,
            mean_score=report.mean_score,
            pass_rate=report.pass_rate,
            cases=tuple(sorted(kept, key=lambda case: case.id)),
        )

    @property
    def scores(self) -> Mapping[str, float | None]:
        """The score of each case by its id."""
        return {case.id: case.score for case in self.cases}

    def text(self) -> str:
        """Return the one text of this baseline: JSON, keys sorted, a line for each case."""
        fields = attrs.asdict(self, recurse=False)
        cases = ",\n  ".join(map(canonical_json, self.cases))
        told = {name: canonical_json(value) for name, value in fields.items()}
        told["cases"] = f"[\n  {cases}\n ]"
        return "{\n " + ",\n ".join(f'"{name}": {told[name]}' for name in sorted(told)) + "\n}\n"


def parse_baseline(text: str | bytes, *, where: str) -> Baseline:
    """Return the baseline that a text holds.

    Raises:
        DataFormatError: naming ``where``: no JSON, another version, wrong types, unknown or
            missing keys, a score outside 0 to 1, or an id that occurs twice.
    """
    plain = parse_json(text, where=where)
    version = plain.get("version") if isinstance(plain, dict) else None
    if type(version) is int and version != VERSION:
        raise DataFormatError(
            f"{where}: version: expected {VERSION}, found {shown(version)}; save a new one with "
            "`--save-baseline`, or use the promptgraft that wrote it"
        )
    found = structure(plain, Baseline, where=where)
    seen: set[str] = set()
    for case in found.cases:
        if case.score is not None and not 0 <= case.score <= 1:
            raise DataFormatError(
                f"{where}: case {shown(case.id)}: score: expected 0 to 1, found {case.score}"
            )
        if case.id in seen:
            raise DataFormatError(f"{where}: two cases have the id {shown(case.id)}")
        seen.add(case.id)
    return found


def read_baseline(path: str | os.PathLike[str]) -> Baseline:
    """Return the baseline that a file holds; see :func:`parse_baseline`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"baseline {path}: cannot be read: {error.strerror}; "
            "make it with `promptgraft eval --save-baseline`"
        ) from None
    return parse_baseline(data, where=f"baseline {path}")


def write_baseline(path: str | os.PathLike[str], report: GateReport) -> None:
    """Keep the scores of a report in a file, which appears whole or not at all."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # A lone surrogate becomes its JSON escape.
    write_atomically(file, Baseline.of(report).text().encode("utf-8", "backslashreplace"))


@attrs.frozen(kw_only=True)
class Change:
    """A case whose score is not that of the baseline (``before``) any more."""

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
        changes: the cases whose score changed, in the order of the data set.
        gain: with its 95 % interval.
    """

    changes: tuple[Change, ...]
    gain: Gain

    @property
    def before(self) -> float | None:
        """Their mean in the baseline; None without such cases."""
        return self.gain.mean_before

    @property
    def after(self) -> float | None:
        """Their mean now; None without such cases."""
        return self.gain.mean_after

    @property
    def unscored(self) -> tuple[str, ...]:
        """Ids of the cases without a score on one side or both."""
        return self.gain.unscored

    @property
    def worse(self) -> tuple[Change, ...]:
        """The cases whose score fell."""
        return tuple(change for change in self.changes if change.worse)

    def line(self) -> str:
        """Return what changed as one line, with the interval of the gain."""
        return self.gain.line()

    def to_json(self) -> dict[str, Json]:
        """Return the comparison as plain data."""
        return {
            "before": self.before,
            "after": self.after,
            **{name: self.gain.to_json()[name] for name in ("low", "high", "level")},
            "changes": unstructure(self.changes),
            "unscored": list(self.unscored),
        }


def check_comparable(baseline: Baseline, report: GateReport, *, where: str = "baseline") -> None:
    """Refuse a baseline of another prompt, other cases or other metrics."""
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
    kept, now = baseline.scores, {case.id: case.score for case in report.cases}
    found = gain({id_: (kept.get(id_),) for id_ in now}, {id_: (now[id_],) for id_ in now})
    moved = {*found.won, *found.lost}
    changes = [
        Change(case_id=case.id, before=before, after=case.score, critical=case.critical)
        for case in report.cases
        if case.id in moved and case.score is not None
        if (before := kept[case.id]) is not None
    ]
    return Comparison(changes=tuple(changes), gain=found)
