"""What tests say of an answer, as metrics: the share of asserts, whether they pass, checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import attrs

from promptgraft.baml.tests import BamlTest
from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.reading import UnusableAnswerError, brief
from promptgraft.evals.types import Answer, Case, Metric, Verdict
from promptgraft.serde import Json

PASS = "pass"  # noqa: S105 - the name of a metric
CHECK = "check:"
"""What the metrics of checks begin with; their names follow."""


@attrs.frozen(kw_only=True)
class AssertsMetric(BaseMetric):
    """The share of the asserts of a test that hold; 1 where there are none and the answer is read.

    A check that cannot be judged counts as an assert that does not hold: BAML fails the test.
    """

    kind: ClassVar[str] = "asserts"

    def assess(self, case: Case, answer: Answer) -> Verdict:
        del case
        output = _output(answer)
        counted = [one for one in _rules(output) if one["assert"] or one["why"]]
        failed = [one for one in counted if not one["held"]]
        share = 1.0 if not counted else 1 - len(failed) / len(counted)
        if not failed:
            return self.verdict(1.0, f"all {len(counted)} asserts hold")
        said = "; ".join(_said(one) for one in failed)
        return self.verdict(share, f"prompt: {said}; BAML read {brief(output.get('value'), 600)}")


@attrs.frozen(kw_only=True)
class PassMetric(BaseMetric):
    """1 where the test passes as ``baml-cli test`` says it: with all asserts and checks; else 0."""

    kind: ClassVar[str] = PASS

    def assess(self, case: Case, answer: Answer) -> Verdict:
        del case
        failed = [one for one in _rules(_output(answer)) if not one["held"]]
        return self.verdict(
            0.0 if failed else 1.0, f"{len(failed)} of its rules fail" if failed else "passes"
        )


@attrs.frozen(kw_only=True)
class CheckMetric(BaseMetric):
    """Whether the check of a name holds; a test without it is not judged.

    Attributes:
        check_name: the check.
    """

    kind: ClassVar[str] = "check"

    check_name: str

    def assess(self, case: Case, answer: Answer) -> Verdict:
        del case
        found = [
            one
            for one in _rules(_output(answer))
            if not one["assert"] and one["name"] == self.check_name
        ]
        failed = [one for one in found if not one["held"]]
        if not found:
            return self.unscored("the test has no such check")
        return self.verdict(float(not failed), "; ".join(map(_said, failed)) or "holds")


def metrics_of(tests: Iterable[BamlTest]) -> tuple[Metric, ...]:
    """Return what judges tests: their asserts, whether they pass, and each check by its name."""
    rules = (rule for test in tests for rule in test.rules)
    checks = dict.fromkeys(rule.name for rule in rules if not rule.is_assert)
    return (
        AssertsMetric(),
        PassMetric(),
        *(CheckMetric(name=f"{CHECK}{one}", check_name=one, required=False) for one in checks),
    )


def _output(answer: Answer) -> Mapping[str, Json]:
    output = answer.output
    if not isinstance(output, dict) or "rules" not in output:
        raise UnusableAnswerError("parsing: there is no answer of a BAML function")
    if fault := str(output.get("fault") or ""):
        is_schema = "field" in fault.lower() or "enum" in fault.lower()
        where = "schema" if is_schema else "parsing"
        raise UnusableAnswerError(f"{where}: BAML cannot read the answer: {fault}")
    return output


def _rules(output: Mapping[str, Json]) -> list[dict[str, Json]]:
    rules = output.get("rules")
    return [one for one in rules if isinstance(one, dict)] if isinstance(rules, list) else []


def _said(rule: Mapping[str, Json]) -> str:
    why = f" ({rule['why']})" if rule["why"] else ""
    return f"`{rule['rule']}` does not hold{why}"
