"""What a reflector is shown of a candidate's parts, and what becomes of its replies."""

from __future__ import annotations

import functools
import json
from typing import Any

import attrs
import pytest

from agent_prompts import SOURCE, SQLI
from optimizers.worlds import refusal_of, target_of
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.search import RejectionReason
from promptgraft.targets.part_kinds import (
    GenerationModule,
    OutputFieldModule,
    SectionModule,
    TaskExampleModule,
    ToolExampleModule,
    ToolModule,
)
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.types import Candidate, Module, ModuleDescription

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


def reply(**fields: object) -> str:
    return json.dumps(fields)


def worked(outcome: object, *, objective: str = "New.", **key: str) -> str:
    return reply(**key, objective=objective, steps=[], outcome=outcome)


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
        SEVERITY,
        reply(
            **{
                "description": "How grave it is.",
                "aliases": ["grade", "rank"],
                "value low": "Can wait.",
            }
        ),
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
    parent = grafted(
        where, where.baseline(), OutputFieldModule("Severity"), reply(**{"value low": "It waits."})
    )
    assert where.describe(rules, parent).output == (
        'One of: high, low\nDescribed as: "- low: It waits."'
    )


@pytest.mark.parametrize(
    "module", [ToolModule("search"), ToolExampleModule("search", 0), TaskExampleModule(SQLI)]
)
def test_the_reflector_sees_the_parameters_as_the_parent_describes_them(module: Module) -> None:
    parent = child(ToolModule("search"), reply(**{"param query": "A word of the code."}))
    shown = target().describe(module, parent).schema
    assert '"description":"A word of the code."' in shown
    assert "What to look for." not in shown
    assert '"description":"How many at most."' in shown


# The names of the answer's fields


def test_an_example_is_shown_under_the_names_of_the_parents_schema() -> None:
    where, module = target(), TaskExampleModule(SQLI)
    shown = where.describe(module, where.baseline())
    outcome = {"level": "high", "note": "One query is built from input."}
    assert json.loads(shown.text)["outcome"] == outcome
    parent = child(SEVERITY, reply(aliases=["grade"]))
    shown = where.describe(module, parent)
    assert json.loads(shown.text)["outcome"] == {"grade": "high", "note": outcome["note"]}
    assert all('"grade"' in sibling for sibling in shown.siblings)
    others = [text for name, text in shown.neighbours if name.startswith("task example")]
    assert others
    assert all('"grade"' in text for text in others)
    assert list(schema_in(shown)) == ["grade", "note"]


@pytest.mark.parametrize("name", ["severity", "grade", "Grade"])
def test_a_reflector_may_use_any_name_and_the_own_one_is_kept(name: str) -> None:
    first = (SEVERITY, reply(aliases=["grade"]))
    changed = child(*first, (TaskExampleModule(SQLI), worked({name: "low"})))
    kept = '{"severity": "low", "note": ""}'
    assert changed.override.task_example_overrides[SQLI].outcome_json == kept
    added = child(*first, (SECURITY, worked({name: "low"}, key="new")))
    [new] = added.override.added_task_examples.values()
    assert new.outcome_json == kept


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({"level": "low", "severity": "low"}, "`level` and `severity` name one field"),
        ({"level": "low", "colour": "red"}, "colour"),
        ({"level": "urgent"}, "urgent"),
    ],
)
def test_an_outcome_that_says_too_much_is_refused(outcome: dict[str, str], said: str) -> None:
    refused = refusal_of(lambda: child(TaskExampleModule(SQLI), worked(outcome)))
    assert refused is not None
    assert refused.reason is RejectionReason.DOES_NOT_FIT
    assert said in refused.detail


def test_an_example_that_a_candidate_rewrote_outlives_other_aliases() -> None:
    store = InMemoryPromptOverridesStore()
    prompt = attrs.evolve(SOURCE.prompt(), overrides_store=store)
    changed = child(TaskExampleModule(SQLI), worked({"level": "low"}))
    store.upsert(prompt.descriptor, changed.override)
    store.set_output_field_override(prompt, field="Review.severity", aliases=("rank",))
    rendered = prompt.render()
    assert not rendered.skipped
    assert 'Objective: New.\n\nOutcome: {"rank": "low", "note": ""}' in rendered.text


# New examples


def new(key: str, *, name: str = "severity", note: str = "One key.") -> str:
    outcome = {name: "high", "note": note}
    return worked(outcome, key=key, objective="Find leaked keys.")


def test_a_new_example_that_is_there_already_is_refused_under_any_key() -> None:
    where = target()
    xss = next(
        text for text in where.describe(SECURITY, where.baseline()).siblings if '"xss"' in text
    )
    parent = grafted(where, where.baseline(), SECURITY, new("leaks"))
    style = GenerationModule(("guide", "style"))
    for module, text, there in (
        (SECURITY, xss.replace('"xss"', '"other"'), "guide/security/xss"),
        (style, xss.replace('"xss"', '"other"'), "guide/security/xss"),
        (SECURITY, new("again"), "guide/security/leaks"),
        (SECURITY, new("again", name="level"), "guide/security/leaks"),
    ):
        refused = refusal_of(functools.partial(grafted, where, parent, module, text))
        assert refused is not None
        assert refused.reason is RejectionReason.DUPLICATE
        assert refused.detail == (
            f"the same example is there already, as `{there}`; write one that shows something else"
        )
    another = grafted(where, parent, SECURITY, new("leaks", note="Two keys."))
    assert len(another.override.added_task_examples) == 2


@pytest.mark.parametrize("module", [SECURITY, TaskExampleModule(SQLI)])
def test_the_examples_that_are_there_are_shown_once(module: Module) -> None:
    where = target()
    parent = grafted(where, where.baseline(), SECURITY, new("leaks"))
    shown = where.describe(module, parent)
    beside = "\n".join(text for _, text in shown.neighbours)
    assert any("Find leaked keys." in sibling for sibling in shown.siblings)
    assert "Find leaked keys." not in beside
    assert "Find cross-site scripting." not in beside
    assert "Find short names." in beside  # of another section


# Aliases


@pytest.mark.parametrize("names", [[], ["level", "grade"], ["level, or so", "none", "it's"]])
def test_aliases_are_kept_as_they_are_and_shown_so_that_they_come_back(names: list[str]) -> None:
    where = target()
    text = reply(**{"description": "How bad.", "aliases": names, "value low": "Can wait."})
    parent = child(SEVERITY, text)
    override = parent.override.output_overrides["Review.severity"]
    assert override.aliases == tuple(names)
    assert override.value_descriptions["low"] == "Can wait."

    shown = where.describe(SEVERITY, parent)
    assert json.loads(shown.text)["aliases"] == names
    again = grafted(where, parent, SEVERITY, shown.text.replace("How bad.", "How grave."))
    override = again.override.output_overrides["Review.severity"]
    assert override.aliases == tuple(names)
    assert override.description == "How grave."


def test_what_a_reply_leaves_out_stays_as_it_is() -> None:
    parent = child(SEVERITY, reply(description="How bad.", aliases=["grade"]))
    changed = grafted(target(), parent, SEVERITY, reply(**{"value low": "Can wait."}))
    override = changed.override.output_overrides["Review.severity"]
    assert (override.description, override.aliases) == ("How bad.", ("grade",))
    assert override.value_descriptions["low"] == "Can wait."
