"""A teacher answers the cases without a ground truth once, and everything says so."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest

from forked import forking
from optimizers.paid import CENT, PaidAdapter
from optimizers.worlds import OVERLOADED, numbered
from programs import Programs
from promptgraft import (
    Case,
    Data,
    GepaOptimizer,
    GepaResult,
    Limits,
    OptimizationContext,
    Prompt,
    ScriptedAdapter,
    Teacher,
    examples_from,
    feedback_from,
)
from promptgraft.adapters.base import ToolInvoked, Usage
from promptgraft.errors import ConfigError, JournalMismatchError, TransientProviderError
from promptgraft.evals import metrics
from promptgraft.evals.spending import Role
from promptgraft.evals.types import TaughtCase, ToolUse
from promptgraft.graphs import Graph, Node, Run
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import EventBus, SessionProtocol
from promptgraft.search import RunPlan
from promptgraft.search.events import CaseTaught, RolloutCompleted
from teacher_world import (
    GIVEN,
    TASK,
    TEACHING,
    Loud,
    answer,
    bound,
    cases,
    prompt,
    propose,
    run,
    settings,
)

WORLD = Path(__file__).parents[1] / "teacher_world.py"
UNTAUGHT = {case.id: str(case.input) for case in cases() if case.id not in GIVEN}


def test_examples_need_not_have_the_ids_of_their_cases() -> None:
    given = settings()
    training, held_out = (
        [attrs.evolve(example, id=f"e-{example.id}") for example in examples]
        for examples in (given.training_examples, given.data.held_out or ())
    )
    loud = Loud()
    result = run(
        Teacher(TEACHING, loud),
        attrs.evolve(given, training_examples=training, data=Data(held_out=held_out)),
    )
    assert sorted(loud.asked) == sorted(UNTAUGHT.values())
    assert result.means == run(Teacher(TEACHING, Loud())).means
    assert result.taught == tuple(f"e-{case}" for case in UNTAUGHT)


@pytest.mark.parametrize("workers", [0, 4])
def test_each_case_is_answered_once_and_the_search_learns_from_it(workers: int) -> None:
    loud, journal, bus = Loud(), MemoryJournal(), EventBus()
    told: list[CaseTaught] = []
    said: list[RolloutCompleted] = []
    bus.subscribe(CaseTaught, told.append)
    bus.subscribe(RolloutCompleted, said.append)
    around: dict[str, Any] = {"journal": journal, "event_bus": bus}
    if workers:
        with ThreadPoolExecutor(workers) as executor:
            result = run(Teacher(TEACHING, loud), executor=executor, **around)
    else:
        result = run(Teacher(TEACHING, loud), **around)
    assert sorted(loud.asked) == sorted(UNTAUGHT.values())
    keys = {one.key for one in journal.records() if one.key.startswith("teacher/")}
    assert keys == {f"teacher/{id_}" for id_ in UNTAUGHT}
    assert set(result.taught) == set(UNTAUGHT)
    [row] = [row for row in result.ledger if row.role is Role.TEACHER]
    assert row.calls == len(UNTAUGHT)
    teacher = "toy/teaching on loud"
    assert [(one.case, one.teacher, one.expected) for one in told] == [
        (id_, teacher, text.upper()) for id_, text in UNTAUGHT.items()
    ]
    mark = f"what is expected here is what the teacher `{teacher}` answered"
    for event in said:
        assert event.record.feedback is not None
        is_marked = mark in event.record.feedback.feedback
        assert is_marked == (event.record.example_id in UNTAUGHT)
    assert f"{len(UNTAUGHT)} cases had no `expected`" in result.remarks[0]
    # Of five cases to validate on, the data set itself has a wrong answer to the first.
    assert (result.means[0], result.best_pareto_mean) == (0.0, 0.8)
    again = run(Teacher(TEACHING, loud), **around)
    assert len(loud.asked) == len(UNTAUGHT)
    assert (again.means, again.taught, again.ledger) == (result.means, result.taught, result.ledger)


def test_a_run_that_is_killed_asks_no_case_again(tmp_path: Path) -> None:
    ends = set()
    with forking(WORLD) as run_one:
        for fatal in (0, 4, len(UNTAUGHT) + 3):
            path = tmp_path / f"{fatal}.jsonl"
            if fatal:
                assert run_one(path, fatal)[0] == -signal.SIGKILL
            code, said = run_one(path, 0)
            assert code == 0
            ends.add(said)
            asked = Path(f"{path}.asked").read_text("utf-8").splitlines()
            assert sorted(asked) == sorted(UNTAUGHT.values())
    assert len(ends) == 1


def test_a_graph_teaches_too() -> None:
    def flow(run_: Run, text: str) -> str:
        return str(run_.ask("loud", {"text": text}))

    loud = Loud()
    graph = Graph("toy/teachers", flow=flow, nodes=[Node("loud", TEACHING, adapter=loud)])
    result = run(Teacher(graph))
    assert sorted(loud.asked) == sorted(UNTAUGHT.values())
    assert result.best_pareto_mean == 0.8


@attrs.frozen
class Looking:
    """An adapter that also looks the text up."""

    inner: ScriptedAdapter

    @property
    def identity(self) -> str:
        return f"looking {self.inner.identity}"

    def evaluate(self, prompt: Prompt[Any], *, session: SessionProtocol, **more: Any) -> Any:
        response = self.inner.evaluate(prompt, session=session, **more)
        params = {"text": response.text.lower()}
        session.dispatch(ToolInvoked(name="look", params=params, result=self.identity))
        return response


def test_calls_that_a_case_expects_stay_when_it_is_taught() -> None:
    given, made = (ToolUse(name=name, arguments={}) for name in ("look", "guess"))
    case = Case(id="c", input="x", tools=(given,))
    taught = TaughtCase.of(case, expected="y", tools=(made,), teacher="t")
    assert (taught.expected, taught.tools) == ("y", (given,))


def test_the_calls_of_a_teacher_are_expected_where_a_case_has_none() -> None:
    judges = [metrics.exact(), metrics.tool_trajectory(rule=metrics.ToolRule(results=True))]
    tools = [ToolUse(name="look", arguments={"text": "another"})]
    judged = [attrs.evolve(case, tools=tuple(tools)) if case.expected else case for case in cases()]
    examples = examples_from(TASK, judged, judges, taught=True)
    config = settings(
        training_examples=examples[:9],
        data=Data(held_out=examples[9:]),
        feedback_fn=feedback_from(judges),
    )
    journal, loud = MemoryJournal(), Loud()
    task = Looking(ScriptedAdapter(answer, identity="task"))
    reflection = ScriptedAdapter(propose, identity="reflection")

    def start(teacher: Any, journal: MemoryJournal) -> GepaResult:
        context = OptimizationContext(
            task, reflection_adapter=reflection, teacher=Teacher(TEACHING, teacher), journal=journal
        )
        return GepaOptimizer(context, config).optimize(TASK)

    result = start(Looking(loud), journal)
    # Calls as the teacher made them, whatever they returned, and the given ones where there are.
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == (0.4, 0.8)
    assert start(Looking(Loud(lambda _: pytest.fail("asked"))), journal).means == result.means
    with pytest.raises(ConfigError, match=r"case `c\d+`: .*needs the expected `tools`"):
        start(Loud(), MemoryJournal())


@attrs.frozen
class Priced:
    """A model with a price for each token, or with an unknown one; it is never asked."""

    price: Decimal | None = Decimal("0.01")
    identity: str = "loud"
    longest_answer: int = 100

    def price_of(self, usage: Usage) -> Decimal | None:
        return self.price and self.price * (usage.input_tokens + usage.output_tokens)

    def evaluate(self, prompt: object, **options: object) -> NoReturn:
        raise AssertionError(prompt, options)


def planned(model: Priced, **options: Any) -> RunPlan:
    context = OptimizationContext(
        ScriptedAdapter(lambda _: "x", identity="task"), teacher=Teacher(TEACHING, model)
    )
    return GepaOptimizer(context, settings(**options)).plan(TASK)


def test_a_plan_has_what_the_teacher_is_asked() -> None:
    [row] = [row for row in planned(Priced()).roles if row.role is Role.TEACHER]
    assert (row.calls, row.expected.calls) == (len(UNTAUGHT), len(UNTAUGHT))
    assert row.expected.cost is not None
    assert row.expected.tokens is not None
    assert row.expected.cost == Decimal("0.01") * row.expected.tokens
    with pytest.raises(ConfigError, match=r"limits.max_cost: no price is known for `loud`"):
        planned(Priced(None), limits=Limits(max_cost=Decimal(5)))


def test_what_a_teacher_cannot_be_asked_is_refused_before_the_first_call() -> None:
    loud, other = Loud(), prompt("other", "Say $what loud.")
    with pytest.raises(ConfigError, match=r"teacher: .*`what`"):
        run(Teacher(other, loud))
    assert loud.asked == []
    with pytest.raises(ConfigError, match="teacher: expected a Prompt or a Graph, found 'loud'"):
        Teacher("loud", loud)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="teacher: adapter: expected an adapter, found None"):
        Teacher(TEACHING)


def test_a_teacher_that_fails_ends_the_run_and_is_resumed() -> None:
    journal, failing = MemoryJournal(), Loud()
    answered = list(UNTAUGHT)[:6]

    def note(text: str) -> None:
        if text not in [UNTAUGHT[id_] for id_ in answered]:
            raise TransientProviderError("overloaded")
        failing.asked.append(text)

    with pytest.raises(TransientProviderError) as caught:
        run(Teacher(TEACHING, Loud(note)), journal=journal)
    assert str(caught.value).startswith(f"teacher: case `{list(UNTAUGHT)[6]}`: overloaded; give")
    loud = Loud()
    result = run(Teacher(TEACHING, loud), journal=journal)
    assert sorted(loud.asked + failing.asked) == sorted(UNTAUGHT.values())
    assert set(result.taught) == set(UNTAUGHT)


def test_a_teacher_that_failed_is_in_the_ledger_of_the_run_that_is_resumed() -> None:
    def mortal(number: int, rendered: RenderedPrompt[object]) -> str:
        if number == 2:
            raise OVERLOADED
        return loud(rendered)

    def loud(rendered: RenderedPrompt[object]) -> str:
        return bound(rendered).upper()

    journal = MemoryJournal()
    failing, well = (PaidAdapter(reply=one, identity="loud") for one in (numbered(mortal), loud))
    with pytest.raises(TransientProviderError):
        run(Teacher(TEACHING, failing), journal=journal)
    result = run(Teacher(TEACHING, well), journal=journal)
    [row] = [row for row in result.ledger if row.role is Role.TEACHER]
    assert row.calls == failing.calls + well.calls == len(UNTAUGHT) + 1
    assert row.cost == row.calls * CENT


@pytest.mark.parametrize(
    "other",
    [
        Teacher(prompt("teaching", "Say it low."), Loud()),
        Teacher(TEACHING, Loud(), params=lambda case: {"text": f"{case.input}!"}),
    ],
    ids=["prompt", "params"],
)
def test_another_teacher_on_the_same_journal_is_refused(other: Teacher) -> None:
    journal = MemoryJournal()
    run(Teacher(TEACHING, Loud()), journal=journal)
    with pytest.raises(JournalMismatchError, match="teacher"):
        run(other, journal=journal)


def test_an_answer_that_no_metric_can_judge_is_refused_with_its_case() -> None:
    judges = [metrics.contains()]
    bare = [Case(id=f"c{n}", input=f"t{n}") for n in range(6)]
    config = settings(
        training_examples=examples_from(TASK, bare, judges, taught=True),
        pareto_set_size=3,
        feedback_fn=feedback_from(judges),
    )
    silent = ScriptedAdapter(lambda _: "", identity="silent")
    with pytest.raises(ConfigError, match="case `c0`"):
        run(Teacher(TEACHING, silent), config)


PROJECT = """\
version: 1
prompts: {task: world.py:TASK}
dataset: {path: cases.jsonl}
splits: {ratio: {train: 0.5, validation: 0.3, test: 0.2}}
metrics: [{name: exact}]
models:
  task: {python: "world.py:task_model"}
  reflection: {python: "world.py:reflection_model"}
  teacher: {python: "world.py:teacher_model"}
