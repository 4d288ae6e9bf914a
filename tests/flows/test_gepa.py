"""GEPA on graphs, through public names only."""

from __future__ import annotations

import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console
from flows.tickets import GRAPH, WANTED, Ticket, context, judge, prompt, settings, template, work
from further import thorough
from promptgraft import (
    Dataset,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    GradientConfig,
    GradientOptimizer,
    Limits,
    LocalPromptOverridesStore,
    MarkdownSection,
    OfflineAdapter,
    OptimizationJob,
    RolloutFeedback,
    ScriptedAdapter,
    Splits,
    Strategy,
    optimize,
)
from promptgraft.adapters.base import PromptAsked, answered
from promptgraft.algorithms.gepa import Restart, WholePrompt
from promptgraft.errors import (
    ConfigError,
    FlowError,
    JournalMismatchError,
    PermanentProviderError,
    TransientProviderError,
)
from promptgraft.evals import metrics
from promptgraft.evals.types import Answer, Case
from promptgraft.graphs import Graph, Node, Run, Step
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import TaskExamplesSection
from promptgraft.runtime import EventBus
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search.answers import record_from_json
from promptgraft.search.events import RolloutCompleted, Working
from promptgraft.search.stopping import StopReason
from promptgraft.targets.judging import feedback_from
from promptgraft.targets.part_kinds import GenerationModule
from promptgraft.targets.types import RolloutRecord


def records_of(journal: MemoryJournal) -> list[RolloutRecord]:
    return [
        record_from_json(one.answer, one.key) for one in journal.records() if one.kind == "rollout"
    ]


def test_the_texts_of_all_nodes_are_improved_and_kept_in_one_step(tmp_path: Any) -> None:
    store, journal = LocalPromptOverridesStore(root_path=tmp_path), MemoryJournal()
    surroundings = context(overrides_store=store, overrides_tag="live", journal=journal)
    result = GepaOptimizer(surroundings, settings()).optimize(GRAPH)
    assert (result.name, result.baseline_pareto_mean, result.best_pareto_mean) == (
        "support/tickets",
        0,
        1,
    )
    assert result.persisted
    assert {one.name for child in result.candidates for one in child.modules} == {
        f"support/tickets/{node}#instruction" for node in WANTED
    }
    response = GRAPH.answer(Ticket("t"), adapter=ScriptedAdapter(work), store=store, tag="live")
    assert judge(settings().training_examples[0], response, None).score == 1  # type: ignore[arg-type]
    [first, *_] = records_of(journal)
    assert [step.id for step in first.steps] == ["1", "2.1.1", "2.2.1", "3"]


def both(**changes: Any) -> tuple[GepaResult, GepaResult]:
    def flow(run: Run, ticket: Ticket) -> str:
        return str(run.ask("writer", ticket))

    alone = Graph("support/tickets", flow=flow, nodes=[Node("writer", template("writer"))])
    found = [
        GepaOptimizer(context(), settings(**changes)).optimize(subject)
        for subject in (prompt("writer"), alone)
    ]
    return found[0], found[1]


def test_a_flow_may_take_no_input() -> None:
    examples = tuple(attrs.evolve(example, params=()) for example in settings().training_examples)
    graph = Graph(
        "support/tickets", flow=lambda _run: "done", nodes=[Node("writer", template("writer"))]
    )
    plan = GepaOptimizer(context(), settings(training_examples=examples)).plan(graph)
    assert plan.rollouts == settings().rollout_budget
    with pytest.raises(ConfigError, match="graph `support/tickets`: flow: "):
        GepaOptimizer(context(), settings(training_examples=examples)).plan(GRAPH)


@pytest.mark.parametrize("seed", [0, *thorough([3])])
def test_a_graph_of_one_node_takes_the_path_of_its_prompt(seed: int) -> None:
    on_prompt, on_graph = both(seed=seed, enable_merge=True)
    assert len(on_prompt.candidates) > 1
    for name in ("scores_matrix", "parents", "frontier", "total_rollouts", "stop_reason"):
        assert getattr(on_graph, name) == getattr(on_prompt, name)
    assert [one.changes for one in on_graph.candidates] == [
        one.changes for one in on_prompt.candidates
    ]
    assert [one.digest for one in on_graph.candidates] == [
        one.digest for one in on_prompt.candidates
    ]


