"""A step makes several proposals from one parent, and what is accepted of them is one candidate."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from further import thorough
from json_replies import json_reply
from optimizers.worlds import (
    NOTES,
    RULES,
    TEMPLATE,
    Run,
    answer,
    asked,
    config,
    current_text,
    instruction,
    missing,
    note,
    numbered,
    section,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaConfig,
    GepaExample,
    GepaExampleGenerated,
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaResult,
    GepaRolloutCompleted,
    GepaWorking,
    RolloutFeedback,
)
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    TaskExample,
    TaskExamplesSection,
    Tool,
)
from promptgraft.runtime import EventBus, Session, SessionProtocol
from promptgraft.search import RejectionReason, StopReason
from promptgraft.search.stopping import MaxProposals
from promptgraft.search.validation import Racing

Rendered = RenderedPrompt[object]
Task = Callable[[Rendered], str]

BASE = "Known words:"
ALL = "w0 w1 w2 w3 w4 w5"


def together(k: int, g: int = 1, **changes: Any) -> GepaConfig:
    """Return a search whose steps all begin with the best candidate, and change the rules."""
    chosen: dict[str, Any] = {
        "preset": "lean",
        "proposals_per_step": k,
        "steps_at_once": g,
        "target_section_paths": (RULES,),
        "minibatch_size": 2,
        "exploration": 0,
        "max_idle_steps": 1,
        "max_failed_reflections": 1,
    }
    return config(**(chosen | changes))


class Watched:
    """A run in one thread that keeps what the model was shown, by where in the run."""

    def __init__(
        self,
        settings: GepaConfig,
        *,
        reflection: Any,
        task: Task = answer,
        **surroundings: Any,
    ) -> None:
        self.shown: dict[str, list[Rendered]] = defaultdict(list)
        self.session, self._now, self._task = Session(), "", task
        bus = EventBus()
        bus.subscribe(GepaWorking, self._begin)
        self.result: GepaResult = Run(
            settings,
            task=self._answer,
            reflection=reflection,
            session=self.session,
            event_bus=bus,
            **surroundings,
        ).start()

    def _begin(self, event: GepaWorking) -> None:
        self._now = event.position

    def _answer(self, rendered: Rendered) -> str:
        self.shown[self._now].append(rendered)
        return self._task(rendered)

    def rules(self, position: str) -> str:
        """Return the one text of the rules that the model was shown there."""
        [text] = {section(rendered, RULES).text.strip() for rendered in self.shown[position]}
        return text.removeprefix("## Rules").strip()

    def accepted(self, step: int) -> list[GepaMutationAccepted]:
        return [one for one in self.session.select_all(GepaMutationAccepted) if one.step == step]

    def refused(self, reason: RejectionReason) -> list[str]:
        return [one.text for one in self.result.rejections if one.reason is reason]


def texts(*replies: str) -> Any:
    """Reply so, one after the other; then what nobody can use."""
    given = dict(enumerate(replies))
    return numbered(lambda number, _: instruction(given[number]) if number in given else "hm")


def test_what_a_step_accepts_is_tried_as_one_candidate_that_has_all_of_it() -> None:
    run = Watched(together(3), reflection=note)
    raced = run.rules("step/1/pareto/first")
    proposed = [one for one in run.session.select_all(GepaMutationProposed) if one.step == 1]
    lines = [one.after.removeprefix(f"{BASE}\n") for one in proposed]
    assert len(lines) == 3
    assert sorted(raced.split("\n")) == sorted([BASE, *lines])
    assert run.result.candidates[1].section_bodies[RULES] == raced
    # None knows of the others, and each has a minibatch of its own.
    assert {one.before for one in proposed} == {BASE}
    batches = [set(map(asked, run.shown[f"step/1/{number}/parent"])) for number in (1, 2, 3)]
    assert len(set.union(*batches)) == sum(map(len, batches)) == 6
    assert [(one.candidate, one.parent) for one in run.accepted(1)] == [(1, 0)] * 3
    assert run.result.accepted_mutations == len(run.session.select_all(GepaMutationAccepted))
    assert not run.refused(RejectionReason.CONFLICT)


def test_of_two_that_rewrite_a_line_the_better_one_has_its_way() -> None:
    def reply(number: int, rendered: Rendered) -> str:
        lacks = missing(rendered)
        if number > 2:
            return "hm"
        rewritten = f"{BASE} {' '.join(lacks[: 1 + number])}"
        return instruction(rewritten) if number < 2 else note(rendered)

    run = Watched(together(3), reflection=numbered(reply))
    worse, better, other = [one.after for one in run.session.select_all(GepaMutationProposed)][:3]
    assert run.refused(RejectionReason.CONFLICT) == [worse]
    assert run.rules("step/1/pareto/first") == other.replace(BASE, better)
    assert len(run.accepted(1)) == run.result.accepted_mutations == 2
    [refusal] = [one for one in run.result.rejections if one.text == worse]
    assert (refusal.step, refusal.parent, refusal.final) == (1, 0, True)
    assert refusal.child_score is not None
    assert refusal.parent_score is not None
    assert refusal.child_score > refusal.parent_score


def test_one_accepted_child_is_taken_as_it_is() -> None:
    run = Watched(together(2), reflection=texts(f"{BASE}\n{ALL}"))
    assert run.rules("step/1/pareto/first") == f"{BASE}\n{ALL}"
    [accepted] = run.accepted(1)
    assert accepted.module == "section rules"
    assert run.result.candidates[1].parents == (0,)
    assert run.result.accepted_mutations == 1
    assert run.refused(RejectionReason.CONFLICT) == []


@pytest.mark.parametrize(("k", "g", "where"), [(2, 1, "step/1"), (1, 3, "step/2")])
def test_a_child_that_has_all_that_another_has_and_more_is_tried(
    k: int, g: int, where: str
) -> None:
    more = f"{BASE}\n{ALL}\nand more"
    settings = together(k, g, perfect_score=2)
    run = Watched(settings, reflection=texts(f"{BASE}\n{ALL}", more))
    assert run.rules(f"{where}/pareto/first") == more
    assert run.result.accepted_mutations == 2
    assert not run.refused(RejectionReason.CONFLICT)


@attrs.frozen
class _Found:
    word: str


SILVER = TaskExample(key="always-the-same-2", objective="Find silver.", outcome="silver")

PARTS = Prompt[object](
    PromptTemplate[object](
        ns="toy",
        key="together",
        sections=(
            MarkdownSection(
                title="Rules",
                key="rules",
                template="Rules:",
                tools=(
                    Tool[_Found, str](
                        name="find",
                        description="Find it.",
                        params_type=_Found,
                        result_type=str,
                        examples=(),
                    ),
                ),
            ),
            MarkdownSection(title="Notes", key="notes", template="Notes:"),
            TaskExamplesSection(title="Examples", key="examples", examples=(SILVER,)),
            MarkdownSection(title="Question", key="question", template="Do you know $word?"),
        ),
    )
)


def gold(rendered: Rendered) -> str:
    """Answer with how often the prompt says gold."""
    shown = [rendered.text, *(tool.description for tool in rendered.tools)]
    return str(sum(text.count("gold") for text in shown))


def by_gold(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    return RolloutFeedback(score=int(response.text) / 100, feedback="")


def example_of(key: str, objective: str) -> str:
    return json_reply(key=key, objective=objective, steps=[], outcome="gold")


@pytest.mark.parametrize("key", ["k{}", "always the same"])
def test_children_that_change_different_parts_or_add_examples_are_put_together(key: str) -> None:
    def reply(number: int, rendered: Rendered) -> str:
        if rendered.key == "generate-task-example":
            return example_of(key.format(number), f"find gold {number}")
        return instruction(re.sub(r"(Rules:|Notes:|Find it.)", r"\1 gold", current_text(rendered)))

    settings = together(
        8,
        preset="paper",
        target_section_paths=(RULES, NOTES),
        tools=("find",),
        enable_example_generation=True,
        example_mutation_rate=0.5,
        feedback_fn=by_gold,
        stoppers=(MaxProposals(1),),
    )
    run = Watched(settings, reflection=numbered(reply), task=gold, prompt=PARTS)
    changed = run.result.candidates[1].override
    assert set(changed.sections) == {RULES, NOTES}
    assert set(changed.tool_overrides) == {"find"}
    assert len(changed.added_task_examples) > 1
    assert ("examples", SILVER.key) not in changed.added_task_examples
    for rendered in run.shown["step/1/pareto"]:
        seen = {found.path for found in rendered.sections if found.path[:-1] == ("examples",)}
        assert seen == {("examples", SILVER.key), *changed.added_task_examples}
    assert {tool.description for tool in run.shown["step/1/pareto"][0].tools} == {"Find it. gold"}
    told = {one.key: one.candidate for one in run.session.select_all(GepaExampleGenerated)}
    assert told == {one.example_key: 1 for one in changed.added_task_examples.values()}
    modules = {one.module for one in run.accepted(1)}
    assert {"section rules", "section notes", "tool find"} < modules


def test_the_same_new_example_of_two_children_is_added_once() -> None:
    settings = together(
        3,
        preset="paper",
        target_section_paths=(RULES,),
        enable_example_generation=True,
        example_mutation_rate=1.0,
        feedback_fn=by_gold,
        stoppers=(MaxProposals(1),),
    )

    def reply(number: int, rendered: Rendered) -> str:
        return example_of(f"k{number}", "find gold")

    run = Watched(settings, reflection=numbered(reply), task=gold, prompt=PARTS)
    assert len(run.result.candidates[1].override.added_task_examples) == 1
    reasons = [one.reason for one in run.result.rejections]
    assert reasons.count(RejectionReason.CONFLICT) == 2


@pytest.mark.parametrize("limit", ["max_part_chars", "max_prompt_chars"])
def test_what_would_be_too_long_together_is_left_out(limit: str) -> None:
    known, *others = TEMPLATE.sections
    short = [attrs.evolve(known, template="Known:"), *others]
    prompt = Prompt(attrs.evolve(TEMPLATE, sections=short))
    free = Watched(together(2, stoppers=(MaxProposals(1),)), reflection=note, prompt=prompt)
    room = {
        "max_part_chars": len(free.rules("step/1/pareto/first")),
        "max_prompt_chars": max(len(one.text) for one in free.shown["step/1/pareto/first"]),
    }[limit]
    for left, lines in ((0, 3), (-1, 2)):
        settings = together(2, stoppers=(MaxProposals(1),), **{limit: room + left})
        run = Watched(settings, reflection=note, prompt=prompt)
        assert len(run.rules("step/1/pareto/first").split("\n")) == lines
        assert len(run.refused(RejectionReason.CONFLICT)) == 3 - lines


def test_the_next_step_begins_from_what_races_and_before_it_has_raced() -> None:
    run = Watched(together(2, 2, minibatch_size=1), reflection=note)
    raced = run.rules("step/1/pareto/first")
    assert len(raced.split("\n")) == 3
    assert run.rules("step/2/1/parent") == run.rules("step/2/2/parent") == raced
    order = list(run.shown)
    assert order.index("step/2/2/child") < order.index("step/1/pareto/first")
    # It had no position when the step began, and has one when events tell of that.
    assert {one.parent for one in run.accepted(2)} == {1}
    proposed = run.session.select_all(GepaMutationProposed)
    assert {one.parent for one in proposed if one.step == 2} == {1}
    # It has won its race, so what came of it is there.
    assert run.rules("step/2/pareto/first").startswith(raced)
    assert run.result.candidates[2].parents == (1,)


def test_a_race_that_other_steps_wait_for_is_run_at_once() -> None:
    def reply(number: int, rendered: Rendered) -> str:
        # Of some steps nothing comes, so that nobody races when the next one begins.
        return note(rendered) if number % 8 < 4 else "hm"

    legs = []
    for g in (1, 4):
        races = Racing(first=1, every=1)
        settings = together(
            2,
            g,
            validation=races,
            rollout_budget=400,
            minibatch_size=1,
            max_failed_reflections=9,
        )
        shown = Watched(settings, reflection=numbered(reply)).shown
        legs.append([place for place in shown if place.endswith("/pareto/rest")])
    assert legs[0]
    assert not legs[1]


def test_every_accepted_proposal_of_a_step_counts_for_how_far_races_go() -> None:
    settings = together(3, validation=Racing(first=2, every=3), minibatch_size=1)
    run = Watched(settings, reflection=note)
    assert [len(run.accepted(step)) for step in (1, 2)] == [3, 3]
    assert len(run.shown["step/1/pareto/first"]) == 2
    assert "step/1/pareto/rest" not in run.shown
    assert len(run.shown["step/2/pareto/rest"]) == 2


def poisoned(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score by the words of the rules; poison harms where candidates are compared."""
    rules, word = response.text, str(example.label)
    if "poison" in rules and not example.id.endswith("-again"):
        return RolloutFeedback(score=0.0, feedback="")
    known = word in rules.split()
    return RolloutFeedback(score=0.5 + known / 2, feedback="" if known else f"missing {word}")


