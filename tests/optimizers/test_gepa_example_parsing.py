"""What becomes of the examples and descriptions that reflection models write."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Collection

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agent_prompts import SOURCE, SQLI, Hits, ReadParams, Review, SearchParams
from promptgraft.overrides import AddedTaskExample, TaskExampleOverride, ToolExampleOverride
from promptgraft.parts.effective import EffectiveParts
from promptgraft.parts.examples import ToolCall, WorkedExample, one_line, read_stored_steps
from promptgraft.parts.validation import check_key
from promptgraft.serde import parse_json, structure
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.example_text import (
    StepText,
    TaskExampleText,
    ToolExampleText,
    fresh_key,
    read_said,
    read_task_example,
    read_tool_example,
    write_said,
    write_task_example,
    write_tool_example,
)
from promptgraft.targets.parts.generation import GenerationModule
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.task_example import TaskExampleModule
from promptgraft.targets.parts.tool_example import ToolExampleModule
from promptgraft.targets.parts.view import View

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


def tool_example(given_input: str = "input: {}", output: str = "output: 1") -> str:
    return f"description: why\n{given_input}\n{output}"


def input_of(text: str) -> str:
    found = read_tool_example(tool_example(given_input=text))
    assert (found.description, found.output_json) == ("why", "1")
    return found.input_json


def output_of(text: str) -> str:
    found = read_tool_example(tool_example(output=text))
    assert (found.description, found.input_json) == ("why", "{}")
    return found.output_json


def description_of(text: str) -> str:
    found = read_tool_example(f"{text}\ninput: {{}}\noutput: 1")
    assert (found.input_json, found.output_json) == ("{}", "1")
    return found.description


def refusal(read: Callable[[str], object], text: str) -> InvalidProposalError:
    with pytest.raises(InvalidProposalError) as refused:
        read(text)
    return refused.value


def step(name: str = "search", *, why: str = "why", given: str = "{}", out: str = "1") -> StepText:
    return StepText(tool_name=name, description=why, input_json=given, output_json=out)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('input: {"q": "a"}', {"q": "a"}),
        ('INPUT: {"q": "a"}', {"q": "a"}),
        ('input : {"q": "a"}', {"q": "a"}),
        ('input:{"q": "a"}', {"q": "a"}),
        ('input：{"q": "a"}', {"q": "a"}),
        ('**input:** {"q": "a"}', {"q": "a"}),
        ('**Input**: {"q": "a"}', {"q": "a"}),
        ('`input`: {"q": "a"}', {"q": "a"}),
        ('- input: {"q": "a"}', {"q": "a"}),
        ('  * __input__: {"q": "a"}', {"q": "a"}),
        ('2. input: {"q": "a"}', {"q": "a"}),
        ('input: {\n  "q": "a",\n  "output": 2\n}', {"q": "a", "output": 2}),
        ('input: {\n"output": 2,\n"description": "}"\n}', {"output": 2, "description": "}"}),
        ('input:\n\n{"q": "a"}\n', {"q": "a"}),
        ('input: # the parameters\n  {"q": "a"}', {"q": "a"}),
        ('input:\n```json\n{"q": "a"}\n```', {"q": "a"}),
        ('input: ```json\n  {"q":\n  "a"}\n  ```', {"q": "a"}),
        ('input: ~~~~\n{"q": "```"}\n~~~~', {"q": "```"}),
        ("input:\n```yaml\nq: a\n```", {"q": "a"}),
        ('input: `{"q": "a"}`', {"q": "a"}),
        ('input: ```json {"q": "a"}```', {"q": "a"}),
        ('input: |\n  {"q": "a"}', {"q": "a"}),
        ('input: >-\n  {"q":\n  "a"}', {"q": "a"}),
        ('input: {"q": "a"} // why', {"q": "a"}),
        ('input: {"q": "a"},  # why', {"q": "a"}),
        (
            'input: {"q": "a", // one\n # two\n "u": "http://x#y"} # three',
            {"q": "a", "u": "http://x#y"},
        ),
        ('input: {"q": ["a", "b",], }', {"q": ["a", "b"]}),
        ('input: {“q”: “say "hi" it\'s “so””, “n”: 1}', {"q": 'say "hi" it\'s “so”', "n": 1}),
        ('input: {„q“: „a“, “r”: "keep “it”, so"}', {"q": "a", "r": "keep “it”, so"}),
        ("input: {‘q’: ‘it’s’}", {"q": "it’s"}),
        ('input: {"q": "a\nb"}', {"q": "a\nb"}),
        (r'input: {"q": "it\'s"}', {"q": "it's"}),
        (r'input: {"q": "\d+\s\\"}', {"q": r"\d+\s" + "\\"}),
        ("input: {'q': 'a \"b\"', 'r': True, 's': None}", {"q": 'a "b"', "r": True, "s": None}),
        (r"input: {'q': 'it\'s', 'r': [False]}", {"q": "it's", "r": [False]}),
        (
            "input: {q: a b, r: don't, s: 1.50, t: true}",
            {"q": "a b", "r": "don't", "s": 1.5, "t": True},
        ),
        ("input: {q: True, r: None, s: yes}", {"q": "True", "r": "None", "s": "yes"}),
        (
            "input: {q: 10:30, r: http://x/y, s: 2024-01-02}",
            {"q": "10:30", "r": "http://x/y", "s": "2024-01-02"},
        ),
        ("input: {q: [a, b], 1: c} # d", {"q": ["a", "b"], "1": "c"}),
        ("input:\n  q: foo", {"q": "foo"}),
        (
            "input:\n  yes: no\n  when: 2024-01-02\n  n: 1e3 # no\n  x: ~\n  y: null\n  z: is #4",
            {"yes": "no", "when": "2024-01-02", "n": 1000.0, "x": "~", "y": None, "z": "is #4"},
        ),
        (
            "input:\n  description: x\n  output: |\n    one\n      two\n\n  input: >\n    a\n    b",
            {"description": "x", "output": "one\n  two", "input": "a b"},
        ),
        (
            'input:\n  "a: b": \'c # d\'\n  e: {"f": [1,\n    2]}\n\n  # no\n  g: [h, i]',
            {"a: b": "c # d", "e": {"f": [1, 2]}, "g": ["h", "i"]},
        ),
        (
            "input:\n  a:\n  - b\n  - c: 1\n    d: 2\n  -\n    - e\n  f:\n    g:\n      h: i",
            {"a": ["b", {"c": 1, "d": 2}, ["e"]], "f": {"g": {"h": "i"}}},
        ),
        ("- input:\n  q: foo", {"q": "foo"}),
        ("input: null", None),
        ("input: 4 # four", 4),
        ("input: []", []),
    ],
)
def test_inputs_are_read_as_they_were_meant(text: str, expected: object) -> None:
    assert input_of(text) == json.dumps(expected, ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output: found 3 files", "found 3 files"),
        ("output: 3 files", "3 files"),
        ("output: 3", 3),
        ("output: -1.5e2  // less", -150.0),
        ("output: true\n# sure\n", True),
        ("output: True", "True"),
        ("output: yes", "yes"),
        ("output: None", "None"),
        ("output: 007", "007"),
        ("output: 'quoted'", "quoted"),
        ("output: “quoted”", "quoted"),
        ("output: `code`", "code"),
        ("output: 'tis so", "'tis so"),
        ("output: “a” and “b”", "“a” and “b”"),
        ("output: note: nothing", "note: nothing"),
        ("output:\n  Note: nothing\n    deeper", "Note: nothing\n  deeper"),
        ("output: |\n  path: a\n  line: b", "path: a\nline: b"),
        ("output:\n```\nplain # text\n```", "plain # text"),
        ("output:\n  path: src/a.py\n  line: 3", {"path": "src/a.py", "line": 3}),
        ("output:\n- a\n- 2", ["a", 2]),
        ('output: "a\\nb\\u00e9"', "a\nbé"),
        ('output: [\n  {"a": 1}, // one\n]', [{"a": 1}]),
    ],
)
def test_outputs_may_be_bare_texts(text: str, expected: object) -> None:
    assert output_of(text) == json.dumps(expected, ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("description: plain: text # all of it", "plain: text # all of it"),
        ('description: "quoted \\"so\\"\\n"', 'quoted "so"\n'),
        ("description: 'it''s'", "it's"),
        ("description: “curly”", "curly"),
        ('description: "quoted",\n  # so', "quoted"),
        ('description: "quoted"\n  so', '"quoted"\nso'),
        ('description: "a" and "b"', '"a" and "b"'),
        (r'description: "keep \d, \n"', r"keep \d, \n"),
        ('description: ""', ""),
        ("description: **bold** words", "**bold** words"),
        ("**description:** **bold** words", "**bold** words"),
        ("description: one\n  two\n\n    three\n  # four", "one\ntwo\n\n  three\n# four"),
        ("description:\n  one\n  two", "one\ntwo"),
        ("description: |\n  one\n    two\n\n  input: {}\n", "one\n  two\n\ninput: {}"),
        ("description: >\n  one\n  two\n\n  three", "one two\nthree"),
        ("description: |\nnot indented", "not indented"),
        ("description: > quoted", "> quoted"),
        ("# Example\n---\n\ndescription: text", "text"),
        ("\ufeffDESCRIPTION: text\r\n  more\r", "text\nmore"),
    ],
)
def test_texts_may_be_written_in_many_ways(text: str, expected: str) -> None:
    assert description_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"description": "why", "input": {"q": 1}, "output": [2]}',
        '{\n  "Description": "why", // one\n  "input": {"q": 1,},\n  "output": [2],\n}',
        "{'description': 'why', 'input': {'q': 1}, 'output': [2]}",
        '```json\n{"description": "why", "input": {"q": 1}, "output": [2]}\n```',
        '"description": "why",\n"input": {"q": 1},\n"output": [2]',
        "```yaml\ndescription: why\ninput:\n  q: 1\noutput: [2]\n```",
        "output: [2]\ninput: {q: 1}\ndescription: why",
        "  description: why\n    input: {q: 1}\n  output:\n    - 2",
    ],
)
def test_a_tool_example_may_be_one_object_or_lines_in_any_order(text: str) -> None:
    assert read_tool_example(text) == ToolExampleText(
        description="why", input_json='{"q": 1}', output_json="[2]"
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("input: ```\n```", ": expected a value, found none"),
        ("input: query foo", ": expected JSON, found 'query foo'"),
        ("input:\nquery foo", ": expected JSON, found 'query foo'"),
        ('input: {"q": }', ":1:7: Expecting value; expected one JSON value"),
        ('input: {"a": 1 "b": 2}', ":1:9: Expecting ',' delimiter; expected one JSON value"),
        ('input: {"a": [1, 2}', ": the JSON closes with `}` what another bracket opened"),
        ('input: {"a": [1, 2]', ": the JSON does not end; found the end of the text"),
        ('input: {"a": "b}', ": the JSON does not end; found '\"b}\\noutput: 1'"),
        ("input: {“a”: “b}", ": the JSON does not end; found '“b}\\noutput: 1'"),
        (
            'input: {"a": [...]}',
            ": the JSON leaves something out with `...`; write the whole value",
        ),
        ('input: {"a": 1} so', ": expected nothing after the JSON, found ' so'"),
        (
            'input: {"a": 1, "a": 2}',
            ": the key 'a' occurs twice in one object; expected one JSON value",
        ),
        (
            "input: {a: 1, 'a': 2}",
            ": the key 'a' occurs twice in one object; expected one JSON value",
        ),
        ("input:\n  a: 1\n  'a': 2", ": the key 'a' occurs twice"),
        ("input:\n  a: 1\n    b: 2", ": expected JSON, or one `key: value` a line; found 'b: 2'"),
        ("input:\n  a: 1\n  b", ": expected JSON, or one `key: value` a line; found 'b'"),
        ("input:\n  a:", ": expected a value after every key and dash, found none"),
        ("input:\n  a: 'b", ': expected the quote to be closed, found "\'b"'),
        ('input: {"a": NaN}', ": expected a finite number, found NaN; expected one JSON value"),
        ("input: {a: 1e999}", ": expected a finite number, found 1e999; expected one JSON value"),
        ("input: -Infinity", ": expected a finite number, found -Infinity"),
        ("input:\n  a: NaN", ": expected a finite number, found NaN"),
        (r'input: {"p": "C:\Users\new"}', r":1:10: Invalid \escape; expected one JSON value"),
        ("input: ```json\n{}", ": expected the fence to be closed, found the end"),
        ("input: |\n  {}\n  x", ": expected nothing after the value, found 'x'"),
        (f"input: {'[' * 101}{']' * 101}", ": the JSON is nested deeper than 100 levels"),
        (f"input:\n {'- ' * 101}a", ": nested deeper than 100 levels"),
    ],
)
def test_inputs_that_cannot_be_read_are_refused_with_what_to_mend(text: str, detail: str) -> None:
    refused = refusal(read_tool_example, tool_example(text))
    assert (refused.reason, refused.detail) == (UNPARSABLE, f"line 2: input{detail}")


FIELDS = "expected `description`, `input`, `output`"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", EMPTY, "the text is empty"),
        (" \n\t", EMPTY, "the text is empty"),
        ("# no", UNPARSABLE, "the field `description` is missing; expected `description: …`"),
        ("description: a", UNPARSABLE, "the field `input` is missing; expected `input: …`"),
        ("description:\ninput: {}", EMPTY, "description: expected a text, found none"),
        (tool_example("input:"), EMPTY, "line 2: input: expected a value, found none"),
        (tool_example(output="output:"), EMPTY, "line 3: output: expected a value, found none"),
        (
            tool_example(output='output: "a" is here'),
            UNPARSABLE,
            "line 3: output: expected nothing after the JSON, found ' is here'",
        ),
        (
            tool_example(output="output: [a] is here"),
            UNPARSABLE,
            "line 3: output: expected nothing after the JSON, found ' is here'",
        ),
        (
            tool_example(f"input:\n  a: {'[' * 100}{']' * 100}"),
            UNPARSABLE,
            "input: nested deeper than 100 levels",
        ),
        (
            tool_example() + "\noutput: 2",
            UNPARSABLE,
            "the field `output` occurs twice; expected it once",
        ),
        (
            "inpt: {}\n" + tool_example(),
            UNPARSABLE,
            f"line 1: unknown field 'inpt' (did you mean `input`?); {FIELDS}",
        ),
        (
            "Here it is\n" + tool_example(),
            UNPARSABLE,
            f"line 1: unknown field 'Here it is'; {FIELDS}",
        ),
        (
            tool_example() + "\n\x1b",
            UNUSABLE,
            "the text holds the character U+001B; leave it out",
        ),
        ("description: \ud800", UNUSABLE, "the text holds the character U+D800; leave it out"),
        (
            tool_example(r'input: {"a": ["\ud800"]}'),
            UNUSABLE,
            "input holds the character U+D800; leave it out",
        ),
        (
            tool_example(r'input: {"\u0000": 1}'),
            UNUSABLE,
            "input holds the character U+0000; leave it out",
        ),
        (
            r'{"description": "\u007f", "input": 1, "output": 1}',
            UNUSABLE,
            "description holds the character U+007F; leave it out",
        ),
        (
            '{"description": "a", "input": 1, "Input": 1}',
            UNPARSABLE,
            "the field `input` occurs twice; expected it once",
        ),
        ('{"description": 1}', UNPARSABLE, "description: expected a text, found 1"),
        ('{"description": null}', EMPTY, "description: expected a text, found none"),
        (
            '{"describe": "a"}',
            UNPARSABLE,
            f"unknown field 'describe' (did you mean `description`?); {FIELDS}",
        ),
        (
            '{"description": "a"}\nand so on',
            UNPARSABLE,
            "line 2: expected nothing after the JSON, found 'and so on'",
        ),
        (
            '{"description": "a"',
            UNPARSABLE,
            "the text: the JSON does not end; found the end of the text",
        ),
    ],
)
def test_tool_examples_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    refused = refusal(read_tool_example, text)
    assert (refused.reason, refused.detail) == (reason, detail)


TASK = TaskExampleText(
    key="a-key",
    objective="do it",
    steps=(step(), step("open_file", why="then", given='{"p": 1}', out='"text"')),
    outcome_json='"done"',
)


AS_ASKED_FOR = """
key: a-key
objective: do it
steps:
  - tool: search
    description: why
    input: {}
    output: 1
  - tool: open_file
    description: then
    input: {"p": 1}
    output: "text"
