"""Overrides of tool examples and task examples: from the store to the model and back."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest

from agent_prompts import (
    ADDRESS,
    LEAK,
    LEAK_STEP,
    NAMES,
    SAYS_SEVERITY,
    SOURCE,
    SQLI,
    STORES,
    TEMPLATE,
    XSS,
    AnyPrompt,
    FinerSeverity,
    Source,
    Store,
    Write,
    add_leak,
    check_refused,
    check_skipped,
    edits,
    fields_class,
    received,
    remove_xss,
    set_task_example,
    set_tool_example,
)
from promptgraft.errors import (
    HashMismatchError,
    InvalidIdentifierError,
    InvalidOverrideError,
    UnknownPartError,
)
from promptgraft.overrides import (
    AddedTaskExample,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionPath,
    SkipReason,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.prompt import (
    Described,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
)

STALE, UNKNOWN, TAKEN = SkipReason.STALE, SkipReason.UNKNOWN_PART, SkipReason.KEY_TAKEN

FINER_REVIEW = fields_class(
    "Review",
    severity=(
        Annotated[FinerSeverity, SAYS_SEVERITY],
        attrs.NOTHING,
    ),
    note=(Annotated[str, Described("One sentence.")], ""),
)
WIDER_HIT = fields_class("Hit", file=(str | None, attrs.NOTHING), line=(int, attrs.NOTHING))
WIDER_HITS = fields_class("Hits", hits=(types.GenericAlias(tuple, (WIDER_HIT, ...)), ()))


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


def changed_lines(prompt: AnyPrompt) -> tuple[list[str], list[str]]:
    return edits(received(SOURCE.prompt()), received(prompt))


# From the store to the model


def test_the_description_of_a_tool_example_reaches_the_text(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_tool_example_override(
        prompt, tool_name="search", example_index=1, description="Find a word that is nowhere."
    )

    assert changed_lines(prompt) == (
        ["2. Find nothing."],
        ["2. Find a word that is nowhere."],
    )
    search, _ = prompt.render().tools
    assert search.examples[1].description == "Find a word that is nowhere."


def test_the_input_of_a_tool_example_reaches_the_text_with_its_defaults(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    set_tool_example(store, prompt)

    before, after = changed_lines(prompt)
    assert before == ['input: {"query": "TODO", "limit": 5}']
    assert after == ['input: {"query": "FIXME", "limit": 5}']
    assert [found.part for found in prompt.render().applied] == ["tool example search/0"]


def test_the_output_of_a_tool_example_reaches_the_text(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_tool_example_override(
        prompt,
        tool_name="search",
        example_index=0,
        output_json='{"hits":\n [{"file": "lib/ä.py",\n "line": 7}]}',
    )

    before, after = changed_lines(prompt)
    assert before == ['output: {"hits": [{"file": "app.py", "line": 3}]}']
    assert after == ['output: {"hits": [{"file": "lib/ä.py", "line": 7}]}']


def test_the_objective_of_a_task_example_reaches_the_text(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_task_example_override(prompt, path=SQLI, objective="Find injected SQL.")

    assert changed_lines(prompt) == (
        ["Objective: Find SQL injection."],
        ["Objective: Find injected SQL."],
    )
    assert [found.part for found in prompt.render().applied] == ["task example guide/security/sqli"]


def test_the_outcome_of_a_task_example_reaches_the_text(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_task_example_override(prompt, path=XSS, outcome_json='{"severity":"high"}')

    assert changed_lines(prompt) == (
        ['Outcome: {"level": "low", "note": ""}'],
        ['Outcome: {"level": "high", "note": ""}'],
    )


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        pytest.param(
            TaskStepOverride(step_index=1, description="Look closer."),
            ["2. `read`: Read the query."],
            ["2. `read`: Look closer."],
            id="description",
        ),
        pytest.param(
            TaskStepOverride(step_index=1, input_json='{"path":"sql.py"}'),
            ['input: {"path": "db.py"}'],
            ['input: {"path": "sql.py"}'],
            id="input",
        ),
        pytest.param(
            TaskStepOverride(step_index=1, output_json="\"q = f'…'\""),
            ['output: "cursor.execute(q)"'],
            ["output: \"q = f'…'\""],
            id="output",
        ),
        pytest.param(
            TaskStepOverride(
                step_index=1,
                tool_name="search",
                input_json='{"query": "q = ", "limit": 1}',
                output_json="{}",
            ),
            [
                "2. `read`: Read the query.",
                'input: {"path": "db.py"}',
                'output: "cursor.execute(q)"',
            ],
            [
                "2. `search`: Read the query.",
                'input: {"query": "q = ", "limit": 1}',
                'output: {"hits": []}',
            ],
            id="tool",
        ),
    ],
)
def test_a_single_step_of_a_task_example_reaches_the_text(
    step: TaskStepOverride, before: list[str], after: list[str], store: Store
) -> None:
    prompt = SOURCE.prompt(store)
    store.set_task_example_override(prompt, path=SQLI, step_overrides={1: step})

    assert changed_lines(prompt) == (before, after)


def test_several_steps_may_be_replaced_at_once(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    steps = {
        1: TaskStepOverride(step_index=1, description="Second."),
        0: TaskStepOverride(step_index=0, description="First."),
    }
    store.set_task_example_override(prompt, path=SQLI, step_overrides=steps)

    assert changed_lines(prompt) == (
        ["1. `search`: Look for queries.", "2. `read`: Read the query."],
        ["1. `search`: First.", "2. `read`: Second."],
    )


@pytest.mark.parametrize(
    ("steps_json", "shown"),
    [
        pytest.param("[]", None, id="none"),
        pytest.param(
            f"[{LEAK_STEP}, {LEAK_STEP}, {LEAK_STEP.replace('Look for keys.', 'Again.')}]",
            [
                "1. `search`: Look for keys.",
                '   input: {"query": "api_key", "limit": 5}',
                '   output: {"hits": []}',
                "2. `search`: Look for keys.",
                '   input: {"query": "api_key", "limit": 5}',
                '   output: {"hits": []}',
                "3. `search`: Again.",
                '   input: {"query": "api_key", "limit": 5}',
                '   output: {"hits": []}',
            ],
            id="three",
        ),
    ],
)
def test_all_steps_of_a_task_example_reach_the_text_in_any_number(
    steps_json: str, shown: list[str] | None, store: Store
) -> None:
    prompt = SOURCE.prompt(store)
    store.set_task_example_override(prompt, path=SQLI, steps_json=steps_json)

    blocks = ["Objective: Find SQL injection."]
    if shown is not None:
        blocks.append("\n".join(["Steps:", *shown]))
    blocks.append('Outcome: {"level": "high", "note": "One query is built from input."}')
    (section,) = (found for found in prompt.render().sections if found.path == SQLI)
    assert section.text == "\n\n".join(blocks)


def test_an_added_task_example_is_shown_after_those_of_the_source(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    add_leak(store, prompt)

    rendered = prompt.render()
    paths = [section.path for section in rendered.sections if section.path[:2] == LEAK[:2]]
    assert paths == [LEAK[:-1], SQLI, XSS, LEAK]
    (leak,) = (section for section in rendered.sections if section.path == LEAK)
    assert leak.heading == "#### Example: leak"
    assert leak.text == (
        "Objective: Find leaked keys.\n\n"
        "Steps:\n"
        "1. `search`: Look for keys.\n"
        '   input: {"query": "api_key", "limit": 5}\n'
        '   output: {"hits": []}\n\n'
        'Outcome: {"level": "high", "note": "A key is in the code."}'
    )
    assert f"{leak.heading}\n\n{leak.text}\n\n### Style" in rendered.text


def test_a_section_without_examples_takes_the_first_one(store: Store) -> None:
    source = Source(with_examples=False)
    prompt = source.prompt(store)
    add_leak(store, prompt)

    assert "### Security\n\n#### Example: leak\n\nObjective:" in prompt.render().text


def test_added_task_examples_are_shown_by_key_however_they_were_written(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    for key in ("b", "c", "a"):
        store.add_task_example(
            prompt,
            container_path=NAMES[:-1],
            key=key,
            objective="o",
            outcome_json='{"severity": "low"}',
            steps_json="[]",
        )

    paths = [section.path[-1] for section in prompt.render().sections]
    assert [path for path in paths if path in "abc"] == ["a", "b", "c"]


def test_an_added_task_example_is_replaced_by_another_of_its_key(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    add_leak(store, prompt)
    kept = store.add_task_example(
        prompt,
        container_path=LEAK[:-1],
        key="leak",
        objective="Find passwords.",
        outcome_json='{"severity": "low"}',
        steps_json="[]",
    )

    assert len(kept.entries()) == 1
    assert "Objective: Find passwords." in received(prompt)
    assert "Objective: Find leaked keys." not in received(prompt)


def test_a_removed_task_example_is_not_shown(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    remove_xss(store, prompt)

    assert changed_lines(prompt) == (
        [
            "#### Example: xss",
            "Objective: Find cross-site scripting.",
            'Outcome: {"level": "low", "note": ""}',
        ],
        [],
    )
    assert [found.part for found in prompt.render().applied] == [
        "removed task example guide/security/xss"
    ]


def test_an_override_of_a_removed_task_example_is_not_said_to_be_applied(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_task_example_override(prompt, path=XSS, objective="Never shown.")
    remove_xss(store, prompt)

    assert "Never shown." not in received(prompt)
    assert [found.part for found in prompt.render().applied] == [
        "removed task example guide/security/xss"
    ]


def test_removing_an_added_task_example_forgets_it(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    add_leak(store, prompt)
    kept = store.remove_task_example(prompt, path=LEAK)

    assert not kept
    assert received(prompt) == received(SOURCE.prompt())
    with pytest.raises(UnknownPartError, match="guide/security/leak"):
        store.remove_task_example(prompt, path=LEAK)


def test_a_removal_that_is_forgotten_shows_the_example_again(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    remove_xss(store, prompt)
    store.remove_override(**attrs.asdict(ADDRESS), part="removed task example guide/security/xss")

    assert received(prompt) == received(SOURCE.prompt())


def test_texts_of_models_are_shown_as_they_are(store: Store) -> None:
    said = 'Find $language {{ 1 + 1 }} "quoted" \\ \u2028 🙂'
    prompt = SOURCE.prompt(store)
    store.set_task_example_override(prompt, path=SQLI, objective=said)
    store.set_tool_example_override(prompt, tool_name="search", example_index=0, description=said)

    text = prompt.render().text
    assert f"Objective: {said}\n" in text
    assert f"1. {said}\n" in text


# Sources that change


@pytest.mark.parametrize(
    ("edited", "skipped"),
    [
        pytest.param(
            Source(example_query="XXX"), {ToolExampleOverride: STALE}, id="input of a tool example"
        ),
        pytest.param(
            Source(example_line=4), {ToolExampleOverride: STALE}, id="output of a tool example"
        ),
        pytest.param(
            Source(sqli_objective="Find it."), {TaskExampleOverride: STALE}, id="an objective"
        ),
        pytest.param(
            Source(sqli_query="exec("), {TaskExampleOverride: STALE}, id="the input of a step"
        ),
        pytest.param(
            Source(sqli_read="nothing"), {TaskExampleOverride: STALE}, id="the output of a step"
        ),
        pytest.param(Source(sqli_note="None."), {TaskExampleOverride: STALE}, id="an outcome"),
        pytest.param(
            Source(xss_objective="Find XSS."), {RemovedTaskExample: STALE}, id="a removed example"
        ),
        pytest.param(
            Source(hits_type=WIDER_HITS, hit_type=WIDER_HIT),
            {AddedTaskExample: STALE},
            id="the type of a tool",
        ),
        pytest.param(
            Source(review_type=FINER_REVIEW, severity_type=FinerSeverity),
            {AddedTaskExample: STALE, OutputFieldOverride: STALE},
            id="the type of the answer",
        ),
        pytest.param(
            Source(leak_key="leak"), {AddedTaskExample: TAKEN}, id="the key of an added example"
        ),
        pytest.param(
            Source(with_examples=False),
            {
                ToolExampleOverride: UNKNOWN,
                TaskExampleOverride: UNKNOWN,
                RemovedTaskExample: UNKNOWN,
            },
            id="the examples are gone",
        ),
    ],
)
def test_a_source_that_changes_makes_the_override_stale(
    edited: Source, skipped: dict[type[Entry], SkipReason], store: Store
) -> None:
    check_skipped(store, edited, skipped)


def test_a_reworded_tool_leaves_an_added_example_fresh(store: Store) -> None:
    check_skipped(store, Source(search_says="Search well."), {ToolOverride: STALE})


# Wrong writes

_untyped: Any = 7


def _tool_example(
    index: int = 0, tool: str = "search", **replaced: Any
) -> Callable[[Store, AnyPrompt], object]:
    return lambda store, prompt: store.set_tool_example_override(
        prompt, tool_name=tool, example_index=index, **replaced
    )


def _task_example(
    path: SectionPath = SQLI, **replaced: Any
) -> Callable[[Store, AnyPrompt], object]:
    return lambda store, prompt: store.set_task_example_override(prompt, path=path, **replaced)


def _step(index: int, *, key: int | None = None, **replaced: Any) -> Write:
    step = TaskStepOverride(step_index=index, **replaced)
    return _task_example(step_overrides={index if key is None else key: step})


def _added(**replaced: Any) -> Callable[[Store, AnyPrompt], object]:
    fields: dict[str, Any] = {
        "container_path": LEAK[:-1],
        "key": "leak",
        "objective": "Find leaked keys.",
        "outcome_json": '{"severity": "high"}',
        "steps_json": "[]",
    }
    return lambda store, prompt: store.add_task_example(prompt, **{**fields, **replaced})


def _removed(path: SectionPath) -> Callable[[Store, AnyPrompt], object]:
    return lambda store, prompt: store.remove_task_example(prompt, path=path)


TOOL_EXAMPLE = "tool example search/0"
TASK_EXAMPLE = "task example guide/security/sqli"
ADDED = "added task example guide/security/leak"
LONG = "x" * (MAX_BODY_CHARS + 1)
NO_TUPLE = "path: expected a tuple of section keys such as ('policies', 'refunds'), found "

REFUSED: list[tuple[str, Write, type[Exception], tuple[str, ...]]] = [
    # Tool examples
    (
        "an example of an unknown tool",
        _tool_example(tool="serch", description="x"),
        UnknownPartError,
        (
            "prompt `tests/agents/review` has no tool example `serch/0`",
            "overridable: `search/0`, `search/1`",
        ),
    ),
    (
        "a position that no example has",
        _tool_example(2, description="x"),
        UnknownPartError,
        ("has no tool example `search/2`", "overridable: `search/0`, `search/1`"),
    ),
    (
        "a position before the first example",
        _tool_example(-1, description="x"),
        UnknownPartError,
        ("has no tool example `search/-1`",),
    ),
    (
        "a position that is no integer",
        _tool_example(True, description="x"),
        UnknownPartError,
        ("has no tool example `search/True`",),
    ),
    (
        "a position that is a text",
        _tool_example("0", description="x"),  # type: ignore[arg-type]
        UnknownPartError,
        ("has no tool example `search/0`",),
    ),
    (
        "no field of a tool example",
        _tool_example(),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: rep",),
    ),
    (
        "an input that is no JSON",
        _tool_example(input_json="{query: x}"),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: input:1:2: Expecting property name",),
    ),
    (
        "an input that is cut off",
        _tool_example(input_json='{"query": "x"'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: input:1:14: Expecting ',' delimiter",),
    ),
    (
        "an input of the wrong type",
        _tool_example(input_json='{"query": 5}'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: input: expected a string, found 5 @ $.query",),
    ),
    (
        "an input with an unknown parameter and without a required one",
        _tool_example(input_json='{"querry": "x"}'),
        InvalidOverrideError,
        (
            f"{TOOL_EXAMPLE}: input: required key missing @ $.query",
            "input: unknown key `querry` (did you mean `query`?) @ $",
        ),
    ),
    (
        "an input that is a list",
        _tool_example(input_json='["x"]'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: input: expected an object, found ['x'] @ $",),
    ),
    (
        "an output of the wrong type deep inside",
        _tool_example(output_json='{"hits": [{"file": "a", "line": "7"}]}'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: output: expected an integer, found '7' @ $.hits[0].line",),
    ),
    (
        "an output with a number that is none",
        _tool_example(output_json='{"hits": [{"file": "a", "line": NaN}]}'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: output: expected a finite number, found NaN",),
    ),
    (
        "an input with a key twice",
        _tool_example(input_json='{"query": "a", "query": "b"}'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: input: the key 'query' occurs twice",),
    ),
    (
        "an input nested without end",
        _tool_example(input_json="[" * 100_000),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: input: the JSON is nested too deeply",),
    ),
    (
        "an input that is no text",
        _tool_example(input_json={"query": "x"}),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: expected text, found {{'query': 'x'}}",),
    ),
    (
        "a lone surrogate in a description",
        _tool_example(description="\ud800"),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: expected Unicode text, found a lone surrogate at character 0",),
    ),
    (
        "a lone surrogate that JSON escapes",
        _tool_example(input_json='{"query": "\\ud800"}'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: expected Unicode text, found a lone surrogate at character 11",),
    ),
    (
        "an example that is too long",
        _tool_example(description=LONG),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: expected at most 1000000 characters, found 1000001",),
    ),
    (
        "an input that is too long with its defaults",
        _tool_example(input_json=f'{{"query":"{"x" * (MAX_BODY_CHARS - 12)}"}}'),
        InvalidOverrideError,
        (f"{TOOL_EXAMPLE}: expected at most 1000000 characters, found 1000013",),
    ),
    # Task examples
    (
        "an unknown task example",
        _task_example((*SQLI[:2], "sqly"), objective="x"),
        UnknownPartError,
        (
            "has no task example `guide/security/sqly` (did you mean `guide/security/sqli`?)",
            "overridable: `guide/security/sqli`, `guide/security/xss`, `guide/style/names`",
        ),
    ),
    (
        "a section that is no task example",
        _task_example(("role",), objective="x"),
        UnknownPartError,
        ("has no task example `role`",),
    ),
    (
        "a path with spaces",
        _task_example(("guide", "my example"), objective="x"),
        UnknownPartError,
        ("has no task example `guide/my example`",),
    ),
    (
        "a path that is no tuple",
        _task_example("guide/security/sqli", objective="x"),  # type: ignore[arg-type]
        InvalidOverrideError,
        (f"{NO_TUPLE}'guide/security/sqli'",),
    ),
    (
        "no field of a task example",
        _task_example(),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: repl",),
    ),
    (
        "an empty objective",
        _task_example(objective="\n"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: objective: expected a text, found nothing",),
    ),
    (
        "an objective that is no text",
        _task_example(objective=_untyped),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: expected text, found 7",),
    ),
    (
        "a lone surrogate in an objective",
        _task_example(objective="a\udc00"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: expected Unicode text, found a lone surrogate at character 1",),
    ),
    (
        "an objective that is too long",
        _task_example(objective=LONG),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: expected at most 1000000 characters, found 1000001",),
    ),
    (
        "an outcome that is no JSON",
        _task_example(outcome_json="high"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: outcome:1:1: Expecting value",),
    ),
    (
        "an outcome that is no option",
        _task_example(outcome_json='{"severity": "medium"}'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: outcome: expected one of 'high', 'low', found 'medium' @ $.severity",),
    ),
    (
        "an outcome under an alias",
        _task_example(outcome_json='{"level": "high"}'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: outcome: required key missing @ $.severity", "unknown key `level`"),
    ),
    (
        "single steps and all steps",
        _task_example(
            steps_json="[]", step_overrides={0: TaskStepOverride(step_index=0, description="x")}
        ),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: give steps_json or step_overrides, not both",),
    ),
    (
        "a step after the last one",
        _step(2, description="x"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 2: expected the index of one of 2 steps",),
    ),
    (
        "a step before the first one",
        _step(-1, description="x"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step -1: expected the index of one of 2 steps",),
    ),
    (
        "a step under another index",
        _step(1, key=0, description="x"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: step_index: expected 0, found 1",),
    ),
    (
        "a step whose index is no integer",
        _step(True, key=1, description="x"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 1: expected the index of one of 2 steps",),
    ),
    (
        "a step whose index is a text",
        _step("0", description="x"),  # type: ignore[arg-type]
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: expected the index of one of 2 steps",),
    ),
    (
        "a step that replaces nothing",
        _step(0),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: replaces nothing; give a field",),
    ),
    (
        "a step of an unknown tool",
        _step(0, tool_name="serch"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: there is no tool 'serch'; tools: `search`, `read`",),
    ),
    (
        "a step of another tool that keeps its input",
        _step(0, tool_name="read"),
        InvalidOverrideError,
        (
            f"{TASK_EXAMPLE}: step 0: input: required key missing @ $.path",
            "step 0: input: unknown key `limit`, unknown key `query` @ $",
        ),
    ),
    (
        "a step with an input of the wrong type",
        _step(0, input_json='{"query": "x", "limit": "many"}'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: input: expected an integer, found 'many' @ $.limit",),
    ),
    (
        "a step with an output of the wrong type",
        _step(1, output_json='["x"]'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 1: output: expected a string, found ['x'] @ $",),
    ),
    (
        "a step that is no text",
        _step(0, description=_untyped),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: expected text, found 7",),
    ),
    (
        "a step with a lone surrogate that JSON escapes",
        _step(1, output_json='"\\udfff"'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: expected Unicode text, found a lone surrogate at character 1",),
    ),
    (
        "steps that are no list",
        _task_example(steps_json="{}"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: steps_json: expected a list, found {{}}",),
    ),
    (
        "steps with an unknown tool",
        _task_example(steps_json=f"[{LEAK_STEP}, {LEAK_STEP.replace('search', 'serch')}]"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 1: there is no tool 'serch'; tools: `search`, `read`",),
    ),
    (
        "steps with a missing key",
        _task_example(steps_json='[{"tool_name": "read", "input": {}, "output": ""}]'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: expected an object with tool_name, description, input and",),
    ),
    (
        "steps with a key too many",
        _task_example(steps_json=f'[{LEAK_STEP[:-1]}, "why": "x"}}]'),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: expected an object with tool_name, description, input and",),
    ),
    (
        "steps with an input of the wrong type",
        _task_example(steps_json="[" + LEAK_STEP.replace('"api_key"', "5") + "]"),
        InvalidOverrideError,
        (f"{TASK_EXAMPLE}: step 0: input: expected a string, found 5 @ $.query",),
    ),
    # Added task examples
    (
        "an unknown container",
        _added(container_path=("guide", "securty")),
        UnknownPartError,
        (
            "has no section of task examples `guide/securty` (did you mean `guide/security`?)",
            "overridable: `guide/security`, `guide/style`",
        ),
    ),
    (
        "a section that holds no task examples",
        _added(container_path=("role",)),
        UnknownPartError,
        ("has no section of task examples `role`",),
    ),
    (
        "a container that is no path",
        _added(container_path=["guide", "security"]),
        InvalidOverrideError,
        (f"{NO_TUPLE}['guide', 'security']",),
    ),
    (
        "a key that is no identifier",
        _added(key="Leaked keys"),
        InvalidIdentifierError,
        ("task example key: expected 1 to 64 lower-case letters", "found 'Leaked keys'"),
    ),
    (
        "a key of the source",
        _added(key="xss"),
        InvalidOverrideError,
        ("added task example guide/security/xss: the source has a part of that key",),
    ),
    (
        "an added example without an objective",
        _added(objective=" "),
        InvalidOverrideError,
        (f"{ADDED}: objective: expected a text, found nothing",),
    ),
    (
        "an added example with a lone surrogate",
        _added(objective="\ud900"),
        InvalidOverrideError,
        (f"{ADDED}: objective: expected Unicode text, found a lone surrogate",),
    ),
    (
        "an added example without an outcome",
        _added(outcome_json=""),
        InvalidOverrideError,
        (f"{ADDED}: outcome:1:1: Expecting value",),
    ),
    (
        "an added example with a wrong outcome",
        _added(outcome_json='"high"'),
        InvalidOverrideError,
        (f"{ADDED}: outcome: expected an object, found 'high' @ $",),
    ),
    (
        "an added example with wrong steps",
        _added(steps_json=f"[{LEAK_STEP.replace('[]', '[{}]')}]"),
        InvalidOverrideError,
        (f"{ADDED}: step 0: output: required key missing @ $.hits[0].file",),
    ),
    (
        "an added example that is too long",
        _added(objective=LONG),
        InvalidOverrideError,
        (f"{ADDED}: objective: expected at most 1000000 characters, found 1000001",),
    ),
    # Removed task examples
    (
        "a removal of what is not there",
        _removed(LEAK),
        UnknownPartError,
        ("has no task example `guide/security/leak`", "overridable: `guide/security/sqli`"),
    ),
    (
        "a removal without a path",
        _removed(()),
        InvalidOverrideError,
        (f"{NO_TUPLE}()",),
    ),
]


@pytest.mark.parametrize(
    ("write", "error", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_wrong_write_is_refused(
    write: Write, error: type[Exception], said: tuple[str, ...], store: Store
) -> None:
    check_refused(store, write, error, *said)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        pytest.param(
            set_tool_example,
            "does not allow overrides of tool example `search/0`; overridable: none",
            id="tool example",
        ),
        pytest.param(
            set_task_example,
            "does not allow overrides of task example `guide/security/sqli`; overridable: "
            "`guide/style/names`",
            id="task example",
        ),
        pytest.param(
            add_leak,
            "does not allow overrides of section of task examples `guide/security`; overridable: "
            "`guide/style`",
            id="added task example",
        ),
        pytest.param(
            remove_xss,
            "does not allow overrides of task example `guide/security/xss`; overridable: "
            "`guide/style/names`",
            id="removed task example",
        ),
    ],
)
def test_a_part_that_may_not_be_overridden_is_refused_and_named(
    write: Write, said: str, store: Store
) -> None:
    check_refused(store, write, UnknownPartError, said, source=Source(overridable=False))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        pytest.param(set_tool_example, f"{TOOL_EXAMPLE}: the override was written for", id="tool"),
        pytest.param(set_task_example, f"{TASK_EXAMPLE}: the override was written for", id="task"),
        pytest.param(remove_xss, "removed task example guide/security/xss: the ov", id="removed"),
        pytest.param(add_leak, f"{ADDED}: the override was written for source ", id="added"),
    ],
)
def test_an_override_written_for_another_source_is_refused(
    write: Callable[[Store, AnyPrompt], Any], said: str, store: Store, tmp_path: Path
) -> None:
    old = Source(
        example_line=9,
        sqli_note="Old.",
        xss_objective="Old.",
        hits_type=WIDER_HITS,
        hit_type=WIDER_HIT,
    )
    override = write(STORES["in memory"](tmp_path), old.prompt())
    (entry,) = override.entries()

    check_refused(
        store,
        lambda store, _: store.upsert(TEMPLATE.descriptor, override),
        HashMismatchError,
        said,
        entry.expected_hash[:12],
        "the source is now ",
    )


def test_the_outcome_of_a_prompt_that_asks_for_text_is_a_json_text(store: Store) -> None:
    hello = TaskExample(key="hello", objective="Greet.", outcome="Hello.")
    examples = TaskExamplesSection(title="Examples", key="examples", examples=(hello,))
    template: PromptTemplate[None] = PromptTemplate(ns="tests", key="text", sections=(examples,))
    prompt = Prompt(template, overrides_store=store)
    store.set_task_example_override(
        prompt, path=("examples", "hello"), outcome_json='"Good\\nday.\\u00e4"'
    )

    assert prompt.render().text.endswith("Objective: Greet.\n\nOutcome: Good\nday.ä")
    for wrong in ("Good day.", '{"text": "Good day."}', "5"):
        with pytest.raises(InvalidOverrideError, match="task example examples/hello: outcome"):
            store.set_task_example_override(prompt, path=("examples", "hello"), outcome_json=wrong)
