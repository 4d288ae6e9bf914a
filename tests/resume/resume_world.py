"""A small run whose every answer is counted, for tests that kill it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import attrs

from promptgraft import (
    Data,
    Deadline,
    EventBus,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    LocalPromptOverridesStore,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    Strategy,
    Targets,
)
from promptgraft.adapters.base import Usage, answered
from promptgraft.algorithms.gepa import ToolExampleTarget
from promptgraft.ground.serde import Json
from promptgraft.journal import Record
from promptgraft.prompt import (
    Described,
    RenderedPrompt,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.runtime import SessionProtocol
from promptgraft.testing import FakeClock

OutputT = TypeVar("OutputT")

Tick = Callable[[str], None]
"""Called at every point at which a process may be killed."""


class Verdict(Enum):
    """What the model says of a word."""

    KNOWN = "known"
    UNKNOWN = "unknown"


@attrs.frozen
class Answer:
    """The answer to a question."""

    verdict: Annotated[Verdict, Described("Whether the word is known.")]


@attrs.frozen
class Question:
    """One question; its word must stand in some part of the prompt for the answer to be right."""

    word: str
    again: bool


@attrs.frozen
class LookUp:
    """Parameters of the prompt's tool."""

    word: Annotated[str, Described("The word.")]


_CALL: ToolExample[Any, Any] = ToolExample(
    description="Look it up.", input=LookUp("apple"), output="a fruit"
)
_TOOL: Tool[LookUp, str] = Tool(
    name="look_up",
    description="Look a word up.",
    params_type=LookUp,
    result_type=str,
    examples=(_CALL,),
)


def template(rules: str = "Known words: apple") -> PromptTemplate[Answer]:
    """Return the prompt of the run, which has parts of every kind."""
    first = TaskExample(
        key="first",
        objective="Say whether apple is known.",
        steps=(TaskStep(tool_name="look_up", example=_CALL),),
        outcome=Answer(Verdict.KNOWN),
    )
    return PromptTemplate(
        ns="tests",
        key="resume",
        output_type=Answer,
        sections=(
            MarkdownSection(title="Rules", key="rules", template=rules, tools=(_TOOL,)),
            TaskExamplesSection(title="Examples", key="examples", examples=(first,)),
            MarkdownSection(
                title="Question", key="question", template="Word: $word", overridable=False
            ),
        ),
    )


TARGETS: dict[str, Any] = {
    "target_section_paths": (("rules",),),
    "targets": Targets(tools=("look_up",), output_fields=("Answer.verdict",)),
    "target_tool_examples": (ToolExampleTarget(tool_name="look_up", example_index=0),),
    "target_task_examples": (("examples", "first"),),
    "enable_example_generation": True,
    "example_mutation_rate": 0.5,
    "enable_merge": True,
}
"""Everything that can change, may; so does every kind of module (tests hold this)."""


def examples(count: int = 24) -> tuple[GepaExample, ...]:
    """Return questions over a dozen words; the first word is never asked for while learning."""
    return tuple(
        GepaExample(id=f"q{n}", params=(Question(word=word, again=n >= 12),), label=word)
        for n in range(count)
        for word in (f"word{n % 12}" if n else "secret",)
    )


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score 1 for a known word."""
    del session
    known = response.output == Answer(Verdict.KNOWN)
    return RolloutFeedback(score=float(known), feedback="" if known else f"lacks {example.label}")


class CountingModel:
    """Answers tasks and reflections, and writes down every call before it answers."""

    identity = "counting"

    def __init__(self, paid: Path, tick: Tick) -> None:
        self._paid = paid
        self._tick = tick

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Answer at once."""
        del deadline
        rendered = prompt.render(session)
        with self._paid.open("a") as log:
            log.write(".")
        self._tick(f"call {rendered.key}")
        reply = _reflect(rendered) if rendered.ns == "promptgraft/gepa" else _solve(rendered)
        self._tick(f"answer {rendered.key}")
        usage = Usage(input_tokens=len(rendered.text), output_tokens=len(reply))
        return answered(rendered, reply, session=session, usage=usage)


def _solve(rendered: RenderedPrompt[object]) -> str:
    word = rendered.sections[-1].text.removeprefix("Word: ")
    said = [section.text for section in rendered.sections[:-1]]
    said += [tool.description for tool in rendered.tools]
    known = word in " ".join([*said, json.dumps(rendered.output_schema)]).split()
    return json.dumps({"verdict": "known" if known else "unknown"})


def _json(fields: Json) -> str:
    return f"```json\n{json.dumps(fields, indent=2)}\n```"


