"""A prompt with every kind of part, and models that look at one of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Annotated

import attrs

from json_replies import json_reply
from promptgraft import (
    EventBus,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    InMemoryPromptOverridesStore,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RenderedPrompt,
    RolloutFeedback,
    ScriptedAdapter,
    SectionVisibility,
)
from promptgraft.algorithms.gepa import ToolExampleTarget
from promptgraft.journal import Journal
from promptgraft.overrides import BasePromptOverridesStore
from promptgraft.prompt import (
    Described,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.runtime import SessionProtocol
from settings_leaves import grouped

WORD = "zebra"
Look = Callable[[RenderedPrompt[object]], bool]


class Severity(Enum):
    """How bad a finding is."""

    HIGH = "high"
    LOW = "low"


@attrs.frozen
class SearchParams:
    """What to look for."""

    query: Annotated[str, Described("Words to look for.")]
    limit: int = 5


@attrs.frozen
class Finding:
    """The answer."""

    severity: Annotated[Severity, Described("How bad it is.")]
    note: str = ""


@attrs.frozen
class Question:
    """What is asked."""

    text: str
    again: str = ""


SEARCH: Tool[SearchParams, str] = Tool(
    name="search_code",
    description="Search the code.",
    params_type=SearchParams,
    result_type=str,
    examples=(
        ToolExample(description="Find a name.", input=SearchParams("main"), output="a.py:1"),
    ),
)

TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="tests",
    key="agent",
    output_type=Finding,
    sections=(
        MarkdownSection(title="Role", key="role", template="Review code.", tools=(SEARCH,)),
        MarkdownSection(title="Rules", key="rules", template="Be exact."),
        MarkdownSection(
            title="Notes",
            key="notes",
            template="All notes since 2019.",
            summary="Notes are kept.",
            visibility=SectionVisibility.SUMMARY,
        ),
        TaskExamplesSection(
            title="Examples",
            key="examples",
            summary="Worked reviews.",
            examples=(
                TaskExample(
                    key="first",
                    objective="Find the entry point.",
                    steps=(
                        TaskStep(
                            tool_name="search_code",
                            example=ToolExample(
                                description="Look for main.",
                                input=SearchParams("main"),
                                output="a.py:1",
                            ),
                        ),
                    ),
                    outcome=Finding(Severity.LOW, "fine"),
                ),
            ),
        ),
        MarkdownSection(title="Question", key="question", template="$text", overridable=False),
    ),
)

EXAMPLES = tuple(
    GepaExample(id=f"q{number}", params=(Question(f"question {number}"),), label=WORD)
    for number in range(12)
)

_STEP = {
    "tool": "search_code",
    "description": "Look.",
    "input": {"query": WORD},
    "output": "b.py:2",
}
REPLIES = {
    "reflect-section": f"```instruction\nBe exact: {WORD}.\n```",
    "reflect-tool": json_reply(description=f"Search for {WORD}."),
    "reflect-tool-example": json_reply(
        description=f"Find {WORD}.", input={"query": WORD}, output="b.py:2"
    ),
    "reflect-task-example": json_reply(
        objective=f"Find {WORD}.", steps=[_STEP], outcome={"severity": "high"}
    ),
    "generate-task-example": json_reply(
        key=f"The {WORD}!",
        objective=f"Another {WORD}.",
        steps=[_STEP],
        outcome={"severity": "high"},
    ),
    "reflect-visibility": json_reply(**{"task example examples/first": "hidden"}),
    "reflect-output-field": json_reply(description=f"The {WORD}.", aliases=[WORD]),
}


def reply(rendered: RenderedPrompt[object]) -> str:
    """Return what the reflection model replies; where it may change all parts, it does."""
    if rendered.key != "reflect-prompt":
        return REPLIES[rendered.key]
    parts = re.findall(r"(?m)^\*\*(P\d+):\*\* (section|summary|tool|output field) ", rendered.text)
    return json_reply(edits=[{"part": mark, "text": _EDITS[kind]} for mark, kind in parts])


_EDITS: dict[str, object] = {
    "section": f"Be exact: {WORD}.",
    "summary": f"Be exact: {WORD}.",
    "tool": {"description": f"Search for {WORD}."},
    "output field": {"description": f"The {WORD}.", "aliases": [WORD]},
}


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score 1 for a severe finding."""
    del session
    right = isinstance(response.output, Finding) and response.output.severity is Severity.HIGH
    return RolloutFeedback(score=float(right), feedback="" if right else f"needs {example.label}")


@attrs.frozen(kw_only=True)
class Outcome:
    """A run, its store and what its models were asked."""

    result: GepaResult
    store: BasePromptOverridesStore
    task: ScriptedAdapter
    reflection: ScriptedAdapter

    def rendered(self) -> RenderedPrompt[object]:
        """Return what a model receives with the winner in force."""
        prompt = Prompt(TEMPLATE, overrides_store=self.store, overrides_tag="won")
        return prompt.bind(Question("new")).render()


def run(
    look: Look,
    *,
    store: BasePromptOverridesStore | None = None,
    bus: EventBus | None = None,
    journal: Journal | None = None,
    **settings: object,
) -> Outcome:
    """Optimize for a model that answers right where ``look`` finds what it needs."""

    def answer(rendered: RenderedPrompt[object]) -> str:
        properties = (rendered.output_schema or {}).get("properties")
        field = next(iter(properties)) if isinstance(properties, dict) else ""
        return json.dumps({field: "high" if look(rendered) else "low"})

    task = ScriptedAdapter(answer)
    reflection = ScriptedAdapter(reply)
    kept = InMemoryPromptOverridesStore() if store is None else store
    context = OptimizationContext(
        task,
        reflection_adapter=reflection,
        overrides_store=kept,
        overrides_tag="won",
        event_bus=bus,
        journal=journal,
    )
    chosen: dict[str, object] = {
        "rollout_budget": 200,
        "minibatch_size": 2,
        "pareto_set_size": 4,
        "training_examples": EXAMPLES,
        "feedback_fn": feedback,
        "held_out": (),
        "keep_anyway": True,
        **settings,
    }
    result = GepaOptimizer(context, GepaConfig(**grouped(**chosen))).optimize(Prompt(TEMPLATE))
    return Outcome(result=result, store=kept, task=task, reflection=reflection)


TOOL_EXAMPLE = ToolExampleTarget(tool_name="search_code", example_index=0)