outcome: done
"""
IN_BOLD = """
**Key:** `a-key`
**Objective:** do it
**Steps:**
1. **tool:** `search`
   **description:** why
   **input:** {}
   **output:** 1

2. **tool_name**: open_file
   - description: then
   - input: ```json
{'p': 1}
```
   - output: 'text'
**Outcome:** “done”
"""
IN_ANOTHER_ORDER = """
outcome: done
key: a-key
steps:
* tool: search # first
  description: why
  input: {}
  output: 1

* description: then
  tool: open_file
  output: text
  input:
    p: 1
objective: do it
"""
WITH_HEADINGS = """
# The example
key: a-key
objective: do it
steps:
### Step 1
Step 1:
tool: search
description: why
input: {}
output: 1
**Step 2:**
tool: open_file
description: then
input: {p: 1}
output: |
  text
outcome: done
"""
WITH_DASHES_ALONE = """
key: a-key
objective: do it
steps:
-
  tool: search
  description: why
  input: {}
  output: 1
-
  tool: open_file
  description: then
  input: {p: 1}
  output: text
---
outcome: done
"""
STEPS_AS_JSON = """
key: a-key
objective: do it
steps: [
  {"tool": "search", "description": "why", "input": {}, "output": 1}, // first
  {"tool_name": "open_file", "description": "then", "input": {"p": 1}, "output": "text"},
]
outcome: done
"""
STEPS_IN_A_FENCE = """
key: a-key
objective: do it
steps:
```yaml
- tool: search
  description: why
  input: {}
  output: 1
- tool: open_file
  description: then
  input:
    p: 1
  output: text
```
outcome: done
"""
ONE_OBJECT = """
{
  "key": "a-key",
  "objective": "do it",
  "steps": [
    {"tool": "search", "description": "why", "input": {}, "output": 1},
    {"tool_name": "open_file", "description": "then", "input": {"p": 1}, "output": "text"},
  ],
  "outcome": "done",
}
"""


@pytest.mark.parametrize(
    "text",
    [
        AS_ASKED_FOR,
        AS_ASKED_FOR.replace("\n", "\r\n"),
        AS_ASKED_FOR.replace("  ", ""),
        AS_ASKED_FOR.replace("outcome", "    outcome"),
        IN_BOLD,
        IN_ANOTHER_ORDER,
        WITH_HEADINGS,
        WITH_DASHES_ALONE,
        STEPS_AS_JSON,
        STEPS_IN_A_FENCE,
        ONE_OBJECT,
        f"```json{ONE_OBJECT}```",
    ],
)
@pytest.mark.parametrize("outcome_is_text", [True, False])
def test_a_task_example_may_be_written_in_many_ways(text: str, outcome_is_text: bool) -> None:
    assert read_task_example(text, outcome_is_text=outcome_is_text) == TASK


def task_example(steps: str = "steps: []", outcome: str = "outcome: done") -> str:
    return f"objective: do it\n{steps}\n{outcome}"


@pytest.mark.parametrize(
    ("outcome", "as_text", "as_json"),
    [
        ("outcome: 42", '"42"', "42"),
        ('outcome: {"a": 1}', '"{\\"a\\": 1}"', '{"a": 1}'),
        ("outcome: “done”", '"done"', '"done"'),
        ('outcome: "a\\nb"', '"a\\nb"', '"a\\nb"'),
        ("outcome:\n  one\n  - two", '"one\\n- two"', '"one\\n- two"'),
        ("outcome:\n  level: high", '"level: high"', '{"level": "high"}'),
        ("outcome: one\n- tool: two", '"one\\n- tool: two"', '"one\\n- tool: two"'),
        ("outcome: [a] and b", '"[a] and b"', None),
        ('outcome: "a" or "b"', '"\\"a\\" or \\"b\\""', None),
    ],
)
def test_an_outcome_is_text_or_json_as_the_prompt_asks_for(
    outcome: str, as_text: str, as_json: str | None
) -> None:
    text = task_example(outcome=outcome)
    assert read_task_example(text, outcome_is_text=True).outcome_json == as_text
    if as_json is None:
        refused = refusal(lambda reply: read_task_example(reply, outcome_is_text=False), text)
        assert refused.reason == UNPARSABLE
    else:
        assert read_task_example(text, outcome_is_text=False).outcome_json == as_json


STEP = "- tool: a\n  description: b\n  input: {}\n  output: 1"
TOP_FIELDS = "expected `key`, `objective`, `steps`, `outcome`"
STEP_FIELDS = "`tool`, `description`, `input`, `output`, `tool_name`"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("key: a", UNPARSABLE, "the field `objective` is missing; expected `objective: …`"),
        ("objective: a", UNPARSABLE, "the field `steps` is missing; expected `steps: …`"),
        (
            task_example(outcome=""),
            UNPARSABLE,
            "the field `outcome` is missing; expected `outcome: …`",
        ),
        (task_example(outcome="outcome:"), EMPTY, "outcome: expected a text, found none"),
        ('objective: " "\nsteps: []', EMPTY, "objective: expected a text, found none"),
        (
            task_example("steps:"),
            EMPTY,
            "steps: expected items that begin with `- tool: NAME`, or `[]`",
        ),
        (task_example("steps: none"), UNPARSABLE, "line 2: steps: expected JSON, found 'none'"),
        (task_example("steps: {}"), UNPARSABLE, "steps: expected a list, found {}"),
        (task_example("steps: [1]"), UNPARSABLE, "step 1: expected an object, found 1"),
        (
            task_example('steps: [{"tol": 1}]'),
            UNPARSABLE,
            f"step 1: unknown field 'tol' (did you mean `tool`?); expected {STEP_FIELDS}",
        ),
        (
            task_example('steps: [{"tool": "a", "tool_name": "a"}]'),
            UNPARSABLE,
            "step 1: the field `tool` occurs twice; expected it once",
        ),
        (
            task_example("steps:\n- tool: a"),
            UNPARSABLE,
            "step 1: the field `description` is missing; expected `description: …`",
        ),
        (
            task_example(f"steps:\n{STEP}\n- tool:\n  description: b"),
            EMPTY,
            "step 2: tool: expected a text, found none",
        ),
        (
            task_example(f"steps:\n{STEP}\n- ..."),
            UNPARSABLE,
            f"line 7: unknown field '...'; {TOP_FIELDS}, {STEP_FIELDS}",
        ),
        (
            task_example(f"steps:\n{STEP}\n  output: 2"),
            UNPARSABLE,
            "step 1: the field `output` occurs twice; expected it once",
        ),
        (
            task_example(f"steps: []\n{STEP}"),
            UNPARSABLE,
            f"line 3: unknown field 'tool'; {TOP_FIELDS}",
        ),
        (
            task_example("steps:\n- tool: a\n  description: b\n  input: so"),
            UNPARSABLE,
            "line 5: input: expected JSON, found 'so'",
        ),
        (
            task_example(f"steps:\n{STEP}\nsteps:\n{STEP}"),
            UNPARSABLE,
            "the field `steps` occurs twice; expected it once",
        ),
        (
            '{"objective": "a", "steps": [], "outcome": 1}',
            UNPARSABLE,
            "outcome: expected a text, found 1",
        ),
        (
            '{"key": 1, "objective": "a", "steps": [], "outcome": "b"}',
            UNPARSABLE,
            "key: expected a text, found 1",
        ),
        (
            task_example(outcome=r'outcome: "\u0007"'),
            UNUSABLE,
            "outcome holds the character U+0007; leave it out",
        ),
    ],
)
def test_task_examples_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    refused = refusal(lambda reply: read_task_example(reply, outcome_is_text=True), text)
    assert (refused.reason, refused.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("description: a\nparam query: b", {"description": "a", "param query": "b"}),
        ("* **Param `query`:** a", {"param query": "a"}),
        ("- `param query`: a\n- value **high**: b", {"param query": "a", "value high": "b"}),
        ("description: a\n  param query: b", {"description": "a", "param query": "b"}),
        ("value c++: new: a: b", {"value C++: new": "a: b"}),
        ("description: a\nNote: b\n  limit: c", {"description": "a\nNote: b\n  limit: c"}),
        ("description: see http://x\nhttp://y", {"description": "see http://x\nhttp://y"}),
        (
            "description: |\n  a\n  limit: b\nparam query: c",
            {"description": "a\nlimit: b", "param query": "c"},
        ),
        ("description:\nparam query: 'a'", {"description": "", "param query": "a"}),
        ("aliases: a, b", {"aliases": "a, b"}),
        ('aliases: "a", `b`,', {"aliases": "a, b"}),
        ("aliases: [a, 'b']", {"aliases": "a, b"}),
        ("aliases:\n  - a\n  - b c", {"aliases": "a, b c"}),
        ("aliases:", {"aliases": ""}),
        ('{"description": "a", "aliases": ["a", "b"]}', {"description": "a", "aliases": "a, b"}),
    ],
)
def test_descriptions_are_read_by_the_names_that_there_are(
    text: str, expected: dict[str, str]
) -> None:
    assert read_said(text, SAID) == expected


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("Search.", "line 1: unknown field 'Search.'"),
        ("param qury: a", "line 1: unknown field 'param qury' (did you mean `param query`?)"),
        ("description: a\n- param limit: b", "line 2: unknown field 'param limit'"),
        ("description: a\n**Query**: b", "line 2: unknown field 'Query'"),
        ("description: a\nlimit: b", "line 2: unknown field 'limit'"),
        ('{"params": {}}', "unknown field 'params'"),
    ],
)
def test_unknown_descriptions_are_refused_with_the_names_that_there_are(
    text: str, field: str
) -> None:
    refused = refusal(lambda reply: read_said(reply, ("description", "param query")), text)
    assert refused.reason == UNPARSABLE
    assert refused.detail == f"{field}; expected `description`, `param query`"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", EMPTY, "the text is empty"),
        ("# no", EMPTY, "expected a line `name: text`, found only comments"),
        (
            "description: a\ndescription: b",
            UNPARSABLE,
            "the field `description` occurs twice; expected it once",
        ),
        ('{"description": ["a"]}', UNPARSABLE, "description: expected a text, found ['a']"),
        ('{"description": false}', UNPARSABLE, "description: expected a text, found False"),
        ('aliases: ["a", 1]', UNPARSABLE, "aliases: expected a text, found 1"),
        ('{"aliases": 0}', UNPARSABLE, "aliases: expected a text, found 0"),
        ("description: \0", UNUSABLE, "the text holds the character U+0000; leave it out"),
    ],
)
def test_descriptions_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    refused = refusal(lambda reply: read_said(reply, SAID), text)
    assert (refused.reason, refused.detail) == (reason, detail)


def test_names_that_differ_only_in_markup_are_told_apart_by_it() -> None:
    names = ("value a", "value A", "value `a`")
    assert read_said("value A: 1\nvalue `a`: 2", names) == {"value A": "1", "value `a`": "2"}
    assert refusal(lambda reply: read_said(reply, names), "VALUE a: 1").reason == UNPARSABLE


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
    example = WorkedExample(objective="do: it", steps=(call,), outcome_json='"done"')
    assert write_tool_example(call) == (
        'description: |\n  a\n  b: c\ninput: {"q": "é"}\noutput: [1]'
    )
    assert write_task_example(example, key="one") == (
        "key: one\nobjective: do: it\nsteps:\n  - tool: search\n    description: |\n      a\n"
        '      b: c\n    input: {"q": "é"}\n    output: [1]\noutcome: "done"'
    )
    assert write_said({"description": "a", "param query": "", "value high": '"b"'}) == (
        'description: a\nparam query:\nvalue high: "\\"b\\""'
    )


# What might be taken for something else in a text.
PIECES = (
    '"', "'", "“", "”", "‘", "’", "{", "}", "[", "]", ":", ": ", ",", "#", " # ", "//", " // ",
    "\\", "\n", "\n\n", "\n  ", "```", "\n```json\n", "`", "~~~", "|", ">", "**", "- ", "1. ",
    "- tool: x", "tool_name: y", "input:", "\ninput: {}", "output: [", "description: z", "steps:",
    "\noutcome: ", "objective:", "key: k", "param query: ", "\nvalue high:", "\nnew: ", "Step 2:",
    "---", " ", "\t", "\r", "\xa0", "\x85", "\u2028", "\ufeff", "é", "日本", "😀", "null", "true",
    "NaN", "None", "1", "-1.5e3", "yes", "2024-01-02", "$x", "%s", "a", "word",
)  # fmt: skip
# Hypothesis chooses the seed of a batch; drawing each text by itself would cost ten times as much.
SEEDS = st.integers(0, 2**64)
BATCH = 50
DAMAGED, GARBAGE, TYPED = 7_000, 11_500, 1_500
assert DAMAGED + GARBAGE + TYPED >= 20_000


def batches(examples: int) -> settings:
    """Return settings for so many examples; a smaller seed would not be a smaller reply."""
    return settings(max_examples=-(-examples // BATCH), phases=[Phase.generate])


def a_character(rng: random.Random) -> str:
    first, last = rng.choice([(32, 126), (128, 767), (0x2000, 0x206F), (0x3040, 0xD7FF)])
    return chr(rng.choice([rng.randint(first, last), rng.randint(0xE000, 0x10FFFF)]))


def a_text(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return "".join(rng.choices(PIECES, k=rng.randrange(7)))
    return "".join(a_character(rng) for _ in range(rng.randrange(10)))


def a_value(rng: random.Random, depth: int = 3) -> object:
    if depth and rng.random() < 0.5:
        items = [a_value(rng, depth - 1) for _ in range(rng.randrange(4))]
        return items if rng.random() < 0.5 else {a_text(rng): item for item in items}
    number = rng.choice([rng.randint(-9, 9), rng.getrandbits(80), rng.uniform(-1, 1) * 1e3])
    return rng.choice([None, True, False, number, rng.gauss(0, 1e-9), a_text(rng), a_text(rng)])


def a_name(rng: random.Random) -> str:
    return "".join(rng.choices("azAZ09_-", k=rng.randint(1, 12)))


def a_call(rng: random.Random) -> ToolCall:
    return ToolCall(
        tool_name=a_name(rng),
        description=a_text(rng),
        input_json=one_line(a_value(rng)),
        output_json=one_line(a_value(rng)),
    )


def a_worked_example(rng: random.Random, least: int = 0) -> WorkedExample:
    objective = a_text(rng)
    return WorkedExample(
        objective=objective if objective.strip() else "x",
        steps=tuple(a_call(rng) for _ in range(rng.randint(least, 3))),
        outcome_json=one_line(a_value(rng)),
    )


def a_key(rng: random.Random) -> str | None:
    return rng.choice([None, rng.choice("az09") + a_name(rng).lower()])


def as_read(call: ToolCall) -> ToolExampleText:
    return ToolExampleText(
        description=call.description, input_json=call.input_json, output_json=call.output_json
    )


def task_as_read(example: WorkedExample, key: str | None) -> TaskExampleText:
    steps = (
        step(call.tool_name, why=call.description, given=call.input_json, out=call.output_json)
        for call in example.steps
    )
    return TaskExampleText(
        key=key,
        objective=example.objective,
        steps=tuple(steps),
        outcome_json=example.outcome_json,
    )


@batches(400)
@given(SEEDS)
def test_a_tool_example_comes_back_as_it_was_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        call = a_call(rng)
        assert read_tool_example(write_tool_example(call)) == as_read(call)


@batches(400)
@given(SEEDS)
def test_a_task_example_comes_back_as_it_was_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        example, key = a_worked_example(rng), a_key(rng)
        text = write_task_example(example, key=key)
        assert read_task_example(text, outcome_is_text=False) == task_as_read(example, key)
        if example.outcome_json.startswith('"'):
            assert read_task_example(text, outcome_is_text=True) == task_as_read(example, key)


@batches(500)
@given(SEEDS)
def test_descriptions_come_back_as_they_were_written(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        names = [rng.choice([rng.choice(SAID), a_text(rng)]) for _ in range(rng.randrange(6))]
        aliases = [a_name(rng).strip("-_") or "a b" for _ in range(rng.randrange(4))]
        said = {name: a_text(rng) for name in names} | {"aliases": ", ".join(aliases)}
        assert read_said(write_said(said), said) == said


class Sloppy:
    """Writes values in the ways that models do, without changing what they mean."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def value(self, value: object) -> str:
        ways = [self._relaxed, self._relaxed, self._python, self._plain]
        return self._rng.choice(ways)(value)

    def example(self, found: ToolExampleText, *, pad: str = "") -> str:
        fields = [
            f"{pad}{self._name('description')} {json.dumps(found.description)}",
            self._field("input", found.input_json, pad),
            self._field("output", found.output_json, pad),
        ]
        return "\n".join(line for field in fields for line in (self._silence(pad), field))

    def task(self, found: TaskExampleText) -> str:
        pad = self._rng.choice(["", "  ", "\t"])
        number = self._rng.random() < 0.3
        lines = [f"{self._name('objective')} {json.dumps(found.objective)}", self._name("steps")]
        for index, each in enumerate(found.steps, start=1):
            bullet = f"{index}. " if number else self._rng.choice(["- ", "* ", "-   "])
            tool = self._name(self._rng.choice(["tool", "tool_name"]))
            name = self._rng.choice([each.tool_name, f"`{each.tool_name}`", f'"{each.tool_name}"'])
            call = ToolExampleText(
                description=each.description,
                input_json=each.input_json,
                output_json=each.output_json,
            )
            inside = pad + " " * len(bullet)
            lines += [f"{pad}{bullet}{tool} {name}", self.example(call, pad=inside)]
        return "\n".join([*lines, self._field("outcome", found.outcome_json, "")])

    def _silence(self, pad: str) -> str:
        return self._rng.choice(["", "", f"{pad}# so", "  // {", pad])

    def _name(self, name: str) -> str:
        cased = self._rng.choice([name, name, name.title(), name.upper()])
        mark = self._rng.choice(["", "", "**", "__", "`"])
        form = self._rng.choice(["{m}{n}{m}:", "{m}{n}:{m}", "{n} :", "{m}{n}{m}:"])
        return form.format(m=mark, n=cased)

    def _field(self, name: str, text: str, pad: str) -> str:
        value = self.value(json.loads(text))
        head = pad + self._name(name)
        deeper = f"\n{pad}  "
        forms = [f"{head} {value}", f"{head}\n\n{pad}{value}", f"{head}{deeper}{value}"]
        if value[0] in '{["':
            forms.append(f"{head} {value} // so")
            forms.append(f"{head}\n{pad}`````json\n{value}\n{pad}`````")
        return self._rng.choice(forms)

    def _plain(self, value: object) -> str:
        indent = self._rng.choice([None, 0, 2])
        return json.dumps(value, ensure_ascii=self._rng.random() < 0.5, indent=indent)

    def _python(self, value: object) -> str:
        text = repr(value)
        is_literal = value and isinstance(value, (dict, list))
        # What JSON cannot escape so is refused, and a plain string is text.
        return text if is_literal and not re.search(r"\\[xUa]", text) else self._plain(value)

    def _relaxed(self, value: object) -> str:
        gap = self._rng.choice(["", " ", "\n", " // it's {\n", "\n# ]\n  "])
        match value:
            case dict() if value:
                items = [
                    f"{self._text(key)}:{gap or ' '}{self._inner(value[key])}" for key in value
                ]
                return f"{{{gap}{f',{gap}'.join(items)}{self._end(gap)}}}"
            case list() if value:
                return f"[{gap}{f',{gap}'.join(map(self._inner, value))}{self._end(gap)}]"
        return json.dumps(value)

    def _inner(self, value: object) -> str:
        return self._text(value) if isinstance(value, str) else self._relaxed(value)

    def _end(self, gap: str) -> str:
        return self._rng.choice(["", ",", f",{gap}", gap])

    def _text(self, text: str) -> str:
        escaped = json.dumps(text, ensure_ascii=False)[1:-1]
        forms = [json.dumps(text), f'"{escaped}"']
        if not re.search("[\"'“”„‟]", text):
            forms.append(f"“{escaped}”")
        if not re.search("[\"'‘’‚‛]", text):
            forms.append(f"‘{escaped}’")
        if '"' not in text:
            forms.append("'" + escaped.replace("'", "\\'") + "'")
        return self._rng.choice(forms)


