"""Faults that users of prompt optimizers have met elsewhere, one test each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest

import agent_world
from further import thorough
from json_replies import json_reply
from optimizers.worlds import (
    NOTES,
    PROMPT,
    QUESTION,
    RULES,
    TEMPLATE,
    CountingStore,
    Question,
    Run,
    asked,
    bound,
    config,
    failing,
    grafted,
    instruction,
    numbered,
    optimize,
    section,
    target_of,
    twins,
    with_output,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaMergeRejected,
    GepaMutationProposed,
    RolloutFeedback,
)
from promptgraft.errors import (
    ConfigError,
    FeedbackError,
    InvalidOverrideError,
    PromptRenderError,
    TransientProviderError,
    WinnerNotStoredError,
)
from promptgraft.ground.text import clip
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import Prompt, RenderedPrompt, TaskExamplesSection
from promptgraft.runtime import Session, SessionProtocol
from promptgraft.search import RejectionReason, StopReason
from promptgraft.targets.replies import new_text

AGENT = Prompt[object](agent_world.TEMPLATE)


def test_mutations_are_applied_under_any_tag_not_only_under_the_default_one() -> None:
    store = InMemoryPromptOverridesStore()
    run = Run(overrides_store=store, overrides_tag="experiment-7")
    result = run.start()
    bodies = {c.section_bodies.get(RULES, "Known words:") for c in result.candidates}
    assert len(bodies) > 1
    assert {section(r, RULES).text for r in run.task.requests} == bodies
    assert store.resolve(TEMPLATE.descriptor, "latest") is None
    winner = Prompt(TEMPLATE, overrides_store=store, overrides_tag="experiment-7")
    shown = winner.bind(Question("w1")).render()
    assert section(shown, RULES).text == result.best_section_overrides[RULES]


def test_dollars_neither_destroy_placeholders_nor_double_with_every_generation() -> None:
    target = target_of(PROMPT, QUESTION)
    text = "It costs $5 ($$5?). Do you know ${word}?"
    child = grafted(target, target.baseline(), QUESTION, text)
    for generation in range(5):
        text = f"{child.section_bodies[QUESTION]} {generation}"
        child = grafted(target, child, QUESTION, text)
    assert child.section_bodies[QUESTION] == "It costs $5 ($$5?). Do you know $word? 0 1 2 3 4"
    store = InMemoryPromptOverridesStore()
    store.upsert(PROMPT.descriptor, child.override)
    shown = Prompt(TEMPLATE, overrides_store=store).bind(Question("$x")).render()
    assert section(shown, QUESTION).text == "It costs $5 ($$5?). Do you know $x? 0 1 2 3 4"


@pytest.mark.parametrize(
    "budget", [18, 25, 53, 88, *thorough([32, 39, 46, 60, 67, 74, 81, 95, 102, 109, 116])]
)
def test_baseline_and_accepted_children_count_and_nothing_overshoots(budget: int) -> None:
    run = Run(config(rollout_budget=budget))
    result = run.start()
    assert run.task.calls == result.total_rollouts <= budget


def test_a_render_error_does_not_end_the_run_and_a_rate_limit_is_no_zero() -> None:
    error = PromptRenderError("division by zero")
    result = optimize(task=failing(error, lambda rendered: asked(rendered) == "w0"))
    assert result.found_better
    assert result.scores_matrix[0][0] == 0.0
    limited = TransientProviderError("429")
    result = optimize(
        config(minibatch_size=6), task=failing(limited, lambda rendered: asked(rendered) == "w0")
    )
    assert result.found_better
    assert {row[0] for row in result.scores_matrix} == {None}


def test_the_first_module_is_the_first_to_take_its_turn() -> None:
    session = Session()
    optimize(config(target_section_paths=(NOTES, RULES)), session=session)
    first = session.select_all(GepaMutationProposed)[0]
    assert (first.step, first.module) == (1, "section notes")


def test_a_mutation_is_checked_with_bound_parameters() -> None:
    """A section with a required placeholder can be improved at all."""

    def knows(rendered: RenderedPrompt[object]) -> str:
        return "ok" if "please" in section(rendered, QUESTION).text else "no"

    result = optimize(
        config(target_section_paths=(QUESTION,)),
        task=knows,
        reflection=[instruction("Tell me please: do you know $word?")],
    )
    assert result.best_pareto_mean == 1.0
    assert result.rejections == ()


def test_a_text_does_not_end_at_its_first_inner_fence() -> None:
    reply = "```instruction\nAnswer so:\n```json\n{}\n```\nand stop.\n```"
    assert new_text(reply).text == "Answer so:\n```json\n{}\n```\nand stop."


@attrs.frozen
class Verdict:
    known: bool


def test_failed_rollouts_are_not_empty_to_the_reflector() -> None:
    good = iter(['{"known": true}'])  # without one, the run ends after the baseline
    run = Run(
        prompt=with_output(Verdict),
        task=lambda rendered: next(good, f"no JSON about {asked(rendered)}"),
        reflection=[""] * 99,
    )
    run.start()
    shown = bound(run.reflection.requests[0], "examples")
    for request in run.task.requests[6:9]:
        word = asked(request)
        assert f'"word": "{word}"' in shown
        assert f"```\nno JSON about {word}\n```" in shown
    assert shown.count("The answer could not be used: ") == 3


def test_long_texts_keep_head_and_tail_and_say_how_much_is_missing() -> None:
    text = '{"head": 1, ' + " " * 900 + '"tail": 2}'
    clipped = clip(text, 200)
    assert len(clipped) <= 200
    assert clipped.startswith('{"head": 1, ')
    assert clipped.endswith('"tail": 2}')
    left_out = 200 - len(clipped)
    assert f"of {len(text)} characters left out" in clipped
    assert 0 <= left_out < 10


def test_settings_that_cannot_work_are_refused_before_the_first_rollout() -> None:
    for wrong in (
        {"training_examples": twins(3), "pareto_set_size": 6},
        {"minibatch_size": 0},
    ):
        with pytest.raises(ConfigError, match=next(reversed(wrong))):
            config(**wrong)


def test_a_score_that_is_no_number_ends_the_run_at_the_first_rollout() -> None:
    def judge_with_nan(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=math.nan, feedback="")

    run = Run(config(feedback_fn=judge_with_nan))
    with pytest.raises(FeedbackError, match="example `e0`: score: expected a finite number"):
        run.start()
    assert run.task.calls == 1


def test_a_winner_is_kept_whole_or_not_at_all_and_only_when_it_is_better() -> None:
    store = CountingStore()
    optimize(overrides_store=store)
    assert len(store.writes) == 1

    def useless(number: int, rendered: RenderedPrompt[object]) -> str:
        return instruction(f"Nothing but {number}.")

    for reflection in (numbered(useless), [""] * 99):
        tied = CountingStore()
        result = optimize(overrides_store=tied, reflection=reflection)
        assert not result.found_better
        assert tied.writes == []

    refusing = CountingStore(refuse=InvalidOverrideError("no"))
    with pytest.raises(WinnerNotStoredError):
        optimize(overrides_store=refusing)
    assert refusing.resolve(PROMPT.descriptor) is None


def test_a_run_without_any_hope_ends_before_its_budget() -> None:
    settings = config(rollout_budget=10**6)
    for surroundings in (
        {"reflection": lambda _: "I am sorry."},
        {"reflection": failing(TransientProviderError("503"), lambda _: True)},
        {"task": failing(TransientProviderError("503"), lambda _: True)},
    ):
        run = Run(settings, **surroundings)
        result = run.start()
        assert result.stop_reason in {StopReason.REFLECTION_FAILED, StopReason.PROVIDER_FAILED}
        assert run.task.calls < 30


def agent_run(
    reply: Reply,
    reflect: Reply | Sequence[str],
    *,
    prompt: Prompt[object] = AGENT,
    surroundings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Return a run over an agent's prompt, judged by whether the answer is severe."""
    chosen: dict[str, Any] = {
        "target_section_paths": (),
        "training_examples": agent_world.EXAMPLES,
        "feedback_fn": severe,
        "max_failed_reflections": 500,
        **settings,
    }
    given = {"prompt": prompt, **(surroundings or {})}
    return Run(config(**chosen), task=reply, reflection=reflect, **given)