teacher: world.py:TEACHING
optimizer: {rollout_budget: 80, minibatch_size: 2}
store: {path: store}
"""
CODE = """\
import sys
sys.path.insert(0, {tests!r})
from promptgraft import ScriptedAdapter
from teacher_world import TASK, TEACHING, Loud, answer, propose

def task_model():
    return ScriptedAdapter(answer, identity="task")

def reflection_model():
    return ScriptedAdapter(propose, identity="reflection")

def teacher_model():
    return Loud()
"""


def checked_output(programs: Programs, folder: Path, *words: str) -> str:
    done = programs.promptgraft(*words, folder=folder)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_a_project_has_its_teacher_and_marks_its_cases(tmp_path: Path, programs: Programs) -> None:
    (tmp_path / "promptgraft.yaml").write_text(PROJECT, "utf-8")
    tests = os.fspath(Path(__file__).parents[1])
    (tmp_path / "world.py").write_text(CODE.format(tests=tests), "utf-8")
    lines = [json.dumps({"id": f"c{n}", "input": f"text {n} of it"}) for n in range(30)]
    (tmp_path / "cases.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "store").mkdir()
    checked_output(programs, tmp_path, "optimize")
    [run_folder] = (tmp_path / "runs").iterdir()
    result = json.loads((run_folder / "result.json").read_text("utf-8"))
    assert len(result["taught"]) == 30
    assert "30 cases had no `expected`" in result["warnings"][0]
    case = result["held_out"]["ids"][0]
    shown = checked_output(programs, tmp_path, "show", run_folder.name, "--case", case)
    assert "expected, as the teacher `toy/teaching on loud` answered:" in shown
    checked_output(programs, tmp_path, "report", run_folder.name, "--out", "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Expected, as the teacher toy/teaching on loud answered" in page
