"""Comparison of a report with a baseline, and the decision of the gate; also as JUnit XML."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.aggregate import CaseStatus
from promptgraft.evals.gains import ANSWERS, Gain, gain, is_lost, is_settled, least_cases
from promptgraft.evals.gate.report import CaseResult, GateReport, TriedPrompt, reason_of
from promptgraft.ground.files import write_atomically
from promptgraft.ground.serde import Json, canonical_json, parse_json, shown, unstructure
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.checks import FLAG, SHARE, integer
from promptgraft.ground.text import counted, spelled, visible_line

VERSION = 1
"""The version of the file format."""

_SHORT = 12
_FUZZ = 1e-9  # means that are equal on paper may differ by rounding


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
        gain: the mean gain with its 95 % interval.
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
        is_below = self.gain.mean_gain < -self.tolerance - _FUZZ
        # A gate is about the mean: a tolerance says nothing of how many cases may get worse.
        is_sure_loss = self.gain.high is not None and self.gain.high < 0
        if is_below and (is_sure_loss or not can_tell):
            return Standing.WORSE
        # Without a lost case, even a wide interval says nothing of a loss.
        is_sure = not self.gain.lost or self.gain.low >= -self.tolerance - _FUZZ
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
    gained = gain(
        {id_: (scores_before.get(id_),) for id_ in now}, {id_: (now[id_],) for id_ in now}
    )
    moved = {*gained.won, *gained.lost}
    changes = tuple(
        Change(case_id=case.id, before=before, after=case.score, critical=case.critical)
        for case in report.cases
        if case.id in moved and case.score is not None
        if (before := scores_before[case.id]) is not None
    )
    scores = {case.id: case.scores for case in report.cases}
    lost = tuple(
        change
        for change in changes
        if change.critical
        # The baseline keeps only the mean of its answers, so their number is passed beside it.
        and is_lost((change.before,), scores[change.case_id], runs=baseline.num_runs)
    )
    return Comparison(changes=changes, gain=gained, lost=lost, tolerance=tolerance)


_SHOWN = 5

# Characters that XML 1.0 does not allow, and the carriage return, which parsers turn into a line
# feed.
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MESSAGE_CHARS = 200


class GateOutcome(StrEnum):
    """The result of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    STOPPED = "stopped early"
    UNSCORED = "unscored"


@attrs.frozen(kw_only=True)
class GateRules:
    """The rules of a gate; a rule that is None does not apply.

    Attributes:
        fail_under: the lowest mean score that passes, 0 to 1.
        min_pass_rate: the lowest share of passing answers that passes, 0 to 1.
        refuse_unclear: whether the gate fails if it is unclear that the prompt is no worse than
            the baseline.
        max_unscored: the number of answers that may be unscored; critical cases must be scored.
    """

    fail_under: float | None = attrs.field(default=None, validator=SHARE.or_none)
    min_pass_rate: float | None = attrs.field(default=None, validator=SHARE.or_none)
    refuse_unclear: bool = attrs.field(default=False, validator=FLAG)
    max_unscored: int = attrs.field(default=0, validator=integer(0))


@attrs.frozen(kw_only=True)
class Ruling:
    """The result of one rule; ``said`` states what was required and what was found."""

    rule: str
    held: bool
    said: str


@attrs.frozen(kw_only=True)
class GateDecision:
    """The decision of a gate, with a ruling on every rule that applies."""

    outcome: GateOutcome
    rulings: tuple[Ruling, ...]

    @property
    def passed(self) -> bool:
        """Whether the prompt passes."""
        return self.outcome is GateOutcome.PASSED

    @property
    def broken(self) -> tuple[Ruling, ...]:
        """The rules that do not hold."""
        return tuple(ruling for ruling in self.rulings if not ruling.held)

    def to_json(self) -> dict[str, Json]:
        """Return the decision as plain data."""
        return {
            "outcome": str(self.outcome),
            "passed": self.passed,
            "rules": unstructure(self.rulings),
        }


def decide(
    report: GateReport, rules: GateRules, comparison: Comparison | None = None
) -> GateDecision:
    """Apply the rules of a gate to a report.

    Answers of which none can be used pass no gate, whatever it requires. Unknown is not a pass: a
    stopped evaluation, more unscored answers than allowed, an unscored
    critical case, or no score at all take precedence over every other rule.
    """
    rulings = [_scored(report, rules)]
    if why := report.unusable:
        rulings.append(Ruling(rule="answers", held=False, said=why))
    if rules.fail_under is not None:
        rulings.append(_least("mean score", report.mean_score, rules.fail_under))
    if rules.min_pass_rate is not None:
        rulings.append(_least("pass rate", report.pass_rate, rules.min_pass_rate))
    if comparison is not None:
        rulings += [_critical(comparison), _mean(comparison, rules.refuse_unclear)]
    # The last that applies wins: what is unknown comes before what failed.
    outcome = GateOutcome.PASSED if all(ruling.held for ruling in rulings) else GateOutcome.FAILED
    if not rulings[0].held:
        outcome = GateOutcome.UNSCORED
    if report.stopped:
        outcome = GateOutcome.STOPPED
    return GateDecision(outcome=outcome, rulings=tuple(rulings))


