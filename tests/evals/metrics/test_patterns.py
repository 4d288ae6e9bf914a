"""Patterns of users have the syntax of ``re`` and a time limit."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import ConfigError
from promptgraft.evals import metrics
from promptgraft.evals.metrics.base import verdict_of
from promptgraft.evals.metrics.patterns import hold_pattern, search
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.ground.serde import Json

# `re` and regex both try every way to cut the text, which are more than 10**12.
ENDLESS = r"(a|aa)+$"
TEXT = "a" * 60 + "b"
CASE = Case(id="a", input="question")

ATOMS = r"a b . [ab] [^a] \w \d \s \b ^ $ {e} { [[a] {} []a] [\]a] (?i:A) (?=a) (?!a) (?<=a) \{"
atoms = st.sampled_from([*ATOMS.split(), "[[:alpha:]]", "a{e<=1}"])
times = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{,2}", "{,}", "{2,}"])
pieces = st.builds(str.__add__, atoms, times)
patterns = st.recursive(
    st.lists(pieces, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.builds("({}){}".format, inner, times),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?P<n>{})(?P=n)".format, inner),
        st.builds("(?x) {} # [ {{\n{}".format, inner, inner),
    ),
    max_leaves=4,
)


@given(patterns, st.text("ab[]{}e1 :\n", max_size=8), st.booleans(), st.booleans())
def test_a_pattern_matches_what_it_matches_in_python(
    pattern: str, text: str, ignore_case: bool, whole: bool
) -> None:
    flags = re.IGNORECASE if ignore_case else 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[[`, of which Python warns
        try:
            expected = re.compile(pattern, flags)
        except re.error:
            with pytest.raises(ConfigError, match="expected a regular expression"):
                hold_pattern(pattern)
            return
        found = search(pattern, text, flags=flags, whole=whole)
    match = expected.fullmatch(text) if whole else expected.search(text)
    assert found == (None if match is None else (match.start(), match[0]))


NAMES: dict[str, Json] = {"patternProperties": {ENDLESS: {}}}


@pytest.mark.parametrize(
    ("metric", "answer"),
    [
        (metrics.regex(pattern=ENDLESS), TEXT),
        (metrics.regex(pattern=ENDLESS, whole=True, ignore_case=True), TEXT),
        (metrics.json_schema(schema={"pattern": ENDLESS}), f'"{TEXT}"'),
        (metrics.json_schema(schema=NAMES), f'{{"{TEXT}": 1}}'),
        (metrics.json_schema(schema={**NAMES, "additionalProperties": False}), f'{{"{TEXT}": 1}}'),
    ],
)
def test_a_match_without_an_end_is_given_up_and_the_answer_unscored(
    metric: Metric, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptgraft.evals.metrics.patterns.MATCH_SECONDS", 0.05)
    verdict = verdict_of(metric, CASE, Answer(text=answer))

    assert (verdict.score, verdict.passed) == (None, None)
    assert verdict.reason == (
        "the pattern '(a|aa)+$' took longer than 0.05 s on 61 characters; "
        "avoid repetitions inside repetitions"
    )


def test_a_pattern_of_a_case_has_the_limit_too() -> None:
    case = Case(id="a", input="question", expected=ENDLESS)

    verdict = metrics.regex().judge(case, Answer(text=TEXT))
    assert verdict.score is None
    assert "took longer than 1 s on" in verdict.reason


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("(" * 3000, "it is nested too deeply"),
        ("a{99999999999999}", "the repetition number is too large"),
        ("((a{1000}){1000}){1000}", "it repeats more than 100,000 items"),
        ("(?:" * 30 + "a" + ")+" * 30, "it repeats more than 100,000 items"),
        ("a**", "multiple repeat"),
        (5, "found 5"),
    ],
)
def test_a_pattern_that_cannot_be_compiled_is_refused(pattern: str, fault: str) -> None:
    schemas: list[dict[str, Json]] = [
        {"items": [{"pattern": pattern}]},
        {"properties": {"a": {"pattern": pattern}}},
    ]
    for schema in schemas:
        with pytest.raises(ConfigError) as caught:
            metrics.json_schema(schema=schema)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=re.escape(fault)):
        metrics.regex(pattern=pattern)


OBJECT: dict[str, Json] = {
    "properties": {"a": {}},
    "patternProperties": {"^x": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("schema", "answer", "reason"),
    [
        ({"pattern": "^a"}, '"b"', "`$`: 'b' does not match '^a'"),
        (OBJECT, '{"a": "", "x1": ""}', "`x1`: '' is not of type 'integer'"),
        (
            {**OBJECT, "additionalProperties": False},
            '{"a": "", "x1": 1, "y": 1}',
            "`$`: Additional properties are not allowed ('y' was unexpected)",
        ),
        (
            {**OBJECT, "additionalProperties": {"type": "string"}},
            '{"a": 1, "x1": 1, "y": 1}',
            "`y`: 1 is not of type 'string'",
        ),
    ],
)
def test_the_keywords_with_patterns_say_what_does_not_fit(
    schema: Mapping[str, Json], answer: str, reason: str
) -> None:
    verdict = metrics.json_schema(schema=schema).judge(CASE, Answer(text=answer))

    assert verdict.reason == f"the answer does not fit the schema: {reason}"


def test_keywords_with_patterns_are_those_of_every_draft() -> None:
    for draft in ("draft-03", "draft-04", "draft-06", "draft-07"):
        schema = {**OBJECT, "$schema": f"http://json-schema.org/{draft}/schema#"}
        metric = metrics.json_schema(schema=schema)
        assert metric.judge(CASE, Answer(text='{"x": 1}')).score == 1
        assert metric.judge(CASE, Answer(text='{"x": "1"}')).score == 0


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"$schema": 5}, "found 5 as `$schema`"),
        ({"unevaluatedProperties": False, "allOf": [OBJECT]}, "use `additionalProperties`"),
        ({"minimum": "one"}, "found a fault at `minimum`"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: Mapping[str, Json], fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        metrics.json_schema(schema=schema)


def test_a_schema_that_refers_to_itself_is_the_users_fault_and_a_huge_number_the_answers() -> None:
    with pytest.raises(ConfigError, match="the schema refers to itself"):
        metrics.json_schema(schema={"$ref": "#"}).judge(CASE, Answer(text="1"))

    metric = metrics.json_schema(schema={"multipleOf": 0.1})
    assert metric.judge(CASE, Answer(text="1" + "0" * 400)).score == 0
