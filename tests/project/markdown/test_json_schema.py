"""Types and tools as other programs have them: JSON Schema, lists of tools for APIs and for MCP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from promptgraft.adapters.calling.conversation import call_tool
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import unstructure
from promptgraft.ground.strict import structure
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.project.markdown import load_markdown_prompt
from promptgraft.prompt import Prompt, RenderedTool
from promptgraft.runtime import Session

PARAMETERS = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What for."},
        "limit": {"type": "integer", "minimum": 1},
    },
    "required": ["query"],
    "additionalProperties": False,
}
FUNCTION = {"name": "find-it", "description": "Finds.", "parameters": PARAMETERS}
LISTS: dict[str, Any] = {
    "chat completions": [{"type": "function", "function": {**FUNCTION, "strict": True}}],
    "responses": [{"type": "function", **FUNCTION, "strict": True}],
    "messages": [{"name": "find-it", "description": "Finds.", "input_schema": PARAMETERS}],
    "MCP": {
        "tools": [
            {
                "name": "find-it",
                "title": "Find it",
                "description": "Finds.",
                "inputSchema": PARAMETERS,
                "outputSchema": {"type": "object", "properties": {"found": {"type": "array"}}},
                "annotations": {"readOnlyHint": True},
            }
        ]
    },
}
HANDLERS = "def find_it(query, limit=2):\n    return {'found': [query] * limit}\n"


class Author(BaseModel):
    name: str = Field(min_length=1)
    mail: str | None = None


class Review(BaseModel):
    """A review."""

    mark: Literal["good", "bad"] = Field(description="In a word.")
    stars: Annotated[int, Field(ge=1, le=5)]
    tags: list[str] = []
    author: Author
    editor: Author | None = Field(None, description="Who read it.")
    scores: dict[str, float] = {}


def written(folder: Path, front: str, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, "utf-8")
    path = folder / "p.md"
    path.write_text(f"---\n{front}\n---\nSort $text.\n", "utf-8")
    return path


def rendered_tool(path: Path) -> RenderedTool:
    prompt: Prompt[Any] = load_markdown_prompt(path).prompt
    (tool,) = prompt.bind({"text": "x"}).render().tools
    return tool


def schema_of(path: Path) -> Any:
    return load_markdown_prompt(path).prompt.bind({"text": "x"}).render().output_schema


def test_the_schema_of_a_pydantic_model_gives_the_same_answers(tmp_path: Path) -> None:
    schema = json.dumps(Review.model_json_schema())
    path = written(tmp_path, "output: answer.json", answer_json=schema)

    sent = schema_of(path)
    kind: Any = load_markdown_prompt(path).prompt.template.output_type
    given = {"mark": "good", "stars": 3, "author": {"name": "Ada"}}
    answer = structure(given, kind, where="answer")

    assert (sent["title"], sent["description"]) == ("Review", "A review.")
    assert sent["properties"]["mark"] == {"enum": ["bad", "good"], "description": "In a word."}
    assert sent["properties"]["stars"] == {"maximum": 5, "minimum": 1, "type": "integer"}
    assert sent["properties"]["editor"]["description"] == "Who read it."
    assert sent["required"] == ["mark", "stars", "author"]
    assert unstructure(answer) == Review.model_validate(given).model_dump()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda schema: schema,
        lambda schema: {"name": "Mail", "schema": schema},
        lambda schema: {"type": "json_schema", "json_schema": {"name": "Mail", "schema": schema}},
        lambda schema: {"type": "json_schema", "name": "Mail", "strict": True, "schema": schema},
    ],
)
def test_what_apis_wrap_around_a_schema_is_taken_off(wrap: Any, tmp_path: Path) -> None:
    schema = {"title": "Mail", "type": "object", "properties": {"to": {"type": "string"}}}
    in_front = written(tmp_path, f"output: {json.dumps(wrap(schema))}")
    inline = schema_of(in_front)
    path = written(tmp_path, "output: mail.yaml", mail_yaml=json.dumps(wrap(schema)))

    assert (inline["title"], list(inline["properties"])) == ("Mail", ["to"])
    assert schema_of(path) == inline


@pytest.mark.parametrize("style", LISTS)
def test_a_list_of_tools_for_apis_is_read_and_its_functions_are_called(
    style: str, tmp_path: Path
) -> None:
    front = "tools: tools.json\nhandlers: desk.py"
    path = written(tmp_path, front, tools_json=json.dumps(LISTS[style]), desk_py=HANDLERS)
    tool = rendered_tool(path)
    params: Any = tool.params_schema

    assert (tool.name, tool.description) == ("find-it", "Finds.")
    assert params["properties"]["query"]["description"] == "What for."
    called = call_tool(tool, {"query": "x"}, Session())
    limited = call_tool(tool, {"query": "x", "limit": 1}, Session())
    assert (called.output, limited.output) == ({"found": ["x", "x"]}, {"found": ["x"]})


def test_a_handler_may_be_asynchronous_and_gets_plain_data(tmp_path: Path) -> None:
    nested = {"type": "object", "properties": {"who": {"type": "object", "properties": {"id": {}}}}}
    tools = json.dumps([{"name": "ask", "description": "Asks.", "input_schema": nested}])
    code = "async def ask(who=None):\n    return [type(who).__name__, who]\n"
    path = written(tmp_path, "tools: t.json\nhandlers: a.py", t_json=tools, a_py=code)

    called = call_tool(rendered_tool(path), {"who": {"id": 7}}, Session())

    assert called.output == ["dict", {"id": 7}]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("def other(query): ...\n", "`desk.py` has no `find_it`; functions in it: other"),
        (
            "def find_it(query): ...\n",
            "tool `find-it`: find_it() cannot be called with (query=..., limit=...)",
        ),
    ],
)
def test_a_function_that_does_not_fit_a_tool_is_refused(
    code: str, fault: str, tmp_path: Path
) -> None:
    tools = json.dumps(LISTS["messages"])
    front = "tools: tools.json\nhandlers: desk.py"
    path = written(tmp_path, front, tools_json=tools, desk_py=code)

    with pytest.raises(DataFormatError) as caught:
        load_markdown_prompt(path)

    (line,) = caught.value.faults
    assert line.startswith(f"{path}:3: handlers: {fault}")


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (
            '{"$defs": {"N": {"properties": {"n": {"$ref": "#/$defs/N"}}}}, "$ref": "#/$defs/N"}',
            "$defs.N.properties.n.$ref: a type that holds itself cannot be read",
        ),
        ('{"$ref": "other.json#/A"}', "$ref: expected a reference to a part of this schema"),
        (
            '{"type": "object", "properties": {"a": {"patternProperties": {}}}}',
            "properties.a.patternProperties: a type of Python cannot say this",
        ),
        (
            '{"type": "object", "properties": {"a-b": {"type": "string"}}}',
            "properties.a-b: expected a name that Python can use",
        ),
        (
            '{"type": "array", "items": {"type": "text"}}',
            "items.type: expected string, integer, number, boolean, null, array or object",
        ),
        ('{"enum": [[1]]}', "expected texts, whole numbers, true, false or null as options"),
        ('{"type": "array", "description": "D"}', "description: expected a description only of"),
        ('{"anyOf": []}', "anyOf: expected one schema, found 0"),
        ('{"enum": ["a"', "s.json:1:14: Expecting ',' delimiter"),
    ],
)
def test_a_schema_that_cannot_be_a_type_is_refused_with_its_place(
    schema: str, fault: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "output: s.json", s_json=schema)

    with pytest.raises(DataFormatError) as caught:
        load_markdown_prompt(path)

    (line,) = caught.value.faults
    assert str(tmp_path / "s.json") in line
    assert fault in line


def test_a_winner_is_written_into_foreign_files_and_nothing_else_changes(
    tmp_path: Path,
) -> None:
    answer = '{\n\t"enum": ["yes", "no"],\n\t"description": "A \\u00e9 \\ud83d\\ude00."\n}\n'
    tools = json.dumps(LISTS["chat completions"], indent=2)
    path = written(tmp_path, "output: a.json\ntools: t.json", a_json=answer, t_json=tools)
    prompt: Prompt[Any] = load_markdown_prompt(path).prompt
    store: Any = InMemoryPromptOverridesStore()
    store.set_output_field_override(prompt, field="answer", description='Say "so".')
    store.set_tool_override(prompt, name="find-it", param_descriptions={"limit": "At most: 3."})

    override = store.resolve(prompt.descriptor, "latest")
    changes = {
        change.path.name: change.after
        for change in load_markdown_prompt(path).source.rewritten(override)
    }

    assert changes == {
        "a.json": answer.replace("A \\u00e9 \\ud83d\\ude00.", 'Say \\"so\\".'),
        "t.json": tools.replace(
            '"minimum": 1\n', '"minimum": 1,\n            "description": "At most: 3."\n'
        ),
    }