_LOOK: dict[str, Json] = {"input": {"word": "x"}, "output": "y"}
_REPLIES = {
    "reflect-section": "```instruction\nKnown words: WORDS .\n```",
    "reflect-tool": _json({"description": "Look up WORDS ."}),
    "reflect-output-field": _json({"description": "Known are WORDS ."}),
    "reflect-tool-example": _json({"description": "Words: WORDS .", **_LOOK}),
    "reflect-task-example": _json(
        {
            "objective": "Know WORDS .",
            "steps": [{"tool": "look_up", "description": "Look.", **_LOOK}],
            "outcome": {"verdict": "known"},
        }
    ),
    "generate-task-example": _json(
        {
            "key": "KEY",
            "objective": "Know WORDS too.",
            "steps": [],
            "outcome": {"verdict": "known"},
        }
    ),
}


_EDITS = {
    "section": "Known words: WORDS .",
    "tool": '{"description": "Look up WORDS ."}',
    "output field": '{"description": "Known are WORDS ."}',
}


def _reflect(rendered: RenderedPrompt[object]) -> str:
    values = {
        segment.placeholder: segment.text
        for section in rendered.sections
        for segment in section.segments
    }
    held = re.findall(r"word\d+", values["current"])
    lacking = sorted(set(re.findall(r"lacks (\w+)", values["examples"])))
    # Some proposals are useless, so that some are rejected and some need a repair.
    mood = len(rendered.text) % 5
    if mood == 0 and "problem" not in values:
        return "I would rather not."
    new = [] if mood == 1 else lacking[:1]
    words = " ".join([*held, *new])
    if rendered.key == "reflect-prompt":
        parts = re.findall(r"(?m)^\*\*(P\d+):\*\* (section|tool|output field) ", values["current"])
        texts = {kind: text.replace("WORDS", words) for kind, text in _EDITS.items()}
        chosen = parts[len(held) % len(parts) :][: 1 + mood % 2]
        return _json({"edits": [{"part": mark, "text": texts[kind]} for mark, kind in chosen]})
    reply = _REPLIES[rendered.key].replace("WORDS", words)
    return reply.replace("KEY", f"about-{len(held)}-{mood}")


class AcknowledgingJournal(FileJournal):
    """A file journal that writes down each key after its answer was recorded."""

    def __init__(self, path: Path, acknowledged: Path, tick: Tick) -> None:
        super().__init__(path)
        self._acknowledged = acknowledged
        self._tick = tick

    def append_all(self, records: Sequence[Record]) -> None:
        super().append_all(records)
        with self._acknowledged.open("a") as log:
            log.writelines(f"{record.key}\n" for record in records)
        for record in records:
            self._tick(f"acknowledged {re.sub(r'[0-9]+', '#', record.key)}")


def run(
    folder: Path,
    *,
    budget: int,
    tick: Tick = lambda _: None,
    executor: Executor | None = None,
    bus: EventBus | None = None,
    seed: int = 7,
    rules: str = "Known words: apple",
    count: int = 24,
    proposals: int = 1,
) -> GepaResult:
    """Run or resume the run that lives in ``folder``."""
    model = CountingModel(folder / "paid", tick)
    journal = AcknowledgingJournal(folder / "journal.jsonl", folder / "acknowledged", tick)
    try:
        context = OptimizationContext(
            model,
            overrides_store=LocalPromptOverridesStore(folder, clock=FakeClock()),
            overrides_tag="crash",
            executor=executor,
            journal=journal,
            event_bus=bus,
        )
        config = GepaConfig(
            rollout_budget=budget,
            minibatch_size=2,
            pareto_set_size=6,
            **TARGETS,
            training_examples=examples(count),
            feedback_fn=feedback,
            seed=seed,
            data=Data(held_out=()),
            keep_anyway=True,
            strategy=Strategy(
                preset="paper",
                published_question=False,
                frontier_pruning="dominated",
                minibatches="random",
                proposals_per_step=proposals,
                steps_at_once=proposals,
            ),
        )
        return GepaOptimizer(context, config).optimize(Prompt(template(rules)))
    finally:
        journal.close()


def paid(folder: Path) -> int:
    """Return how many calls were made in the folder, by all processes."""
    path = folder / "paid"
    return path.stat().st_size if path.exists() else 0


def acknowledged(folder: Path) -> list[str]:
    """Return the keys that were acknowledged, by all processes; a torn last line is none."""
    path = folder / "acknowledged"
    return path.read_text().split("\n")[:-1] if path.exists() else []