@pytest.mark.parametrize("k", [1, 2])
def test_when_a_race_is_lost_what_began_from_it_is_put_onto_the_best_one(k: int) -> None:
    def reply(number: int, rendered: Rendered) -> str:
        if not number:
            return instruction(f"poison\n{BASE}\n{ALL[:8]}")
        if k == 2 and number < 3:  # the other one of the first step, and its repair
            return "hm"
        return instruction(f"{current_text(rendered)}\n{missing(rendered)[number % 3]}")

    def rules(rendered: Rendered) -> str:
        return section(rendered, RULES).text

    settings = together(k, 2, feedback_fn=poisoned, minibatch_size=6, stoppers=(MaxProposals(2),))
    run = Watched(settings, reflection=numbered(reply), task=rules)
    assert "poison" in run.rules("step/1/pareto/first")
    begun = run.rules("step/2/parent" if k == 1 else "step/2/1/parent")
    assert "poison" in begun
    best = [one.best for one in run.session.select_all(GepaCandidateAdded)]
    assert best[:3] == [0, 0, 2]
    raced = run.rules("step/2/pareto/first")
    learned = {one.after for one in run.session.select_all(GepaMutationProposed) if one.step == 2}
    added = {line for text in learned for line in text.split("\n")} - set(begun.split("\n"))
    assert len(added) == k
    assert set(raced.split("\n")) == {BASE, *added}
    assert run.result.candidates[2].parents == (0,)
    assert {(one.candidate, one.parent) for one in run.accepted(2)} == {(2, 1)}


