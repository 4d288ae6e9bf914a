"""Rules of tests, evaluated by BAML, and the metrics that score answers with them.

The rules are rendered as the prompt of a function that is never called. The value of an answer is
an argument of that function and not part of its source, so an answer cannot change a rule.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from promptgraft.bridges.baml.parts import between
from promptgraft.bridges.baml.runtime import CompiledProject
from promptgraft.bridges.baml.tests import BamlRule, BamlTest
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.reading import UnusableAnswerError, brief
from promptgraft.evals.types import Answer, Case, Metric, Verdict
from promptgraft.ground.serde import Json
from promptgraft.ground.text import listed

_SOURCE = """client<llm> Nobody {
  provider openai-generic
  options {
    base_url "http://localhost"
    model "none"
  }
}
type Any = map<string, Any> | Any[] | string | int | float | bool | null
function Judge(result: Any, latency_ms: int, checks: map<string, bool>, args: Any) -> string {
  client Nobody
  prompt %s
}
"""
# A rule holds if it renders as `true`. Only 1, 0 or 2 is output, never text of an answer.
_RULE = (
    '{%% set said = (%s)|string %%}{{ 1 if said == "true" else 0 if said in ["false", ""] else 2 }}'
)
_REQUEST = '{"result": result, "latency_ms": latency_ms, "checks": checks}'
_UNKNOWN = ("args", "checks", "ctx", "latency_ms", "result")  # known in a prompt, but not in a test
# A name is a variable unless it is inside a string, or names a field, filter, test or argument.
_NAMES = re.compile(
    r"""
    "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'
    | (?P<other>(?:[.|]|\bis(?:\s+not)?\b)\s*)? \b(?P<name>[A-Za-z_]\w*) (?P<given>\s*=(?!=))?
    """,
    re.VERBOSE | re.DOTALL,
)
_NEVER = ("unknown filter", "unknown test", "unknown function")


@attrs.frozen(kw_only=True)
class Judged:
    """The result of a rule.

    Attributes:
        held: whether the rule holds; False if it cannot be judged.
        why: why it cannot be judged; empty if it can.
    """

    rule: BamlRule
    held: bool
    why: str = ""


def judged(
    rules: Sequence[BamlRule], value: Json, *, args: Mapping[str, Json], latency_ms: int
) -> tuple[Judged, ...]:
    """Evaluate the rules of a test, and return their results in order.

    A rule sees ``this``, the arguments of the test, and ``_`` with ``result``, ``latency_ms`` and
    the ``checks`` before it.
    """
    judged_rules: list[Judged] = []
    checks: dict[str, bool] = {}
    for group in _groups(rules):
        data = {"result": value, "latency_ms": latency_ms, "checks": checks, "args": args}
        for judged_rule in _judged_group(group, data, frozenset(args)):
            judged_rules.append(judged_rule)
            if not judged_rule.rule.is_assert and not judged_rule.why:
                checks[judged_rule.rule.name] = judged_rule.held
    return tuple(judged_rules)


def check_rules(rules: Sequence[BamlRule], args: Mapping[str, Json]) -> Iterator[str]:
    """Yield a line for each rule that cannot be judged for any answer."""
    for rule in rules:
        kind = "assert" if rule.is_assert else "check"
        if why := _never(rule, args):
            yield f"@@{kind}({{{{ {rule.expression} }}}}): {why}"


def _never(rule: BamlRule, args: Mapping[str, Json]) -> str:
    if not rule.expression:
        return "expected an expression"
    try:
        [judged_rule] = judged([rule], None, args=args, latency_ms=0)
    except DataFormatError as error:
        message = error.faults[0].partition("template: ")[2].partition(" (in ")[0]
        return message or error.faults[0]
    return judged_rule.why if any(text in judged_rule.why for text in _NEVER) else ""


def _groups(rules: Sequence[BamlRule]) -> Iterator[list[BamlRule]]:
    """Yield groups of rules to judge together; a rule that reads checks starts a new group."""
    group: list[BamlRule] = []
    for rule in rules:
        # It must see the results of the checks before it, which are known only after they ran.
        if group and re.search(r"\bchecks\b", rule.expression):
            yield group
            group = []
        group.append(rule)
    if group:
        yield group


def _judged_group(
    rules: Sequence[BamlRule], data: dict[str, object], names: frozenset[str]
) -> list[Judged]:
    try:
        verdicts = _said(_compiled(tuple(rules), names), data)
    except ConfigError as error:
        if len(rules) == 1:
            why = str(error).partition("prompt: ")[2].partition(" (in prompt:")[0]
            return [Judged(rule=rules[0], held=False, why=why or str(error))]
        # One rule that fails makes the whole prompt fail, so judge them separately.
        return [judged_rule for rule in rules for judged_rule in _judged_group([rule], data, names)]
    return list(map(_of, rules, verdicts))


def _said(compiled: CompiledProject, data: dict[str, object]) -> str:
    context = compiled.runtime.create_context_manager()
    match compiled.request(("Judge", data, context, None, None)):
        case {"messages": [{"content": str(said)}]}:
            return said
    raise ConfigError("BAML has judged nothing")


def _of(rule: BamlRule, reason: str) -> Judged:
    why = "expected true or false, found another value" if reason == "2" else ""
    return Judged(rule=rule, held=reason == "1", why=why)


@functools.lru_cache(maxsize=512)
def _compiled(rules: tuple[BamlRule, ...], names: frozenset[str]) -> CompiledProject:
    prompt = "".join(_RULE % written(rule.expression, names) for rule in rules)
    return CompiledProject.of({"judge.baml": _SOURCE % between(prompt)}, folder=Path("judge"))


def written(expression: str, args: frozenset[str]) -> str:
    """Translate the variables of a rule to the arguments of the judging function."""
    replacements = {name: f"args.{name}" for name in _UNKNOWN}
    replacements |= {"this": "result", "_": _REQUEST, **{name: f"args.{name}" for name in args}}

    def as_known(match: re.Match[str]) -> str:
        is_variable = match["name"] and not match["other"] and not match["given"]
        return replacements.get(match["name"], match[0]) if is_variable else match[0]

    return _NAMES.sub(as_known, expression)


PASS = "pass"  # noqa: S105 - the name of a metric
CHECK = "check:"
"""The prefix of metric names of checks."""


@attrs.frozen(kw_only=True)
class AssertsMetric(BaseMetric):
    """The share of the asserts of a test that hold; 1 for a readable answer without asserts.

    A check that cannot be judged counts as a failed assert, because BAML fails the test.
    """

    kind: ClassVar[str] = "asserts"

    def assess(self, case: Case, answer: Answer) -> Verdict:
        output = _output(answer)
        counted = [rule for rule in _rules(output) if rule["assert"] or rule["why"]]
        failed = [rule for rule in counted if not rule["held"]]
        share = 1.0 if not counted else 1 - len(failed) / len(counted)
        if not failed:
            return self.verdict(1.0, f"all {len(counted)} asserts hold")
        failures = "; ".join(_failure(rule) for rule in failed)
        if rules_held := listed(str(rule["rule"]) for rule in counted if rule["held"]):
            failures += f"; holds: {rules_held}"
        return self.verdict(
            share, f"prompt: {failures}; BAML read {brief(output.get('value'), 600)}"
        )


@attrs.frozen(kw_only=True)
class PassMetric(BaseMetric):
    """1 if all asserts and checks hold, so that ``baml-cli test`` passes the test, else 0."""

    kind: ClassVar[str] = PASS

    def assess(self, case: Case, answer: Answer) -> Verdict:
        failed = [rule for rule in _rules(_output(answer)) if not rule["held"]]
        return self.verdict(
            0.0 if failed else 1.0, f"{len(failed)} of its rules fail" if failed else "passes"
        )


@attrs.frozen(kw_only=True)
class CheckMetric(BaseMetric):
    """Whether the check of a name holds; a test without it is unscored."""

    kind: ClassVar[str] = "check"

    check_name: str

    def assess(self, case: Case, answer: Answer) -> Verdict:
        checks = [
            rule
            for rule in _rules(_output(answer))
            if not rule["assert"] and rule["name"] == self.check_name
        ]
        failed = [rule for rule in checks if not rule["held"]]
        if not checks:
            return self.unscored("the test has no such check")
        reason = f"holds: {listed(str(rule['rule']) for rule in checks)}"
        return self.verdict(float(not failed), "; ".join(map(_failure, failed)) or reason)


def metrics_of(tests: Iterable[BamlTest]) -> tuple[Metric, ...]:
    """Return the metrics of tests: asserts, pass, and one for each check."""
    rules = (rule for test in tests for rule in test.rules)
    checks = dict.fromkeys(rule.name for rule in rules if not rule.is_assert)
    return (
        AssertsMetric(),
        PassMetric(),
        *(
            CheckMetric(name=f"{CHECK}{check}", check_name=check, required=False)
            for check in checks
        ),
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
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _failure(rule: Mapping[str, Json]) -> str:
    why = f" ({rule['why']})" if rule["why"] else ""
    return f"`{rule['rule']}` does not hold{why}"
