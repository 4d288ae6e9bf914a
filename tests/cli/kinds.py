"""A project whose prompt has every kind of part, as a module on disk, and a store for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_prompts import WRITES
from promptgraft.cli.choosing import load_template
from promptgraft.overrides import (
    AddedTaskExample,
    LocalPromptOverridesStore,
    OutputFieldOverride,
    PromptOverride,
    RemovedTaskExample,
    SectionOverride,
    SummaryOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.prompt import Prompt
from promptgraft.testing import FakeClock

SOURCE = """
from enum import Enum
from typing import Annotated

import attrs

from promptgraft.prompt import (
    Described,
    MarkdownSection,
    PromptTemplate,
    SectionVisibility,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)


class Severity(Enum):
    HIGH = "high"
    LOW = "low"


@attrs.frozen
class SearchParams:
    query: Annotated[str, Described("What to look for.")]
    limit: Annotated[int, Described("How many at most.")] = 5


@attrs.frozen
class Hits:
    hits: tuple[str, ...] = ()


@attrs.frozen
class PathParams:
    path: str


@attrs.frozen
class Review:
    severity: Annotated[Severity, Described("How bad it is.", values={"high": "Stops us."})]
    note: Annotated[str, Described("One sentence.")] = ""


SEARCH = Tool(
    name="search",
    description="Search the code.",
    params_type=SearchParams,
    result_type=Hits,
    examples=(ToolExample(description="Find tasks.", input=SearchParams("TODO"), output=Hits()),),
)
READ = Tool(name="read", description="Read a file.", params_type=PathParams, result_type=str)
LOOK = TaskStep(
    tool_name="search",
    example=ToolExample(
        description="Look for queries.", input=SearchParams("execute("), output=Hits(("db.py",))
    ),
)
SQLI = TaskExample(
    key="sqli",
    objective="Find SQL injection.",
    steps=(LOOK,),
    outcome=Review(Severity.HIGH, "A query is built from input."),
)
XSS = TaskExample(
    key="xss", objective="Find cross-site scripting.", steps=(), outcome=Review(Severity.LOW)
)
TEMPLATE = PromptTemplate(
    ns="tests/agents",
    key="review",
    sections=[
        MarkdownSection(
            title="Role", key="role", template="Review $language code.", tools=[SEARCH, READ]
        ),
        MarkdownSection(
            title="Guide",
            key="guide",
            children=[
                TaskExamplesSection(title="Security", key="security", examples=(SQLI, XSS)),
                MarkdownSection(title="Style", key="style", template="Short names are fine."),
            ],
        ),
        MarkdownSection(
            title="History",
            key="history",
            template="All reviews since 2019.",
            summary="Older reviews are kept.",
            visibility=SectionVisibility.SUMMARY,
        ),
    ],
    output_type=Review,
)
"""
NAME = "tests/agents/review"
TEMPLATE = "agent.py:TEMPLATE"
PARTS: Mapping[type[Entry], str] = {
    SectionOverride: "section role",
    SummaryOverride: "summary history",
    ToolOverride: "tool search",
    ToolExampleOverride: "tool example search/0",
    TaskExampleOverride: "task example guide/security/sqli",
    AddedTaskExample: "added task example guide/security/leak",
    RemovedTaskExample: "removed task example guide/security/xss",
    OutputFieldOverride: "output field Review.severity",
    VisibilityOverride: "visibility guide/style",
}
"""The part that the one override of each kind is of, in the order of lists."""


def make_project(folder: Path) -> LocalPromptOverridesStore:
    """Write the module, and one override of each kind, each by a write of its own."""
    (folder / "agent.py").write_text(SOURCE, "utf-8")
    store = LocalPromptOverridesStore(folder, clock=FakeClock())
    # Not in the order of lists.
    for kind in reversed([*PARTS]):
        WRITES[kind](store, prompt_of(folder))
    return store


def prompt_of(folder: Path, store: LocalPromptOverridesStore | None = None) -> Prompt[Any]:
    """Return the prompt as the module defines it now."""
    template = load_template(f"{folder / 'agent.py'}:TEMPLATE")
    return Prompt(template, overrides_store=store).bind({"language": "Python"})


def edit_source(folder: Path, before: str, after: str) -> None:
    """Change one place of the module."""
    path = folder / "agent.py"
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")


def kept(store: LocalPromptOverridesStore) -> PromptOverride:
    """Return what the store keeps for the prompt."""
    current = store.current(ns="tests/agents", prompt_key="review")
    assert current is not None
    return current.override


def files(folder: Path) -> dict[str, bytes]:
    """Return every file of the store."""
    root = folder / ".promptgraft"
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