def test_the_reflector_sees_the_place_of_the_node_and_its_own_steps() -> None:
    questions: list[str] = []

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return "```instruction\nSay facts.\n```"

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(note))
    GepaOptimizer(surroundings, settings(rollout_budget=20, additions=())).optimize(GRAPH)
    [about] = [one for one in questions if "support/tickets/facts#instruction" in one][:1]
    own = "- step 2.1.1: facts, after 1, made with this part, answered `Say facts.`\n"
    assert own in about
    assert "- step 3: writer, after 2.1.1, 2.2.1, answered the output\n" in about
    assert 'Step 2.1.1 was given:\n\n```\n{\n  "text": "Say router. ticket' in about
    assert "Step 2.2.1 was given" not in about


def test_a_question_shows_an_input_of_several_steps_once_and_says_what_it_leaves_out() -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        answers = [run.ask("facts", Ticket(f"Long: {ticket.text}")) for _ in range(2)]
        answers += [run.ask("facts", Ticket(f"{n}: {ticket.text}")) for n in range(12)]
        return str(run.ask("writer", Ticket(" ".join(map(str, answers)))))

    def as_text(example: Any, response: Any) -> tuple[str, str]:
        return f'"{example.params[0].text}"', response.text

    graph = attrs.evolve(GRAPH, flow=flow)
    about, *_ = questions_of(graph, additions=())
    assert "- step 2: facts, after 1, made with this part, given the input of step 1," in about
    assert about.count('"text": "Long: ') == 3  # one in each example
    assert "Step 14 was given" in about
    assert about.count("\n[… 3 texts of steps between left out …]\n") == 3
    alone = attrs.evolve(GRAPH, flow=lambda run, ticket: str(run.ask("facts", ticket)))
    about, *_ = questions_of(alone, additions=(), example_formatter=as_text)
    assert "- step 1: facts, made with this part, given the input, answered the output" in about


ALONE = """
from typing import Literal
from promptgraft import MarkdownSection, PromptTemplate
from promptgraft.graphs import Graph, Node

TEAMS = Literal["roads", "lighting", "waste", "parks", "water", "noise"]
PROMPT = PromptTemplate(ns="docs", key="team", output_type=TEAMS, sections=[
    MarkdownSection(title="Task", key="task", template="Name the team.\\n\\n- roads\\n- waste"),
    MarkdownSection(title="Report", key="report", template="$report", overridable=False),
])
GRAPH = Graph(
    "docs/alone",
    flow=lambda run, report: str(run.ask("team", {"report": report})),
    nodes=[Node("team", PROMPT)],
)
"""


def test_a_project_with_a_graph_of_one_node_is_improved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    assert console("init", str(tmp_path / "mine")).code == 0
    monkeypatch.chdir(tmp_path / "mine")
    Path("agent.py").write_text(ALONE, "utf-8")
    file = Path("promptgraft.yaml")
    text = file.read_text("utf-8").replace("prompts:", "graphs:")
    text = text.replace("prompts/triage.md", "agent.py:GRAPH")
    head = text[: text.index("optimizer:")]
    file.write_text(f"{head}optimizer: {{rollout_budget: 300, minibatch_size: 4}}\n", "utf-8")
    result = console("optimize")
    assert "promptgraft: " not in result.err
    assert result.code in (0, 1)
    assert "\nkept in  " in result.out


def questions_of(graph: Graph, **changes: Any) -> list[str]:
    questions: list[str] = []

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return "no block"

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(note))
    GepaOptimizer(surroundings, settings(rollout_budget=20, **changes)).optimize(graph)
    return questions


