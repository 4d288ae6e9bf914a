"""What a run is expected to use: planned before it, reckoned anew while it goes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import Enum

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft import (
    GepaConfig,
    MarkdownSection,
    OpenAIAdapter,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptTemplate,
)
from promptgraft.evals.judges import LlmFinalResponse, LlmRubricResponse, Rubric
from promptgraft.evals.metrics import AllOf, Exact
from promptgraft.evals.spending import Role, Spending
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import Json
from promptgraft.prompt import TaskExample, TaskExamplesSection
from promptgraft.search import RolePlan, RunPlan
from promptgraft.search.ledger import Ledger
from promptgraft.search.plan import SeenAnswers, SeenUse, Use
from promptgraft.search.settings import Affordable
from promptgraft.targets.judging import examples_from, feedback_from

RULES = MarkdownSection(title="Rules", key="rules", template="Be brief: $question")


class Team(Enum):
    ROADS = "roads"
    WATER = "water"


@attrs.frozen
class Found:
    team: Team
    street: str
    number: int


def cases(expected: Sequence[Json]) -> list[Case]:
    return [Case(id=f"c{n}", input=f"what of {n}?", expected=one) for n, one in enumerate(expected)]


def model(name: str = "gpt-4.1-mini") -> OpenAIAdapter:
    return OpenAIAdapter(name, api_key="none")


def plan_of(
    expected: Sequence[Json] = ("yes", "no") * 4,
    *,
    output_type: type | None = None,
    sections: Sequence[MarkdownSection] = (RULES,),
    metrics: Sequence[Metric] = (Exact(),),
    task: OpenAIAdapter | None = None,
    seen: SeenAnswers | None = None,
) -> RunPlan:
    prompt = Prompt(
        PromptTemplate[object](ns="a", key="b", sections=tuple(sections), output_type=output_type)
    )
    found = examples_from(prompt, cases(expected))
    config = GepaConfig(
        rollout_budget=60,
        pareto_set_size=4,
        minibatch_size=2,
        target_section_paths=(("rules",),),
        training_examples=found,
        feedback_fn=feedback_from(metrics),
    )
    return OptimizationJob(prompt, OptimizationContext(task or model()), config).plan(seen=seen)


def answer_of(plan: RunPlan) -> int:
    tokens = plan.roles[0].expected.output_tokens
    assert tokens is not None
    return tokens


def test_answers_are_as_long_as_labels_fields_or_worked_examples() -> None:
    shown = TaskExamplesSection(
        title="Examples",
        key="examples",
        examples=[TaskExample(key="one", objective="Why?", outcome="because " * 30)],
    )
    assert answer_of(plan_of()) == 1
    assert answer_of(plan_of(output_type=Team)) == 2
    assert answer_of(plan_of([f"reply {n} {'word ' * 100}" for n in range(8)])) == 127
    assert answer_of(plan_of(sections=[RULES, shown])) == 60
    assert 30 < answer_of(plan_of([None] * 8, output_type=Found)) < 50
    known: list[Json] = [{"team": "roads", "street": "x" * 400, "number": n} for n in range(8)]
    assert 110 < answer_of(plan_of(known, output_type=Found)) < 130


def test_a_model_that_thinks_is_expected_to() -> None:
    thinking = OpenAIAdapter("gpt-5-mini", api_key="none", effort="low")
    assert answer_of(plan_of(task=thinking)) == 1 + 200


@pytest.mark.parametrize(
    ("name", "thinking", "source"),
    [("gpt-6-luna", 40, "as in run r"), ("own-model", 0, "")],
)
def test_an_earlier_run_corrects_what_a_model_is_expected_to_think(
    name: str, thinking: int, source: str
) -> None:
    [before, *_] = plan_of(task=model(name)).roles
    assert before.thinking == 500
    use = SeenUse(role=Role.TASK, model=name, calls=1, input_tokens=9, output_tokens=40)
    seen = SeenAnswers(uses=(use,), where="as in run r")
    [after, *_] = plan_of(task=model(name), seen=seen).roles
    assert after.expected.output_tokens == 40
    assert (after.thinking, after.thinking_from) == (thinking, source)


def test_every_judge_has_a_row_of_its_own() -> None:
    first, second = model("gpt-4.1"), model("gpt-4.1-nano")
    rubric = LlmRubricResponse(
        name="tone", judges=[first], rubrics=[Rubric(id="kind", text="It is kind.")], samples=3
    )
    plan = plan_of(
        metrics=[AllOf(metrics=(Exact(), LlmFinalResponse(judges=[first, second]))), rubric]
    )

    task, judge, other, reflection = plan.roles
    assert [row.role for row in plan.roles] == ["task", "judge", "judge", "reflection"]
    assert (judge.model, other.model) == (first.identity, second.identity)
    assert (judge.expected.calls, other.expected.calls) == (60 * 4, 60)
    assert (judge.calls, other.calls) == (2 * 60 * 4, 2 * 60)
    for row in (task, judge, other, reflection):
        assert row.expected.cost is not None
        assert row.cost is not None
        assert 0 < row.expected.cost < row.cost


@pytest.mark.parametrize(
    ("name", "bound"),
    [("gpt-4.1", 16_384), ("gpt-5", 32_768), ("gpt-4-turbo", None), ("own-model", None)],
)
def test_an_answer_has_a_bound_where_the_model_is_known(name: str, bound: int | None) -> None:
    assert model(name).longest_answer == bound
    assert OpenAIAdapter(name, api_key="none", max_output_tokens=9).longest_answer == 9
    assert plan_of(task=model(name)).roles[0].output_tokens == bound


PLANNED = RunPlan(
    rollouts=100,
    reflections=40,
    proposals=Affordable(if_accepted=5, if_refused=20, steps=30),
    roles=(
        RolePlan(
            role=Role.TASK,
            model="t",
            expected=Use(calls=100, input_tokens=10, output_tokens=1, cost=Decimal(4)),
        ),
        RolePlan(
            role=Role.REFLECTION,
            model="r",
            expected=Use(calls=10, input_tokens=90, output_tokens=9, cost=Decimal(6)),
        ),
    ),
    max_cost=None,
    max_tokens=None,
    warnings=(),
    expected_rollouts=100,
    answer_tokens=1,
    answer_from="",
)


def ledger_of(rollouts: int, *spent: Spending) -> Ledger:
    ledger = Ledger(100)
    ledger.count(spent, rollouts=rollouts)
    return ledger


def spending(role: Role, calls: int, cost: Decimal | None) -> Spending:
    return Spending(role=role, model="m", calls=calls, cost=cost)


def test_what_is_left_is_expected_to_cost_what_the_like_has_cost() -> None:
    assert PLANNED.forecast(ledger_of(0)) == PLANNED.expected_cost == 10
    dearer = spending(Role.TASK, 20, Decimal(4))
    assert PLANNED.forecast(ledger_of(20, dearer)) == 4 + 16 + 6 * Decimal("0.8")
    # Judges that no plan knew of count from their first call on.
    judged = spending(Role.JUDGE, 20, Decimal(1))
    assert PLANNED.forecast(ledger_of(20, dearer, judged)) == 5 + 16 + 4 + 6 * Decimal("0.8")
    asked = spending(Role.REFLECTION, 2, Decimal(1))
    assert PLANNED.forecast(ledger_of(20, dearer, asked)) == 5 + 16 + Decimal("0.5") * 10 * Decimal(
        "0.8"
    )
    assert PLANNED.forecast(ledger_of(100, dearer)) == 4
    assert PLANNED.forecast(ledger_of(20, spending(Role.TASK, 20, None))) is None
    assert attrs.evolve(PLANNED, max_cost=Decimal(3)).forecast(ledger_of(0)) == 3


@given(
    st.integers(0, 120),
    st.decimals(0, 50, places=4),
    st.decimals(0, 50, places=4),
    st.integers(1, 30),
)
def test_no_forecast_is_below_what_is_spent(
    rollouts: int, task: Decimal, reflection: Decimal, asked: int
) -> None:
    made = [spending(Role.TASK, rollouts, task)] if rollouts else []
    ledger = ledger_of(rollouts, *made, spending(Role.REFLECTION, asked, reflection))
    expected, spent = PLANNED.forecast(ledger), ledger.known_cost
    assert expected is not None
    assert spent is not None
    assert expected >= spent
    if rollouts >= 100:
        assert expected == spent