def _scored(report: GateReport, rules: GateRules) -> Ruling:
    critical = report.critical_unscored
    answers = sum(len(case.outcomes) for case in report.cases)
    message = (
        f"{report.unscored} of {answers} answers unscored, at most {rules.max_unscored} allowed"
    )
    if critical:
        message += f"; critical among them: {_listed(critical)}"
    is_held = report.unscored <= rules.max_unscored and not critical
    return Ruling(rule="scored", held=is_held and report.mean_score is not None, said=message)


def _least(rule: str, found: float | None, least: float) -> Ruling:
    shown_score = "none" if found is None else f"{found:.4g}"
    is_held = found is not None and found >= least - _FUZZ
    return Ruling(rule=rule, held=is_held, said=f"{shown_score}, at least {least:.4g} wanted")


def _critical(comparison: Comparison) -> Ruling:
    worse = tuple(
        f"{change.case_id} ({change.before:.4g} -> {change.after:.4g})"
        for change in comparison.lost
    )
    message = f"worse than the baseline: {_listed(worse)}" if worse else "no critical case is worse"
    return Ruling(rule="critical cases", held=not worse, said=message)


def _mean(comparison: Comparison, refuse_unclear: bool) -> Ruling:
    verdict = comparison.verdict
    refused = (Standing.WORSE, Standing.UNCLEAR) if refuse_unclear else (Standing.WORSE,)
    is_held = verdict is not None and verdict not in refused
    return Ruling(rule="baseline", held=is_held, said=comparison.said)


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def junit_xml(report: GateReport, decision: GateDecision | None = None) -> bytes:
    """Return a report as a JUnit document in UTF-8.

    Each run is a suite with one test per case: a failure if the answer does not pass, an error if
    it is unscored. If the gate passes nevertheless, these are reported as skipped. The rules of the
    gate are a suite of their own. Characters that XML does not allow are escaped.
    """
    root = ET.Element("testsuites", {"name": "promptgraft"})
    for run in range(report.num_runs):
        _run(root, report, run, allowed=decision is not None and decision.passed)
    if decision is not None:
        _rules(root, report, decision)
    _count(root)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _run(root: ET.Element, report: GateReport, run: int, *, allowed: bool) -> None:
    number = f" run {run + 1}" if report.num_runs > 1 else ""
    suite = _add(root, "testsuite", name=f"{report.prompt}{number}")
    properties = _add(suite, "properties")
    for name in ("tried", "split", "model", "dataset", "metrics"):
        _add(properties, "property", name=name, value=str(getattr(report, name)))
    for case in report.cases:
        _case(_test(suite, report.prompt, case.id, case.seconds[run]), case, run, allowed=allowed)
    _count(suite)


def _case(test: ET.Element, case: CaseResult, run: int, *, allowed: bool) -> None:
    outcome = case.outcomes[run]
    # A test without a result element counts as passed.
    if outcome.status is CaseStatus.PASSED:
        return
    kind = "error" if outcome.status is CaseStatus.UNSCORED else "failure"
    # CI systems fail a report with a single failure, although the gate as a whole allows it.
    kind = "skipped" if allowed else kind
    failed = ", ".join(verdict.metric for verdict in outcome.verdicts if verdict.passed is False)
    type_ = failed if outcome.status is CaseStatus.FAILED else str(outcome.status)
    _add_result(test, kind, type_, reason_of(outcome, case.required))


def _rules(root: ET.Element, report: GateReport, decision: GateDecision) -> None:
    suite = _add(root, "testsuite", name=f"{report.prompt} gate")
    for ruling in decision.rulings:
        test = _test(suite, f"{report.prompt} gate", ruling.rule, 0.0)
        if not ruling.held:
            _add_result(
                test, "error" if ruling.rule == "scored" else "failure", ruling.rule, ruling.said
            )
    if decision.outcome is GateOutcome.STOPPED:
        # A stopped gate might show no failing test otherwise, which CI systems take for success.
        test = _test(suite, f"{report.prompt} gate", "complete", 0.0)
        _add_result(test, "error", str(decision.outcome), report.stopped)
    _count(suite)


def _test(suite: ET.Element, place: str, name: str, seconds: float) -> ET.Element:
    return _add(suite, "testcase", classname=place, name=name, time=f"{seconds:.3f}")


def _add_result(test: ET.Element, kind: str, type_: str, text: str) -> None:
    result_node = _add(test, kind, message=visible_line(text)[:_MESSAGE_CHARS], type=type_)
    result_node.text = valid(text)


def _add(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, {name: valid(value) for name, value in attributes.items()})


def _count(element: ET.Element) -> None:
    tests = list(element.iter("testcase"))
    seconds = sum(float(test.get("time", "0")) for test in tests)
    element.set("tests", str(len(tests)))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        element.set(name, str(sum(test.find(kind) is not None for test in tests)))
    element.set("time", f"{seconds:.3f}")


def valid(text: str) -> str:
    r"""Return ``text`` with characters that XML 1.0 does not allow as escapes such as ``\x1b``."""
    return _NOT_XML.sub(lambda match: spelled(match[0]), text.replace("\r\n", "\n"))