def test_a_question_of_a_gradient_search_shows_the_other_texts_of_each_node_and_inputs_once() -> (
    None
):
    def flow(run: Run, ticket: Ticket) -> str:
        return " ".join(str(run.ask(node, ticket)) for node in ("facts", "tone", "facts"))

    questions: list[str] = []

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return "no block"

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(note))
    given = {
        name: getattr(settings(), name) for name in ("training_examples", "feedback_fn", "data")
    }
    config = GradientConfig(rollout_budget=20, pareto_set_size=3, **given)
    GradientOptimizer(surroundings, config).optimize(attrs.evolve(GRAPH, flow=flow))

    others = questions[0].split("## Other texts")[1].split("## What went wrong")[0]
    assert [f"support/tickets/{node} section ticket:" in others for node in WANTED] == [
        False,
        True,
        True,
        False,
    ]
    assert "section rules" not in others  # it may change
    _, *later = questions[0].split("## Texts that may change")[0].split("### Step ")[1:]
    assert all("**Input:** as of step 1\n" in step for step in later)


@pytest.mark.parametrize("additions", [(), ("whole_prompt",)])
def test_the_reflector_sees_which_node_took_the_only_step_of_an_answer(additions: Any) -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        node = "facts" if ticket.text[-1] in "02468" else "tone"
        return f"From {node}: {run.ask(node, Ticket(f'Ticket: {ticket.text}'))}"

    question = questions_of(attrs.evolve(GRAPH, flow=flow), additions=additions)[0]
    made_with = "this part" if not additions else "P1"
    assert (
        f"**Steps:**\n\n- step 1: facts, made with {made_with}, answered `Say facts.`\n\n"
        in question
    )
    assert 'Step 1 was given:\n\n```\n{\n  "text": "Ticket: ticket ' in question
    assert ("**Steps:**\n\n- step 1: tone" in question) == bool(additions)  # it is about both


def test_the_reflector_sees_texts_of_the_only_step_once() -> None:
    graph = attrs.evolve(GRAPH, flow=lambda run, ticket: run.ask("writer", ticket))
    question = questions_of(graph)[0]
    [steps] = question.split("**Steps:**")[1].split("**Feedback:**")[:1]
    only = "- step 1: writer, made with this part, given the input, answered the output"
    assert steps.strip() == only


def test_the_reflector_sees_on_what_a_function_of_the_flow_failed() -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        return str(run.do("count", int, run.ask("facts", ticket)))

    graph = attrs.evolve(GRAPH, flow=flow, candidate_errors=(ValueError,))
    question = questions_of(graph)[0]
    assert "- step 2: count, after 1, failed\n" in question
    assert (
        "Step 2 was given:\n\n```\nSay facts.\n```\n\nStep 2 failed:\n\n```\nValueError:"
        in question
    )


@pytest.mark.parametrize("text", ["[" * 3_000, '{"a": 1, "a": 2}', "9" * 5_000 + "x"])
def test_a_step_that_was_given_nearly_json_is_shown_as_it_is(text: str) -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        run.ask("facts", ticket)
        return str(run.do("count", int, text))

    graph = attrs.evolve(GRAPH, flow=flow, candidate_errors=(ValueError,))
    question = questions_of(graph)[0]
    assert f"Step 2 was given:\n\n```\n{text[:100]}" in question


def test_one_question_is_about_all_nodes_that_failures_passed_and_mends_them_together() -> None:
    questions: list[str] = []

    def mend(rendered: Any) -> str:
        questions.append(rendered.text)
        return "\n".join(
            f"Missing.\n```support/tickets/{node}#instruction\n{wanted}\n```"
            for node, wanted in WANTED.items()
        )

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(mend))
    result = GepaOptimizer(surroundings, settings(additions=["whole_prompt"])).optimize(GRAPH)
    assert result.best_pareto_mean == 1
    assert len(questions) == result.total_reflections == 1
    [question] = questions
    assert [
        (mark, node)
        for mark, node in re.findall(r"\*\*(P\d):\*\* support/tickets/(\w+)#instruction", question)
    ] == [(f"P{number}", node) for number, node in enumerate(WANTED, start=1)]
    assert "one or several; their names begin with the prompt that each belongs to:" in question
    assert "\nsupport/tickets/router section " in question  # what stays as it is
    assert "section rules:" not in question  # they may change
    assert "- step 1: router, made with P1, given the input, answered `Say router.`\n" in question
    assert "- step 2.1.1: facts, after 1, made with P2, answered `Say facts.`\n" in question
    assert "- step 3: writer, after 2.1.1, 2.2.1, made with P4, answered the output\n" in question


