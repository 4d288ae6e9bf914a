"""What is shown, as a part of a candidate: proposals, merges, and what the reflector sees."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.worlds import target_of
from promptgraft.errors import ConfigError, UnknownPartError
from promptgraft.overrides import InMemoryPromptOverridesStore, SectionVisibility
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
)
from promptgraft.runs.report.texts import changes_in_words
from promptgraft.search.settings import Targets
from promptgraft.targets import (
    InvalidProposalError,
    PartOf,
    PromptTarget,
    RejectionReason,
    TaskExampleModule,
    VisibilityModule,
)
from promptgraft.targets.types import Candidate

HIDDEN = SectionVisibility.HIDDEN
CASES, STYLE = ("cases",), ("style",)
TASK = MarkdownSection(title="Task", key="task", template="Sort `$text`.", overridable=False)
RULES = MarkdownSection(title="Style", key="style", template="Be short.", summary="Short.")
EXAMPLES = TaskExamplesSection(
    title="Cases",
    key="cases",
    template="Like these:",
    examples=[
        TaskExample(key="good", objective="Lost card.", outcome="login"),
        TaskExample(key="bad", objective="Paid twice.", outcome="login"),
        TaskExample(key="fixed", objective="Hello.", outcome="none", overridable=False),
    ],
)
TEMPLATE = PromptTemplate[object](ns="tests/shown", key="desk", sections=[TASK, RULES, EXAMPLES])
OPEN = VisibilityModule((STYLE, ("cases", "good"), ("cases", "bad")))


def target(
    module: VisibilityModule = OPEN,
    *,
    prompt: Prompt[object] | None = None,
    store: InMemoryPromptOverridesStore | None = None,
) -> PromptTarget:
    return attrs.evolve(target_of(prompt or Prompt(TEMPLATE), store=store), modules=(module,))


def graft(where: PromptTarget, parent: Candidate, **states: str) -> Candidate:
    [module] = where.modules
    text = json.dumps({name.replace("_", " "): state for name, state in states.items()})
    return where.graft(parent, module, text, parents=(0,), examples=())


def shown(where: PromptTarget, candidate: Candidate) -> dict[str, str]:
    [module] = where.modules
    states = json.loads(where.text(module, candidate))
    assert isinstance(states, dict)
    return states


def paths(where: PromptTarget, candidate: Candidate) -> list[str]:
    [prompt] = where.rollout.prompts_of(candidate).values()
    return ["/".join(part.path) for part in prompt.bind({"text": "x"}).render().sections]


def test_a_proposal_may_say_only_what_changes() -> None:
    where = target()
    baseline = where.baseline()
    assert shown(where, baseline) == {
        "section style": "full",
        "task example cases/good": "full",
        "task example cases/bad": "full",
    }
    child = where.graft(
        baseline, OPEN, '{"task example cases/bad": " Hidden "}', parents=(0,), examples=()
    )
    assert shown(where, child) == {**shown(where, baseline), "task example cases/bad": "hidden"}
    assert paths(where, child) == ["task", "style", "cases", "cases/good", "cases/fixed"]
    assert child.modules == (OPEN,)
    summarized = graft(where, child, section_style="summary")
    assert paths(where, summarized) == paths(where, child)


def test_showing_it_again_is_where_the_run_began() -> None:
    where = target()
    child = graft(where, where.baseline(), section_style="hidden")
    both = graft(where, child, **{"task example cases/bad": "hidden"})
    back = graft(where, both, section_style="full")
    only = graft(where, where.baseline(), **{"task example cases/bad": "hidden"})
    assert back.digest == only.digest
    assert [*back.override.visibilities] == [("cases", "bad")]
    assert graft(where, child, section_style="full").digest == where.baseline().digest


def test_what_a_store_hides_can_be_shown() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_visibility_override(Prompt(TEMPLATE), path=STYLE, visibility=HIDDEN)
    where = target(store=store)
    assert shown(where, where.baseline())["section style"] == "hidden"
    child = graft(where, where.baseline(), section_style="full")
    assert "style" not in paths(where, where.baseline())
    assert "style" in paths(where, child)


@pytest.mark.parametrize(
    ("text", "reason", "says"),
    [
        ('{"section style": "gone"}', "does not fit the part", "expected full or summary or hid"),
        ('{"task example cases/bad": "summary"}', "does not fit the part", "full or hidden"),
        ('{"section styel": "hidden"}', "unparsable reply", "unknown field"),
        ('{"task example cases/fixed": "hidden"}', "unparsable reply", "unknown field"),
        ('{"section style": true}', "unparsable reply", "expected a text"),
        ("{}", "empty text", "at least"),
        ("hidden", "unparsable reply", "found"),
        ('{"section style": "full"}', "unchanged", "same as the current"),
    ],
)
def test_a_reply_that_cannot_be_used_is_refused_in_words(text: str, reason: str, says: str) -> None:
    where = target()
    with pytest.raises(InvalidProposalError, match=says) as refused:
        where.graft(where.baseline(), OPEN, text, parents=(0,), examples=())
    assert refused.value.reason is RejectionReason(reason)
    assert "\n" not in refused.value.detail


def test_something_is_always_shown() -> None:
    alone = PromptTemplate[object](
        ns="tests/shown", key="alone", sections=[RULES, attrs.evolve(RULES, key="other")]
    )
    module = VisibilityModule((STYLE, ("other",)))
    where = target(module, prompt=Prompt(alone))
    baseline = where.baseline()
    first = graft(where, baseline, section_style="hidden")
    second = graft(where, baseline, section_other="hidden")
    with pytest.raises(InvalidProposalError, match="no text of the prompt would be shown"):
        graft(where, first, section_other="hidden")
    with pytest.raises(InvalidProposalError, match="no text of the prompt would be shown"):
        where.merge(baseline, first, second, parents=(1, 2), examples=())


def test_a_merge_hides_what_either_side_hides() -> None:
    where = target()
    baseline = where.baseline()
    first = graft(where, baseline, section_style="hidden")
    second = graft(where, baseline, **{"task example cases/bad": "hidden"})
    merged = where.merge(baseline, first, second, parents=(1, 2), examples=())
    assert paths(where, merged) == ["task", "cases", "cases/good", "cases/fixed"]
    other = where.merge(baseline, second, first, parents=(2, 1), examples=())
    assert other.digest == merged.digest


def test_a_section_of_examples_stands_for_those_that_may_be_overridden() -> None:
    examples = attrs.evolve(EXAMPLES, examples=EXAMPLES.examples[:2])
    template = attrs.evolve(TEMPLATE, sections=[TASK, RULES, examples])
    where = target(VisibilityModule((CASES,)), prompt=Prompt(template))
    assert [*shown(where, where.baseline())] == [
        "section cases",
        "task example cases/good",
        "task example cases/bad",
    ]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (("task",), r"does not allow overrides of section or task example `task`, because it has"),
        (CASES, "`cases`, because its example `fixed` may not be overridden; overridable: `style`"),
        (("cases", "fixed"), "does not allow overrides of section or task example `cases/fixed`"),
        (("cases", "gone"), "has no section or task example `cases/gone`"),
    ],
)
def test_what_cannot_be_hidden_is_refused_before_the_first_call(
    path: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UnknownPartError, match=says) as refused:
        target(VisibilityModule((path,)))
    assert "\n" not in str(refused.value)


def test_a_removed_example_cannot_be_shown() -> None:
    store = InMemoryPromptOverridesStore()
    store.remove_task_example(Prompt(TEMPLATE), path=("cases", "bad"))
    with pytest.raises(UnknownPartError, match="task example cases/bad cannot be shown: the store"):
        target(store=store)
    where = target(VisibilityModule((STYLE, ("cases", "good"))), store=store)
    assert "task example cases/bad" not in shown(where, where.baseline())


def test_settings_take_paths() -> None:
    with pytest.raises(ConfigError, match=r"targets\.visibility"):
        Targets(visibility=("style",))  # type: ignore[arg-type]


def neighbours(module: VisibilityModule | TaskExampleModule, child: Candidate) -> Sequence[str]:
    where = attrs.evolve(target(), modules=(OPEN, module))
    return [name for name, _ in where.describe(module, child).neighbours]


def test_others_are_not_shown_what_is_hidden() -> None:
    where = target()
    child = graft(where, where.baseline(), section_style="hidden")
    child = graft(where, child, **{"task example cases/bad": "hidden"})
    good = TaskExampleModule(("cases", "good"))
    assert neighbours(good, where.baseline()) == [
        *("section task", "section style", "section cases", "summary style")
    ]
    assert neighbours(good, child) == ["section task", "section cases"]
    described = attrs.evolve(where, modules=(good,)).describe(good, child)
    assert [json.loads(text)["key"] for text in described.siblings] == ["fixed"]
    # But the reflector that chooses sees the texts of all.
    assert {"section style", "task example cases/bad"} <= {*neighbours(OPEN, child)}
    bad = TaskExampleModule(("cases", "bad"))
    reworded = attrs.evolve(where, modules=(bad,))
    assert reworded.has_room(bad, where.baseline())
    assert not reworded.has_room(bad, child)


def test_with_several_prompts_it_has_the_name_of_its_prompt() -> None:
    part = PartOf("tests/shown/desk", OPEN)
    where = attrs.evolve(target(), modules=(part,))
    assert where.describe(part, where.baseline()).name == "tests/shown/desk#what is shown"
    assert part.question is OPEN.question
    assert part.is_example


def test_a_change_is_told_in_words() -> None:
    where = target()
    baseline = where.baseline()
    child = graft(where, baseline, section_style="summary")
    child = graft(where, child, **{"task example cases/bad": "hidden"})
    texts = where.text(OPEN, baseline), where.text(OPEN, child)
    assert changes_in_words(f"tests/shown/desk#{OPEN.name}", *texts) == (
        "section style is shown as its summary\ntask example cases/bad is no longer shown"
    )
    assert changes_in_words(OPEN.name, *texts[::-1]) == (
        "section style is shown now\ntask example cases/bad is shown now"
    )
    assert changes_in_words("section style", *texts) == ""
    assert changes_in_words(OPEN.name, "a text", "another") == ""


STATES = st.fixed_dictionaries(
    {},
    optional={
        "section style": st.sampled_from(["full", "summary", "hidden"]),
        "task example cases/good": st.sampled_from(["full", "hidden"]),
        "task example cases/bad": st.sampled_from(["full", "hidden"]),
    },
)


@given(st.lists(STATES, max_size=4))
def test_what_is_proposed_is_what_the_next_reflector_reads(steps: list[dict[str, str]]) -> None:
    where = target()
    candidate, states = where.baseline(), shown(where, where.baseline())
    before = dict(states)
    for step in steps:
        if {**states, **step} == states:
            with pytest.raises(InvalidProposalError):
                where.graft(candidate, OPEN, json.dumps(step), parents=(0,), examples=())
        else:
            candidate = where.graft(candidate, OPEN, json.dumps(step), parents=(0,), examples=())
        states |= step
        assert shown(where, candidate) == states
    differing = {name for name, state in states.items() if state != before[name]}
    kept = {entry.path for entry in candidate.override.visibilities.values()}
    assert kept == {tuple(name.split(" ")[-1].split("/")) for name in differing}
