"""How long a large prompt takes to render, with many overrides, with none and without a store.

200 parts: 60 sections, 20 tools with two parameters and one example each, 50 task examples and
50 fields of the answer. The overrides were written for an older prompt, so that some are stale.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import attrs

from figures import Figure
from promptgraft import (
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    MarkdownSection,
    Prompt,
    PromptTemplate,
)
from promptgraft.overrides.base_store import BasePromptOverridesStore
from promptgraft.overrides.parts.task_example import AddedTaskExample
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.prompt import (
    Described,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)

TITLE = "Rendering: 200 parts, 300 overrides of which 60 are stale"
RENDERINGS, WARM_UP = 200, 10
PARTS, OVERRIDES, STALE = 200, 300, 60
GONE, CHANGED, ADDED = 50, 10, 50


@attrs.frozen
class Question:
    """What the prompt is bound to."""

    text: str


@attrs.frozen
class Search:
    """Parameters of every tool."""

    query: Annotated[str, Described("Words to look for.")]
    folder: Annotated[str, Described("Where to look.")] = "."


CALL: ToolExample[Any, Any] = ToolExample(
    description="Find the entry point.", input=Search("main"), output="a.py:1"
)


def answer_type() -> type[Any]:
    """Return a class of 50 fields."""
    said = {f"field_{n}": Annotated[str, Described(f"What field {n} says.")] for n in range(50)}
    return attrs.frozen(type("Answer", (), {"__annotations__": said}))


ANSWER = answer_type()


def sections(count: int, *, changed: int) -> list[MarkdownSection]:
    """Return sections, the first of which are not what they used to be."""
    return [
        MarkdownSection(
            title=f"Section {n}",
            key=f"section-{n}",
            template=("New: " if n < changed else "") + "About $text, be brief. " * 5,
            tools=(tool(n),) if n < 20 else (),
        )
        for n in range(count)
    ]


def tool(number: int) -> Tool[Search, str]:
    """Return a tool with one example."""
    return Tool(
        name=f"search_{number}",
        description=f"Search index {number}.",
        params_type=Search,
        result_type=str,
        examples=(CALL,),
    )


def template(count: int, *, changed: int) -> PromptTemplate[Any]:
    """Return the prompt with ``count`` sections beside the one that holds the task examples."""
    step = TaskStep(tool_name="search_0", example=CALL)
    outcome = ANSWER(*["fine"] * 50)
    worked = [
        TaskExample(key=f"example-{n}", objective=f"Review {n}.", steps=(step,), outcome=outcome)
        for n in range(50)
    ]
    held = TaskExamplesSection(title="Examples", key="examples", examples=tuple(worked))
    return PromptTemplate(
        ns="benchmarks",
        key="rendering",
        sections=(*sections(count, changed=changed), held),
        output_type=ANSWER,
    )


OLDER = template(59 + GONE, changed=0)
TEMPLATE = template(59, changed=CHANGED)


def fill(store: BasePromptOverridesStore) -> None:
    """Write an override for every part of the older prompt, and add task examples."""
    older: Prompt[Any] = Prompt(OLDER)
    source = store.seed(older)
    examples = OLDER.descriptor.task_examples
    added = [
        AddedTaskExample(
            container_path=("examples",),
            example_key=f"added-{n}",
            expected_hash=OLDER.descriptor.interface_hash,
            objective=f"Review another {n}.",
            outcome_json=examples[n].example.outcome_json,
            steps_json=examples[n].example.steps_json,
        )
        for n in range(ADDED)
    ]
    store.upsert(older.descriptor, source.merged_with(source.holding(added)))


def check(store: BasePromptOverridesStore) -> None:
    """See that what is measured is what the title says."""
    descriptor = TEMPLATE.descriptor
    tools = sum(1 + len(tool.examples) for tool in descriptor.tools)
    rest = len(descriptor.task_examples) + len(descriptor.output_fields)
    parts = len(descriptor.sections) + tools + rest
    held = store.resolve(descriptor)
    rendered = Prompt(TEMPLATE, overrides_store=store).bind(Question("keys")).render()
    found = (parts, len(held.entries()) if held else 0, len(rendered.skipped))
    if found != (PARTS, OVERRIDES, STALE):
        raise SystemExit(f"expected {(PARTS, OVERRIDES, STALE)} parts, overrides, stale: {found}")


def measure(folder: Path) -> list[Figure]:
    """Return the figures; each rendering makes a prompt of its own, as a rollout does."""
    full, files = InMemoryPromptOverridesStore(), LocalPromptOverridesStore(folder)
    fill(full)
    fill(files)
    check(full)
    many, kept, empty, none = medians((full, files, InMemoryPromptOverridesStore(), None))
    return [
        Figure("with 300 overrides in memory, median", many, "ms", 5),
        Figure("with 300 overrides in files, median", kept, "ms", None),
        Figure("without overrides, median", none, "ms", None),
        Figure("the same with an empty store against none", empty / none, "x", 1.2),
    ]


def medians(stores: Sequence[PromptOverridesStore | None]) -> list[float]:
    """Return milliseconds for each store; the measurements take turns."""
    times: list[list[float]] = [[] for _ in stores]
    for turn in range(RENDERINGS + WARM_UP):
        for store, found in zip(stores, times, strict=True):
            started = time.perf_counter()
            Prompt(TEMPLATE, overrides_store=store).bind(Question("keys")).render()
            if turn >= WARM_UP:
                found.append(time.perf_counter() - started)
    return [statistics.median(found) * 1000 for found in times]