@batches(500)
@given(SEEDS)
def test_sloppy_forms_mean_the_same(seed: int) -> None:
    rng = random.Random(seed)
    sloppy = Sloppy(rng)
    for _ in range(BATCH):
        example = a_worked_example(rng, least=1)
        call, task = as_read(example.steps[0]), task_as_read(example, None)
        text = sloppy.example(call)
        assert read_tool_example(text) == call, text
        text = sloppy.task(task)
        assert read_task_example(text, outcome_is_text=False) == task, text


def as_yaml_text(text: str) -> str:
    """Return a text that YAML and models do not write differently."""
    kept = "".join(char for char in text if char == "\n" or char.isprintable())
    kept = re.sub(r"[“”„‟‘’‚‛\\/]", "", kept)
    return f"w{kept}" if re.match(r"-?[0-9]|None|NaN|-?Infinity|true|null", kept) else kept


def a_yaml_value(rng: random.Random, depth: int = 2) -> object:
    if depth and rng.random() < 0.5:
        items = [a_yaml_value(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.5:
            return items[1:]
        return {a_yaml_key(rng): item for item in items}
    scalars = (None, True, False, rng.randint(-9, 10**9), rng.uniform(-1e6, 1e6))
    return rng.choice([*scalars, as_yaml_text(a_text(rng)), as_yaml_text(a_text(rng))])


def a_yaml_key(rng: random.Random) -> str:
    return "".join(as_yaml_text(a_text(rng)).split("\n")) or "w"


@batches(300)
@given(SEEDS)
def test_yaml_is_read_as_it_is_meant_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        value = {a_yaml_key(rng): a_yaml_value(rng) for _ in range(rng.randint(1, 3))}
        check_yaml(value, flow=rng.random() < 0.5 and "\\n" not in json.dumps(value))


def check_yaml(value: dict[str, object], *, flow: bool) -> None:
    text = yaml.safe_dump(
        value, default_flow_style=flow, allow_unicode=True, sort_keys=False, width=10**6
    )
    block = text if flow else "\n  " + text.strip().replace("\n", "\n  ")
    try:
        found = read_tool_example(tool_example(f"input: {block}"))
    except InvalidProposalError as error:
        check_refusal(error)
    else:
        assert found.input_json == one_line(value), block


UNREADABLE = frozenset({UNPARSABLE, EMPTY, UNUSABLE})


def check_refusal(
    refused: InvalidProposalError, reasons: Collection[RejectionReason] = UNREADABLE
) -> None:
    assert refused.reason in reasons
    assert refused.detail.strip()
    assert "\n" not in refused.detail


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
        case ToolExampleText():
            texts = [found.input_json, found.output_json]
        case TaskExampleText():
            texts = [found.outcome_json]
            texts += [text for each in found.steps for text in (each.input_json, each.output_json)]
        case _:
            texts = [json.dumps(found)]
    for json_text in texts:
        assert "\n" not in json_text
        json_text.encode()
        parse_json(json_text, where="found")


READERS: tuple[Callable[[str], object], ...] = (
    read_tool_example,
    lambda text: read_task_example(text, outcome_is_text=True),
    lambda text: read_task_example(text, outcome_is_text=False),
    lambda text: read_said(text, SAID),
)


def damaged(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 3)):
        lines = text.split("\n")
        at, line = rng.randrange(len(text) + 1), rng.randrange(len(lines))
        match rng.randrange(9):
            case 0:
                del lines[line]
                text = "\n".join(lines)
            case 1:
                text = text.replace('"', rng.choice(["'", "“", "”", ""]), rng.randint(1, 9))
            case 2:
                text = text[:at]
            case 3:
                text = text[at:]
            case 4:
                lines[line] += rng.choice([" # so", " // so", ",", ";", "```", " {", '"', "\\"])
                text = "\n".join(lines)
            case 5:
                lines.insert(
                    line, rng.choice(["# so", "// so", "```", "-", "---", "so", "", "  x:"])
                )
                text = "\n".join(lines)
            case 6:
                text = text[:at] + rng.choice((*PIECES, "\x00", "\ud800", "Infinity")) + text[at:]
            case 7:
                lines[line] = rng.choice(["  ", "\t", "- "]) + lines[line]
                text = "\n".join(lines)
            case _:
                lines[line] = lines[line].lstrip()
                text = "\n".join(lines)
    return text


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
    return [
        (1, write_task_example(example, key="k")),
        (2, sloppy.task(task_as_read(example, "k"))),
        (0, write_tool_example(example.steps[0])),
        (0, sloppy.example(as_read(example.steps[-1]))),
        (3, write_said(said)),
    ]


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
                f"description: a\ninput: {text}",
                f"objective: a\nsteps:\n  - tool: b\n    input:\n{text}",
            )
            check_read(rng.choice(READERS), rng.choice(forms))
            tried += 1

    try_a_batch()

    assert tried >= GARBAGE


