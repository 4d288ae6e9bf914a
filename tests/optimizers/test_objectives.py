"""Several objectives: weights, frontiers of every type, caps, and what a winner must not lose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from further import thorough
from optimizers.paid import CENT, PaidAdapter
from optimizers.worlds import (
    PROMPT,
    RULES,
    TEMPLATE,
    Question,
    Run,
    asked,
    bound,
    config,
    current_text,
    instruction,
    judge,
    optimize,
    section,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.errors import ConfigError, FeedbackError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import Prompt, RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.search import OptimizationContext, RejectionReason
from promptgraft.search.frontier import Frontier, FrontierType, cells_of
from promptgraft.search.scores import Score, mean_score, weights_of

Rendered = RenderedPrompt[object]


def wordy(rendered: Rendered) -> str:
    """Answer with how many words the rules have beyond the two they began with."""
    words = section(rendered, RULES).text.split()
    known = "ok" if bound(rendered, "word") in words else "no"
    return f"{known} {max(0, len(words) - 2)}"


def two_sided(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Judge knowledge and brevity, which are in conflict: the more rules, the less brief."""
    answer, words = response.text.split()
    known = judge(example, attrs.evolve(response, text=answer), session)
    brief = 1 / (1 + int(words))
    objectives = {"known": known.score, "brief": brief}
    return attrs.evolve(known, score=(known.score + brief) / 2, objectives=objectives)


def conflict(**changes: Any) -> GepaResult:
    settings = {
        "target_section_paths": (RULES,),
        "feedback_fn": two_sided,
        "rollout_budget": 300,
        "minibatch_size": 2,
    }
    return optimize(config(**(settings | changes)), task=wordy)


def test_a_hybrid_frontier_keeps_both_specialists_and_a_compromise_between_them() -> None:
    result = conflict(frontier_type="hybrid", weights={"known": 3, "brief": 1})
    known = [result.objectives[member]["known"] for member in result.frontier]
    brief = [result.objectives[member]["brief"] for member in result.frontier]
    best_known, best_brief = result.pick("known=1"), result.pick("brief=1")
    assert {best_known, best_brief} <= set(result.frontier)
    assert result.objectives[best_known]["known"] == max(known) > known[0]
    assert result.objectives[best_brief]["brief"] == max(brief) == 1.0
    assert any(min(known) < one < max(known) for one in known)


def test_either_weight_picks_the_right_candidate() -> None:
    result = conflict(weights={"known": 1})
    for name in ("known", "brief"):
        best = result.pick({name: 1.0})
        assert result.objectives[best][name] == max(found[name] for found in result.objectives)
    with pytest.raises(ConfigError, match=r"^pick: the run has no objective `knwon`.*`known`"):
        result.pick("knwon=1")


@pytest.mark.parametrize("name", ["known", "brief"])
def test_the_winner_can_be_picked_by_either_objective(name: str) -> None:
    plain = conflict(weights={"known": 1})
    result = conflict(weights={"known": 1}, pick={name: 1})
    assert result.scores_matrix == plain.scores_matrix  # it searches the same
    assert result.best_index == plain.pick(f"{name}=1")
    assert result.found_better == (name == "known")


def test_what_is_picked_by_exists() -> None:
    with pytest.raises(FeedbackError, match=r"required objective `knwon`.*did you mean `known`"):
        conflict(pick={"knwon": 1})
    tokens = conflict(pick={"tokens": 1})
    assert tokens.objectives[0]["tokens"] == 0.5


def test_weights_make_the_score_from_the_first_step_on() -> None:
    brief_only = conflict(weights={"brief": 1})
    assert not brief_only.found_better  # every rule makes the prompt longer
    assert all(score == 1.0 for score in brief_only.scores_matrix[0])
    known_only = conflict(weights={"known": 1})
    assert known_only.found_better
    assert known_only.best_pareto_mean == known_only.objectives[known_only.best_index]["known"]


def test_a_weight_for_what_the_feedback_does_not_say_is_the_callers_fault() -> None:
    with pytest.raises(FeedbackError, match=r"example `e0` has no objective `knwon`.*`known`"):
        conflict(weights={"knwon": 1})


@pytest.mark.parametrize("kind", ["objective", "cartesian", *thorough(["instance", "hybrid"])])
def test_runs_with_every_frontier_are_deterministic_and_resume(kind: FrontierType) -> None:
    whole = conflict(frontier_type=kind)
    journal = MemoryJournal()
    settings = config(
        target_section_paths=(RULES,),
        feedback_fn=two_sided,
        rollout_budget=300,
        minibatch_size=2,
        frontier_type=kind,
    )
    assert Run(settings, task=wordy, journal=journal).start() == whole
    silent = Run(settings, task=wordy, journal=journal)
    assert silent.start() == whole
    assert silent.task.calls == 0


