"""What becomes of the examples and descriptions that reflection models write."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

import pytest
from hypothesis import given

from agent_prompts import SOURCE, SQLI, Hits, ReadParams, Review, SearchParams
from further import thorough
from one_pass import check_one_pass
from optimizers.sloppy import BATCH, PIECES, SEEDS, Sloppy, a_text, a_value, batches, damaged
from promptgraft.ground.serde import parse_json
from promptgraft.ground.strict import structure
from promptgraft.overrides import AddedTaskExample, TaskExampleOverride, ToolExampleOverride
from promptgraft.overrides.parts.examples import (
    ToolCall,
    WorkedExample,
    json_line,
    read_stored_steps,
)
from promptgraft.overrides.parts.validation import check_key
from promptgraft.overrides.resolution import effective_parts
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.part import PromptModule, View
from promptgraft.targets.part_json import (
    fresh_key,
    read_named_texts,
    read_names,
    read_task_example,
    read_tool_example,
    write_named_texts,
    write_names,
    write_task_example,
    write_tool_example,
)
from promptgraft.targets.part_kinds import (
    GenerationModule,
    TaskExampleModule,
    ToolExampleModule,
)

UNPARSABLE = RejectionReason.UNPARSABLE
EMPTY = RejectionReason.EMPTY
UNUSABLE = RejectionReason.UNUSABLE_TEXT
SAID = (
    "description",
    "param query",
    "param max_results",
    "value high",
    "value C++: new",
    "aliases",
)
LISTED = ", ".join(f"`{name}`" for name in SAID)


TaskRead = tuple[str | None, WorkedExample]


def read_call(text: str) -> ToolCall:
    return read_tool_example(text, "search")


def read_text_task(text: str) -> TaskRead:
    return read_task_example(text, outcome_is_text=True)


def read_json_task(text: str) -> TaskRead:
    return read_task_example(text, outcome_is_text=False)


def read_all_said(text: str) -> dict[str, str]:
    return read_named_texts(text, SAID)


READERS: tuple[Callable[[str], object], ...] = (
    read_call,
    read_text_task,
    read_json_task,
    read_all_said,
)


def refusal(read: Callable[[str], object], text: str) -> tuple[RejectionReason, str]:
    with pytest.raises(InvalidProposalError) as refused:
        read(text)
    return refused.value.reason, refused.value.detail


def step(name: str = "search", *, why: str = "why", given: str = "{}", out: str = "1") -> ToolCall:
    return ToolCall(tool_name=name, description=why, input_json=given, output_json=out)


TOOL_EXAMPLE = '{"description": "why", "input": {"q": 1}, "output": [2]}'


@pytest.mark.parametrize(
    "text",
    [
        TOOL_EXAMPLE,
        f"\ufeff\r\n{TOOL_EXAMPLE}\n",
        f"```json\n{TOOL_EXAMPLE}\n```",
        f"~~~~\n\n{TOOL_EXAMPLE}\n~~~~",
        '{\n  "output": [2], // one\n  "input": {"q": 1,},\n  "description": "why",\n}',
        "{'description': 'why', 'input': {'q': 1}, 'output': [2]}",
        "{“description”: “why”, “input”: {“q”: 1}, “output”: [2]}",
        "{description: 'why', input: {q: 1}, output: [2]}",
    ],
)
def test_a_tool_example_is_one_object(text: str) -> None:
    assert read_call(text) == step(given='{"q": 1}', out="[2]")


def tool_example(**fields: object) -> str:
    return json.dumps({"description": "why", "input": {}, "output": 1} | fields)


@pytest.mark.parametrize("value", ["yes", "2024-01-02", "007", "", "a\nb", 4, 1.5, None, True, []])
def test_inputs_and_outputs_may_be_any_json_and_are_never_read_as_something_else(
    value: object,
) -> None:
    found = read_call(tool_example(input=value, output={"a": value}))
    assert found.input_json == json.dumps(value)
    assert found.output_json == json.dumps({"a": value})


@pytest.mark.parametrize(
    "given", ['"input": none, ', '"input": None, ', '"input": null, ', '"input": " None", ', ""]
)
def test_the_input_of_a_tool_without_parameters_is_empty_however_that_is_said(given: str) -> None:
    call = f'{{{given}"description": "why", "output": 1}}'
    assert read_tool_example(call, "now", bare=["now"]) == step("now")
    steps = f'{{"objective": "o", "steps": [{{"tool": "now", {call[1:]}], "outcome": "x"}}'
    _, example = read_task_example(steps, outcome_is_text=True, bare=["now"])
    assert example.steps == (step("now"),)
    if given:
        assert read_tool_example(call, "search", bare=["now"]).input_json != "{}"
    else:
        assert "`input` is missing" in refusal(read_call, call)[1]


@pytest.mark.parametrize("said", ["", '"steps": none, ', '"steps": [{"tool": "none"}], '])
def test_a_task_example_of_a_prompt_without_tools_has_no_steps(said: str) -> None:
    text = f'{{{said}"objective": "o", "outcome": "x"}}'
    read = read_task_example(text, outcome_is_text=True, has_tools=False)
    assert read == (None, WorkedExample(objective="o", steps=(), outcome_json='"x"'))
    assert refusal(read_text_task, text)[0] is UNPARSABLE


FIELDS = "expected `description`, `input`, `output`"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", EMPTY, "the text is empty"),
        (" \n\t", EMPTY, "the text is empty"),
        ("```json\n\n```", EMPTY, "the text is empty"),
        (
            "description: why\ninput: {}\noutput: 1",
            UNPARSABLE,
            "line 1: expected a JSON value, found 'description: why\\ninput: {}\\noutput: 1'",
        ),
        (
            f"Here it is: {TOOL_EXAMPLE}",
            UNPARSABLE,
            'line 1: expected a JSON value, found \'Here it is: {"description": "why", "inpu\'',
        ),
        (
            f"{TOOL_EXAMPLE}\nand so on",
            UNPARSABLE,
            "line 2: expected nothing after the JSON, found 'and so on'",
        ),
        (f"[{TOOL_EXAMPLE}]", UNPARSABLE, f"expected one JSON object, found [{TOOL_EXAMPLE}]"),
        ("null", UNPARSABLE, "expected one JSON object, found null"),
        ("{}", UNPARSABLE, f"the field `description` is missing; {FIELDS}"),
        ('{"description": "a"}', UNPARSABLE, f"the field `input` is missing; {FIELDS}"),
        (
            tool_example(inpt={}),
            UNPARSABLE,
            f"unknown field 'inpt' (did you mean `input`?); {FIELDS}",
        ),
        (
            '{"Description": "a"}',
            UNPARSABLE,
            f"unknown field 'Description' (did you mean `description`?); {FIELDS}",
        ),
        (
            '{"description": "a", "description": "b"}',
            UNPARSABLE,
            "line 1: the key 'description' occurs twice in one object",
        ),
        (tool_example(description=1), UNPARSABLE, "description: expected a text, found 1"),
        (tool_example(description=None), UNPARSABLE, "description: expected a text, found null"),
        (tool_example(description=True), UNPARSABLE, "description: expected a text, found true"),
        (tool_example(description=["a"]), UNPARSABLE, 'description: expected a text, found ["a"]'),
        (
            tool_example(input="\x1b"),
            UNUSABLE,
            "input holds the character U+001B; leave it out",
        ),
        (
            tool_example(input={"a": ["\ud800"]}),
            UNUSABLE,
            "input holds the character U+D800; leave it out",
        ),
        (
            tool_example(output={"\x00": 1}),
            UNUSABLE,
            "output holds the character U+0000; leave it out",
        ),
        (
            tool_example(description="\x7f"),
            UNUSABLE,
            "description holds the character U+007F; leave it out",
        ),
        (
            f'{{"description": "a", "input": {"[" * 101}{"]" * 101}, "output": 1}}',
            UNPARSABLE,
            "input: nested deeper than 100 levels",
        ),
    ],
)
def test_tool_examples_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    assert refusal(read_call, text) == (reason, detail)


TASK = WorkedExample(
    objective="do it",
    steps=(step(), step("open_file", why="then", given='{"p": 1}', out='"text"')),
    outcome_json='"done"',
)
AS_ASKED_FOR = """\
{
  "key": "a-key",
  "objective": "do it",
  "steps": [
    {"tool": "search", "description": "why", "input": {}, "output": 1},
    {"tool": "open_file", "description": "then", "input": {"p": 1}, "output": "text"}
  ],
  "outcome": "done"
}"""


@pytest.mark.parametrize("read", [read_text_task, read_json_task])
@pytest.mark.parametrize(
    "text",
    [
        AS_ASKED_FOR,
        AS_ASKED_FOR.replace("\n", "\r\n"),
        AS_ASKED_FOR.replace("}\n", "},\n").replace('"', "'"),
        AS_ASKED_FOR.replace(",\n", ", // so\n"),
        f"```json\n{AS_ASKED_FOR}\n```",
        json.dumps(json.loads(AS_ASKED_FOR), indent=4),
    ],
)
def test_a_task_example_is_one_object(read: Callable[[str], object], text: str) -> None:
    assert read(text) == ("a-key", TASK)


def task_example(**fields: object) -> str:
    return json.dumps({"objective": "do it", "steps": [], "outcome": "done"} | fields)


@pytest.mark.parametrize("outcome", ["done", "42", '{"a": 1}', "one\n- two", ""])
def test_an_outcome_is_the_text_that_it_is(outcome: str) -> None:
    for read in (read_text_task, read_json_task):
        _, found = read(task_example(outcome=outcome))
        assert found.outcome_json == json.dumps(outcome)


@pytest.mark.parametrize("outcome", [42, {"a": 1}, None, False, ["done"]])
def test_an_outcome_is_json_only_where_the_prompt_asks_for_it(outcome: object) -> None:
    text, expected = task_example(outcome=outcome), json.dumps(outcome)
    _, found = read_json_task(text)
    assert found.outcome_json == expected
    reason, detail = refusal(read_text_task, text)
    assert (reason, detail) == (UNPARSABLE, f"outcome: expected a text, found {expected}")


TOP_FIELDS = "expected `key`, `objective`, `steps`, `outcome`"
STEP_FIELDS = "expected `tool`, `description`, `input`, `output`"
STEP = {"tool": "a", "description": "b", "input": {}, "output": 1}


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ('{"key": "a"}', UNPARSABLE, f"the field `objective` is missing; {TOP_FIELDS}"),
        ('{"objective": "a"}', UNPARSABLE, f"the field `steps` is missing; {TOP_FIELDS}"),
        (
            '{"objective": "a", "steps": []}',
            UNPARSABLE,
            f"the field `outcome` is missing; {TOP_FIELDS}",
        ),
        (task_example(objective=" "), EMPTY, "objective: expected a text, found none"),
        (task_example(key=1), UNPARSABLE, "key: expected a text, found 1"),
        (task_example(steps={}), UNPARSABLE, "steps: expected a list of objects, found {}"),
        (task_example(steps=None), UNPARSABLE, "steps: expected a list of objects, found null"),
        (task_example(steps=[1]), UNPARSABLE, "step 1: expected one JSON object, found 1"),
        (
            task_example(steps=[STEP, {"tol": 1}]),
            UNPARSABLE,
            f"step 2: unknown field 'tol' (did you mean `tool`?); {STEP_FIELDS}",
        ),
        (
            task_example(steps=[{"tool": "a"}]),
            UNPARSABLE,
            f"step 1: the field `description` is missing; {STEP_FIELDS}",
        ),
        (
            task_example(steps=[STEP | {"tool": None}]),
            UNPARSABLE,
            "step 1: tool: expected a text, found null",
        ),
        (
            task_example(outcome="\x07"),
            UNUSABLE,
            "outcome holds the character U+0007; leave it out",
        ),
        (
            task_example(steps=[STEP | {"input": ["\ud800"]}]),
            UNUSABLE,
            "steps holds the character U+D800; leave it out",
        ),
    ],
)
def test_task_examples_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    assert refusal(read_text_task, text) == (reason, detail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"description": "a", "param query": "b"}',
            {"description": "a", "param query": "b"},
        ),
        ('{"value C++: new": "a: b"}', {"value C++: new": "a: b"}),
        ('{"description": ""}', {"description": ""}),
        ("{'description': 'a',}", {"description": "a"}),
    ],
)
def test_descriptions_are_read_by_the_names_that_there_are(
    text: str, expected: dict[str, str]
) -> None:
    assert read_named_texts(text, SAID) == expected


@pytest.mark.parametrize("names", [[], ["a"], ["a, b", "none", " c "], ["[d]", '"', "é\n"]])
def test_aliases_are_a_list_of_texts(names: list[str]) -> None:
    found = read_named_texts(json.dumps({"aliases": names}), SAID)
    assert read_names(found["aliases"]) == tuple(names)
    assert read_names(write_names(names)) == tuple(names)


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", EMPTY, "the text is empty"),
        (
            "{}",
            EMPTY,
            f"expected one of {LISTED} at least, found an empty object",
        ),
        ('{"description": ["a"]}', UNPARSABLE, 'description: expected a text, found ["a"]'),
        ('{"description": false}', UNPARSABLE, "description: expected a text, found false"),
        ('{"description": null}', UNPARSABLE, "description: expected a text, found null"),
        ('{"aliases": ["a", 1]}', UNPARSABLE, "aliases: expected a text, found 1"),
        ('{"aliases": "a, b"}', UNPARSABLE, 'aliases: expected a list of texts, found "a, b"'),
        (
            '{"aliases": ["a", " "]}',
            UNPARSABLE,
            'aliases: expected no empty name, found ["a", " "]',
        ),
        (
            '{"description": "\\u0000"}',
            UNUSABLE,
            "description holds the character U+0000; leave it out",
        ),
    ],
)
def test_descriptions_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    assert refusal(read_all_said, text) == (reason, detail)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("params", ""), ("param qury", " (did you mean `param query`?)"), ("Description", None)],
)
def test_unknown_descriptions_are_refused_with_the_names_that_there_are(
    name: str, hint: str | None
) -> None:
    hint = " (did you mean `description`?)" if hint is None else hint
    reason, detail = refusal(
        lambda text: read_named_texts(text, ("description", "param query")), json.dumps({name: "a"})
    )
    assert reason == UNPARSABLE
    assert detail == f"unknown field '{name}'{hint}; expected `description`, `param query`"


def test_a_refusal_lists_no_more_names_than_can_be_read() -> None:
    names = [f"value {number}" for number in range(1_000)]
    _, detail = refusal(lambda text: read_named_texts(text, names), '{"x": ""}')
    assert detail.endswith("`value 39`, …")


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        (None, "example"),
        ("", "example"),
        ("plain_key-2", "plain_key-2"),
        ("  Two Words ", "two-words"),
        ("Überprüfe “das”!", "uberprufe-das"),
        ("straße/№ 4", "strasse-no-4"),
        ("日本語", "example"),
        ("-_x_-", "x"),
        ("x" * 70, "x" * 64),
        ("x" * 63 + " y", "x" * 63),
    ],
)
def test_a_key_is_made_of_what_the_model_wrote(wanted: str | None, key: str) -> None:
    assert fresh_key(wanted, ()) == key
    assert fresh_key(wanted, {key}) == f"{key[:62]}-2"
    assert fresh_key(wanted, [key, f"{key[:62]}-2"]) == f"{key[:62]}-3"


def test_examples_are_written_as_they_are_asked_for() -> None:
    call = ToolCall(
        tool_name="search", description="a\nb: c", input_json='{"q": "é"}', output_json="[1]"
    )
    example = WorkedExample(objective='do "it"', steps=(call, call), outcome_json='"done"')
    assert write_tool_example(call) == (
        '{\n  "description": "a\\nb: c",\n  "input": {"q": "é"},\n  "output": [1]\n}'
    )
    line = '{"tool": "search", "description": "a\\nb: c", "input": {"q": "é"}, "output": [1]}'
    assert write_task_example(example, key="one") == (
        '{\n  "key": "one",\n  "objective": "do \\"it\\"",\n  "steps": [\n'
        f'    {line},\n    {line}\n  ],\n  "outcome": "done"\n}}'
    )
    empty = WorkedExample(objective="x", steps=(), outcome_json="1")
    assert write_task_example(empty) == '{\n  "objective": "x",\n  "steps": [],\n  "outcome": 1\n}'
    assert write_named_texts({"description": "a", "aliases": write_names(["b", "c"])}) == (
        '{\n  "description": "a",\n  "aliases": ["b", "c"]\n}'
    )


DAMAGED, GARBAGE, TYPED = 2_500, 3_000, 800


def a_name(rng: random.Random) -> str:
    return "".join(rng.choices("azAZ09_-", k=rng.randint(1, 12)))


def a_call(rng: random.Random) -> ToolCall:
    return ToolCall(
        tool_name=a_name(rng),
        description=a_text(rng),
        input_json=json_line(a_value(rng)),
        output_json=json_line(a_value(rng)),
    )


def a_worked_example(rng: random.Random, least: int = 0) -> WorkedExample:
    objective = a_text(rng)
    return WorkedExample(
        objective=objective if objective.strip() else "x",
        steps=tuple(a_call(rng) for _ in range(rng.randint(least, 3))),
        outcome_json=json_line(a_value(rng)),
    )


def a_key(rng: random.Random) -> str | None:
    return rng.choice([None, rng.choice("az09") + a_name(rng).lower()])


@batches(400)
@given(SEEDS)
def test_a_tool_example_comes_back_as_it_was_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        call = a_call(rng)
        assert read_tool_example(write_tool_example(call), call.tool_name) == call


@batches(400)
@given(SEEDS)
def test_a_task_example_comes_back_as_it_was_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        example, key = a_worked_example(rng), a_key(rng)
        text = write_task_example(example, key=key)
        assert read_task_example(text, outcome_is_text=False) == (key, example)
        if example.outcome_json.startswith('"'):
            assert read_task_example(text, outcome_is_text=True) == (key, example)


@batches(500)
@given(SEEDS)
def test_descriptions_come_back_as_they_were_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        names = [rng.choice([rng.choice(SAID), a_text(rng)]) for _ in range(rng.randrange(6))]
        aliases = [a_text(rng).strip() or "none" for _ in range(rng.randrange(4))]
        said = {name: a_text(rng) for name in names} | {"aliases": write_names(aliases)}
        assert read_named_texts(write_named_texts(said), said) == said


@batches(500)
@given(SEEDS)
def test_sloppy_replies_mean_the_same(seed: int) -> None:
    rng = random.Random(seed)
    sloppy = Sloppy(rng)
    for _ in range(BATCH):
        example = a_worked_example(rng, least=1)
        text = sloppy.reply(write_tool_example(example.steps[0]))
        call = example.steps[0]
        assert read_tool_example(text, call.tool_name) == call, text
        text = sloppy.reply(write_task_example(example))
        assert read_json_task(text) == (None, example), text


UNREADABLE = frozenset({UNPARSABLE, EMPTY, UNUSABLE})


def check_refusal(
    refused: InvalidProposalError, reasons: Collection[RejectionReason] = UNREADABLE
) -> None:
    assert refused.reason in reasons
    assert refused.detail.strip()
    assert "\n" not in refused.detail
    refused.detail.encode()


def check_read(read: Callable[[str], object], text: str) -> None:
    """Hold what every reply must lead to: JSON that parses, or one line that says what to mend."""
    try:
        found = read(text)
    except InvalidProposalError as error:
        check_refusal(error)
        return
    except BaseException as error:
        raise AssertionError(text) from error
    match found:
        case ToolCall():
            texts = [found.input_json, found.output_json]
        case (_, WorkedExample() as example):
            texts = [example.outcome_json]
            texts += [
                text for each in example.steps for text in (each.input_json, each.output_json)
            ]
        case _:
            texts = [json.dumps(found)]
    for json_text in texts:
        assert "\n" not in json_text
        json_text.encode()
        parse_json(json_text, where="found")


def test_damaged_replies_are_read_or_refused() -> None:
    tried = 0

    @batches(DAMAGED)
    @given(SEEDS)
    def try_a_batch(seed: int) -> None:
        nonlocal tried
        rng = random.Random(seed)
        for index in range(BATCH):
            if index % 25 == 0:
                replies = intact_replies(rng)
            reader, reply = rng.choice(replies)
            text = damaged(reply, rng)
            check_read(READERS[reader] if index % 2 else rng.choice(READERS), text)
            tried += 1

    try_a_batch()

    assert tried >= DAMAGED


def intact_replies(rng: random.Random) -> list[tuple[int, str]]:
    """Return replies, each with the number of its reader."""
    sloppy, example = Sloppy(rng), a_worked_example(rng, least=1)
    said = {"description": example.objective, "param query": "a\nb", "value high": "c"}
    replies = [
        (1, write_task_example(example, key="k")),
        (2, write_task_example(example)),
        (0, write_tool_example(example.steps[0])),
        (3, write_named_texts(said)),
    ]
    return [*replies, *((reader, sloppy.reply(text)) for reader, text in replies)]


def test_garbage_is_read_or_refused() -> None:
    tried = 0

    @batches(GARBAGE)
    @given(SEEDS)
    def try_a_batch(seed: int) -> None:
        nonlocal tried
        rng = random.Random(seed)
        for _ in range(BATCH):
            pieces = rng.choices((*PIECES, "\x00", "\ud800", a_text(rng)), k=rng.randrange(26))
            text = "".join(pieces)
            forms = (
                text,
                f'{{"description": "a", "input": {text}, "output": 1}}',
                f'{{"objective": "a", "outcome": 1, "steps": [{{"tool": "b", {text}}}]}}',
            )
            check_read(rng.choice(READERS), rng.choice(forms))
            tried += 1

    try_a_batch()

    assert tried >= GARBAGE


# What fits no type of the prompt is refused, whatever the reader made of it.

EXAMPLE_MODULES: tuple[PromptModule, ...] = (
    ToolExampleModule("search", 0),
    TaskExampleModule(SQLI),
    GenerationModule(SQLI[:-1]),
)
VIEW = View(
    template=SOURCE.template(),
    parts=effective_parts(SOURCE.template().descriptor, None),
    max_part_chars=100_000,
    max_shown_chars=10_000,
    max_task_examples=9,
)


def sometimes(rng: random.Random, value: object) -> object:
    """Return ``value``, or now and then one of another type."""
    return value if rng.random() < 0.95 else rng.choice([None, True, "5", 1.5, 7, [], {}, [1]])


def typed_fields(rng: random.Random, fields: dict[str, object]) -> dict[str, object]:
    fields = {name: sometimes(rng, value) for name, value in fields.items()}
    if rng.random() < 0.05:
        fields[rng.choice(["", "querry", "x", "limit", "severity"])] = 1
    if fields and rng.random() < 0.05:
        del fields[rng.choice(list(fields))]
    return fields


def typed_call(rng: random.Random, tool: str) -> ToolCall:
    given: object = typed_fields(rng, {"path": a_text(rng)})
    result: object = a_text(rng)
    if tool == "search":
        hits = [
            typed_fields(rng, {"file": a_text(rng), "line": 3}) for _ in range(rng.randrange(3))
        ]
        given = typed_fields(rng, {"query": a_text(rng), "limit": rng.randint(1, 9)})
        result = typed_fields(rng, {"hits": hits})
    return ToolCall(
        tool_name=tool,
        description=a_text(rng),
        input_json=json_line(sometimes(rng, given)),
        output_json=json_line(sometimes(rng, result)),
    )


def typed_reply(rng: random.Random, module: PromptModule) -> str:
    """Return a reply about the examples of the prompt: mostly of its types, mostly well written."""
    if isinstance(module, ToolExampleModule):
        text = write_tool_example(typed_call(rng, "search"))
    else:
        level = rng.choice(["high", "low", "low", "none", 1])
        outcome = typed_fields(rng, {"severity": level, "note": a_text(rng)})
        tools = rng.sample(["search", "read", "search"], rng.randrange(3))
        example = WorkedExample(
            objective=a_text(rng).strip() or "x",
            steps=tuple(typed_call(rng, tool) for tool in tools),
            outcome_json=json_line(outcome),
        )
        text = write_task_example(example)
    if rng.random() < 0.5:
        text = Sloppy(rng).reply(text)
    return damaged(text, rng) if rng.random() < 0.2 else text


def check_call(name: str, input_json: str, output_json: str) -> None:
    kinds: dict[str, tuple[type, type]] = {
        "search": (SearchParams, Hits),
        "read": (ReadParams, str),
    }
    for text, kind in zip((input_json, output_json), kinds[name], strict=True):
        assert structure(parse_json(text, where=""), kind, where="accepted") is not None


def check_typed(entry: object) -> None:
    match entry:
        case ToolExampleOverride(input_json=str(given), output_json=str(result)):
            check_call("search", given, result)
        case (
            TaskExampleOverride(outcome_json=str(outcome), steps_json=str(steps))
            | AddedTaskExample(outcome_json=outcome, steps_json=steps)
        ):
            assert isinstance(structure(json.loads(outcome), Review, where="accepted"), Review)
            for found in read_stored_steps(steps, where="accepted"):
                check_call(found.tool_name, found.input_json, found.output_json)
        case _:
            raise AssertionError(entry)


def test_replies_are_accepted_only_when_they_fit_the_types_of_the_prompt() -> None:
    tried: Counter[str] = Counter()

    @batches(TYPED)
    @given(SEEDS)
    def try_a_batch(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(BATCH):
            module = rng.choice(EXAMPLE_MODULES)
            text = typed_reply(rng, module)
            tried[try_reply(module, text)] += 1

    try_a_batch()

    assert tried.total() >= TYPED
    for module in EXAMPLE_MODULES:
        for outcome in ("accepted", "does not fit"):
            assert tried[f"{module.kind}: {outcome}"] > TYPED // 100, tried


def try_reply(module: PromptModule, text: str) -> str:
    try:
        [entry] = module.edits(VIEW, text)
    except InvalidProposalError as error:
        unfit = error.reason is RejectionReason.DOES_NOT_FIT
        check_refusal(error, {RejectionReason.DOES_NOT_FIT} if unfit else UNREADABLE)
        return f"{module.kind}: {'does not fit' if unfit else 'unreadable'}"
    except BaseException as error:
        raise AssertionError(text) from error
    check_typed(entry)
    return f"{module.kind}: accepted"


@batches(500)
@given(SEEDS)
def test_fresh_keys_are_valid_and_fresh(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        wanted = rng.choice([None, a_text(rng), a_text(rng) * 9])
        used = [rng.choice([a_text(rng), a_key(rng) or "x"]) for _ in range(rng.randrange(6))]
        for _ in range(12):
            key = fresh_key(wanted, used)
            assert check_key(key, "key") not in used
            used.append(key)


@pytest.mark.parametrize(
    ("read", "form", "piece"),
    [
        (read_call, "{}", "```\n"),
        (read_all_said, "{}", "```\n{"),
        (read_call, "{{{}", '"description": "a",'),
        (read_all_said, "{{{}}}", "a: 1,"),
        (read_all_said, '{{"{}": 1}}', "a"),
        (read_call, '{{"description": "{}"}}', "\\ud800"),
        (read_call, '{{"description": {}}}', "[1,"),
        (read_json_task, '{{"objective": "a", "outcome": 1, "steps": {}', "[{'tool': "),
        (read_all_said, '{{"aliases": [{}]}}', "'a', // b\n"),
        *thorough([(read_json_task, '{{"objective": "a", "outcome": 1, "steps": [{}]}}', "{},")]),
    ],
)
def test_a_long_reply_is_read_or_refused_in_one_pass(
    read: Callable[[str], object], form: str, piece: str
) -> None:
    check_one_pass(
        partial(check_read, read), lambda length: form.format(piece * (length // len(piece)))
    )


def test_a_long_reply_of_steps_and_values_is_read() -> None:
    values = {"a": ["“", "b: c", None] * 2_000}
    steps = tuple(
        ToolCall(tool_name="a", description="b\nc", input_json='{"a": 1}', output_json="[]")
        for _ in range(250)
    )
    example = WorkedExample(objective="do it", steps=steps, outcome_json=json_line(values))
    text = write_task_example(example)
    assert read_json_task(text) == (None, example)
    spoiled = text.replace('{"a": 1}', "{'a': 1,}")
    assert read_json_task(spoiled) == (None, example)