def test_parts_of_a_node_that_may_change_are_shown_once() -> None:
    rules, message = template("facts").sections
    more = MarkdownSection(title="More", key="more", template="Say more.")
    node = Node("facts", attrs.evolve(template("facts"), sections=(rules, more, message)))
    graph = attrs.evolve(GRAPH, nodes=[node, *(one for one in GRAPH.nodes if one.name != "facts")])

    question = questions_of(graph, additions=["whole_prompt"])[0]
    current, rest = question.split("## Rest of the prompt")

    assert (current.count("Say more."), rest.partition("## Examples")[0].count("Say more.")) == (
        1,
        0,
    )


@pytest.mark.parametrize("answer", ["Two\nlines", "a `tick`", "very " * 20 + "long"])
def test_an_answer_that_would_break_the_outline_has_a_block(answer: str) -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        run.ask("facts", ticket)
        return "none"

    questions: list[str] = []

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return "no block"

    surroundings = context(lambda _: answer, reflection_adapter=ScriptedAdapter(note))
    GepaOptimizer(surroundings, settings(rollout_budget=20)).optimize(
        attrs.evolve(GRAPH, flow=flow)
    )

    assert "made with this part, given the input\n\nStep 1 answered:\n\n```" in questions[0]
    assert f"\n{answer}\n```" in questions[0]


def test_of_very_many_steps_the_first_and_the_last_are_shown() -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        for number in range(14):
            run.ask("facts", Ticket(f"time {number}"))
        return "none"

    question = questions_of(attrs.evolve(GRAPH, flow=flow))[0]
    steps = question.split("**Steps:**")[1].split("**Feedback:**")[0]

    shown = [number for number in range(14) if f'"text": "time {number}"' in steps]
    assert shown == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13]


def test_a_question_has_room_for_the_texts_of_all_nodes() -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        answers = [ticket.text]
        for node in WANTED:
            answers.append(f"{node} saw {answers[-1]} {'long ' * 2_000}")
            run.ask(node, Ticket(f"{answers[-1]} end of {node}"))
        return "none"

    question = questions_of(attrs.evolve(GRAPH, flow=flow), additions=["whole_prompt"])[0]
    steps = question.split("**Steps:**")[1].split("**Feedback:**")[0]

    for number, node in enumerate(WANTED, start=1):
        assert f'Step {number} was given:\n\n```\n{{\n  "text": "{node} saw' in steps
        assert f"end of {node}" in steps
    assert len(steps) <= 6_000


def branching() -> Graph:
    """Return a graph whose cases take one of two ways."""

    def flow(run: Run, ticket: Ticket) -> str:
        return str(run.ask("facts" if ticket.text[-1] in "02468" else "tone", ticket))

    nodes = [Node(name, template(name)) for name in ("facts", "tone")]
    return Graph("support/tickets", flow=flow, nodes=nodes)


def test_nodes_that_no_failure_passed_are_left_out_of_the_question() -> None:
    questions: list[str] = []

    def judge_even(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        del session
        is_even = example.id[-1] in "02468"  # as its ticket
        is_right = not is_even or WANTED["facts"] in response.text
        return RolloutFeedback(float(is_right), "right" if is_right else "wrong")

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return "Nothing is to blame."

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(note))
    config = settings(additions=[WholePrompt(share=1)], feedback_fn=judge_even)
    GepaOptimizer(surroundings, config).optimize(branching())
    assert questions
    for question in questions:
        assert "The part is: support/tickets/facts#instruction" in question
        assert "tone#instruction" not in question


ONE_PART: list[Any] = [
    {"additions": ("blame",)},
    {"additions": (), "strategy": Strategy(preset="paper")},
    *thorough(
        [
            {"additions": ()},
            {"additions": (Restart(after=1),)},
            {"additions": (), "strategy": Strategy(module_choice="all")},
            {"additions": (), "strategy": Strategy(module_choice="random")},
        ]
    ),
]
"""Searches that ask about one part at a time."""