scores = st.none() | st.sampled_from([0.0, 0.5, 1.0])
rows = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.fixed_dictionaries({"a": scores, "b": scores}), min_size=width, max_size=width),
        min_size=1,
        max_size=6,
    )
)


def naive_members(table: Sequence[Sequence[Score]]) -> set[int]:
    """Say who leads somewhere, by looking at everything again."""
    found = set()
    for column in zip(*table, strict=True):
        top = max((cell for cell in column if cell is not None), default=None)
        if top is not None:
            found |= {index for index, cell in enumerate(column) if cell == top}
    return found


@given(rows, st.sampled_from(get_args(FrontierType)))
def test_a_frontier_holds_leaders_only_and_every_cell_has_one(
    candidates: list[list[Mapping[str, Score]]], kind: FrontierType
) -> None:
    table = []
    frontier = Frontier()
    for made in candidates:
        objectives = [
            None
            if None in found.values()
            else {name: value for name, value in found.items() if value is not None}
            for found in made
        ]
        means = [mean_score(list(found.values())) if found else None for found in objectives]
        cells = cells_of(kind, means, objectives, ("a", "b"))
        table.append(cells)
        frontier.add(cells)
    members = set(frontier.members())
    leaders = naive_members(table)
    assert members <= (leaders or {0})
    for column in zip(*table, strict=True):
        top = max((cell for cell in column if cell is not None), default=None)
        if top is not None:
            assert top in {column[member] for member in members}


def test_fewer_tokens_and_less_money_count_against_the_baseline() -> None:
    """An amount like the baseline's counts one half, half of it two thirds."""

    def run(**weights: float) -> GepaResult:
        task = PaidAdapter(reply=wordy)
        thinker = Run().reflection
        context = OptimizationContext(task, reflection_adapter=thinker)
        settings = config(weights=weights, target_section_paths=(RULES,), feedback_fn=two_sided)
        return GepaOptimizer(context, settings).optimize(PROMPT)

    result = run(score=1, tokens=1, cost=2)
    assert result.objectives[0]["tokens"] == result.objectives[0]["cost"] == 0.5
    own = result.objectives[0]["score"]
    assert result.baseline_pareto_mean == pytest.approx((own + 0.5 + 2 * 0.5) / 4)


def test_the_reflector_is_shown_what_a_weighted_score_is_made_of() -> None:
    weighted = config(
        weights={"known": 3, "tokens": 1}, target_section_paths=(RULES,), feedback_fn=two_sided
    )
    run = Run(weighted, task=wordy)
    run.start()
    shown = re.findall(r"\*\*Objectives:\*\* (.*)", run.reflection.requests[0].text)
    assert shown
    line = re.compile(
        r"known (\S+) \(weight 3\), tokens (\S+) for (\d+) \(weight 1\); weighted mean (\S+)"
    )
    for told in shown:
        found = line.fullmatch(told)
        assert found is not None, told
        known, relative, _, mean = map(float, found.groups())
        assert mean == pytest.approx((3 * known + relative) / 4, abs=1e-3)
    # The feedback's own score stands beside it.
    assert "**Score:** 0.5\n\n**Objectives:**" in run.reflection.requests[0].text
    plain = Run(config(target_section_paths=(RULES,), feedback_fn=two_sided), task=wordy)
    plain.start()
    assert not any("Objectives" in question.text for question in plain.reflection.requests)


def test_an_objective_of_unknown_price_is_the_callers_fault() -> None:
    context = OptimizationContext(PaidAdapter(cost=None), reflection_adapter=Run().reflection)
    with pytest.raises(FeedbackError, match="the cost of example `e0` is not known"):
        GepaOptimizer(context, config(weights={"score": 1, "cost": 1})).optimize(PROMPT)


# What a winner must not lose


def forgetful(rendered: Rendered) -> str:
    """Propose rules that know what is missing and forget `w0`, which the notes knew."""
    missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)} {missing[1] if missing else 'w1'} not-w0")


def knows_w0_at_first(rendered: Rendered) -> str:
    rules = section(rendered, RULES).text.split()
    word = bound(rendered, "word")
    if word == "w0":
        return "no" if "not-w0" in rules else "ok"
    return "ok" if word in rules else "no"


def critical(data: Sequence[GepaExample], *ids: str) -> tuple[GepaExample, ...]:
    return tuple(attrs.evolve(example, critical=example.id in ids) for example in data)


def lossy(*ids: str, **changes: Any) -> GepaResult:
    settings = config(
        target_section_paths=(RULES,),
        training_examples=critical(twins(6), *ids),
        **changes,
    )
    return optimize(settings, task=knows_w0_at_first, reflection=forgetful)


