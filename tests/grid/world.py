"""One cell of the grid: a run on data, a prompt and a writer of certain shapes.

The task model answers as a case expects where the prompt holds the word of the case, and with
``nothing`` elsewhere. Good writers add the words that the feedback says are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import attrs

import agent_world
from gradient import words_world
from json_replies import json_reply
from optimizers.worlds import bound, current_text
from promptgraft import (
    Case,
    FileJournal,
    GepaConfig,
    GepaOptimizer,
    GradientConfig,
    GradientOptimizer,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    ScriptedAdapter,
)
from promptgraft.algorithms.gepa import ToolExampleTarget
from promptgraft.errors import PromptgraftError
from promptgraft.evals.types import Answer
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.journal.base import Journal
from promptgraft.project.optimizing import metrics_of
from promptgraft.prompt import MarkdownSection
from promptgraft.search import RunResult
from promptgraft.targets.judging import examples_from, feedback_from
from settings_leaves import grouped

Rendered = RenderedPrompt[object]

FACTORS: Mapping[str, tuple[str, ...]] = {
    "input": ("text", "object", "list", "number", "nested", "image path"),
    "expected": ("text", "label", "object", "list", "number", "none"),
    "parts": ("1", "8", "tools", "examples", "output fields"),
    "search": ("lean", "paper", "gradient"),
    "writer": (
        "good",
        "idle",
        "wrong",
        "headings",
        "json",
        "very long",
        "empty",
        "refusing",
        "repeating",
    ),
    "run": ("one worker", "four workers", "killed and resumed"),
}

LABELS = ("roads", "waste", "parks", "water")
Label = Literal["roads", "waste", "parks", "water"]

INPUTS: Mapping[str, Callable[[int], Json]] = {
    "text": lambda number: f"report {number}",
    "object": lambda number: {"subject": f"report {number}", "body": "It is broken."},
    "list": lambda number: [f"report {number}", "second line"],
    "number": lambda number: number,
    "nested": lambda number: {"mail": {"lines": [{"text": f"report {number}", "at": None}]}},
    "image path": lambda number: {"photo": f"photos/{number}.png", "question": "What is it?"},
}

EXPECTED: Mapping[str, Callable[[int], Json]] = {
    "text": lambda number: f"answer {number % 4}",
    "label": lambda number: LABELS[number % 4],
    "object": lambda number: {"team": LABELS[number % 4], "urgent": number % 2 == 0},
    "list": lambda number: [LABELS[number % 4], "done"],
    "number": lambda number: number % 4,
    "none": lambda number: None,
}

FINDING: Json = {"severity": "high", "note": "fine"}
"""The expected object where answers have a type, whose fields it must have."""

TYPED = ("examples", "output fields")

METRICS = {"text": "exact", "label": "exact", "none": ""}
"""The metric of each kind of expected answer; ``json_match`` for the others."""


def has_word(case: Case, answer: Answer) -> tuple[float, str]:
    """Say which word an answer shows to be missing."""
    is_other = case.expected in LABELS and answer.text in LABELS and answer.text != case.expected
    if is_other or "nothing" in answer.text:
        return 0.0, f"missing {case.fields['word']}"
    return 1.0, "right"


def cases_of(cell: Mapping[str, str], count: int = 16) -> list[Case]:
    # Lists and numbers come from Python only; the files of data sets have texts and objects.
    return [
        Case(
            id=f"c{number}",
            input=INPUTS[cell["input"]](number),
            expected=FINDING
            if cell["expected"] == "object" and cell["parts"] in TYPED
            else EXPECTED[cell["expected"]](number),
            fields={"word": f"word{number % 4}"},
        )
        for number in range(count)
    ]


def _inputs(cell: Mapping[str, str]) -> MarkdownSection:
    given = INPUTS[cell["input"]](0)
    names = list(given) if isinstance(given, dict) else ["input"]
    template = "\n".join(f"{name}: ${name}" for name in names)
    return MarkdownSection(title="Given", key="given", template=template, overridable=False)


@attrs.frozen(kw_only=True)
class Subject:
    """A prompt with the settings that say which of its parts are open."""

    prompt: Prompt[object]
    settings: Mapping[str, Any]


def subject_of(cell: Mapping[str, str]) -> Subject:
    parts, sections = cell["parts"], list(agent_world.TEMPLATE.sections[:2])
    output: Any = None
    settings: dict[str, Any] = {"target_section_paths": (("rules",),)}
    match parts:
        case "tools":
            tool_example = ToolExampleTarget(tool_name="search_code", example_index=0)
            settings = {"tools": ("search_code",), "target_tool_examples": (tool_example,)}
        case "examples":
            output = agent_world.Finding
            sections.append(agent_world.TEMPLATE.sections[3])
            settings["target_task_examples"] = (("examples", "first"),)
        case "output fields":
            output = agent_world.Finding
            settings["output_fields"] = ("Finding.severity", "Finding.note")
        case _:
            sections = [
                MarkdownSection(title=f"Part {number}", key=f"part-{number}", template="Be exact.")
                for number in range(int(parts))
            ]
            output = Label if cell["expected"] == "label" else None
            settings["target_section_paths"] = tuple((one.key,) for one in sections)
    template = PromptTemplate[object](
        ns="grid", key="cell", sections=(*sections, _inputs(cell)), output_type=output
    )
    return Subject(prompt=Prompt(template), settings=settings)


def task_of(cell: Mapping[str, str]) -> Callable[[Rendered], str]:
    """Return the task model of a cell."""

    def reply(rendered: Rendered) -> str:
        number = int((re.findall(r"\d+", bound_text(rendered)) or ["0"])[0])
        told = f"{rendered.text} {rendered.tools} {rendered.output_schema}"
        if cell["parts"].isdigit():  # what stands in another part helps nobody
            told = next(one.text for one in rendered.sections if one.path == ("part-0",))
        knows = f"word{number % 4}" in told
        if cell["parts"] in TYPED:
            properties = (rendered.output_schema or {}).get("properties")
            field = next(iter(properties)) if isinstance(properties, dict) else ""
            return json.dumps({field: "high", "note": "fine" if knows else "nothing"})
        if not knows:
            return LABELS[(number + 1) % 4] if cell["expected"] == "label" else "nothing"
        expected = EXPECTED[cell["expected"]](number)
        return expected if isinstance(expected, str) else json.dumps(expected)

    return reply


def bound_text(rendered: Rendered) -> str:
    """Return what the section with the input shows."""
    return next(one.text for one in rendered.sections if one.path == ("given",))


def missing(rendered: Rendered) -> list[str]:
    return list(dict.fromkeys(re.findall(r"missing (\w+)", rendered.text)))


def good(rendered: Rendered, *, part: int = 0) -> str:
    """Add the words that are missing, in the form that the question asks for."""
    words = " ".join(missing(rendered)) or "nothing"
    match rendered.key:
        case "blame-step" | "blame-trace" | "merge-problems" | "write-patch":
            return words_world.reply(rendered)
        case "reflect-prompt":
            marks = re.findall(r"(?m)^\*\*(P\d+):\*\* (\S+)", bound(rendered, "current"))
            mark, kind = marks[part]
            text = f"Be exact.\n- Know {words}."
            fields: object = text if kind == "section" else {"description": text}
            return json_reply(edits=[{"part": mark, "reason": "x", "text": fields}])
        case "reflect-section" | "reflect-section-published" | "reflect-summary":
            return f"```instruction\n{current_text(rendered)}\n- Know {words}.\n```"
        case key if key in agent_world.REPLIES:
            return agent_world.REPLIES[key].replace(agent_world.WORD, words)
    return f"```instruction\n{words}\n```"


def idle(rendered: Rendered) -> str:
    """Return what is there already."""
    match rendered.key:
        case "reflect-prompt":
            return json_reply(edits=[])
        case "reflect-section" | "reflect-section-published" | "write-patch":
            return f"```instruction\n{current_text(rendered)}\n```"
    return "{}"


HEADINGS = "# The new prompt\n\n## Part 0\n\nBe exact.\n\n## Notes\n\n* word0\n* word1"
BARE = json.dumps({"text": "Know word0.", "edits": [{"part": "P1", "text": "Know word1."}]})
REFUSAL = "I'm sorry, but I can't help with that."

WRITERS: Mapping[str, Callable[[Rendered], str]] = {
    "good": good,
    "idle": idle,
    # Into the last part, which the task model does not look at.
    "wrong": lambda rendered: good(rendered, part=-1),
    "headings": lambda rendered: HEADINGS,
    "json": lambda rendered: BARE,
    "very long": lambda rendered: good(rendered).replace("word", "word " * 2_000),
    "empty": lambda rendered: "",
    "refusing": lambda rendered: REFUSAL,
    "repeating": lambda rendered: "```instruction\nKnow word0.\n```",
}


@contextmanager
def _workers(count: int) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(count) as executor:
        yield executor


@attrs.define
class Made:
    """How a run ended, and the test calls that it made itself."""

    result: RunResult | None
    error: PromptgraftError | None
    calls: int

    @property
    def outcome(self) -> object:
        """What is the same however a run was carried out."""
        if self.result is None:
            return str(self.error)
        result = self.result
        scores = tuple(tuple(scores) for scores in result.scores_matrix)
        texts = [candidate.digest for candidate in result.candidates]
        return result.stop_reason, result.total_rollouts, texts, scores, result.best_index


def run(cell: Mapping[str, str], journal: Journal, *, workers: int = 1) -> Made:
    """Carry out the run of a cell, and have its result shown."""
    subject, task = subject_of(cell), ScriptedAdapter(task_of(cell), identity="task")
    reflection = ScriptedAdapter(WRITERS[cell["writer"]], identity="writer")
    name = METRICS.get(cell["expected"], "json_match")
    # A text is no answer where answers are objects, and `exact` refuses it.
    name = "" if name == "exact" and cell["parts"] in TYPED else name
    metrics = metrics_of([has_word, name] if name else [has_word])
    with _workers(workers) if workers > 1 else nullcontext() as executor:
        context = OptimizationContext(
            task, reflection_adapter=reflection, journal=journal, executor=executor
        )
        try:
            examples = examples_from(
                subject.prompt,
                cases_of(cell),
                metrics,
                params=None
                if isinstance(INPUTS[cell["input"]](0), str | dict)
                else lambda case: {"input": case.input},
            )
            settings = {
                **subject.settings,
                "rollout_budget": 45,
                "pareto_set_size": 6,
                "training_examples": examples,
                "feedback_fn": feedback_from(metrics),
                "held_out": (),
                "keep_anyway": True,
            }
            result = _optimize(cell, context, settings, subject.prompt)
        except PromptgraftError as error:
            return Made(None, error, task.calls)
    return Made(result, None, task.calls)


def _optimize(
    cell: Mapping[str, str],
    context: OptimizationContext,
    settings: dict[str, Any],
    prompt: Prompt[object],
) -> RunResult:
    if cell["search"] == "gradient":
        return GradientOptimizer(context, GradientConfig(**grouped(**settings))).optimize(prompt)
    config = GepaConfig(**grouped(preset=cell["search"], minibatch_size=3, **settings))
    return GepaOptimizer(context, config).optimize(prompt)


def check(cell: Mapping[str, str], folder: Path) -> Made:
    """Check one cell: it ends in a result or one line, and the same however it is carried out."""
    path = folder / "journal.jsonl"
    is_resumed = cell["run"] == "killed and resumed"
    with FileJournal(path) if is_resumed else MemoryJournal() as journal:
        whole = run(cell, journal)
    if whole.error is not None:
        assert "\n" not in str(whole.error), str(whole.error)
        assert len(str(whole.error)) < 2_000
    else:
        assert str(whole.result)
    match cell["run"]:
        case "four workers":
            beside = run(cell, MemoryJournal(), workers=4)
            assert beside.outcome == whole.outcome
        case "killed and resumed":
            _check_resumed(cell, path, whole)
    return whole


def _check_resumed(cell: Mapping[str, str], path: Path, whole: Made) -> None:
    """Resume from what a kill leaves of the journal: some records, and a part of the next."""
    lines = path.read_bytes().splitlines(keepends=True)
    kept = len(lines) * (1 + len(cell["writer"]) % 3) // 4
    if kept:
        path.write_bytes(b"".join(lines[:kept]) + lines[kept][: len(lines[kept]) // 2])
    with FileJournal(path) as journal:
        paid = sum(record.kind == "rollout" for record in journal.records())
        resumed = run(cell, journal)
    assert resumed.outcome == whole.outcome
    assert resumed.calls == whole.calls - paid