def questions_on_branches(judge_by: Any, **changes: Any) -> list[str]:
    """Return the questions on a graph whose cases take one of two ways, facts or tone."""
    questions: list[str] = []

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return f"```instruction\nSay nothing {len(questions)}.\n```"

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(note))
    config = settings(feedback_fn=judge_by, rollout_budget=120, **changes)
    GepaOptimizer(surroundings, config).optimize(branching())
    return questions


@pytest.mark.parametrize("changes", ONE_PART)
def test_a_question_on_one_node_shows_only_cases_that_asked_it(changes: Any) -> None:
    def judge_none(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        del example, response, session
        return RolloutFeedback(0.0, "facts or tone is wrong")

    nodes = set()
    for question in questions_on_branches(judge_none, **changes):
        shown = question.split("### Example ")[1:]
        assert shown
        for example in shown:
            [(number, node)] = re.findall(r"^t(\d)\n[^#]*?\n- step 1: (\w+)", example)
            assert node == ("facts" if number in "02468" else "tone")
            assert f"- step 1: {node}, made with this part" in example
            nodes.add(node)
    assert nodes == {"facts", "tone"}


@pytest.mark.parametrize("changes", ONE_PART)
def test_a_node_that_no_failure_passed_waits_for_its_turn(changes: Any) -> None:
    def judge_odd(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        del response, session
        is_right = example.id[-1] in "02468"  # it asked facts, whose turn is first
        return RolloutFeedback(float(is_right), "facts is right" if is_right else "tone")

    questions = questions_on_branches(judge_odd, **changes)
    assert questions
    assert not [question for question in questions if "step 1: facts" in question]


def test_the_question_on_the_only_node_that_failed_shows_no_case_of_another_in_short() -> None:
    def judge_odd(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        del response, session
        return RolloutFeedback(float(example.id[-1] in "02468"), "as it is")

    changes = {"additions": [WholePrompt(share=1)], "minibatch_size": 6}
    questions = questions_on_branches(judge_odd, **changes)
    assert questions
    for question in questions:
        assert "The part is: support/tickets/tone#instruction" in question
        assert set(re.findall(r'"text": "ticket (\d)"', question)) <= set("13579")


def test_an_example_that_may_be_added_to_a_node_has_its_turn() -> None:
    examples = TaskExamplesSection(title="Examples", key="examples")
    tone = template("tone")
    tone = attrs.evolve(tone, sections=(*tone.sections, examples))
    nodes = [
        Node("facts", template("facts")),
        Node("tone", tone, parts=[GenerationModule(("examples",))]),
    ]
    questions: list[str] = []

    def note(rendered: Any) -> str:
        questions.append(rendered.text)
        return "no block"

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(note))
    config = settings(additions=(), example_mutation_rate=1, rollout_budget=40)
    GepaOptimizer(surroundings, config).optimize(attrs.evolve(branching(), nodes=nodes))
    assert questions
    assert all("tickets/tone#new task example in examples" in question for question in questions)


@pytest.mark.parametrize("changes", ONE_PART)
def test_a_search_on_branches_is_resumed_as_it_was(changes: Any) -> None:
    def judge_words(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        del example, session
        lacking = [WANTED[name] for name in ("facts", "tone") if WANTED[name] not in response.text]
        return RolloutFeedback(1 - len(lacking) / 2, f"say {', '.join(lacking)}")

    def mend(rendered: Any) -> str:
        word = random.Random(rendered.text).choice(list(WANTED.values()))
        return f"```instruction\nSay {word}.\n```"

    def found(budget: int, journal: MemoryJournal) -> GepaResult:
        surroundings = context(journal=journal, reflection_adapter=ScriptedAdapter(mend))
        config = settings(feedback_fn=judge_words, rollout_budget=budget, **changes)
        return GepaOptimizer(surroundings, config).optimize(branching())

    journal = MemoryJournal()
    found(60, journal)
    assert found(120, journal) == found(120, MemoryJournal())


def test_what_was_kept_of_a_node_that_is_not_shown_is_said_to_be_kept() -> None:
    questions: list[str] = []

    def mend_one(rendered: Any) -> str:
        questions.append(rendered.text)
        node = "tone" if "number" in rendered.text else "facts"
        opening = f"support/tickets/{node}#" if "P2:" in rendered.text else ""
        return f"Missing.\n```{opening}instruction\n{WANTED[node]}\n```"

    def judge_either(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        del example, session
        is_right = any(WANTED[node] in response.text for node in ("facts", "tone"))
        return RolloutFeedback(float(is_right), "")

    surroundings = attrs.evolve(context(), reflection_adapter=ScriptedAdapter(mend_one))
    config = settings(additions=[WholePrompt(share=1)], feedback_fn=judge_either)
    result = GepaOptimizer(surroundings, config).optimize(branching())
    assert result.best_pareto_mean == 1
    tried = questions[-1].partition("## What was tried")[2]
    assert "facts#instruction" not in questions[-1].partition("## What was tried")[0]
    assert tried.startswith("\n\nKept: it is in the prompt now (")


class Delayed(ScriptedAdapter):
    """Has each call take a time of its own, and one in five fail."""

    def __init__(self, seed: int) -> None:
        super().__init__(work, identity="worker")
        self._random = random.Random(seed)

    def evaluate(self, prompt: Any, *, session: Any, deadline: Any = None) -> Any:
        threading.Event().wait(self._random.random() / 500)
        rendered = prompt.render(session)
        if "ticket 4" in rendered.text and rendered.key == "tone":
            raise TransientProviderError("overloaded")
        return answered(rendered, work(rendered), session=session)


def outcome(workers: int) -> tuple[object, ...]:
    journal, seen, bus = MemoryJournal(), list[object](), EventBus()
    bus.subscribe(object, seen.append)
    with ThreadPoolExecutor(workers or 1) as executor:
        surroundings = context(
            Delayed(workers),
            journal=journal,
            event_bus=bus,
            executor=executor if workers else None,
        )
        result = GepaOptimizer(surroundings, settings(rollout_budget=60)).optimize(GRAPH)
    told = [event for event in seen if not isinstance(event, (Working, CallsInFlight, PromptAsked))]
    return result, {one.key: one.answer for one in journal.records()}, told


def test_workers_and_delays_change_neither_traces_nor_events_nor_the_journal() -> None:
    alone = outcome(0)
    assert isinstance(alone[0], GepaResult)
    assert alone[0].unscored_rollouts > 0
    for workers in (1, 8):
        assert outcome(workers) == alone


def test_a_run_on_another_flow_model_or_edge_is_refused_with_its_name() -> None:
    journal = MemoryJournal()
    GepaOptimizer(context(journal=journal), settings(rollout_budget=20)).optimize(GRAPH)

    def other(run: Run, ticket: Ticket) -> str:
        return str(run.ask("writer", ticket))

    strong = [attrs.evolve(one, adapter=ScriptedAdapter(work)) for one in GRAPH.nodes]
    for changed, name in [
        (attrs.evolve(GRAPH, edges=[("router", "facts")]), "edges"),
        (attrs.evolve(GRAPH, nodes=strong), "node_models"),
        (attrs.evolve(GRAPH, max_steps=9), "max_steps"),
        (attrs.evolve(GRAPH, flow=other), "run"),
    ]:
        with pytest.raises(JournalMismatchError, match=name):
            GepaOptimizer(context(journal=journal), settings(rollout_budget=20)).optimize(changed)


def test_a_flow_that_fails_ends_the_run_and_nothing_paid_is_lost() -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        desk = run.ask("router", ticket)
        return str(run.ask("wirter" if ticket.text == "ticket 1" else "writer", Ticket(desk)))

    journal = MemoryJournal()
    with pytest.raises(FlowError) as caught:
        GepaOptimizer(context(journal=journal), settings()).optimize(attrs.evolve(GRAPH, flow=flow))
    assert (caught.value.case, caught.value.step, caught.value.node) == ("t1", "2", "wirter")
    assert str(caught.value) == (
        "graph `support/tickets`, case `t1`, step 2 (`wirter`): there is no node 'wirter' with a "
        "prompt (did you mean `writer`?); nodes: `router`, `facts`, `tone`, `writer`; at "
        "`baseline/2` of the run"
    )
    assert len(records_of(journal)) == 2
    assert [one.kind for one in journal.records()].count("spent") == 1


def test_exceptions_of_the_texts_score_zero_and_keep_the_trace() -> None:
    def flow(run: Run, ticket: Ticket) -> str:
        return str(int(run.ask("router", ticket)))

    journal = MemoryJournal()
    graph = attrs.evolve(GRAPH, flow=flow, candidate_errors=(ValueError,))
    GepaOptimizer(context(journal=journal), settings(rollout_budget=12)).optimize(graph)
    [first, *_] = records_of(journal)
    assert first.score == 0
    assert first.fault.startswith("the program raised ValueError: invalid literal for int()")
    assert [step.node for step in first.steps] == ["router"]


def test_a_metric_may_judge_a_node_and_blames_its_parts() -> None:
    judged = feedback_from([metrics.Contains(name="tone", texts=("sorry",), node="tone")])
    cases = [Case(id=one.id, input=one.id) for one in settings().training_examples]
    examples = [GepaExample(id=case.id, params=(Ticket(case.id),), label=case) for case in cases]
    journal = MemoryJournal()
    result = GepaOptimizer(
        context(journal=journal),
        settings(feedback_fn=judged, training_examples=examples, rollout_budget=30),
    ).optimize(GRAPH)
    first, *_ = records_of(journal)
    [verdict] = first.verdicts
    assert (verdict.metric, verdict.node, verdict.passed) == ("tone", "tone", False)
    assert first.feedback is not None
    assert first.feedback.feedback.startswith("[failed] tone 0 (output of tone): ")
    tried = [child.changed for child in result.candidates[1:]]
    tried += [one.module for one in result.rejections]
    assert tried[0] == "support/tickets/tone#instruction"
    assert result.best_pareto_mean == 1


def test_an_answer_without_an_output_of_the_node_fails_its_metric() -> None:
    metric = metrics.Exact(node="tone")
    case = Case(id="c", input="x", expected="x")
    [verdict] = metrics.judge_case([metric], case, Answer(text="x"))
    assert (verdict.score, verdict.reason, verdict.node) == (
        0,
        "node `tone` gave no output",
        "tone",
    )
    looped = tuple(
        Step(id=id_, node="tone", kind="prompt", output=said) for id_, said in ("1y", "2x")
    )
    [verdict] = metrics.judge_case([metric], case, Answer(text="z", steps=looped))
    assert (verdict.score, verdict.node) == (1, "tone")


def test_a_metric_that_names_an_unknown_node_is_refused_before_the_first_call() -> None:
    judged = feedback_from([metrics.exact(node="tonne")])
    with pytest.raises(ConfigError) as caught:
        GepaOptimizer(context(), settings(feedback_fn=judged)).optimize(GRAPH)
    assert str(caught.value) == (
        "metric `exact`: `support/tickets` has no node 'tonne' (did you mean `tone`?); nodes: "
        "`router`, `facts`, `tone`, `writer`"
    )
    with pytest.raises(ConfigError, match="has no node 'tonne'; nodes: none"):
        GepaOptimizer(context(), settings(feedback_fn=judged)).optimize(prompt("writer"))


class Failing(ScriptedAdapter):
    """Does not answer one node."""

    def __init__(self, error: Exception) -> None:
        super().__init__(work, identity="worker")
        self._error = error

    def evaluate(self, prompt: Any, *, session: Any, deadline: Any = None) -> Any:
        if prompt.descriptor.key == "tone":
            raise self._error
        return super().evaluate(prompt, session=session, deadline=deadline)


def test_an_answer_that_a_provider_fails_in_any_step_is_unscored() -> None:
    seen, bus = list[RolloutCompleted](), EventBus()
    bus.subscribe(RolloutCompleted, seen.append)
    failing = Failing(TransientProviderError("overloaded"))
    result = GepaOptimizer(context(failing, event_bus=bus), settings()).optimize(GRAPH)
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.unscored_rollouts == result.total_rollouts > 0
    failed = seen[0].record
    assert (failed.score, failed.fault) == (None, "overloaded")
    assert [(step.node, step.error) for step in failed.steps] == [
        ("router", ""),
        ("facts", ""),
        ("tone", "overloaded"),
    ]


def test_an_answer_that_a_provider_refuses_is_asked_for_again_when_the_run_is_resumed() -> None:
    journal = MemoryJournal()
    refusing = Failing(PermanentProviderError("no quota"))
    stopped = GepaOptimizer(context(refusing, journal=journal), settings()).optimize(GRAPH)
    assert stopped.stop_reason is StopReason.PROVIDER_FAILED
    assert {one.kind for one in journal.records()} == {"base", "spent"}
    again = GepaOptimizer(context(journal=journal), settings()).optimize(GRAPH)
    assert again.unscored_rollouts == 0
    assert again.best_pareto_mean == 1


def test_a_flow_that_does_not_end_scores_zero_and_its_reason_is_the_feedback() -> None:
    def forever(run: Run, ticket: Ticket) -> str:
        while True:
            run.ask("router", ticket)

    journal = MemoryJournal()
    graph = attrs.evolve(GRAPH, flow=forever, max_steps=2)
    result = GepaOptimizer(context(journal=journal), settings(rollout_budget=12)).optimize(graph)
    assert result.best_pareto_mean == 0
    first, *_ = records_of(journal)
    assert first.feedback is not None
    assert first.feedback.feedback == (
        "The answer could not be used: the flow did not end within 2 steps; the next one was "
        "`router`"
    )
    assert [step.id for step in first.steps] == ["1", "2"]


def test_nodes_are_answered_by_their_own_adapters_and_paid_by_their_names() -> None:
    strong = ScriptedAdapter(work, identity="strong")
    nodes = [attrs.evolve(one, adapter=strong) for one in GRAPH.nodes[:1]]
    graph = attrs.evolve(GRAPH, nodes=(*nodes, *GRAPH.nodes[1:]))
    result = GepaOptimizer(context(), settings(rollout_budget=12)).optimize(graph)
    calls = {entry.model: entry.calls for entry in result.ledger}
    assert calls["worker"] == 3 * calls["strong"] == 3 * result.total_rollouts
    dry = OptimizationJob(graph, context(), settings()).dry()
    assert isinstance(dry.subject, Graph)
    [adapter] = dry.subject.adapters.values()
    assert isinstance(adapter, OfflineAdapter)


def test_a_limit_of_money_needs_the_prices_of_all_nodes() -> None:
    class Metered:
        identity = "dear"
        longest_answer = None

        def evaluate(self, prompt: Any, *, session: Any, deadline: Any = None) -> Any:
            raise AssertionError("asked")

        def price_of(self, usage: object) -> None:
            return None

    nodes = [attrs.evolve(one, adapter=Metered()) for one in GRAPH.nodes]
    with pytest.raises(ConfigError, match=r"limits\.max_cost: no price is known for `dear`"):
        GepaOptimizer(context(), settings(limits=Limits(max_cost=1))).optimize(
            attrs.evolve(GRAPH, nodes=nodes)
        )


def test_a_graph_is_optimized_on_cases_in_one_call() -> None:
    def read(run: Run, text: str) -> str:
        return str(run.ask("writer", Ticket(text)))

    graph = Graph("support/tickets", flow=read, nodes=[Node("writer", template("writer"))])
    cases = Dataset(tuple(Case(id=f"c{number}", input=f"x{number}") for number in range(9)))
    result = optimize(
        graph,
        Splits.by_ratio(cases, train=0.5, validation=0.5, test=0),
        [metrics.Contains(texts=("please",))],
        model=ScriptedAdapter(work),
        reflection_model=ScriptedAdapter(lambda rendered: "```instruction\nSay please now\n```"),
    )
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == (0, 1)
