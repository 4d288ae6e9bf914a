"""The small examples as users run them, and GEPA used as its specification shows it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest

from programs import Programs
from promptgraft import (
    EventBus,
    MarkdownSection,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RenderedPrompt,
    ScriptedAdapter,
    Session,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.adapters.base import PromptAsked
from promptgraft.algorithms.gepa import (
    GeneratedTaskExample,
    GepaConfig,
    GepaExample,
    GepaOptimizationCompleted,
    GepaOptimizer,
    GepaRolloutCompleted,
    GepaWorking,
    RolloutFeedback,
    RolloutRecord,
    ToolExampleTarget,
)
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    PromptOverride,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
)
from promptgraft.runtime import SessionProtocol
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search import OptimizationContext, PersistenceScope
from promptgraft.search.events import QuestionAsked

EXAMPLES = Path(__file__).parents[2] / "examples"
FIRST = EXAMPLES / "first_steps" / "first_steps.py"
AGENT = EXAMPLES / "agent_tuning" / "agent_tuning.py"

# ---- the examples, each run in a process of its own ----


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder that stores find as the root of the project."""
    (tmp_path / ".promptgraft").mkdir()
    return tmp_path


def said(programs: Programs, script: Path, *arguments: str, project: Path) -> str:
    done = programs("-W", "error", script, *arguments, folder=project)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def shown(script: Path) -> list[str]:
    """Return the outputs that the page of an example shows."""
    page = (script.parent / "README.md").read_text("utf-8")
    return re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def gain(name: str, output: str) -> float:
    found = re.search(rf"^{name}: +([\d.]+) -> ([\d.]+)", output, re.MULTILINE)
    assert found, output
    return float(found[2]) - float(found[1])


def test_first_steps_improve_a_prompt_and_another_process_uses_it(
    project: Path, programs: Programs
) -> None:
    before = said(programs, FIRST, "a", "jam", "jar", project=project)
    assert before == "source: paper\nimproved: paper\n"
    improved = said(programs, FIRST, project=project)
    assert gain("score", improved) > 0.5
    assert f"stored: tag `bins-v1` in {project}" in improved
    after = said(programs, FIRST, "a", "jam", "jar", project=project)
    assert after == "source: paper\nimproved: glass\n"
    numbers, answers = shown(FIRST)
    assert numbers in improved
    assert answers == after
    # The next run begins with the winner.
    assert "score:  1.000 -> 1.000" in said(programs, FIRST, project=project)


def test_agent_tuning_changes_every_kind_of_part_and_pays_for_it_once(
    project: Path, programs: Programs
) -> None:
    output = said(programs, AGENT, project=project)
    assert gain("held-out", output) > 0.5
    for part in ("tool example search_logs/0", "task example cases/late", "section causes"):
        assert f": {part}: " in output
    assert "new:        customer-desk-news: search_logs then read_log" in output
    assert f"winner:     tag `parcels-v1` in {project}" in output
    [page] = shown(AGENT)
    assert page in output
    [count] = re.findall(r"^(\d+) answers, 0 of them from the journal; ", output, re.MULTILINE)
    again = said(programs, AGENT, project=project)
    assert again == output.replace("0 of them", f"{count} of them")


# ---- the programs of the specification, with what they leave out ----

WORD = "cite"


@attrs.frozen
class QueryParams:
    query: str


@attrs.frozen
class Snippet:
    text: str


@attrs.frozen
class Answer:
    text: str


def tool(name: str) -> Tool[QueryParams, Snippet]:
    example = ToolExample(description="Look.", input=QueryParams("main"), output=Snippet("def"))
    return Tool(
        name=name,
        description=f"What {name} says.",
        params_type=QueryParams,
        result_type=Snippet,
        examples=(example,),
    )


def worked(key: str) -> TaskExample:
    step: ToolExample[object, object] = ToolExample(
        description="Look.", input=QueryParams("main"), output=Snippet("def")
    )
    return TaskExample(
        key=key,
        objective=f"Do a {key}.",
        steps=(TaskStep(tool_name="search_code", example=step),),
        outcome=Answer("done"),
    )


