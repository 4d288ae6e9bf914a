"""What a reflector is shown of a candidate's parts, and what becomes of its replies."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_prompts import SOURCE, SQLI
from optimizers.worlds import refusal_of, target_of
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.search import RejectionReason
from promptgraft.targets.loose_names import read_names, write_names
from promptgraft.targets.modules import Module
from promptgraft.targets.parts.generation import GenerationModule
from promptgraft.targets.parts.output_field import OutputFieldModule
from promptgraft.targets.parts.section import SectionModule
from promptgraft.targets.parts.task_example import TaskExampleModule
from promptgraft.targets.parts.tool import ToolModule
from promptgraft.targets.parts.tool_example import ToolExampleModule
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.types import Candidate, ModuleDescription

SECURITY = GenerationModule(("guide", "security"))
SEVERITY = OutputFieldModule("Review.severity")


def target(prompt: Prompt[Any] | None = None) -> PromptTarget:
    return target_of(prompt or SOURCE.prompt())


def grafted(where: PromptTarget, parent: Candidate, module: Module, text: str) -> Candidate:
    return where.graft(parent, module, text, parents=(0,), examples=())


def child(module: Module, text: str, *more: tuple[Module, str]) -> Candidate:
    """Return a candidate that is made of the baseline by one proposal after the other."""
    where = target()
    found = where.baseline()
    for each, proposal in ((module, text), *more):
        found = grafted(where, found, each, proposal)
    return found


def schema_in(description: ModuleDescription) -> dict[str, Any]:
    schema = json.loads(description.output.partition("schema: ")[2])
    found: dict[str, Any] = schema["properties"]
    return found


# The parent's own texts


@pytest.mark.parametrize(
    "module", [SectionModule(("role",)), ToolModule("read"), TaskExampleModule(SQLI), SECURITY]
)
def test_the_reflector_sees_the_answer_as_the_parent_describes_it(module: Module) -> None:
    parent = child(
        SEVERITY, "description: How grave it is.\naliases: grade, rank\nvalue low: Can wait."
    )
    shown = schema_in(target().describe(module, parent))
    assert list(shown) == ["grade", "note"]
    assert shown["grade"]["description"] == (
        "How grave it is.\n- high: Blocks the release.\n- low: Can wait."
    )


def test_the_reflector_sees_what_the_parent_says_of_a_choice() -> None:
    prompt: Prompt[Any] = Prompt(
        PromptTemplate(
            ns="tests",
            key="choice",
            sections=(MarkdownSection(title="Rules", key="rules", template="Choose."),),
            output_type=SOURCE.severity_type,
        )
    )
    where = target(prompt)
    rules = SectionModule(("rules",))
    assert where.describe(rules, where.baseline()).output == "One of: high, low"
    parent = grafted(where, where.baseline(), OutputFieldModule("Severity"), "value low: It waits.")
    assert where.describe(rules, parent).output == (
        'One of: high, low\nDescribed as: "- low: It waits."'
    )


@pytest.mark.parametrize(
    "module", [ToolModule("search"), ToolExampleModule("search", 0), TaskExampleModule(SQLI)]
)
def test_the_reflector_sees_the_parameters_as_the_parent_describes_them(module: Module) -> None:
    parent = child(ToolModule("search"), "param query: A word of the code.")
    shown = target().describe(module, parent).schema
    assert '"description":"A word of the code."' in shown
    assert "What to look for." not in shown
    assert '"description":"How many at most."' in shown


# The names of the answer's fields


def test_an_example_is_shown_under_the_names_of_the_parents_schema() -> None:
    where, module = target(), TaskExampleModule(SQLI)
    shown = where.describe(module, where.baseline())
    assert shown.text.endswith(
        'outcome: {"level": "high", "note": "One query is built from input."}'
    )
    parent = child(SEVERITY, "aliases: grade")
    shown = where.describe(module, parent)
    assert 'outcome: {"grade": "high"' in shown.text
    assert all('"grade"' in sibling for sibling in shown.siblings)
    others = [text for name, text in shown.neighbours if name.startswith("task example")]
    assert others
    assert all('"grade"' in text for text in others)
    assert list(schema_in(shown)) == ["grade", "note"]


@pytest.mark.parametrize("name", ["severity", "grade", "Grade"])
def test_a_reflector_may_use_any_name_and_the_own_one_is_kept(name: str) -> None:
    reply = f'objective: New.\nsteps: []\noutcome: {{"{name}": "low"}}'
    first = (SEVERITY, "aliases: grade")
    changed = child(*first, (TaskExampleModule(SQLI), reply))
    kept = '{"severity": "low", "note": ""}'
    assert changed.override.task_example_overrides[SQLI].outcome_json == kept
    added = child(*first, (SECURITY, f"key: new\n{reply}"))
    [new] = added.override.added_task_examples.values()
    assert new.outcome_json == kept


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ('{"level": "low", "severity": "low"}', "`level` and `severity` name one field"),
        ('{"level": "low", "colour": "red"}', "colour"),
        ('{"level": "urgent"}', "urgent"),
    ],
)
def test_an_outcome_that_says_too_much_is_refused(outcome: str, said: str) -> None:
    reply = f"objective: New.\nsteps: []\noutcome: {outcome}"
    refused = refusal_of(lambda: child(TaskExampleModule(SQLI), reply))
    assert refused is not None
    assert refused.reason is RejectionReason.DOES_NOT_FIT
    assert said in refused.detail


def test_an_example_that_a_candidate_rewrote_outlives_other_aliases() -> None:
    store = InMemoryPromptOverridesStore()
    prompt = attrs.evolve(SOURCE.prompt(), overrides_store=store)
    reply = 'objective: New.\nsteps: []\noutcome: {"level": "low"}'
    store.upsert(prompt.descriptor, child(TaskExampleModule(SQLI), reply).override)
    store.set_output_field_override(prompt, field="Review.severity", aliases=("rank",))
    rendered = prompt.render()
    assert not rendered.skipped
    assert 'Objective: New.\n\nOutcome: {"rank": "low", "note": ""}' in rendered.text


# New examples

NEW = 'objective: Find leaked keys.\nsteps: []\noutcome: {"severity": "high", "note": "One key."}'


def test_a_new_example_that_is_there_already_is_refused_under_any_key() -> None:
    where = target()
    xss = next(
        text for text in where.describe(SECURITY, where.baseline()).siblings if "key: xss" in text
    )
    parent = grafted(where, where.baseline(), SECURITY, f"key: leaks\n{NEW}")
    style = GenerationModule(("guide", "style"))
    for module, text, there in (
        (SECURITY, xss.replace("key: xss", "key: other"), "guide/security/xss"),
        (style, xss.replace("key: xss", "key: other"), "guide/security/xss"),
        (SECURITY, f"key: again\n{NEW}", "guide/security/leaks"),
        (SECURITY, f"key: again\n{NEW.replace('severity', 'level')}", "guide/security/leaks"),
    ):
        refused = refusal_of(functools.partial(grafted, where, parent, module, text))
        assert refused is not None
        assert refused.reason is RejectionReason.DUPLICATE
        assert refused.detail == (
            f"the same example is there already, as `{there}`; write one that shows something else"
        )
    another = grafted(where, parent, SECURITY, f"key: leaks\n{NEW.replace('One key', 'Two keys')}")
    assert len(another.override.added_task_examples) == 2


@pytest.mark.parametrize("module", [SECURITY, TaskExampleModule(SQLI)])
def test_the_examples_that_are_there_are_shown_once(module: Module) -> None:
    where = target()
    parent = grafted(where, where.baseline(), SECURITY, f"key: leaks\n{NEW}")
    shown = where.describe(module, parent)
    beside = "\n".join(text for _, text in shown.neighbours)
    assert any("Find leaked keys." in sibling for sibling in shown.siblings)
    assert "Find leaked keys." not in beside
    assert "Find cross-site scripting." not in beside
    assert "Find short names." in beside  # of another section


# Aliases


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("level, grade", ["level", "grade"]),
        ('"level, or so", grade', ["level, or so", "grade"]),
        ('"level, or so"', ["level, or so"]),
        ("'a, b', `c, d`, “e, f”", ["a, b", "c, d", "e, f"]),
        ("it's, that's", ["it's", "that's"]),
        ('["level, or so", "grade"]', ["level, or so", "grade"]),
        ("[level, 'grade']", ["level", "grade"]),
        ("\n  - level\n  - how bad, roughly\n  - `grade`", ["level", "how bad, roughly", "grade"]),
        ("\n  1. level\n  2. grade", ["level", "grade"]),
        ("\n  level\n  grade, rank", ["level", "grade", "rank"]),
        ("level,\n  grade,", ["level", "grade"]),
        ("none", []),
        ("None.", []),
        ("(none)", []),
        ("[]", []),
        ("-", []),
        ("\n  - none", []),
        ("", []),
        ('"none"', ["none"]),
        ('["none"]', ["none"]),
        ("none, nothing", ["none", "nothing"]),
    ],
)
def test_aliases_are_read_as_models_write_them(text: str, names: list[str]) -> None:
    found = child(SEVERITY, f"description: How bad.\naliases: {text}\nvalue low: Can wait.")
    override = found.override.output_overrides["Review.severity"]
    assert override.aliases == tuple(names)
    assert override.value_descriptions["low"] == "Can wait."


def test_aliases_in_a_json_reply_are_a_list_or_a_text() -> None:
    for aliases in (["a, b", "c"], '"a, b", c'):
        found = child(SEVERITY, json.dumps({"description": "How bad.", "aliases": aliases}))
        assert found.override.output_overrides["Review.severity"].aliases == ("a, b", "c")


def test_an_alias_with_a_comma_is_shown_so_that_it_comes_back() -> None:
    where = target()
    parent = child(SEVERITY, 'aliases: ["level, or so", "none"]')
    shown = where.describe(SEVERITY, parent)
    assert 'aliases: ["level, or so", "none"]' in shown.text
    again = grafted(where, parent, SEVERITY, shown.text.replace("How bad", "How grave"))
    override = again.override.output_overrides["Review.severity"]
    assert override.aliases == ("level, or so", "none")
    assert override.description == "How grave it is."


NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
    | st.from_regex(r"[a-c ,\"'`\[\]\-n]{1,6}", fullmatch=True).filter(str.strip)
    | st.sampled_from(["none", "-", "1. a", "it's"]),
    max_size=4,
)


@given(NAMES)
def test_names_come_back_as_they_were_written(names: list[str]) -> None:
    assert list(read_names(write_names(names), where="aliases")) == names
    assert re.search("[\r\n]", write_names(names)) is None