def severe(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    return RolloutFeedback(score=float("high" in response.text), feedback="not severe")


def severity(*, high: bool) -> str:
    return json.dumps({"severity": "high" if high else "low"})


def high_with(word: str) -> Reply:
    """Answer rightly once the word is anywhere in the prompt."""
    return lambda rendered: severity(high=word in rendered.text)


def specialists(*, both_help: bool, **surroundings: Any) -> Run:
    """Return a run in which one candidate learns a rule, another one an example, and none both.

    The source alone answers some questions, so that both descend from it. Only a merge holds
    both, and it is either right for the questions of both or always wrong.
    """

    def reply(rendered: RenderedPrompt[object]) -> str:
        knows = {"rule": has_rule(rendered), "example": has_example(rendered)}
        right = knows.get(bound(rendered, "text"), not any(knows.values()))
        return severity(high=right and (both_help or not all(knows.values())))

    def reflect(rendered: RenderedPrompt[object]) -> str:
        return "No." if "zebra" in rendered.text else agent_world.REPLIES[rendered.key]

    kinds = ("rule", "example", "rule", "example", "plain")
    return agent_run(
        reply,
        reflect,
        surroundings=surroundings,
        target_section_paths=(RULES,),
        enable_example_generation=True,
        example_mutation_rate=0.5,
        enable_merge=True,
        minibatch_size=6,
        pareto_set_size=10,
        rollout_budget=400,
        training_examples=[
            GepaExample(id=f"e{n}", params=(agent_world.Question(kinds[n % 5], again=f"{n}"),))
            for n in range(30)
        ],
    )


def has_rule(rendered: RenderedPrompt[object]) -> bool:
    return "zebra" in section(rendered, RULES).text


def has_example(rendered: RenderedPrompt[object]) -> bool:
    return any(found.path == ("examples", "the-zebra") for found in rendered.sections)


def test_examples_of_a_candidate_are_tried_merged_and_kept_like_its_sections() -> None:
    store = InMemoryPromptOverridesStore()
    run = specialists(both_help=True, overrides_store=store)
    result = run.start()
    tried = {(has_rule(request), has_example(request)) for request in run.task.requests}
    assert tried == {(False, False), (True, False), (False, True), (True, True)}
    assert result.best_pareto_mean == 0.8
    assert set(result.best_section_overrides) == {RULES}
    assert [example.key for example in result.generated_task_examples] == ["the-zebra"]
    shown = Prompt(AGENT.template, overrides_store=store).bind(agent_world.Question("new"))
    assert has_rule(shown.render())
    assert has_example(shown.render())


def test_examples_that_the_store_adds_and_removes_are_part_of_every_candidate() -> None:
    store = InMemoryPromptOverridesStore()
    store.remove_task_example(AGENT, path=("examples", "first"))
    store.add_task_example(
        AGENT,
        container_path=("examples",),
        key="given",
        objective="Find nothing.",
        outcome_json='{"severity": "low"}',
        steps_json="[]",
    )
    given = store.resolve(AGENT.descriptor)
    assert given is not None
    run = agent_run(
        high_with("zebra"),
        lambda rendered: agent_world.REPLIES[rendered.key],
        surroundings={"overrides_store": store},
        target_section_paths=(RULES,),
    )
    assert run.start().persisted
    for request in run.task.requests:
        paths = [found.path for found in request.sections]
        assert ("examples", "given") in paths
        assert ("examples", "first") not in paths
    after = store.resolve(AGENT.descriptor)
    assert after is not None
    assert after.added_task_examples == given.added_task_examples
    assert after.removed_task_examples == given.removed_task_examples


def test_the_rate_of_examples_is_their_share_however_many_there_are() -> None:
    run = agent_run(
        lambda _: severity(high=False),
        lambda _: "I am sorry.",
        target_section_paths=(RULES, ("role",)),
        target_tool_examples=(agent_world.TOOL_EXAMPLE,),
        target_task_examples=(("examples", "first"),),
        enable_example_generation=True,
        example_mutation_rate=0.3,
        minibatch_size=1,
        pareto_set_size=1,
        rollout_budget=300,
    )
    run.start()
    steps = [request.key for request in run.reflection.requests[::2]]
    assert len(steps) > 250
    assert 0.24 < sum("example" in key for key in steps) / len(steps) < 0.36


def test_a_merge_that_does_not_help_joins_nothing_and_is_paid_for() -> None:
    session = Session()
    run = specialists(both_help=False, session=session)
    result = run.start()
    assert len(session.select_all(GepaMergeRejected)) == 1
    assert result.accepted_merges == 0
    assert all(len(parents) < 2 for parents in result.parents)
    assert any(has_rule(request) and has_example(request) for request in run.task.requests)
    assert run.task.calls == result.total_rollouts <= 400


def test_a_merge_knows_its_parents_and_is_paid_for() -> None:
    run = specialists(both_help=True)
    result = run.start()
    parents = result.parents[result.best_index]
    assert len(set(parents)) == 2
    assert result.ancestry[result.best_index] == parents[0]
    assert {result.ancestry[parent] for parent in parents} == {0}
    assert result.accepted_merges == 1
    assert run.task.calls == result.total_rollouts <= 400


@pytest.mark.parametrize(
    "given",
    [
        '"input": {"query": "yes"}, "output": "2026-11-21"',
        "input: {query: 'yes'},\noutput: '2026-11-21',",
    ],
)
def test_words_that_yaml_takes_for_other_things_stay_the_texts_that_they_are(given: str) -> None:
    run = agent_run(
        high_with("Find: zebra"),
        [f'```json\n{{"description": "Find: zebra # not a comment", {given}}}\n```'],
        target_tool_examples=(agent_world.TOOL_EXAMPLE,),
    )
    result = run.start()
    assert result.found_better
    assert result.rejections == ()
    example = result.best_tool_example_overrides["search_code", 0]
    assert example.description == "Find: zebra # not a comment"
    assert json.loads(example.input_json or "")["query"] == "yes"
    assert json.loads(example.output_json or "") == "2026-11-21"


STEP = {"tool": "search_code", "description": "zebra", "input": {"query": "a"}, "output": "b"}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_task_example_may_get_another_number_of_steps(count: int) -> None:
    run = agent_run(
        high_with("Find zebra."),
        [json_reply(objective="Find zebra.", steps=[STEP] * count, outcome={"severity": "low"})],
        target_task_examples=(("examples", "first"),),
    )
    result = run.start()
    assert result.found_better
    store = InMemoryPromptOverridesStore()
    store.upsert(AGENT.descriptor, result.best_override)
    rendered = Prompt(AGENT.template, overrides_store=store).bind(agent_world.Question("new"))
    text = section(rendered.render(), ("examples", "first")).text
    assert text.count("search_code") == count
    assert "Look for main." not in text


@pytest.mark.parametrize(
    ("is_text", "outcome", "outcome_json"),
    [
        (False, {"severity": "low"}, {"severity": "low", "note": ""}),
        (True, "Fine: yes", "Fine: yes"),
        (True, '{"severity": "low"}', '{"severity": "low"}'),
    ],
)
def test_a_generated_example_has_one_form_of_json_whatever_the_prompt_asks_for(
    is_text: bool, outcome: object, outcome_json: object
) -> None:
    run = agent_run(
        high_with("Find zebra."),
        [json_reply(objective="Find zebra.", steps=[STEP], outcome=outcome)],
        prompt=for_text() if is_text else AGENT,
        enable_example_generation=True,
    )
    [example] = run.start().generated_task_examples
    given = {"query": "a", "limit": 5}
    step = {"tool_name": "search_code", "description": "zebra", "input": given, "output": "b"}
    assert json.loads(example.steps_json) == [step]
    assert json.loads(example.outcome_json) == outcome_json


def for_text() -> Prompt[object]:
    """Return the agent's prompt, asking for a text."""
    *before, examples, question = AGENT.template.sections
    assert isinstance(examples, TaskExamplesSection)
    [first] = examples.examples
    told = attrs.evolve(examples, examples=(attrs.evolve(first, outcome="Fine."),))
    sections = (*before, told, question)
    return Prompt(attrs.evolve(AGENT.template, sections=sections, output_type=None))


def test_typographic_characters_and_long_texts_of_examples_are_no_reason_to_refuse() -> None:
    said = f"Find the “zebra” — {'really ' * 200}!"
    call = '“input”: {“query”: “zebra — now”}, “output”: "it’s “there”…"'
    run = agent_run(
        high_with("zebra — now"),
        [f'```json\n{{"description": "{said}", {call}}}\n```'],
        target_tool_examples=(agent_world.TOOL_EXAMPLE,),
    )
    result = run.start()
    assert result.found_better
    assert result.rejections == ()
    example = result.best_tool_example_overrides["search_code", 0]
    assert example.description == said
    assert json.loads(example.input_json or "")["query"] == "zebra — now"
    assert json.loads(example.output_json or "") == "it’s “there”…"


def test_an_example_that_cannot_be_used_is_repaired_with_the_reason() -> None:
    good = agent_world.REPLIES["reflect-tool-example"]
    for bad, reason in (
        (good.replace("Find zebra.", "zebra " * 2_000), RejectionReason.TOO_LONG),
        (good.replace('"query"', '"queri"'), RejectionReason.DOES_NOT_FIT),
    ):
        run = agent_run(
            high_with("zebra"), [bad, good], target_tool_examples=(agent_world.TOOL_EXAMPLE,)
        )
        result = run.start()
        assert result.found_better
        [rejection] = result.rejections
        assert (rejection.reason, rejection.final) == (reason, False)
        assert rejection.detail in bound(run.reflection.requests[1], "problem")