INSTRUCTIONS, GUIDANCE = ("instructions",), ("tool-guidance",)
SECURITY, REFACTORING = ("task-examples", "security-review"), ("task-examples", "refactoring")
TEMPLATE = PromptTemplate[Answer](
    ns="tests/usage",
    key="assistant",
    output_type=Answer,
    sections=(
        MarkdownSection(title="Instructions", key="instructions", template="Answer."),
        MarkdownSection(
            title="Tools",
            key="tool-guidance",
            template="Use them.",
            tools=(tool("search_code"), tool("read_file")),
        ),
        TaskExamplesSection(
            title="Examples",
            key="task-examples",
            examples=(worked("security-review"), worked("refactoring")),
        ),
        MarkdownSection(title="Query", key="query", template="$query", overridable=False),
    ),
)
WORKED = f'"objective": "{WORD} %d.", "steps": [], "outcome": {{"text": "done"}}'
PROPOSALS = {
    "reflect-section": ("instruction", f"Always {WORD}, %d."),
    "reflect-tool-example": (
        "json",
        f'{{"description": "{WORD} it.", "input": {{"query": "%d"}}, "output": {{"text": "x"}}}}',
    ),
    "reflect-task-example": ("json", f"{{{WORKED}}}"),
    "generate-task-example": ("json", f'{{"key": "gap", {WORKED}}}'),
}


def improved_parts(rendered: RenderedPrompt[object]) -> set[object]:
    """Return the parts of a prompt that hold the word."""
    sections = {section.path for section in rendered.sections if WORD in section.text}
    calls = {tool.name for tool in rendered.tools if WORD in tool.examples[0].description}
    return sections | calls


class Model:
    """Both models: answers the better the more parts are improved, and improves any part."""

    identity = "model"

    def __init__(self, *parts: object) -> None:
        self.parts = set(parts)
        self.proposals = 0
        self.adapter = ScriptedAdapter(self.reply)

    def reply(self, rendered: RenderedPrompt[object]) -> str:
        if rendered.ns == "promptgraft/gepa":
            self.proposals += 1
            if rendered.key == "reflect-prompt":
                return self.edit_one_of_all(rendered)
            tag, text = PROPOSALS[rendered.key]
            return f"```{tag}\n{text % self.proposals}\n```"
        share = len(self.parts & improved_parts(rendered)) / len(self.parts)
        return f'{{"text": "{"*" * round(100 * share)}"}}'

    def edit_one_of_all(self, rendered: RenderedPrompt[object]) -> str:
        """Improve the first part without the word, or else the first."""
        shown = re.findall(
            r"^\*\*(P\d+):\*\*(.*?)(?=^\*\*P\d|\Z)", rendered.text, re.MULTILINE | re.DOTALL
        )
        marks = [mark for mark, text in shown if WORD not in text]
        text = PROPOSALS["reflect-section"][1] % self.proposals
        edit = {"part": (marks or ["P1"])[0], "text": text, "reason": "failures"}
        return f"```json\n{json.dumps({'edits': [edit]})}\n```"


def data(count: int) -> list[GepaExample]:
    return [
        GepaExample(id=str(n), params=(QueryParams(query=f"question {n}"),), label="*" * 100)
        for n in range(1, count + 1)
    ]