def test_nobody_wins_who_is_worse_on_a_critical_example_of_d_pareto() -> None:
    assert lossy().found_better  # five words won, one lost
    result = lossy("e0")
    assert not result.found_better
    assert result.best_index == 0
    assert len(result.candidates) > 1  # they may still be parents
    picked = lossy("e0", pick={"score": 1})
    assert picked.objectives[picked.pick("score=1")]["score"] > picked.objectives[0]["score"]
    assert (picked.found_better, picked.best_index) == (False, 0)


def test_a_child_that_is_worse_on_a_critical_example_of_its_minibatch_is_refused() -> None:
    result = lossy("e0-again", minibatch_size=6)
    assert len(result.candidates) == 1
    assert {rejection.reason for rejection in result.rejections} >= {RejectionReason.NOT_BETTER}
    assert any(
        rejection.detail == "worse than the text before on the critical case `e0-again`"
        for rejection in result.rejections
    )


def test_a_winner_must_have_what_is_required() -> None:
    assert not conflict(weights={"known": 1}, required={"brief": 0.9}).found_better
    free = conflict(weights={"known": 1}, required={"brief": 0.01})
    assert free.found_better


# Caps


def test_a_prompt_that_grows_too_long_is_refused_and_the_reflector_told() -> None:
    run = Run(config(max_prompt_chars=85))
    result = run.start()
    assert not result.found_better or len(result.candidates) > 1
    refusals = [found for found in result.rejections if found.reason is RejectionReason.TOO_LONG]
    assert refusals
    assert re.fullmatch(
        r"with the longest example the whole prompt has \d+ characters; at most 85 are allowed, "
        r"so shorten it by \d+",
        refusals[0].detail,
    )


def test_a_prompt_must_not_be_too_long_with_examples_that_are_evaluated_later_either() -> None:
    longest = "w" * 60
    held_out = [GepaExample(id="long", params=(Question(longest),), label=longest)]
    limit = len(Prompt(TEMPLATE).bind(Question(longest)).render().text) + 8
    run = Run(config(max_prompt_chars=limit, held_out=held_out))
    result = run.start()
    assert result.found_better
    lengths = [
        len(rendered.text) - len(asked(rendered)) + len(longest) for rendered in run.task.requests
    ]
    assert max(lengths) <= limit


def test_a_rollout_that_is_too_dear_is_refused() -> None:
    task = PaidAdapter(reply=wordy, cost=2 * CENT)
    context = OptimizationContext(task, reflection_adapter=Run().reflection)
    settings = config(max_rollout_cost=Decimal("0.01"), feedback_fn=two_sided, max_idle_steps=3)
    result = GepaOptimizer(context, settings).optimize(PROMPT)
    assert len(result.candidates) == 1
    dear = [found for found in result.rejections if found.reason is RejectionReason.TOO_DEAR]
    assert dear
    assert dear[0].detail.endswith("cost 0.0200 US dollars, more than max_rollout_cost 0.01")


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"a": 0}}, "objectives.weights: `a`: expected a number above 0, found 0"),
        ({"weights": {"a": "1"}}, "objectives.weights: expected a finite number under each name"),
        ({"pick": {"a": float("nan")}}, "objectives.pick: expected a finite number under each"),
        ({"weights": 3}, "objectives.weights: expected numbers by name, found 3"),
        ({"required": "a>1"}, "objectives.required: expected numbers by name, found 'a>1'"),
        ({"frontier_type": "all"}, "objectives.frontier_type: expected one of `instance`, "),
        ({"max_prompt_chars": 0}, "guards.max_prompt_chars: expected an integer of at least 1"),
        ({"max_rollout_cost": 0}, "guards.max_rollout_cost: expected US dollars above 0"),
        ({"max_copied_words": -1}, "guards.max_copied_words: expected an integer of at least 0"),
        ({"acceptance": "strict"}, "acceptance: expected a policy such as Strict(), MinGain(0.05)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        config(**settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score", "weights: expected text such as 'score=0.8,tokens=0.2', found 'score'"),
        ("a=1,", "weights: expected text such as 'score=0.8,tokens=0.2', found ''"),
        ("a=1,a=2", "weights: `a` is named twice"),
        ("a=0", "weights: `a`: expected a number above 0, found 0"),
    ],
)
def test_text_that_is_no_weights_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        weights_of(text)


def test_weights_may_be_written_as_text() -> None:
    assert weights_of("score=0.8, tokens=0.2") == {"score": 0.8, "tokens": 0.2}


@pytest.mark.parametrize("objectives", [{"a": float("inf")}, {"a": "1"}, {"": 1.0}, 3])
def test_objectives_that_are_no_numbers_are_the_callers_fault(objectives: Any) -> None:
    with pytest.raises(FeedbackError, match=r"^objectives: expected "):
        RolloutFeedback(score=1.0, feedback="", objectives=objectives)