def test_what_children_made_together_is_not_tried_again_by_one_alone() -> None:
    """It loses its race, and the next step begins where this one began."""
    whole = f"poison\n{BASE}\nw0 w1 w2\nw3 w4 w5"
    replies = (f"poison\n{BASE}\nw0 w1 w2", f"{BASE}\nw3 w4 w5", whole)
    settings = together(2, feedback_fn=poisoned, minibatch_size=6)
    run = Watched(settings, reflection=texts(*replies), task=lambda one: section(one, RULES).text)
    assert run.rules("step/1/pareto/first") == whole
    assert run.rules("step/2/1/parent") == BASE
    assert run.refused(RejectionReason.DUPLICATE) == [instruction(whole)]


@pytest.mark.parametrize(("k", "g"), [(2, 2), *thorough([(1, 2), (1, 3)])])
def test_the_budget_pays_for_a_race_and_for_all_that_is_begun_beside_it(k: int, g: int) -> None:
    settings = together(k, g, preset="paper", perfect_score=2)
    for spare in range(k + g, 25, 6):
        budget = settings.least_budget + spare
        result = Run(attrs.evolve(settings, rollout_budget=budget), reflection=note).start()
        assert result.total_rollouts <= budget
        assert result.stop_reason is StopReason.BUDGET