def score_response(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    assert isinstance(response.output, Answer)
    assert isinstance(example.label, str)
    ratio = difflib.SequenceMatcher(None, response.output.text, example.label).ratio()
    return RolloutFeedback(score=ratio, feedback=f"{len(session.select_all(object))} events")


@pytest.fixture
def in_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def told(events: Iterable[object], kind: type) -> int:
    return sum(isinstance(event, kind) for event in events)


def test_instructions_are_optimized_as_the_specification_shows(in_project: Path) -> None:
    model, bus, session = Model(INSTRUCTIONS, GUIDANCE), EventBus(), Session()
    heard: list[object] = []
    bus.subscribe(object, heard.append)
    config = GepaConfig(
        rollout_budget=500,
        minibatch_size=4,
        pareto_set_size=10,
        target_section_paths=(
            ("instructions",),
            ("tool-guidance",),
        ),
        training_examples=data(20),
        feedback_fn=score_response,
        seed=42,
        keep_anyway=True,  # too few examples to hold some out, so nothing can be shown
    )
    store = LocalPromptOverridesStore()
    context = OptimizationContext(
        adapter=model.adapter,
        event_bus=bus,
        overrides_store=store,
        overrides_tag="gepa-v1",
    )
    optimizer = GepaOptimizer(context, config)
    result = optimizer.optimize(Prompt(TEMPLATE), session=session)

    assert f"Best Pareto mean: {result.best_pareto_mean}" == "Best Pareto mean: 1.0"
    assert f"Accepted mutations: {result.accepted_mutations}" == "Accepted mutations: 2"
    assert result.accepted_example_mutations == 0
    assert set(result.best_section_overrides) == {INSTRUCTIONS, GUIDANCE}
    assert config.persist_scope is PersistenceScope.GLOBAL
    assert store.root_path == in_project
    # A later program knows the template, the folder and the tag.
    later = Prompt(
        TEMPLATE, overrides_store=LocalPromptOverridesStore(), overrides_tag="gepa-v1"
    ).bind(QueryParams(query="new"))
    assert improved_parts(later.render()) == {INSTRUCTIONS, GUIDANCE}
    assert told(heard, GepaRolloutCompleted) == result.total_rollouts
    # What is being waited for and asked is told to the bus only: it is no part of the story.
    notices = GepaWorking | CallsInFlight | PromptAsked | QuestionAsked
    story = [event for event in heard if not isinstance(event, notices)]
    assert story == list(session.select_all(object))
    assert isinstance(heard[-1], GepaOptimizationCompleted)


def test_instructions_and_examples_are_optimized_together_as_the_specification_shows(
    in_project: Path,
) -> None:
    parts = (INSTRUCTIONS, GUIDANCE, "search_code", "read_file", SECURITY, REFACTORING)
    generated = ("task-examples", "gap")
    model, session = Model(*parts, generated), Session()
    context = OptimizationContext(
        adapter=model.adapter,
        event_bus=EventBus(),
        overrides_store=LocalPromptOverridesStore(),
        overrides_tag="gepa-v1",
    )
    config = GepaConfig(
        rollout_budget=1000,
        minibatch_size=4,
        pareto_set_size=15,
        target_section_paths=(
            ("instructions",),
            ("tool-guidance",),
        ),
        target_tool_examples=(
            ToolExampleTarget(tool_name="search_code", example_index=0),
            ToolExampleTarget(tool_name="read_file", example_index=0),
        ),
        target_task_examples=(
            ("task-examples", "security-review"),
            ("task-examples", "refactoring"),
        ),
        enable_example_generation=True,
        max_task_examples_per_section=5,
        example_mutation_rate=0.3,
        training_examples=data(25),
        feedback_fn=score_response,
        seed=42,
        keep_anyway=True,  # too few examples to hold some out, so nothing can be shown
    )
    optimizer = GepaOptimizer(context, config)
    result = optimizer.optimize(Prompt(TEMPLATE), session=session)

    assert result.best_pareto_mean == 1.0
    assert result.accepted_mutations == 2
    assert result.accepted_example_mutations == 5
    assert len(result.generated_task_examples) == 1
    for gen_ex in result.generated_task_examples:
        assert f"  - {gen_ex.key}: {gen_ex.objective[:50]}...".startswith(f"  - gap: {WORD} ")
    assert set(result.best_tool_example_overrides) == {("search_code", 0), ("read_file", 0)}
    assert set(result.best_task_example_overrides) == {SECURITY, REFACTORING}
    later = Prompt(
        TEMPLATE, overrides_store=LocalPromptOverridesStore(), overrides_tag="gepa-v1"
    ).bind(QueryParams(query="new"))
    assert improved_parts(later.render()) == {*parts, generated}


def test_data_types_take_their_fields_in_the_order_of_the_specification() -> None:
    example = GepaExample("1", (QueryParams("main"),), "label")
    assert (example.id, example.params, example.label) == ("1", (QueryParams("main"),), "label")
    feedback = RolloutFeedback(0.5, "Why.", "trace")
    assert (feedback.score, feedback.feedback, feedback.eval_trace) == (0.5, "Why.", "trace")
    record = RolloutRecord("1", "in", "out", "tools", feedback)
    assert (record.inputs_repr, record.tool_trace_repr, record.score) == ("in", "tools", 0.5)
    assert ToolExampleTarget("read_file", 0).example_index == 0
    step = TaskStepOverride(1, "read_file", "Why.", "{}", "[]")
    assert (step.step_index, step.output_json) == (1, "[]")
    expected = HexDigest("0" * 64)
    call = ToolExampleOverride("read_file", 0, expected, "Why.", "{}", "[]")
    assert (call.key, call.expected_hash) == (("read_file", 0), expected)
    worked_out = TaskExampleOverride(expected, "Find it.", '"It."', {1: step})
    assert (worked_out.objective, worked_out.step_overrides) == ("Find it.", {1: step})
    override = PromptOverride("ns", "key", "tag", {}, {}, {call.key: call}, {SECURITY: worked_out})
    assert override.tool_example_overrides == {call.key: call}
    assert override.task_example_overrides[SECURITY].path == SECURITY
    generated = GeneratedTaskExample(("examples",), "new", "Find it.", '"It."', "[]")
    assert (generated.key, generated.steps_json) == ("new", "[]")
