"""The decision of the gate, and its report as JUnit XML for CI systems."""

from __future__ import annotations

import re
from enum import StrEnum
from xml.etree import ElementTree as ET

import attrs

from promptgraft.evals.aggregate import CaseStatus
from promptgraft.evals.gate.baseline import Comparison, Standing
from promptgraft.evals.gate.report import CaseResult, GateReport, in_a_row, reason_of
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict.checks import FLAG, SHARE, integer, reaches
from promptgraft.ground.text import spelled, visible_line

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
    is_held = found is not None and reaches(found, least)
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
    result_node = _add(
        test, kind, message=visible_line(in_a_row(text))[:_MESSAGE_CHARS], type=type_
    )
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