def test_with_workers_no_step_is_begun_on_what_another_may_still_use() -> None:
    settings = together(1, 3, preset="paper", perfect_score=2)
    with ThreadPoolExecutor(2) as executor:
        for spare in range(0, 25, 3):
            budget = settings.least_budget + spare
            chosen = attrs.evolve(settings, rollout_budget=budget)
            assert Run(chosen, reflection=note, executor=executor).start().total_rollouts <= budget


def test_nothing_comes_of_a_step_of_which_a_part_is_not_known() -> None:
    """The reflections are used up by the first proposal; the third one needs none."""
    free = Watched(together(3), reflection=note)
    known = set(map(asked, free.shown["step/1/3/parent"]))

    def answer_some(rendered: Rendered) -> str:
        return "ok" if asked(rendered) in known else answer(rendered)

    journal = MemoryJournal()
    limited = Watched(
        together(3, max_reflections=1), reflection=note, task=answer_some, journal=journal
    )
    assert limited.result.stop_reason is StopReason.REFLECTIONS
    assert "step/1/1/child" in limited.shown
    assert limited.result.accepted_mutations == 0
    whole = Watched(together(3), reflection=note, task=answer_some)
    assert len(whole.accepted(1)) == 2
    again = Watched(together(3), reflection=note, task=answer_some, journal=journal)
    assert again.result == whole.result


