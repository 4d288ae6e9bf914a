"""What is found out before the baseline of a run with an agent, and when it is resumed."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from black_box.asking import TEXTS, cases
from black_box.service import Service, said, serving
from optimizers.worlds import propose
from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    FileJournal,
    GepaConfig,
    GepaOptimizer,
    GepaResult,
    HttpAgent,
    Limits,
    Objectives,
    OptimizationContext,
    RequiredObjectives,
    ScriptedAdapter,
    Usage,
    examples_from,
    feedback_from,
)
from promptgraft.adapters.base import ModelCalled
from promptgraft.agents.call import AgentAnswer
from promptgraft.agents.python import PythonAgent
from promptgraft.errors import (
    CallerError,
    ConfigError,
    JournalMismatchError,
    TransientProviderError,
)
from promptgraft.evals import metrics
from promptgraft.evals.spending import Role
from promptgraft.evals.types import ToolUse, Turn
from promptgraft.runs.documents import ledger_rows
from promptgraft.search import StopReason
from promptgraft.search.plan import RunPlan

EXACT = metrics.exact()


def optimizer(
    agent: Any,
    found: list[Case] | None = None,
    *,
    judges: Any = (EXACT,),
    journal: FileJournal | None = None,
    on_agent_error: Any = "zero",
    max_call_cost: str | None = None,
    **settings: Any,
) -> tuple[GepaOptimizer, BlackBox]:
    box = BlackBox(TEXTS, agent=agent, on_agent_error=on_agent_error, max_call_cost=max_call_cost)
    config = GepaConfig(
        training_examples=examples_from(box.prompt, found or cases(8), judges),
        pareto_set_size=4,
        feedback_fn=feedback_from(judges),
        rollout_budget=20,
        minibatch_size=2,
        **settings,
    )
    writer = ScriptedAdapter(propose, identity="writer")
    return GepaOptimizer(OptimizationContext(writer, journal=journal), config), box


def run(agent: Any, **given: Any) -> GepaResult:
    made, box = optimizer(agent, **given)
    return made.optimize(box)


def planned(agent: Any, **given: Any) -> RunPlan:
    made, box = optimizer(agent, **given)
    return made.plan(box)


class Agent:
    """Fails as long as ``fails`` says so, and counts what it is asked."""

    def __init__(self, fails: Callable[[int], BaseException | None] = lambda _: None) -> None:
        self.asked: list[str] = []
        self._fails = fails

    def __call__(self, query: str, call: AgentCall) -> str:
        self.asked.append(query)
        error = self._fails(len(self.asked))
        if error is not None:
            raise error
        return query


def test_the_plan_names_the_call_and_counts_turns() -> None:
    found = [
        Case(
            id=f"c{n}",
            input="b",
            expected="b",
            turns=(Turn(user=f"a{n}", expected="a"), Turn(user="b", expected="b")),
        )
        for n in range(8)
    ]
    agent = Agent()
    plan = planned(agent, found=found)
    assert plan.first_call == (
        "agent `test_before_a_run.Agent` is asked the first turn of one case before the run, of 3 "
        "if it fails"
    )
    assert plan.roles[0].calls == 40
    assert not agent.asked


def echo(service: Service) -> HttpAgent:
    """Return the agent behind a service that answers with its texts."""
    return HttpAgent(url=service.url, json={"q": "{query}", "t": "{texts.system}"})


def test_a_limit_on_money_for_a_service_is_refused_before_a_call_unless_a_call_has_a_bound() -> (
    None
):
    with serving(lambda body, _: said(body["t"])) as service:
        with pytest.raises(ConfigError, match=r"no price is known .*give the agent its `max_call"):
            run(echo(service), limits=Limits(max_cost=5))
        assert not service.asked
        result = run(echo(service), limits=Limits(max_cost=5), max_call_cost="0.01")
        calls = len(service.asked)
    assert result.stop_reason is not StopReason.COST
    [task] = [entry for entry in result.ledger if entry.role is Role.TASK]
    assert (task.calls, task.cost) == (calls, calls * Decimal("0.01"))


def test_the_bound_of_a_call_ends_the_run_at_the_limit_and_a_reported_cost_counts_instead() -> None:
    with serving(lambda body, _: said(body["t"])) as service:
        result = run(echo(service), limits=Limits(max_cost="0.05"), max_call_cost="0.01")
    assert (result.stop_reason, result.total_cost) == (StopReason.COST, Decimal("0.05"))
    priced = run(
        lambda query, call: AgentAnswer(text=query, cost=Decimal("0.25")),
        limits=Limits(max_cost=1),
        max_call_cost="0.5",
    )
    assert priced.total_cost == 1


@pytest.mark.parametrize("error", [ValueError("no desk"), TransientProviderError("busy")])
def test_calls_that_fail_are_on_the_bill_at_the_most_that_they_can_cost(error: Exception) -> None:
    agent = Agent(lambda number: error if number % 4 == 3 else None)
    result = run(agent, max_call_cost="0.01")
    assert len(agent.asked) > 4
    [task] = [entry for entry in result.ledger if entry.role is Role.TASK]
    assert (task.calls, task.cost) == (len(agent.asked), len(agent.asked) * Decimal("0.01"))


@pytest.mark.parametrize("error", [ValueError("no desk"), TransientProviderError("busy")])
def test_a_failed_call_is_not_charged_again_if_its_model_was_called(error: Exception) -> None:
    paid = ModelCalled(
        model="desk-1", requests=1, usage=Usage(), cost=Decimal("0.002"), seconds=0.0
    )
    asked = list[str]()

    def answer(query: str, call: AgentCall) -> AgentAnswer:
        asked.append(query)
        call.session.dispatch(paid)
        if query.endswith("3"):
            raise error
        return AgentAnswer(text=query, counted=True)

    result = run(answer, max_call_cost="0.01")
    assert any(query.endswith("3") for query in asked)
    [task] = [entry for entry in result.ledger if entry.role is Role.TASK]
    assert (task.model, task.calls) == ("desk-1", len(asked))
    assert task.cost == len(asked) * Decimal("0.002")


class TooManyRequestsError(Exception):
    """Raised as by the SDK of a provider, after calls that have been paid for."""

    status_code = 429


@pytest.mark.parametrize(
    "error", [ValueError("no desk"), TimeoutError("late"), TooManyRequestsError("later")]
)
def test_the_price_of_a_failed_call_is_unknown_without_a_bound(error: Exception) -> None:
    def answer(query: str, call: AgentCall) -> AgentAnswer:
        if query.endswith("3"):
            raise error
        return AgentAnswer(text=query, cost=Decimal("0.01"))

    limits = Limits(max_cost=5)
    warning = "fails has no known cost, and ends the run; give the agent its `max_call_cost`"
    assert any(warning in line for line in planned(answer, limits=limits).warnings)
    assert not any("fails" in line for line in planned(answer).warnings)
    bounded = planned(answer, limits=limits, max_call_cost="0.02")
    assert not any("fails" in line for line in bounded.warnings)
    limited = run(answer, limits=limits)
    assert limited.stop_reason is StopReason.COST
    assert "it is an agent that failed" in limited.stop_detail
    result = run(answer)
    assert result.total_cost is None
    [task] = [entry for entry in result.ledger if entry.role is Role.TASK]
    assert task.calls == result.total_rollouts + 1


def test_an_agent_that_always_fails_ends_the_run_before_anything_is_paid_for() -> None:
    agent = Agent(lambda _: ValueError("no key"))
    with pytest.raises(CallerError) as raised:
        run(agent, on_agent_error="unscored")
    assert str(raised.value).startswith(
        "agent `test_before_a_run.Agent` failed on every case tried before the run, "
        "last on `c2`: the agent raised ValueError: no key ("
    )
    assert "test_before_a_run.py:" in str(raised.value)
    assert len(agent.asked) == 3


def test_one_call_is_enough_for_an_agent_that_answers() -> None:
    agent = Agent()
    result = run(agent)
    assert len(agent.asked) == result.total_rollouts + 1


def test_an_agent_that_fails_on_some_cases_only_is_scored_there() -> None:
    agent = Agent(lambda count: ValueError("no") if count < 3 else None)
    assert run(agent).total_rollouts > 0


def test_an_agent_that_cannot_be_reached_is_no_fault_of_the_user() -> None:
    with pytest.raises(TransientProviderError, match="ConnectionRefusedError"):
        run(Agent(lambda _: ConnectionRefusedError("down")))


def test_a_resumed_run_does_not_repeat_the_call_and_notices_another_agent(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    agent = Agent()
    with FileJournal(path) as journal:
        first = run(PythonAgent(function=agent, version="1"), journal=journal)
    again = Agent()
    with FileJournal(path) as journal:
        assert run(PythonAgent(function=again, version="1"), journal=journal) == first
    assert not again.asked
    with FileJournal(path) as journal, pytest.raises(JournalMismatchError, match="agent"):
        run(PythonAgent(function=again, version="2"), journal=journal)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"objectives": Objectives(weights={"score": 1, "exakt": 1})},
            "objectives.weights: no metric is called `exakt` (did you mean `exact`?)",
        ),
        (
            {"objectives": Objectives(required={"tone": 0.5})},
            "objectives.required: no metric is called `tone`; metrics: `exact`",
        ),
        (
            {"objectives": Objectives(pick={"tone": 0.5})},
            "objectives.pick: no metric is called `tone`",
        ),
        (
            {"limits": Limits(stoppers=[RequiredObjectives({"tone": 1.0})])},
            "limits.stoppers[0].thresholds: no metric is called `tone`",
        ),
    ],
)
def test_objectives_that_no_metric_has_are_refused_before_the_first_call(
    settings: dict[str, Any], line: str
) -> None:
    agent = Agent()
    with pytest.raises(ConfigError) as raised:
        run(agent, **settings)
    assert line in str(raised.value)
    assert not agent.asked


def test_a_metric_of_tools_is_refused_before_the_first_call() -> None:
    agent = Agent()
    found = [Case(id=f"c{n}", input=f"x{n}", tools=(ToolUse(name="a"),)) for n in range(8)]
    with pytest.raises(ConfigError, match="metric `tool_trajectory` judges tools"):
        run(agent, found=found, judges=(metrics.tool_trajectory(),))
    assert not agent.asked


def test_tokens_that_an_agent_does_not_report_are_unknown_and_the_plan_says_so() -> None:
    with serving(lambda body, _: said(body["t"])) as service:
        limits = Limits(max_tokens=100_000)
        warnings = planned(echo(service), limits=limits).warnings
        result = run(echo(service), limits=limits, max_call_cost="0.01")
    assert any(line.startswith("max_tokens does not see the tokens of") for line in warnings)
    [task] = [entry for entry in result.ledger if entry.role is Role.TASK]
    assert task.tokens == (None, None)
    [row] = ledger_rows([task])
    assert isinstance(row, dict)
    assert (row["input_tokens"], row["output_tokens"]) == (None, None)
    assert re.search(rf"task +{task.calls} +unknown +unknown", str(result))


def test_tokens_that_a_function_reports_are_counted() -> None:
    counted = AgentAnswer(text="a", usage=Usage(input_tokens=3, output_tokens=2))
    result = run(lambda query, call: counted)
    [task] = [entry for entry in result.ledger if entry.role is Role.TASK]
    assert task.tokens == (3 * task.calls, 2 * task.calls)
    assert not any("max_tokens" in line for line in planned(Agent()).warnings)
