"""A prompt in Markdown and YAML is a prompt like one in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from promptgraft.errors import DataFormatError
from promptgraft.project.markdown import MarkdownPrompt, load_markdown_prompt
from promptgraft.prompt import Prompt

TRIAGE = """\
---
ns: shop/support
name: Ticket triage
tools: triage.tools.yaml
examples: triage.examples.yaml
output:
  fields:
    queue:
      choices: {billing: Money., login: }
      description: Where it goes.
      aliases: [bucket]
    urgent: {type: boolean, optional: true}
    tags: {type: list of string, default: []}
    who: {fields: {name: {type: string}}}
---

You sort tickets. It costs $$5.

# Rules

```sh
# no heading
```
> # no heading
- # no heading
<div>
# no heading
</div>

\\# no heading, but a line that begins with `#`

## Refunds {#money-back .frozen}
Refund $customer.

Task
====

${ticket}
## Édit: the end!
#
 # {#last}
"""
TOOLS = """\
tools:
  - name: search
    description: Finds tickets.
    parameters:
      query: {type: string, description: Words.}
      limit: {type: integer, default: 5}
    result: list of string
    handler: tools.py:search
    examples:
      - {description: Once., input: {query: invoice}, output: [a]}
"""
EXAMPLES = """\
examples:
  - key: twice
    objective: Paid twice.
    steps:
      - {tool: search, description: Earlier., input: {query: paid, limit: 2}, output: []}
    outcome: {queue: billing, who: {name: Ada}}
