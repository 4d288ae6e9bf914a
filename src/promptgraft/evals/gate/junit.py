"""An evaluation as JUnit XML, which every CI shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from promptgraft.evals.aggregate import CaseOutcome, CaseStatus
from promptgraft.evals.gate.decision import GateDecision, GateOutcome
from promptgraft.evals.gate.report import GateReport, TriedCase, reason_of
from promptgraft.text import spelled, visible_line

# All that XML 1.0 cannot hold; a carriage return would be read as a line feed.
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MESSAGE_CHARS = 200


def junit_xml(report: GateReport, decision: GateDecision | None = None) -> bytes:
    """Return a report as one JUnit document in UTF-8.

    Each run is a suite with a test case for each case: a failure when the answer does not pass,
    an error when it has no score. The rules of the gate are a suite of their own. What XML
    cannot hold is spelled out.
    """
    root = ET.Element("testsuites", {"name": "promptgraft"})
    for run in range(report.num_runs):
        _run(root, report, run)
    if decision is not None:
        _rules(root, report, decision)
    _count(root, list(root.iter("testcase")))
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _run(root: ET.Element, report: GateReport, run: int) -> None:
    number = f" run {run + 1}" if report.num_runs > 1 else ""
    suite = ET.SubElement(root, "testsuite", {"name": valid(f"{report.prompt}{number}")})
    properties = ET.SubElement(suite, "properties")
    for name in ("tried", "split", "model", "dataset", "metrics"):
        value = valid(str(getattr(report, name)))
        ET.SubElement(properties, "property", {"name": name, "value": value})
    for case in report.cases:
        _case(suite, report.prompt, case, run)
    _count(suite, list(suite.iter("testcase")))


def _case(suite: ET.Element, prompt: str, case: TriedCase, run: int) -> None:
    outcome = case.outcomes[run]
    test = _test(suite, prompt, case.id, case.seconds[run])
    if outcome.status is CaseStatus.PASSED:
        return
    kind = "error" if outcome.status is CaseStatus.UNSCORED else "failure"
    _say(test, kind, _type(outcome), reason_of(outcome, case.required))


def _type(outcome: CaseOutcome) -> str:
    failed = [one.metric for one in outcome.verdicts if one.passed is False]
    return ", ".join(failed) if outcome.status is CaseStatus.FAILED else str(outcome.status)


def _rules(root: ET.Element, report: GateReport, decision: GateDecision) -> None:
    suite = ET.SubElement(root, "testsuite", {"name": valid(f"{report.prompt} gate")})
    for one in decision.rulings:
        test = _test(suite, f"{report.prompt} gate", one.rule, 0.0)
        if not one.held:
            _say(test, "error" if one.rule == "scored" else "failure", one.rule, one.said)
    if decision.outcome is GateOutcome.STOPPED:
        test = _test(suite, f"{report.prompt} gate", "complete", 0.0)
        _say(test, "error", str(decision.outcome), report.stopped)
    _count(suite, list(suite.iter("testcase")))


def _test(suite: ET.Element, place: str, name: str, seconds: float) -> ET.Element:
    told = {"classname": valid(place), "name": valid(name), "time": f"{seconds:.3f}"}
    return ET.SubElement(suite, "testcase", told)


def _say(test: ET.Element, kind: str, type_: str, text: str) -> None:
    message = visible_line(text)[:_MESSAGE_CHARS]
    found = ET.SubElement(test, kind, {"message": valid(message), "type": valid(type_)})
    found.text = valid(text)


def _count(element: ET.Element, tests: list[ET.Element]) -> None:
    seconds = sum(float(test.get("time", "0")) for test in tests)
    element.set("tests", str(len(tests)))
    for kind in ("failure", "error"):
        element.set(f"{kind}s", str(sum(test.find(kind) is not None for test in tests)))
    element.set("skipped", "0")
    element.set("time", f"{seconds:.3f}")


def valid(text: str) -> str:
    r"""Return ``text`` with everything that XML 1.0 cannot hold as an escape such as ``\x1b``."""
    return _NOT_XML.sub(lambda match: spelled(match[0]), text.replace("\r\n", "\n"))