# What fits no type of the prompt is refused, whatever the reader made of it.

EXAMPLE_MODULES = (
    ToolExampleModule("search", 0),
    TaskExampleModule(SQLI),
    GenerationModule(SQLI[:-1]),
)
VIEW = View(
    template=SOURCE.template(),
    parts=EffectiveParts.of_source(SOURCE.template().descriptor),
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
        input_json=one_line(sometimes(rng, given)),
        output_json=one_line(sometimes(rng, result)),
    )


def typed_reply(rng: random.Random, module: PromptModule) -> str:
    """Return a reply about the examples of the prompt: mostly of its types, mostly well written."""
    sloppy = Sloppy(rng) if rng.random() < 0.5 else None
    if isinstance(module, ToolExampleModule):
        call = typed_call(rng, "search")
        text = sloppy.example(as_read(call)) if sloppy else write_tool_example(call)
    else:
        level = rng.choice(["high", "low", "low", "none", 1])
        outcome = typed_fields(rng, {"severity": level, "note": a_text(rng)})
        tools = rng.sample(["search", "read", "search"], rng.randrange(3))
        example = WorkedExample(
            objective=a_text(rng).strip() or "x",
            steps=tuple(typed_call(rng, tool) for tool in tools),
            outcome_json=one_line(outcome),
        )
        task = task_as_read(example, None)
        text = sloppy.task(task) if sloppy else write_task_example(example)
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
        entry = module.edit(VIEW, text)
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


