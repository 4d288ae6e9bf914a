"""The rounds of a gradient search: on one prompt, and on a target whose rollouts have steps."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from flows.tickets import GRAPH, Ticket, context
from gradient import flow_world
from gradient.words_world import PATCH, Run, block, reply, settings, text_block
from optimizers.worlds import PROMPT, bound, current_text, examples, twin
from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    GepaExample,
    GradientConfig,
    OptimizationContext,
    ScriptedAdapter,
    examples_from,
    feedback_from,
)
from promptgraft.algorithms.gradient import GradientOptimizer, GradientResult
from promptgraft.algorithms.gradient.settings import Attribution
from promptgraft.errors import ConfigError
from promptgraft.evals import metrics
from promptgraft.evals.types import Metric
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime.session import EventBus
from promptgraft.search import MaxProposals, StopReason
from promptgraft.search.acceptance import MinGain
from promptgraft.search.round_events import Decided, RoundEnded, RoundEvent

TICKETS = [GepaExample(id=f"t{number}", params=(Ticket(f"t{number}"),)) for number in range(12)]


def ends(result: GradientResult) -> list[RoundEnded]:
    return [one.ended for one in result.rounds if one.ended is not None]


def test_every_round_learns_from_what_still_fails_and_says_how_it_went() -> None:
    result = Run().start()
    assert [one.decided for one in ends(result)] == [Decided.ACCEPTED] * 3
    assert [one.trained.scores.count(0) for one in result.rounds] == [6, 4, 2]
    first = result.rounds[0]
    loss = first.trained.losses[0]
    assert (loss.case, loss.severity, loss.reason) == ("e0-again", "P1", "missing w0")
    [merged], [patch] = first.merged, first.patches
    assert merged.module == patch.module == "section rules"
    assert patch.text == "Known words: w0 w1"
    assert patch.why == "it does not know w0, w1"
    assert set(patch.cases) == {f"e{number}-again" for number in range(6)}
    assert ends(result)[0].gain == pytest.approx(1 / 3)
    assert (result.stop_reason, result.best_pareto_mean) == (StopReason.PERFECT, 1.0)
    assert ends(result)[-1].stop == result.stop_detail


def test_answers_stand_in_the_journal_under_round_and_stage() -> None:
    journal = MemoryJournal()
    Run(journal=journal).start()
    keys = [record.key for record in journal.records() if record.key.startswith("round/2/")]
    assert keys == [
        *(f"round/2/train/{place}" for place in range(6)),
        *(f"round/2/backward/e{number}-again/1" for number in range(2, 6)),
        "round/2/aggregate/section rules",
        "round/2/optimize/section rules/0",
        *(f"round/2/validate/child/{place}" for place in range(6)),
    ]


def test_a_question_is_counted_under_what_it_is_for() -> None:
    result = Run().start()
    counts = {str(entry.role): entry.calls for entry in result.ledger}
    assert counts == {"task": 42, "backward": 12, "aggregate": 3, "optimize": 3}


@pytest.mark.parametrize("attribution", ["steps", "trace"])
def test_failures_are_traced_back_to_the_nodes_that_led_to_them(attribution: str) -> None:
    run = flow_world.Run(flow_world.settings(attribution=attribution))
    result = run.start()
    assert result.best_pareto_mean == 1.0
    assert {patch.module for one in result.rounds for patch in one.patches} == set(flow_world.NODES)
    for one in result.rounds:
        for patch in one.patches:
            letter = "abc"[["left", "right", "writer"].index(patch.module)]
            words = set(patch.text.split()) - set(patch.before.split())
            assert {word[0] for word in words} <= {letter}


def test_steps_are_asked_wave_by_wave_and_only_where_a_problem_has_come_to() -> None:
    journal = MemoryJournal()
    run = flow_world.Run(flow_world.settings(max_rounds=1), journal=journal)
    first = run.start().rounds[0]
    case = "a0 b0 c0 again"
    trail = [(one.at, one.node) for one in first.blamed if one.case == case]
    assert trail == [("3", "writer"), ("2", "join"), ("1.1.1", "left"), ("1.2.1", "right")]
    # All cases side by side: the writers first, then what joins, then both finders.
    assert [one.at[0] for one in first.blamed] == [*"3" * 9, *"2" * 9, *"1" * 18]
    assert f"round/1/backward/{case}/1.1.1" in {record.key for record in journal.records()}


def test_one_question_for_all_steps_of_a_case_when_attribution_is_by_trace() -> None:
    journal = MemoryJournal()
    run = flow_world.Run(flow_world.settings(attribution="trace", max_rounds=1), journal=journal)
    run.start()
    asked = [r.key for r in journal.records() if r.key.startswith("round/1/backward/")]
    assert len(asked) == 9
    assert "round/1/backward/a0 b0 c0 again" in asked
    shown = bound(run.asked("blame-trace")[0], "steps")
    assert shown.index("### Step 1.1.1") < shown.index("### Step 3")


def useless(rendered: RenderedPrompt[object]) -> str:
    """Write one `hm` more than in the texts that were refused."""
    if rendered.key != PATCH:
        return reply(rendered)
    hms = " hm" * (1 + rendered.text.count("**Score:**"))
    return text_block(f"{current_text(rendered)}{hms}")


def test_after_a_refusal_a_candidate_must_be_better_on_its_failures_to_be_validated() -> None:
    journal = MemoryJournal()
    run = Run(settings(max_rounds=3), reflection=useless, journal=journal)
    result = run.start()
    ended = ends(result)
    assert [one.decided for one in ended] == [Decided.REFUSED] * 3
    # Nothing was refused before the first one, so that one is validated at once.
    assert [one.tried for one in ended] == [None, (0.0, 0.0), (0.0, 0.0)]
    validated = {record.key[:7] for record in journal.records() if "validate" in record.key}
    assert validated == {"round/1"}
    # Questions that are known are not paid again: only the new text is asked for anew.
    asked = [one.key for one in run.reflection.requests]
    assert asked.count("blame-step") == 6
    assert asked.count("write-patch") == 3
    shown = bound(
        [one for one in run.reflection.requests if one.key == "write-patch"][-1], "refused"
    )
    assert shown.count("**Score:** 0.000, the present text has 0.000") == 1 + 1


def test_as_published_a_candidate_is_validated_at_once_and_a_tie_is_accepted() -> None:
    def decided(**changes: object) -> list[Decided]:
        config = settings(max_rounds=2, first_try=False, **changes)
        result = Run(config, reflection=useless).start()
        assert all(one.tried is None for one in ends(result))
        return [one.decided for one in ends(result)]

    assert decided(acceptance=MinGain(0)) == [Decided.ACCEPTED] * 2
    assert decided() == [Decided.REFUSED] * 2


def test_reasons_to_stop_come_in_their_order() -> None:
    def stopped(**changes: object) -> tuple[StopReason, int]:
        result = Run(settings(**changes)).start()
        return result.stop_reason, len(result.rounds)

    assert stopped(target_score=0.0) == (StopReason.TARGET_SCORE, 0)
    assert stopped(target_score=0.5) == (StopReason.TARGET_SCORE, 2)
    assert stopped(target_score=0.3, max_rounds=1) == (StopReason.TARGET_SCORE, 1)
    assert stopped(max_rounds=1) == (StopReason.DONE, 1)
    assert stopped(stoppers=(MaxProposals(2),)) == (StopReason.PROPOSALS, 2)
    assert stopped(max_reflections=7) == (StopReason.REFLECTIONS, 1)
    silent = Run(settings(patience=2), reflection=lambda _: block({"blame": [], "hand_on": []}))
    result = silent.start()
    assert (result.stop_reason, len(result.rounds)) == (StopReason.NO_IMPROVEMENT, 2)
    assert result.stop_detail == "no new text was accepted in 2 rounds (patience)"


def test_a_search_ends_when_no_training_case_fails_any_more() -> None:
    # Those to learn from ask for fewer words than those to compare on.
    few = (*examples(6), *(twin(one, f"{one.id}-again") for one in examples(2)))
    result = Run(settings(training_examples=few)).start()
    assert (result.stop_reason, result.best_pareto_mean) == (StopReason.NO_PROGRESS, 1 / 3)
    assert result.stop_detail == "the current candidate fails on no training case"


def test_each_training_case_comes_once_before_any_comes_again() -> None:
    result = Run(settings(train_batch=2, max_rounds=6, patience=9)).start()
    cases = [case for one in result.rounds[:3] for case in one.trained.cases]
    assert sorted(cases) == [f"e{number}-again" for number in range(6)]


def test_initial_texts_are_begun_with_beside_the_baseline() -> None:
    result = Run(settings(initial={"section rules": "Known words: w0 w1 w2"})).start()
    assert result.means[:2] == (0.0, 0.5)
    assert result.rounds[0].trained.current == 1
    assert result.parents[2] == (1,)


def test_what_cannot_be_begun_is_refused_before_the_first_call() -> None:
    run = Run(settings(initial={"section rule": "x"}))
    with pytest.raises(ConfigError) as refused:
        run.start()
    assert str(refused.value) == (
        "initial: no part `section rule` may change (did you mean `section rules`?); there are "
        "`section rules`, `section notes`"
    )
    assert not run.task.requests
    with pytest.raises(ConfigError) as poor:
        settings(rollout_budget=20)
    assert str(poor.value) == (
        "rollout_budget: expected at least 24 (your prompt takes 6 test calls, "
        "one step up to 18), found 20; raise it, or lower the number of validation cases "
        "(pareto_set_size in Python) or train_batch"
    )
    with pytest.raises(ConfigError, match="max_rounds: expected an integer from 1 to 100"):
        settings(max_rounds=101)
    with pytest.raises(ConfigError, match="writes no new examples"):
        settings(enable_example_generation=True)


def test_a_plan_bounds_rollouts_and_questions() -> None:
    run = Run()
    plan = run.optimizer.plan(PROMPT)
    result = run.start()
    assert result.total_rollouts <= plan.rollouts
    assert result.total_reflections <= plan.reflections == 20 * 2 * (6 + 2 * 2)
    assert [str(row.role) for row in plan.roles] == ["task", "backward", "aggregate", "optimize"]


def test_each_stage_is_told_when_it_happens() -> None:
    bus = EventBus()
    told: list[object] = []
    bus.subscribe(object, told.append)
    result = Run(event_bus=bus).start()
    rounds = [event for event in told if isinstance(event, RoundEvent)]
    assert [type(event).__name__ for event in rounds if event.step == 1] == [
        "RoundTrained",
        *["StepBlamed"] * 6,
        "GradientsMerged",
        "PatchWritten",
        "RoundEnded",
    ]
    assert [event.step for event in rounds] == sorted(event.step for event in rounds)
    assert result.rounds[0].blamed == tuple(
        e for e in rounds if type(e).__name__ == "StepBlamed" and e.step == 1
    )


def test_the_plan_of_a_graph_bounds_the_questions_about_its_steps() -> None:
    def asked(max_steps: int, attribution: Attribution) -> int:
        config = settings(
            target_section_paths=(),
            attribution=attribution,
            max_rounds=1,
            training_examples=TICKETS,
        )
        graph = attrs.evolve(GRAPH, max_steps=max_steps)
        return GradientOptimizer(context(), config).plan(graph).reflections

    parts = 2 * 4  # a question that merges, and one for a new text
    assert asked(5, "steps") == 2 * (6 * 5 + parts)
    assert asked(9, "steps") == 2 * (6 * 9 + parts)
    assert asked(9, "trace") == 2 * (6 + parts)


def asked_of_agent(metric: Metric) -> tuple[dict[str, str], MemoryJournal]:
    """Return the first question of each kind on an agent with long answers, and the journal."""
    questions: dict[str, str] = {}

    def note(rendered: Any) -> str:
        questions.setdefault(rendered.key, rendered.text)
        blame = [{"text": "T1", "severity": "P1", "problem": "vague"}]
        return block({"blame": blame}) if rendered.key == "blame-trace" else "no block"

    def long(query: str, call: AgentCall) -> str:
        return f"begin {query} {'x' * 5000} end"

    box = BlackBox({"system": "Be brief."}, agent=long)
    cases = [Case(id=f"c{number}", input=f"q{number}", expected="yes") for number in range(6)]
    config = GradientConfig(
        training_examples=examples_from(box.prompt, cases, [metric]),
        pareto_set_size=3,
        rollout_budget=20,
        feedback_fn=feedback_from([metric]),
    )
    journal, model = MemoryJournal(), ScriptedAdapter(note)
    surroundings = OptimizationContext(box.adapter, reflection_adapter=model, journal=journal)
    GradientOptimizer(surroundings, config).optimize(box.prompt)
    return questions, journal


def test_questions_on_an_agent_show_what_is_known_of_it_and_keep_their_digests() -> None:
    questions, journal = asked_of_agent(metrics.exact())
    assert f"begin q3 {'x' * 5000} end" in questions["blame-trace"]
    assert "Expected answers" not in questions["write-patch"]
    digests = {record.key: record.digest for record in journal.records()}
    # As journals of earlier versions have them.
    assert digests["round/1/backward/c3"].startswith("58bbf10eb351")
    assert digests["round/1/optimize/section system/0"].startswith("bdfc44a949ec")


def test_the_question_for_a_new_text_says_that_words_of_metrics_are_refused() -> None:
    told = "a text that repeats 8 words in a row of what the answers are judged by is refused."
    texts = ("Please note that this is no legal advice, ask a lawyer",)
    with_words, journal = asked_of_agent(metrics.contains(texts=texts))
    without, _ = asked_of_agent(metrics.contains(texts=("lawyer",)))
    assert told in with_words["write-patch"]
    assert told not in without["write-patch"]
    # As without the sentence: journals of earlier versions replay.
    digests = {record.key: record.digest for record in journal.records()}
    assert digests["round/1/optimize/section system/0"].startswith("bdfc44a949ec")