def test_a_critical_example_protects_from_what_only_harms_together() -> None:
    def fragile(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        rules = response.text
        if example.id == "e0":
            return RolloutFeedback(score=float(rules.count("\nw") < 2), feedback="")
        known = str(example.label) in rules.split()
        return RolloutFeedback(score=float(known), feedback=f"missing {example.label}")

    def best_after_one_step(k: int, *, critical: bool) -> int:
        marked = tuple(attrs.evolve(one, critical=critical and one.id == "e0") for one in twins(6))
        settings = together(
            k, training_examples=marked, feedback_fn=fragile, stoppers=(MaxProposals(1),)
        )
        run = Watched(settings, reflection=note, task=lambda one: section(one, RULES).text)
        added = run.session.select_all(GepaCandidateAdded)[1]
        return added.best

    assert best_after_one_step(1, critical=True) == 1
    assert best_after_one_step(3, critical=False) == 1
    assert best_after_one_step(3, critical=True) == 0


def longer(rendered: Rendered) -> str:
    return instruction(f"{current_text(rendered)}!")


def marks(rendered: Rendered) -> str:
    return str(rendered.text.count("!"))


def by_marks(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    return RolloutFeedback(score=int(response.text) / 50, feedback="more")


@pytest.mark.parametrize(
    ("pareto", "k", "g"), [(10, 2, 2), (4, 2, 3), *thorough([(9, 1, 4), (13, 2, 1)])]
)
def test_a_search_leaves_what_is_kept_for_its_end(pareto: int, k: int, g: int) -> None:
    """Every child wins its race, and every race takes one example more than the last one."""
    rooms = []
    for budget in (46, 48, 56, 58, 66, 76, 78):
        settings = together(
            k,
            g,
            validation=Racing(first=1, every=1, finalists=1),
            training_examples=twins(pareto),
            pareto_set_size=pareto,
            rollout_budget=budget,
            minibatch_size=1,
            perfect_score=2,
            max_idle_steps=50,
            feedback_fn=by_marks,
            seed=181,
        )
        session = Session()
        result = Run(settings, task=marks, reflection=longer, session=session).start()
        assert result.found_better
        made = [one.position for one in session.select_all(GepaRolloutCompleted)]
        used = sum(not position.startswith("final/") for position in made)
        rooms.append(budget - settings.reserved_size - used)
    assert min(rooms) == 0