TOOL, _, TASK_READER, SAID_READER = READERS


@pytest.mark.parametrize(
    ("read", "form", "piece"),
    [
        (TOOL, "{}", " "),
        (TOOL, "{}", "```\n"),
        (TOOL, "{}", '{"a":'),
        (TOOL, "{}", '"a" '),
        (TOOL, "{}", "description: "),
        (TOOL, "description: {}", "'"),
        (TOOL, "description: {}", "-\n\n"),
        (TOOL, "description: |{}", "\n\n a"),
        (TOOL, "description: >{}", "\n\n a"),
        (TOOL, "input: {}", "“ "),
        (TOOL, "input: [{}", "“ "),
        (TOOL, "input: [{}", "‘a’ # "),
        (TOOL, "input: [{}", "'a\\'"),
        (TOOL, "input: [{}]", "{a: b,},"),
        (TOOL, "input: [{}", "// a\n"),
        (TOOL, "input: [{}", "a # "),
        (TOOL, "input: {{{}", ": "),
        (TOOL, "input: {}", "`"),
        (TOOL, "input: ```\n{}", "~~~\n"),
        (TOOL, "input:\n  {}", "- "),
        (TOOL, "input:\n  {}", "- a\n  "),
        (TOOL, "input:\n  {}", "a: |\n\n\n\n"),
        (TOOL, "input:\n  {}", "a:"),
        (TOOL, "output: {}", "1 # "),
        (TOOL, "output: 1{}", "\n# # #"),
        (TASK_READER, "objective: a\nsteps:\n{}", "- tool: a\n  output: 'b\n"),
        (TASK_READER, "objective: a\nsteps:\n{}", "- tool: a\n  input: [1,]\n"),
        (TASK_READER, "objective: a\nsteps:\n{}", "Step 1:\n\n"),
        (TASK_READER, "objective: a\nsteps:\n{}", "- tool: a\n  description: |\n\n"),
        (TASK_READER, "outcome: {}", "a: "),
        (SAID_READER, "description: {}", "\nA: b"),
        (SAID_READER, "description: {}", "\n- value "),
        (SAID_READER, "aliases: {}", '"a",'),
    ],
)
def test_a_long_reply_is_read_or_refused(
    read: Callable[[str], object], form: str, piece: str
) -> None:
    """Anything worse than linear time would take minutes."""
    check_read(read, form.format(piece * (40_000 // len(piece))))


def test_a_long_reply_of_steps_and_values_is_read() -> None:
    values = {"a": ["“", "b: c", None] * 2_000}
    steps = tuple(
        ToolCall(tool_name="a", description="b\nc", input_json='{"a": 1}', output_json="[]")
        for _ in range(250)
    )
    example = WorkedExample(objective="do it", steps=steps, outcome_json=one_line(values))
    text = write_task_example(example)
    assert read_task_example(text, outcome_is_text=False) == task_as_read(example, None)
    spoiled = text.replace('{"a": 1}', "{'a': 1,}")
    assert read_task_example(spoiled, outcome_is_text=False) == task_as_read(example, None)
