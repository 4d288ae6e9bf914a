"""A plan says before the first call what a run can use, and the run keeps to it."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from typing import Any, TypeVar

import attrs
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from further import thorough
from optimizers.worlds import (
    PROMPT,
    RULES,
    Question,
    Run,
    answer,
    config,
    current_text,
    examples,
    instruction,
    numbered,
    propose,
    scored,
    twins,
)
from promptgraft.adapters.base import ModelCalled, PromptResponse, Usage, answered
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.errors import ConfigError
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.metrics import AllOf
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Metric
from promptgraft.ground.text import dollars
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import Prompt, RenderedPrompt
from promptgraft.runtime import Deadline, EventBus, SessionProtocol
from promptgraft.search import (
    Limits,
    OptimizationContext,
    OptimizationJob,
    RunPlan,
    StopReason,
)
from promptgraft.search.acceptance import AcceptancePolicy, MinGain, Paired, Strict
from promptgraft.search.planning import FEEDBACK_CHARS
from promptgraft.search.validation import Racing
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.judging import feedback_from

OutputT = TypeVar("OutputT")

PATIENT = {"max_idle_steps": 10_000, "max_failed_reflections": 10_000, "max_part_chars": 50_000}


def echo(rendered: RenderedPrompt[object]) -> str:
    return rendered.text


def one_word_more() -> Reply:
    """Propose the present text with a word that nobody has proposed before."""
    return numbered(lambda number, rendered: instruction(f"{current_text(rendered)} word{number}"))


def longer_is_better(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    words = len(response.text.split())
    return RolloutFeedback(score=1 - 1 / (words + 1), feedback="more words, please")


def by_chance(salt: int) -> Any:
    def give(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        score = random.Random(f"{salt}/{example.id}/{response.text}").random() * 0.99
        return RolloutFeedback(score=score, feedback="so so")

    return give


def tried(result: GepaResult) -> int:
    """Return how many proposals were tried against their parents."""
    refused = [rejection.reason for rejection in result.rejections]
    return result.accepted_mutations + refused.count(RejectionReason.NOT_BETTER)


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    pareto, learning = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    minibatch, proposals = draw(st.integers(1, 8)), draw(st.sampled_from((1, 1, 3)))
    least = 2 * pareto + 2 * proposals * min(minibatch, learning)
    return {
        "proposals_per_step": proposals,
        "rollout_budget": least + draw(st.integers(0, 80)),
        "minibatch_size": minibatch,
        "pareto_set_size": pareto,
        "training_examples": twins(6)[: pareto + learning],
        **PATIENT,
    }


def room_for(chosen: dict[str, Any], policy: AcceptancePolicy) -> dict[str, Any]:
    """Add to a budget what repeats may take of a first step."""
    more = chosen["proposals_per_step"] * chosen["minibatch_size"] * policy.max_repeats
    return {**chosen, "rollout_budget": chosen["rollout_budget"] + 2 * more}


policies = st.sampled_from([Strict(), MinGain(0.01)]) | st.builds(
    Paired,
    level=st.just(0.5),
    max_repeats=st.integers(0, 2),
)


strategies = st.sampled_from(
    [
        {"preset": "paper"},
        {"preset": "lean"},
        {"preset": "lean", "validation": Racing(first=1, every=1)},
    ]
)


ACCEPTED_TOGETHER = {
    "proposals_per_step": 3,
    "rollout_budget": 71,
    "minibatch_size": 5,
    "pareto_set_size": 4,
    "training_examples": twins(6)[:10],
    **PATIENT,
}
"""Races become deeper with every accepted proposal, three of which join as one candidate."""


@example(
    ACCEPTED_TOGETHER, 32, 0, Strict(), {"preset": "lean", "validation": Racing(first=1, every=1)}
)
@given(sizes(), st.integers(0, 2**32), st.integers(0, 4), policies, strategies)
@settings(max_examples=10, deadline=None)
def test_no_run_tries_fewer_or_more_proposals_than_its_plan_says(
    chosen: dict[str, Any],
    salt: int,
    merges: int,
    policy: AcceptancePolicy,
    strategy: dict[str, Any],
) -> None:
    run = Run(
        config(
            **room_for(chosen, policy),
            **strategy,
            acceptance=policy,
            feedback_fn=by_chance(salt),
            seed=salt,
            enable_merge=merges > 0,
            max_merge_invocations=merges,
        ),
        task=echo,
        reflection=one_word_more(),
    )
    plan = run.plan()
    result = run.start()
    event(f"merged: {result.accepted_merges}")

    assert result.stop_reason is StopReason.BUDGET
    assert plan.proposals.if_accepted <= tried(result) <= plan.proposals.if_refused
    assert result.total_rollouts <= plan.rollouts
    assert result.total_reflections <= plan.reflections


@given(sizes())
@settings(max_examples=4, deadline=None)
def test_a_run_that_accepts_all_or_none_tries_exactly_as_many_as_its_plan_says(
    chosen: dict[str, Any],
) -> None:
    only = {"target_section_paths": (RULES,)}
    good = Run(
        config(**chosen, **only, feedback_fn=longer_is_better),
        task=echo,
        reflection=one_word_more(),
    )
    assert good.start().accepted_mutations == good.plan().proposals.if_accepted

    bad = Run(config(**chosen, feedback_fn=scored(0.5)), task=echo, reflection=one_word_more())
    result = bad.start()
    assert result.accepted_mutations == 0
    assert tried(result) == bad.plan().proposals.if_refused


@given(sizes())
@settings(max_examples=4, deadline=None)
def test_replies_that_nobody_can_use_take_exactly_the_reflections_of_the_plan(
    chosen: dict[str, Any],
) -> None:
    run = Run(config(**chosen, feedback_fn=scored(0.5)), reflection=lambda _: "no block")
    result = run.start()
    assert result.stop_reason is StopReason.BUDGET
    assert result.total_reflections == run.plan().reflections


@pytest.mark.parametrize(
    ("size", "proposals"), [("light", 6), ("medium", 15), *thorough([("heavy", 40)])]
)
def test_each_size_pays_for_the_accepted_proposals_that_it_names(size: str, proposals: int) -> None:
    settings = config(
        rollout_budget=size,
        target_section_paths=(RULES,),
        feedback_fn=longer_is_better,
        **PATIENT,
    )
    run = Run(settings, task=echo, reflection=one_word_more())
    assert run.start().accepted_mutations == proposals
    assert run.plan().proposals.if_accepted == proposals
    assert settings.pays_for(settings.budget - 1).if_accepted == proposals - 1


@pytest.mark.parametrize("proposals", [1, 2, 5])
def test_the_fewest_test_calls_for_some_proposals_pay_for_races_and_finals_too(
    proposals: int,
) -> None:
    racing: dict[str, Any] = {
        "target_section_paths": (RULES,),
        "feedback_fn": longer_is_better,
        "validation": Racing(first=2),
        **PATIENT,
    }
    enough = config(**racing).rollouts_for(proposals)
    run = Run(config(**racing, rollout_budget=enough), task=echo, reflection=one_word_more())
    assert run.plan().proposals.if_accepted == proposals
    result = run.start()
    assert (result.accepted_mutations, result.total_rollouts) == (proposals, enough)


def test_a_size_pays_for_merges_where_they_are_on() -> None:
    plain, merging = (config(rollout_budget="light", enable_merge=on) for on in (False, True))
    assert merging.budget - plain.budget == 4 * merging.pareto_set_size
    assert merging.pays_for(merging.budget).if_accepted == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rollout_budget": 0},
            "rollout_budget: expected an integer from 1 to 1,000,000,000 or one of `light`, ",
        ),
        ({"rollout_budget": "hevy"}, "found 'hevy' .did you mean `heavy`"),
        (
            {"rollout_budget": "light", "minibatch_size": "3"},
            "minibatch_size: expected an integer of at least 1, found '3'",
        ),
    ],
)
def test_a_budget_is_a_number_or_a_known_size(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_a_size_stays_one_when_other_settings_change() -> None:
    settings = config(rollout_budget="light")
    assert attrs.evolve(settings, seed=9).budget == settings.budget
    assert attrs.evolve(settings, minibatch_size=4).budget > settings.budget


@pytest.mark.parametrize("merges", [0, 1, 5])
def test_a_plan_warns_exactly_where_three_proposals_cannot_be_accepted(merges: int) -> None:
    changes = {"enable_merge": merges > 0, "max_merge_invocations": merges}
    enough = config(**changes).rollouts_for(3)
    few, warning = Run(config(rollout_budget=enough - 1, **changes)).plan().warnings
    assert warning.startswith(
        f"rollout_budget: {enough - 1} test calls are enough for only 2 kept candidates; "
        f"raise it to {enough} for 3, "
    )
    assert Run(config(rollout_budget=enough, **changes)).plan().warnings == (few,)


def test_a_plan_warns_of_few_examples_and_of_a_minibatch_that_is_never_full() -> None:
    def warnings(
        training: int, validation: int, rollout_budget: object = 500, **changes: object
    ) -> tuple[str, ...]:
        data = examples(training + validation)
        given = {"pareto_set_size": validation, "training_examples": data, **changes}
        return Run(config(rollout_budget=rollout_budget, **given)).plan().warnings

    assert warnings(10, 999, "light") == ()
    [told] = warnings(10, 1000, "light")
    assert re.match(r"rollout_budget: `light` means \d,\d{3} test calls, as there are 1,000", told)

    assert warnings(10, 10) == ()
    luck = "use 10 or more in each set, better 50, to tell a gain from luck"
    assert warnings(10, 10, held_out=None) == (
        (
            "there are no test cases: the run cannot prove that its winner is better; name some "
            "as `test` in `splits` of a project, or as `data.held_out` in Python"
        ),
    )
    assert warnings(10, 10, held_out=examples(8, first=20)) == (
        "8 test cases prove a gain only if 6 of them get better; use more, better 50",
    )
    long = GepaExample(id="long", params=(Question("w" * 500),), label="w")
    [told] = warnings(10, 10, max_example_chars=100, training_examples=(*examples(19), long))
    assert re.fullmatch(
        r"inputs have up to 5\d\d characters, of which the reflection model sees the first and "
        "last 50; raise max_example_chars if the middle matters",
        told,
    )
    assert warnings(10, 9) == (f"there are only 9 validation cases; {luck}",)
    assert warnings(3, 10, minibatch_size=4, held_out=examples(2, first=13)) == (
        f"there are only 3 training cases; {luck}",
        "2 test cases cannot prove a gain; use 6 or more, better 50",
        (
            "minibatch_size: 4 is more than the 3 training examples, so every step takes all of "
            "them; lower it"
        ),
    )


def test_merging_changes_of_a_single_part_is_warned_of() -> None:
    def told(**given: Any) -> tuple[str, ...]:
        return Run(config(rollout_budget=500, **given)).plan().warnings

    few, warning = told(enable_merge=True, target_section_paths=(RULES,))
    assert warning == (
        "enable_merge: merging combines changes of different parts, and `section rules` is the "
        "only one that may change"
    )
    assert told(enable_merge=True) == told(target_section_paths=(RULES,)) == (few,)


def test_a_run_without_a_bus_logs_each_warning_of_its_plan_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(config())
    told = run.plan().warnings
    assert told
    assert not caplog.messages
    run.start()
    assert caplog.messages == list(told)
    caplog.clear()
    bus = EventBus()
    Run(config(), event_bus=bus).start()
    assert not caplog.messages


def test_a_plan_warns_of_too_few_reflections() -> None:
    plan = Run(config(max_reflections=2)).plan()
    few, *warnings = plan.warnings
    assert warnings == [
        "limits.max_reflections: 2 reflection calls can show little; raise it to 3 or more",
    ]
    assert (plan.reflections, plan.proposals.if_accepted, plan.proposals.if_refused) == (2, 2, 2)
    assert Run(config(max_reflections=3)).plan().warnings == (few,)


@attrs.frozen(kw_only=True)
class Metered:
    """Counts four characters as a token, and charges what its prices say."""

    reply: Reply
    identity: str = "metered"
    longest_answer: int | None = 1_000
    known: bool = True
    calls: list[str] = attrs.field(factory=list)

    def price_of(self, usage: Usage) -> Decimal | None:
        if not self.known:
            return None
        return (usage.input_tokens + 5 * usage.output_tokens) * Decimal("0.000001")

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        rendered = prompt.render(session)
        self.calls.append(rendered.text)
        text = self.reply(rendered)
        usage = Usage(input_tokens=-(-len(rendered.text) // 4), output_tokens=-(-len(text) // 4))
        session.dispatch(
            ModelCalled(
                model=self.identity, requests=1, usage=usage, cost=self.price_of(usage), seconds=0.0
            )
        )
        return answered(rendered, text, session=session, usage=usage)


def optimizer(
    settings: GepaConfig, task: Metered, reflection: Metered, **context: Any
) -> GepaOptimizer:
    surroundings = OptimizationContext(task, reflection_adapter=reflection, **context)
    return GepaOptimizer(surroundings, settings)


def test_a_run_uses_no_more_calls_tokens_and_money_than_its_plan_says() -> None:
    longest = numbered(
        lambda number, rendered: (
            "no block " * 440
            if number % 3 == 0
            else instruction(f"{current_text(rendered)} {'long ' * 60}{number}")
        )
    )
    settings = config(
        feedback_fn=longer_is_better,
        **PATIENT | {"max_part_chars": 3_000, "max_example_chars": 400, "rollout_budget": 120},
    )
    runner = optimizer(settings, Metered(reply=echo), Metered(reply=longest, identity="writer"))
    plan = runner.plan(PROMPT)
    result = runner.optimize(PROMPT)

    assert result.accepted_mutations > 3
    spent = {entry.role: entry for entry in result.ledger}
    for role in plan.roles:
        used = spent[role.role]
        assert role.calls is not None
        assert role.input_tokens is not None
        assert used.calls <= role.calls
        assert used.usage.input_tokens <= used.calls * role.input_tokens
        assert role.cost is not None
        assert used.cost <= role.cost
    assert plan.tokens is not None
    assert plan.cost is not None
    assert result.total_cost is not None
    assert result.total_cost <= plan.cost
    assert sum(e.usage.input_tokens + e.usage.output_tokens for e in result.ledger) <= plan.tokens


def test_the_longest_question_shows_a_refused_reply_and_long_feedback() -> None:
    def wordy(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=0.5, feedback="x" * FEEDBACK_CHARS)

    settings = config(feedback_fn=wordy, **PATIENT | {"max_part_chars": 60, "rollout_budget": 20})
    task = Metered(reply=answer, longest_answer=1)
    reflection = Metered(reply=lambda _: "no block " * 300)
    runner = optimizer(settings, task, reflection)
    longest = runner.plan(PROMPT).roles[1].input_tokens
    runner.optimize(PROMPT)
    assert longest is not None
    assert longest / 5 < max(len(asked) for asked in reflection.calls) / 4 <= longest


def test_the_longest_question_shows_a_minibatch_that_has_grown() -> None:
    def mostly_right(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        is_better = "better" in response.text and not example.id.startswith("e1")
        return RolloutFeedback(score=float(is_better), feedback="x" * FEEDBACK_CHARS)

    settings = config(
        feedback_fn=mostly_right,
        training_examples=twins(30),
        pareto_set_size=30,
        minibatch_size=6,
        minibatch_growth=4,
        **PATIENT | {"max_part_chars": 60, "max_example_chars": 2_000, "rollout_budget": 400},
    )
    assert settings.largest_batch == 24
    reflection = Metered(reply=lambda rendered: instruction(f"better {len(rendered.text)}"))
    task = Metered(reply=lambda rendered: f"{rendered.text} {'y' * 2_000}")
    runner = optimizer(settings, task, reflection)
    longest = runner.plan(PROMPT).roles[1].input_tokens
    runner.optimize(PROMPT)
    asked = max(reflection.calls, key=len)
    assert asked.count("### Example ") > settings.batch_size
    assert longest is not None
    assert len(asked) / 4 <= longest


def plan_of(task: Metered, **changes: Any) -> RunPlan:
    return optimizer(config(**changes), task, Metered(reply=propose)).plan(PROMPT)


def test_a_plan_makes_no_call_and_touches_no_journal() -> None:
    task, reflection, journal = Metered(reply=answer), Metered(reply=propose), MemoryJournal()
    first = optimizer(config(), task, reflection, journal=journal)
    assert first.plan(PROMPT) == first.plan(PROMPT)
    assert task.calls == reflection.calls == []
    # A journal belongs to the run that began it: this one is still free for another.
    assert (
        optimizer(config(seed=9), task, reflection, journal=journal).optimize(PROMPT).found_better
    )


def test_what_is_not_known_is_none_and_never_nothing() -> None:
    unpriced = plan_of(Metered(reply=answer, known=False))
    assert unpriced.cost is None
    assert unpriced.roles[0].cost is None
    assert unpriced.roles[1].cost is not None
    assert " tokens, price unknown" in unpriced.line

    endless = plan_of(Metered(reply=answer, longest_answer=None))
    assert endless.tokens is None
    assert endless.cost is None
    assert endless.line == "plan: about 200 test calls and 25 reflection calls, 38k tokens, $0.0452"
    document = json.loads(json.dumps(endless.as_json()))
    assert document["cost"] is document["tokens"] is document["roles"][0]["output_tokens"] is None


def test_limits_in_money_and_tokens_cap_the_plan() -> None:
    plan = plan_of(Metered(reply=answer), max_cost="0.25", max_tokens=5_000)
    assert (plan.cost, plan.tokens) == (Decimal("0.25"), 5_000)
    assert plan.as_json()["max_cost"] == plan.as_json()["cost"] == "0.25"
    whole = plan_of(Metered(reply=answer))
    assert whole.cost is not None
    assert plan_of(Metered(reply=answer), max_cost="1e6").cost == whole.cost
    endless = Metered(reply=answer, longest_answer=None)
    assert plan_of(endless, max_cost=3).cost == 3


def test_a_limit_below_the_expected_cost_is_said_to_leave_the_test_out() -> None:
    whole = plan_of(Metered(reply=answer))
    expected = whole.expected_cost
    assert expected is not None
    said = f"is less than the {dollars(expected)} that the run is expected to cost, so it may end"
    [warning] = set(plan_of(Metered(reply=answer), max_cost=expected / 2).warnings) - set(
        whole.warnings
    )
    assert said in warning
    assert plan_of(Metered(reply=answer), max_cost=expected).warnings == whole.warnings


def test_money_that_cannot_be_counted_is_refused_before_the_first_call() -> None:
    task, journal = Metered(reply=answer, known=False), MemoryJournal()
    runner = optimizer(config(max_cost=1), task, Metered(reply=propose), journal=journal)
    for refused in (runner.plan, runner.optimize):
        with pytest.raises(ConfigError, match="max_cost: no price is known for `metered`"):
            refused(PROMPT)
    job = OptimizationJob(PROMPT, OptimizationContext(task), config()).check()
    with pytest.raises(ConfigError, match="max_cost: no price is known for `metered`"):
        job.within(job.context, limits=Limits(max_cost=1)).run()
    assert task.calls == []
    assert not list(journal.records())


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_judge_whose_money_cannot_be_counted_is_named_before_the_first_call(
    wrapped: bool,
) -> None:
    task = Metered(reply=answer)
    judge = Metered(reply=lambda _: "", identity="examiner", known=False)
    metric: Metric = LlmFinalResponse(judges=[judge])
    feedback = feedback_from([AllOf(metrics=(metric,)) if wrapped else metric])
    settings = config(feedback_fn=feedback, max_cost=1)
    with pytest.raises(ConfigError, match="max_cost: no price is known for the judge `examiner`"):
        optimizer(settings, task, Metered(reply=propose)).optimize(PROMPT)
    assert task.calls == judge.calls == []


def test_the_document_of_a_plan_says_all_that_the_plan_does() -> None:
    plan = plan_of(Metered(reply=answer), rollout_budget=60)
    document = plan.as_json()
    assert document["rollouts"] == 60
    assert document["proposals"] == {"if_accepted": 4, "if_refused": 8}
    assert document["reflections"] == plan.reflections == 30
    assert document["warnings"] == list(plan.warnings)
    roles = [role.as_json() for role in plan.roles]
    assert document["roles"] == roles
    assert [role["role"] for role in roles] == [Role.TASK, Role.REFLECTION]
    assert document["expected"] == {
        "rollouts": 60,
        "answer_tokens": 1,
        "answer_from": "as long as what is expected",
        "tokens": plan.expected_tokens,
        "cost": f"{plan.expected_cost}",
    }
    assert plan.line == "plan: about 60 test calls and 6 reflection calls, 7,368 tokens, $0.0088"