"""


def load(folder: Path, **files: str) -> MarkdownPrompt:
    for name, text in files.items():
        place = folder / name.replace("__", ".")
        place.write_bytes(text.encode())
    return load_markdown_prompt(folder / "p.md")


def paths(found: MarkdownPrompt) -> list[str]:
    return ["/".join(section.path) for section in found.prompt.descriptor.sections]


def triage(folder: Path) -> MarkdownPrompt:
    handler = "def search(params):\n    return [params.query] * params.limit\n"
    (folder / "triage.tools.yaml").write_text(TOOLS)
    (folder / "triage.examples.yaml").write_text(EXAMPLES)
    (folder / "tools.py").write_text(handler)
    (folder / "triage.md").write_text(TRIAGE.replace("#\n # {", "# {"))
    return load_markdown_prompt(folder / "triage.md")


def test_headings_are_sections_and_nothing_else_is(tmp_path: Path) -> None:
    found = triage(tmp_path)

    assert (found.prompt.descriptor.ns, found.prompt.descriptor.key) == ("shop/support", "triage")
    assert found.prompt.template.name == "Ticket triage"
    assert paths(found) == [
        "intro",
        "rules",
        "rules/money-back",
        "task",
        "task/edit-the-end",
        "last",
        "tools",
        "examples",
    ]
    frozen = {
        "/".join(section.path): not section.overridable
        for section in found.prompt.descriptor.sections
    }
    assert [path for path, is_frozen in frozen.items() if is_frozen] == [
        "rules/money-back",
        "tools",
    ]


def test_the_text_is_what_the_file_says(tmp_path: Path) -> None:
    prompt = triage(tmp_path).prompt.bind({"customer": "Ada", "ticket": "No invoice."})

    assert prompt.render().text == (
        "You sort tickets. It costs $5.\n\n## Rules\n\n```sh\n# no heading\n```\n> # no heading\n"
        "- # no heading\n<div>\n# no heading\n</div>\n\n"
        "# no heading, but a line that begins with `#`\n\n"
        "### Refunds\n\nRefund Ada.\n\n## Task\n\nNo invoice.\n\n### Édit: the end!\n\n"
        "## Tools\n\nExample calls of `search`:\n\n1. Once.\n"
        '   input: {"query": "invoice", "limit": 5}\n   output: ["a"]\n\n'
        "## Examples\n\n### Example: twice\n\nObjective: Paid twice.\n\nSteps:\n"
        '1. `search`: Earlier.\n   input: {"query": "paid", "limit": 2}\n   output: []\n\n'
        'Outcome: {"bucket": "billing", "urgent": null, "tags": [], "who": {"name": "Ada"}}'
    )


def test_tools_have_types_descriptions_and_handlers(tmp_path: Path) -> None:
    (tool,) = triage(tmp_path).prompt.bind({"customer": "", "ticket": ""}).render().tools

    assert tool.description == "Finds tickets."
    assert tool.params_schema["properties"] == {
        "query": {"type": "string", "description": "Words."},
        "limit": {"type": "integer", "default": 5},
    }
    assert tool.params_schema["required"] == ["query"]
    handler: Any = tool.tool.handler
    assert handler(tool.tool.params_type(query="a", limit=2)) == ["a", "a"]


def test_answers_are_read_into_the_fields(tmp_path: Path) -> None:
    rendered = triage(tmp_path).prompt.bind({"customer": "", "ticket": ""}).render()

    answer: Any = rendered.parse('{"bucket": "Login", "who": {"name": "Ada"}, "tags": ["x"]}')
    assert (answer.queue, answer.urgent, answer.tags, answer.who.name) == (
        "login",
        None,
        ("x",),
        "Ada",
    )
    assert rendered.output_schema is not None
    properties: Any = rendered.output_schema["properties"]
    assert properties["bucket"]["description"] == "Where it goes.\n- billing: Money."


def test_a_choice_says_what_its_options_mean(tmp_path: Path) -> None:
    found = load(
        tmp_path, p__md="---\noutput: {choices: {yes: It is., no: }, description: Is it?}\n---\nx"
    )
    rendered = found.prompt.render()

    assert rendered.output_schema == {
        "enum": ["no", "yes"],
        "description": "Is it?\n- yes: It is.",
    }
    assert rendered.parse("**No**") == "no"


def test_without_front_matter_there_are_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, p__md="Say hello.\n")

    assert (found.prompt.descriptor.ns, found.prompt.descriptor.key) == ("prompts", "p")
    assert found.prompt.render().text == "Say hello."
    assert found.prompt.render().parse("Hello.") == "Hello."


def test_line_breaks_and_byte_order_marks_are_no_part_of_a_prompt(tmp_path: Path) -> None:
    text = "---\nkey: k\n---\nOne\ntwo.\n\n# Head\n\n  three\n"
    plain = load(tmp_path, p__md=text).prompt.descriptor
    other = load(tmp_path, p__md="\ufeff" + text.replace("\n", "\r\n")).prompt.descriptor

    assert other == plain


def test_tools_and_examples_stand_where_a_heading_of_their_name_is(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        p__md="---\ntools: t.yaml\nexamples: e.yaml\n---\n# Worked cases {#examples}\n\nSee:\n\n"
        "# Guide\n## Use\n# End\n",
        t__yaml="section: guide/use\ntools:\n  - {name: a, description: b}\n",
        e__yaml="examples:\n  - {key: k, objective: o, outcome: done}\n",
    )

    assert paths(found) == ["examples", "guide", "guide/use", "end"]
    assert found.prompt.render().text == (
        "## Worked cases\n\nSee:\n\n### Example: k\n\nObjective: o\n\nOutcome: done\n\n"
        "## Guide\n\n### Use\n\n## End"
    )


def test_tools_without_examples_add_nothing_to_the_text(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        p__md="---\ntools: t.yaml\n---\n# A\n",
        t__yaml="tools:\n  - {name: a, description: b}\n",
    )

    assert found.prompt.render().text == "## A"
    assert [tool.name for tool in found.prompt.render().tools] == ["a"]


def test_the_input_of_a_tool_without_parameters_may_be_none(tmp_path: Path) -> None:
    for given in ("", "input: none, ", "input: null, ", "input: {}, "):
        found = load(
            tmp_path,
            p__md="---\ntools: t.yaml\nexamples: e.yaml\n---\n# A\n",
            t__yaml="tools:\n  - name: now\n    description: b\n    examples:\n"
            f"      - {{description: Ask., {given}output: noon}}\n",
            e__yaml="examples:\n  - {key: k, objective: o, outcome: done}\n",
        )
        (tool,) = found.prompt.render().tools
        assert [call.input_json for call in tool.examples] == ["{}"]


def test_the_answer_may_be_a_python_type_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text("from enum import Enum\nclass Q(Enum):\n    A = 'a'\n")
    found = load(tmp_path, p__md="---\noutput: kinds.py:Q\n---\nx")

    answer: Any = found.prompt.render().parse("a")
    assert answer.name == "A"


OBJECT = "an object with `type`, `choices` or `fields`, a JSON Schema or a file of one"


@pytest.mark.parametrize(
    ("output", "faults"),
    [
        ("{}", [f"output: expected `text`, {OBJECT}, or `file.py:NAME`, found an empty object"]),
        ("Review", [f"output: expected `text`, {OBJECT}, or `file.py:NAME`, found 'Review'"]),
        ("{fields: {}}", ["output.fields: expected at least one field, found an empty object"]),
        (
            "{choices: [a], fields: {b: {type: string}}}",
            ["output: expected `choices` or `fields`, found both"],
        ),
        (
            "{name: B, choices: [a]}",
            ["output.name: expected a name only beside `fields`"],
        ),
        (
            "{description: B., fields: {b: {type: string}}}",
            ["output.description: expected a description only beside `choices`"],
        ),
        ("{choices: {a: 1}}", ["output.choices: expected a text for what each option means"]),
    ],
)
def test_an_answer_that_is_described_wrongly_is_refused(
    output: str, faults: list[str], tmp_path: Path
) -> None:
    (tmp_path / "p.md").write_text(f"---\noutput: {output}\n---\nx\n", "utf-8")
    with pytest.raises(DataFormatError) as caught:
        load_markdown_prompt(tmp_path / "p.md")
    assert list(caught.value.faults) == [f"{tmp_path}/p.md:2: {fault}" for fault in faults]


def test_jinja_templates_are_read_as_such(tmp_path: Path) -> None:
    text = "---\nsyntax: jinja\n---\n# List\n\n{% for x in xs %}\n\\# {{ x }}\n{% endfor %}"
    found = load(tmp_path, p__md=text)

    assert found.prompt.bind({"xs": [1]}).render().text == "## List\n\n# 1"


def test_plain_sections_are_literal_and_keep_the_placeholders_that_they_hold(
    tmp_path: Path,
) -> None:
    front = "---\nsyntax: plain\nplaceholders: ['{query}', <<ctx>>]\ntools: t.yaml\n---\n"
    found = load(
        tmp_path,
        p__md=f"{front}$HOME {{{{ y }}}} {{query}}\n# B\n<<ctx>> {{query}}\n# C\n{{% x %}}\n",
        t__yaml="tools:\n  - {name: a, description: b, examples: [{input: {}, output: x}]}\n",
    )

    rendered = found.prompt.render()
    assert rendered.text.startswith(
        "$HOME {{ y }} {query}\n\n## B\n\n<<ctx>> {query}\n\n## C\n\n{% x %}\n\n## Tools\n\nExample"
    )
    placeholders = {found.path: found.placeholders for found in found.prompt.descriptor.sections}
    assert placeholders == {
        ("intro",): ("{query}",),
        ("b",): ("{query}", "<<ctx>>"),
        ("c",): (),
        ("tools",): (),
    }


def test_frozen_tools_and_examples_cannot_be_overridden(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        p__md="---\ntools: t.yaml\nexamples: e.yaml\n---\nx",
        t__yaml="tools:\n  - {name: a, description: b, frozen: true}\n",
        e__yaml="examples:\n  - {key: k, objective: o, outcome: done, frozen: true}\n",
    )

    assert not found.prompt.descriptor.tools[0].overridable
    assert not found.prompt.descriptor.task_examples[0].overridable


@pytest.mark.parametrize("text", ["\\# a", "\\## a", "\\===", "  \\---  ", "\\#"])
def test_one_backslash_before_what_would_be_a_heading_is_left_out(
    text: str, tmp_path: Path
) -> None:
    found = load(tmp_path, p__md=f"x\n{text}\n\\{text.lstrip()}\n\\#x \\- #\n")
    bare = text.replace("\\", "", 1)

    assert found.prompt.render().text == f"x\n{bare}\n{text.lstrip()}\n\\#x \\- #"


def test_the_files_of_a_prompt_are_named(tmp_path: Path) -> None:
    names = [path.name for path in triage(tmp_path).source.files]
    assert names == ["triage.md", "triage.tools.yaml", "triage.examples.yaml"]


def test_a_prompt_of_a_file_is_a_prompt(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path, p__md="x").prompt, Prompt)
