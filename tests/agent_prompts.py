"""An agent's prompt with every kind of part, and an override of each kind for it."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest

from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import (
    AddedTaskExample,
    BasePromptOverridesStore,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OutputFieldOverride,
    OverlayPromptOverridesStore,
    OverrideAddress,
    PromptOverride,
    RemovedTaskExample,
    SectionOverride,
    SkippedOverride,
    SkipReason,
    SummaryOverride,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.prompt import (
    Described,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.testing import FakeClock

Store = BasePromptOverridesStore
AnyPrompt = Prompt[Any]

SQLI = ("guide", "security", "sqli")
XSS = ("guide", "security", "xss")
LEAK = ("guide", "security", "leak")
NAMES = ("guide", "style", "names")
LEAK_STEP = (
    '{"tool_name": "search", "description": "Look for keys.", '
    '"input": {"query": "api_key"}, "output": {"hits": []}}'
)


class Severity(Enum):
    HIGH = "high"
    LOW = "low"


class FinerSeverity(Enum):
    HIGH = "high"
    LOW = "low"
    NONE = "none"


@attrs.frozen
class SearchParams:
    query: Annotated[str, Described("What to look for.")]
    limit: Annotated[int, Described("How many at most.")] = 5


@attrs.frozen
class Hit:
    file: str
    line: int


@attrs.frozen
class Hits:
    hits: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class ReadParams:
    path: Annotated[str, Described("A file of the repository.")]


SAYS_SEVERITY = Described(
    "How bad it is.", aliases=("level",), values={"high": "Blocks the release."}
)


@attrs.frozen
class Review:
    severity: Annotated[Severity, SAYS_SEVERITY]
    note: Annotated[str, Described("One sentence.")] = ""


def fields_class(name: str, **fields: Any) -> type[Any]:
    """Return a class of a name that a test has already, as a source looks after an edit."""
    return attrs.make_class(
        name,
        {
            field: attrs.field(type=kind, default=default)
            for field, (kind, default) in fields.items()
        },
        frozen=True,
    )


@attrs.frozen(kw_only=True)
class Source:
    """What the author of the prompt writes; each field may be edited."""

    role: str = "Review $language code."
    search_name: str = "search"
    search_says: str = "Search the code."
    params_type: type[Any] = SearchParams
    hits_type: type[Any] = Hits
    hit_type: type[Any] = Hit
    example_query: str = "TODO"
    example_line: int = 3
    with_examples: bool = True
    sqli_objective: str = "Find SQL injection."
    sqli_query: str = "execute("
    sqli_read: str = "cursor.execute(q)"
    sqli_note: str = "One query is built from input."
    history_says: str = "Older reviews are kept."
    xss_objective: str = "Find cross-site scripting."
    review_type: type[Any] = Review
    severity_type: type[Enum] = Severity
    leak_key: str | None = None
    overridable: bool = True

    @functools.cache  # noqa: B019 - sources are few, and building one takes milliseconds
    def template(self) -> PromptTemplate[Any]:
        role = MarkdownSection(
            title="Role",
            key="role",
            template=self.role,
            tools=(self._search(), self._read()),
            overridable=self.overridable,
        )
        guide = MarkdownSection(
            title="Guide", key="guide", children=(self._security(), self._style())
        )
        history = MarkdownSection(
            title="History",
            key="history",
            template="All reviews since 2019.",
            summary=self.history_says,
            visibility=SectionVisibility.SUMMARY,
            overridable=self.overridable,
        )
        task = MarkdownSection(title="Task", key="task", template="$ask")
        return PromptTemplate(
            ns="tests/agents",
            key="review",
            sections=(role, guide, history, task),
            output_type=self.review_type,
        )

    def prompt(self, store: Store | None = None, *, tag: str = "latest") -> AnyPrompt:
        prompt = Prompt(self.template(), overrides_store=store, overrides_tag=tag)
        return prompt.bind({"language": "Python", "ask": "Look at `app.py`."})

    def _search(self) -> Tool[Any, Any]:
        example: ToolExample[Any, Any] = ToolExample(
            description="Find what is left to do.",
            input=self.params_type(self.example_query),
            output=self.hits_type((self.hit_type("app.py", self.example_line),)),
        )
        second = attrs.evolve(example, description="Find nothing.", output=self.hits_type())
        return Tool(
            name=self.search_name,
            description=self.search_says,
            params_type=self.params_type,
            result_type=self.hits_type,
            examples=(example, second) if self.with_examples else (),
            overridable=self.overridable,
        )

    def _read(self) -> Tool[Any, Any]:
        return Tool(
            name="read", description="Read a file.", params_type=ReadParams, result_type=str
        )

    def _security(self) -> TaskExamplesSection:
        steps = (
            self._step(self.search_name, "Look for queries.", self.params_type(self.sqli_query)),
            self._step("read", "Read the query.", ReadParams("db.py"), self.sqli_read),
        )
        sqli = TaskExample(
            key="sqli",
            objective=self.sqli_objective,
            steps=steps,
            outcome=self.review_type(self.severity_type("high"), self.sqli_note),
            overridable=self.overridable,
        )
        low = self.review_type(self.severity_type("low"))
        xss = attrs.evolve(sqli, key="xss", objective=self.xss_objective, steps=(), outcome=low)
        leaks = [attrs.evolve(xss, key=self.leak_key)] if self.leak_key else []
        return TaskExamplesSection(
            title="Security",
            key="security",
            examples=(sqli, xss, *leaks) if self.with_examples else (),
            overridable=self.overridable,
        )

    def _style(self) -> TaskExamplesSection:
        outcome = self.review_type(self.severity_type("low"), "Two names are short.")
        names = TaskExample(key="names", objective="Find short names.", outcome=outcome)
        return TaskExamplesSection(title="Style", key="style", examples=(names,))

    def _step(self, tool: str, why: str, given: object, result: object = None) -> TaskStep:
        output = self.hits_type() if result is None else result
        return TaskStep(
            tool_name=tool, example=ToolExample(description=why, input=given, output=output)
        )


SOURCE = Source()
TEMPLATE = SOURCE.template()
ADDRESS = OverrideAddress(TEMPLATE.ns, TEMPLATE.key, "latest")


def in_memory(folder: Path) -> Store:
    return InMemoryPromptOverridesStore()


def local(folder: Path) -> Store:
    return LocalPromptOverridesStore(folder, clock=FakeClock())


def overlay(folder: Path) -> Store:
    return OverlayPromptOverridesStore(
        base=InMemoryPromptOverridesStore(), overlay=InMemoryPromptOverridesStore()
    )


STORES: Mapping[str, Callable[[Path], Store]] = {
    "in memory": in_memory,
    "local": local,
    "overlay": overlay,
}


def received(prompt: AnyPrompt) -> str:
    """Return all that a model receives, line by line: text, tools, schema of the answer."""
    rendered = prompt.render()
    tools = [
        {"name": tool.name, "description": tool.description, "params": tool.params_schema}
        for tool in rendered.tools
    ]
    schemas = json.dumps([tools, rendered.output_schema], indent=1, ensure_ascii=False)
    return f"{rendered.text}\n{schemas}"


def edits(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that are only in ``before`` and those that are only in ``after``."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    marked = [line for line in lines if line[0] in "-+"]
    gone, come = (
        [line[2:].strip(" ,") for line in marked if line[0] == mark and line[2:].strip(" ,")]
        for mark in "-+"
    )
    return gone, come


def set_role(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.set_section_override(prompt, path=("role",), body="Review $language code well.")


def set_history(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.set_summary_override(prompt, path=("history",), summary="Ask for older reviews.")


def set_search(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.set_tool_override(
        prompt,
        name="search",
        description="Search every file.",
        param_descriptions={"query": "A word of the code."},
    )


def set_tool_example(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.set_tool_example_override(
        prompt, tool_name="search", example_index=0, input_json='{"query": "FIXME"}'
    )


def set_task_example(store: Store, prompt: AnyPrompt) -> PromptOverride:
    step = TaskStepOverride(step_index=0, input_json='{"query": "raw("}')
    return store.set_task_example_override(
        prompt, path=SQLI, objective="Find injected SQL.", step_overrides={0: step}
    )


def add_leak(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.add_task_example(
        prompt,
        container_path=LEAK[:-1],
        key="leak",
        objective="Find leaked keys.",
        outcome_json='{"severity": "high", "note": "A key is in the code."}',
        steps_json=f"[{LEAK_STEP}]",
    )


def remove_xss(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.remove_task_example(prompt, path=XSS)


def set_severity(store: Store, prompt: AnyPrompt) -> PromptOverride:
    return store.set_output_field_override(
        prompt,
        field="Review.severity",
        description="How urgent it is.",
        aliases=("urgency", "level"),
        value_descriptions={"low": "Can wait."},
    )


def hide_style(store: Store, prompt: AnyPrompt) -> PromptOverride:
    hidden = SectionVisibility.HIDDEN
    return store.set_visibility_override(prompt, path=("guide", "style"), visibility=hidden)


WRITES: Mapping[type[Entry], Callable[[Store, AnyPrompt], PromptOverride]] = {
    SectionOverride: set_role,
    SummaryOverride: set_history,
    ToolOverride: set_search,
    ToolExampleOverride: set_tool_example,
    TaskExampleOverride: set_task_example,
    AddedTaskExample: add_leak,
    RemovedTaskExample: remove_xss,
    OutputFieldOverride: set_severity,
    VisibilityOverride: hide_style,
}
"""For each kind of override, a write of one."""


def write_all(store: Store, prompt: AnyPrompt) -> PromptOverride:
    """Write an override of every kind and return them all."""
    every = ADDRESS.empty().holding(written(kind, prompt) for kind in WRITES)
    store.upsert(prompt.descriptor, every)
    found = store.resolve(prompt.descriptor)
    assert found == every
    return every


def written(kind: type[Entry], prompt: AnyPrompt) -> Entry:
    """Return what a write of that kind keeps for the present source of ``prompt``."""
    (entry,) = WRITES[kind](InMemoryPromptOverridesStore(), prompt).entries()
    return entry


def holding(override: PromptOverride) -> Store:
    """Return a store that keeps just ``override``, unchecked."""
    store = InMemoryPromptOverridesStore()
    address = OverrideAddress(override.ns, override.prompt_key, override.tag)
    store.mutate(address, lambda _: override)
    return store


def check_skipped(store: Store, edited: Source, reasons: Mapping[type[Entry], SkipReason]) -> None:
    """Check what becomes of overrides of every kind after the author edits the source.

    Those of the kinds in ``reasons`` are skipped for that reason, and the source is rendered;
    the others apply. Nothing is forgotten, and all apply again when the edit is taken back.
    """
    kept = write_all(store, SOURCE.prompt(store))
    improved = received(SOURCE.prompt(store))
    skipped = [entry for entry in kept.entries() if type(entry) in reasons]
    fresh = [entry for entry in kept.entries() if type(entry) not in reasons]
    assert len(skipped) == len(reasons)

    rendered = edited.prompt(store).render()
    assert {found.part: found for found in rendered.skipped} == {
        entry.part: SkippedOverride(
            part=entry.part,
            reason=reasons[type(entry)],
            expected_hash=entry.expected_hash,
            found_hash=_hash_now(entry, reasons[type(entry)], edited),
        )
        for entry in skipped
    }
    assert {found.part for found in rendered.applied} == {entry.part for entry in fresh}

    alone = edited.prompt(holding(kept.holding(skipped)))
    assert received(alone) == received(edited.prompt())
    others = edited.prompt(holding(kept.holding(fresh)))
    assert received(edited.prompt(store)) == received(others)

    assert store.resolve(edited.template().descriptor) == kept
    assert received(SOURCE.prompt(store)) == improved != received(SOURCE.prompt())


def _hash_now(entry: Entry, reason: SkipReason, edited: Source) -> HexDigest | None:
    if reason is SkipReason.UNKNOWN_PART:
        return None
    if reason is SkipReason.STALE:
        if isinstance(entry, AddedTaskExample):
            now = edited.template().descriptor.interface_hash
        else:
            now = written(type(entry), edited.prompt()).expected_hash
        assert now != entry.expected_hash
        return now
    return entry.expected_hash


Write = Callable[[Store, AnyPrompt], object]


def check_refused(
    store: Store, write: Write, error: type[Exception], *said: str, source: Source = SOURCE
) -> None:
    """Check that a write raises just that error, says all this in one line, and keeps nothing."""
    kept = set_role(store, SOURCE.prompt(store))
    with pytest.raises(error) as caught:
        write(store, source.prompt(store))

    assert type(caught.value) is error
    message = str(caught.value)
    for fragment in said:
        assert fragment in message, message
    assert "\n" not in message, message
    assert store.resolve(TEMPLATE.descriptor) == kept
