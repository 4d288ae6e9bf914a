"""JUnit documents are well-formed, whatever answers and ids contain."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.gate.reports import report
from promptgraft.evals.gate import GateReport, GateRules, decide, junit_xml
from promptgraft.evals.gate.decision import valid

HOSTILE = [
    "\x00\x01\x08\x0b\x1b[31m\x7f\x9f",
    "]]><failure/>&amp;<!-- -->",
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>&e;",
    "\ud800 alone \udfff",
    "\ufffe\uffff\U0001f600",
    "\u202ereversed\u2028line",
    "a\r\nb\rc\td\ne",
    "'\"<>&",
    " leading and trailing ",
]


def parsed(found: GateReport, rules: GateRules | None = None) -> ET.Element:
    decision = None if rules is None else decide(found, rules)
    return ET.fromstring(junit_xml(found, decision))


def test_each_run_is_a_suite_with_a_test_case_for_each_case() -> None:
    root = parsed(report({"a": [1.0, 0.0], "b": [1.0, None]}))

    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == [
        "support/triage run 1",
        "support/triage run 2",
    ]
    counts = [(suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in suites]
    assert counts == [("2", "0", "0"), ("2", "1", "1")]
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "1")
    assert (suites[0].get("time"), root.get("time")) == ("0.500", "1.000")
    assert root.find(".//property[@name='split']").get("value") == "test"  # type: ignore[union-attr]


def test_a_failure_has_the_reason_and_an_unscored_case_is_an_error() -> None:
    root = parsed(report({"a": 0.0, "b": None, "c": ["cut"]}, reason="expected 'x', found 'y'"))

    failures = {test.get("name"): test.find("failure") for test in root.iter("testcase")}
    assert failures["a"] is not None
    assert failures["c"] is not None
    assert failures["a"].get("type") == "exact"
    assert failures["a"].text == "exact 0: expected 'x', found 'y'"
    assert failures["c"].get("type") == "crashed"
    errors = {test.get("name"): test.find("error") for test in root.iter("testcase")}
    assert errors["b"] is not None
    assert errors["b"].get("message") == "the provider is ill"
    assert failures["b"] is None


def test_a_reason_of_several_lines_is_a_message_of_one() -> None:
    root = parsed(report({"a": 0.0}, reason="2 faults\n\n  no verb\n- no number\n"))
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "exact 0: 2 faults; no verb; - no number"
    assert failure.text == "exact 0: 2 faults\n\n  no verb\n- no number\n"


def test_the_rules_of_the_gate_are_a_suite_of_their_own() -> None:
    root = parsed(report({"a": 0.0}), GateRules(fail_under=0.5))

    gate = root.findall("testsuite")[-1]
    assert gate.get("name") == "support/triage gate"
    told = {test.get("name"): test.find("failure") is None for test in gate.iter("testcase")}
    assert told == {"scored": True, "mean score": False}

    stopped = parsed(report({"a": None}, stopped="Ctrl+C"), GateRules())
    assert stopped.findall("testsuite")[-1].get("errors") == "2"


def test_the_document_of_a_passed_gate_has_no_failure() -> None:
    found = report({"a": [1.0, 0.0], "b": [1.0, None]}, reason="not so")
    root = parsed(found, GateRules(fail_under=0.5, max_unscored=1))

    assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("0", "0", "2")
    assert root.find(".//failure") is None
    assert root.find(".//error") is None
    told = {test.get("name"): test.find("skipped") for test in root.iter("testcase")}
    assert [told[name].text for name in ("a", "b")] == [  # type: ignore[union-attr]
        "exact 0: not so",
        "the provider is ill",
    ]
    assert parsed(found, GateRules(fail_under=0.9, max_unscored=1)).get("skipped") == "0"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_texts(text: str) -> None:
    root = parsed(report({text: 0.0}, prompt=text, reason=text))

    assert len(root.findall(".//failure")) == 1
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.text == f"exact 0: {valid(text)}"
    test = root.find(".//testcase")
    assert test is not None
    assert test.get("name") == valid(text)


@given(st.text(max_size=20))
def test_any_text_comes_back_with_what_xml_cannot_hold_spelled_out(text: str) -> None:
    failure = parsed(report({"a": 0.0}, reason=text)).find(".//failure")
    assert failure is not None
    assert failure.text == f"exact 0: {valid(text)}"


def test_only_what_xml_cannot_hold_is_spelled_out() -> None:
    assert valid("a\x1b[0m\r\nb\rc\ud800\uffff") == "a\\x1b[0m\nb\\rc\\ud800\\uffff"
    assert valid("täglich <b> & \U0001f600\t") == "täglich <b> & \U0001f600\t"


def test_the_same_report_is_the_same_document() -> None:
    found = report({"a": 0.0, "b": 1.0})
    assert junit_xml(found) == junit_xml(found)
    assert junit_xml(found).startswith(b"<?xml version='1.0' encoding='utf-8'?>\n<testsuites")
