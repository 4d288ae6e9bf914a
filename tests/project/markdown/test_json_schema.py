"""Types and tools as other programs have them: JSON Schema, lists of tools for APIs and for MCP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from promptgraft.adapters.calling.tool_calls import call_tool
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
        lambda schema: {"name": "Mail", "description": "A mail.", "schema": schema},
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
    assert inline.get("description") == wrap({}).get("description")
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


def test_handlers_of_no_tools_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "handlers: desk.py", desk_py=HANDLERS)

    with pytest.raises(DataFormatError) as caught:
        load_markdown_prompt(path)

    (line,) = caught.value.faults
    assert line.startswith(f"{path}:2: handlers: expected only beside `tools`")


def test_what_stands_beside_a_function_is_not_ignored(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": FUNCTION, "handler": "desk.py:find_it"}]
    path = written(tmp_path, "tools: t.json", t_json=json.dumps(tools), desk_py=HANDLERS)

    with pytest.raises(DataFormatError) as caught:
        load_markdown_prompt(path)

    (line,) = caught.value.faults
    assert line.startswith(f"{tmp_path}/t.json: [0].handler: unknown key here; write it into")


def test_a_handler_may_be_asynchronous_and_gets_plain_data(tmp_path: Path) -> None:
    nested = {"type": "object", "properties": {"who": {"type": "object", "properties": {"id": {}}}}}
    tools = json.dumps([{"name": "ask", "description": "Asks.", "input_schema": nested}])
    code = "async def ask(who=None):\n    return [type(who).__name__, who]\n"
    path = written(tmp_path, "tools: t.json\nhandlers: a.py", t_json=tools, a_py=code)

    called = call_tool(rendered_tool(path), {"who": {"id": 7}}, Session())

    assert called.output == ["dict", {"id": 7}]


ODD_NAMES = (
    "from",
    "first-name",
    "Größe (EUR)",
    "氏名",
    "@type",
    "_id",
    "1st",
    "self",
    "a.b",
    "{x}",
)


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_a_field_may_have_a_name_that_python_has_not(odd: str, tmp_path: Path) -> None:
    inner = {"properties": {odd: {"type": "integer"}, "b": {}}, "required": [odd]}
    schema = {"properties": {odd: {"type": "string"}, "in": inner}, "required": [odd]}
    path = written(tmp_path, "output: s.json", s_json=json.dumps(schema))
    prompt: Prompt[Any] = load_markdown_prompt(path).prompt
    rendered = prompt.bind({"text": "x"}).render()
    kind: Any = prompt.template.output_type
    reply = {odd: "Ann", "in": {odd: 5, "b": None}}
    store: Any = InMemoryPromptOverridesStore()
    store.set_output_field_override(prompt, field=f"AnswerIn.{odd}", description="Which.")

    (change,) = load_markdown_prompt(path).source.rewritten(
        store.resolve(prompt.descriptor, "latest")
    )
    with pytest.raises(DataFormatError) as caught:
        structure({odd: 5}, kind, where="answer")

    assert unstructure(rendered.parse(json.dumps(reply))) == reply
    answers = {rendered.parse(json.dumps(reply)) for _ in range(2)}
    assert (len(answers), odd in repr(answers)) == (1, True)
    sent: Any = rendered.output_schema
    assert (list(sent["properties"]), sent["required"]) == ([odd, "in"], [odd])
    assert json.loads(change.after)["properties"]["in"]["properties"][odd] == {
        "type": "integer",
        "description": "Which.",
    }
    assert caught.value.faults == (f"answer: expected a string, found 5 @ $.{odd}",)


@example(odd="𑿀")  # a number that is part of no name
@given(odd=st.text(min_size=1, max_size=6))
def test_every_name_of_a_field_is_refused_or_kept(odd: str, tmp_path_factory: Any) -> None:
    schema = {"properties": {odd: {"type": "string"}}, "required": [odd]}
    path = written(tmp_path_factory.mktemp("p"), "output: s.json", s_json=json.dumps(schema))
    try:
        prompt: Prompt[Any] = load_markdown_prompt(path).prompt
    except DataFormatError as error:
        (line,) = error.faults
        assert "s.json" in line
        return
    reply = {odd: "Ann"}

    answer = prompt.bind({"text": "x"}).render().parse(json.dumps(reply))

    assert unstructure(answer) == reply


def test_a_function_gets_such_a_name_in_the_spelling_of_python(tmp_path: Path) -> None:
    params = {"properties": {"from": {}, "first-name": {}}, "required": ["from", "first-name"]}
    tools = json.dumps([{"name": "ask", "description": "Asks.", "input_schema": params}])
    code = "def ask(from_, first_name):\n    return [from_, first_name]\n"
    path = written(tmp_path, "tools: t.json\nhandlers: a.py", t_json=tools, a_py=code)

    called = call_tool(rendered_tool(path), {"from": 7, "first-name": "Ann"}, Session())

    assert called.output == [7, "Ann"]


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
            '{"properties": {"a": {"properties": {"a-b": {}, "a_b": {}}}}}',
            "properties.a: 'a-b' and 'a_b' are one name in Python; rename one",
        ),
        (
            '{"properties": {"a\\"b": {}}}',
            "expected a name without quotes, backslashes and line breaks",
        ),
        (
            '{"properties": {"__class__": {}}}',
            "properties.__class__: names that begin with `__` are Python's own",
        ),
        (
            '{"type": "array", "items": {"type": "text"}}',
            "items.type: expected string, integer, number, boolean, null, array or object",
        ),
        ('{"enum": [[1]]}', "expected texts, whole numbers, true, false or null as options"),
        ('{"type": "array", "description": "D"}', "description: expected a description only of"),
        ('{"anyOf": []}', "anyOf: expected one schema, found 0"),
        ('{"enum": ["a"', "s.json:1:14: Expecting ',' delimiter"),
        ('"text"', "s.json: expected a JSON Schema, found 'text'"),
        ("[]", "s.json: expected a JSON Schema, found an empty list"),
        ("{}", "s.json: expected a JSON Schema with `type`"),
        ('{"config": {"properties": {}}}', "s.json: expected a JSON Schema with `type`"),
        ('{"items": {"type": []}}', "items.type: expected the name of a type, or a list of names"),
        ('{"items": {"type": {"a": 1}}}', "items.type: expected the name of a type"),
        ('{"items": {"enum": [9223372036854775808]}}', "items: expected options below"),
        ('{"items": {"nullable": "yes"}}', "items.nullable: expected true or false, found 'yes'"),
        ('{"items": {"aliases": [5]}}', "items.aliases: expected a list of texts"),
        ('{"title": "\\ud800"}', "s.json: not JSON: it holds half of a surrogate pair"),
        ('{"type": "string", "maxLength": 5}', "maxLength: an answer as a whole cannot have this"),
        (
            '{"properties": {"a": {}}, "examples": [{}]}',
            "examples: an answer as a whole cannot have this; say it in the prompt",
        ),
        ('{"properties": {"a": {}}, "required": ["b"]}', "required[0]: there is no property 'b'"),
        ('{"properties": {"a": null}}', "properties.a: expected a JSON Schema, found nothing"),
        ('{"properties": []}', "properties: expected an object, found an empty list"),
        (
            '{"properties": {"a": {"required": true}}}',
            "properties.a.required: expected a list of names, found True",
        ),
        ('{"type": "array", "items": {"description": 5}}', "description: expected a text, found 5"),
        (
            '{"properties": {"a": {}}, "additionalProperties": {"type": "string"}}',
            "additionalProperties: a type of Python cannot say this beside `properties`",
        ),
        (
            '{"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]}',
            "properties: a type of Python cannot say this beside `anyOf`",
        ),
        (
            '{"properties": {"a": {}}, "dependencies": {"a": ["b"]}}',
            "dependencies: a type of Python cannot say this",
        ),
        (
            '{"type": "array", "contains": {"$ref": "#/$defs/A"}}',
            "contains: a type of Python cannot say this",
        ),
        ('{"items": {"$ref": "#A"}}', "items.$ref: expected a reference to a part of this schema"),
        (
            '{"items": {"oneOf": [{"const": 1, "description": "One."}]}}',
            "items.oneOf[0]: only options that are texts can be described",
        ),
        (
            '{"items": {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}}',
            "items.anyOf[1]: only the answer as a whole can be one of several objects",
        ),
        (
            '{"items": ' * 60 + "{}" + "}" * 60,
            "items: nested deeper than 50 levels; write the type in Python",
        ),
        (
            json.dumps(
                {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(2000)}}
                | {"$ref": "#/$defs/d0"}
            ),
            "$defs.d50: nested deeper than 50 levels",
        ),
        (
            json.dumps(
                {
                    "$defs": {
                        f"d{n}": {
                            "items": {"type": "array", "anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}
                        }
                        for n in range(15)
                    }
                    | {"d15": {}}
                }
                | {"$ref": "#/$defs/d0"}
            ),
            "s.json: more than 10,000 types",
        ),
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


FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "STRING", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ({"type": "string", "default": "x"}, {"type": "string", "default": "x"}),
    ({"type": "string", "readOnly": True}, {"type": "string", "readOnly": True}),
    ({"enum": [True, 1]}, {"enum": [True, 1]}),
    (
        {"type": "array", "items": {"type": "string", "description": "A tag."}},
        {"type": "array", "items": {"type": "string", "description": "A tag."}},
    ),
    (
        {"anyOf": [{"$ref": "#/$defs/E", "maxLength": 9}, {"type": "null"}]},
        {
            "anyOf": [
                {"type": "string", "format": "email", "description": "Mail.", "maxLength": 9},
                {"type": "null"},
            ]
        },
    ),
    (
        {"type": "string", "anyOf": [{"minLength": 9}, {"pattern": "x"}]},
        {"anyOf": [{"type": "string", "minLength": 9}, {"type": "string", "pattern": "x"}]},
    ),
    (
        {"anyOf": [{"const": "a", "description": "One."}, {"const": "b", "title": "Two"}]},
        {"enum": ["a", "b"], "description": "- a: One.\n- b: Two"},
    ),
    ({"$ref": "#/$defs/a~1b%20c/anyOf/0"}, {"type": "integer", "description": "Nine."}),
]


@pytest.mark.parametrize(("field", "sent"), FIELDS)
def test_nothing_of_a_required_field_is_lost(
    field: dict[str, Any], sent: dict[str, Any], tmp_path: Path
) -> None:
    definitions = {
        "E": {"type": "string", "format": "email", "description": "Mail."},
        "a/b c": {"anyOf": [{"type": "integer", "description": "Nine."}]},
    }
    schema = {"properties": {"f": field}, "required": ["f"], "$defs": definitions}
    path = written(tmp_path, "output: s.json", s_json=json.dumps(schema))

    given = schema_of(path)

    assert (given["properties"]["f"], given["required"]) == (sent, ["f"])


def test_fields_are_in_the_order_that_gemini_is_told(tmp_path: Path) -> None:
    schema = {"properties": {"a": {}, "b": {}, "c": {}}, "propertyOrdering": ["c", "a"]}
    path = written(tmp_path, "output: s.json", s_json=json.dumps(schema))

    assert list(schema_of(path)["properties"]) == ["c", "a", "b"]


def test_what_is_referred_to_often_is_one_class_that_a_winner_can_change(tmp_path: Path) -> None:
    both = {"x": {"$ref": "#/$defs/C"}, "y": {"items": {"$ref": "#/$defs/C"}, "minItems": 1}}
    # Read once for each use, there would be more classes than a schema may have.
    chain = {
        f"N{n}": {"properties": {key: {"$ref": f"#/$defs/N{n + 1}"} for key in "xy"}}
        for n in range(14)
    }
    end = {"N14": {"properties": both}, "C": {"properties": {"a": {"enum": ["p", "q"]}}}}
    schema = {"$ref": "#/$defs/N0", "$defs": {**chain, **end}}
    path = written(tmp_path, "output: s.json", s_json=json.dumps(schema))
    prompt: Prompt[Any] = load_markdown_prompt(path).prompt
    store: Any = InMemoryPromptOverridesStore()
    store.set_output_field_override(prompt, field="C.a", description="Which.", aliases=("which",))

    (change,) = load_markdown_prompt(path).source.rewritten(
        store.resolve(prompt.descriptor, "latest")
    )

    definitions: Any = schema["$defs"]
    definitions["C"]["properties"]["a"] |= {"description": "Which.", "aliases": ["which"]}
    assert json.loads(change.after) == schema
    assert list(schema_of(path)["$defs"]) == [*(f"N{n}" for n in range(1, 15)), "C"]


def test_names_of_fields_are_read_in_lists_with_keywords(tmp_path: Path) -> None:
    item = {"properties": {"a": {"type": "string", "aliases": ["which"]}}, "required": ["a"]}
    schema = {"properties": {"rows": {"type": "array", "minItems": 1, "items": item}}}
    path = written(tmp_path, "output: s.json", s_json=json.dumps(schema))
    rendered = load_markdown_prompt(path).prompt.bind({"text": "x"}).render()

    answer: Any = rendered.parse('{"rows": [{"which": "b"}]}')

    assert unstructure(answer) == {"rows": [{"a": "b"}]}


def test_objects_of_one_name_are_told_apart(tmp_path: Path) -> None:
    inner: dict[str, Any] = {"properties": {"x": {}}}
    schema = {"properties": {"b_c": inner, "b": {"properties": {"c": inner}}}, "title": "é"}
    path = written(tmp_path, "output: s.json", s_json=json.dumps(schema))

    assert sorted(schema_of(path)["$defs"]) == ["AnswerB", "AnswerBC", "AnswerBC2"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"q": {}}},
        {"$ref": "#/$defs/Q", "$defs": {"Q": {"properties": {"q": {}}}}},
        {"type": "OBJECT", "properties": {"q": {}}},
    ],
)
def test_parameters_need_no_type_and_can_be_written_back(
    schema: dict[str, Any], tmp_path: Path
) -> None:
    tools = json.dumps([{"name": "t", "description": "T.", "input_schema": schema}])
    path = written(tmp_path, "tools: t.json", t_json=tools)
    prompt: Prompt[Any] = load_markdown_prompt(path).prompt
    store: Any = InMemoryPromptOverridesStore()
    store.set_tool_override(prompt, name="t", param_descriptions={"q": "What."})

    params: Any = rendered_tool(path).params_schema
    (change,) = load_markdown_prompt(path).source.rewritten(
        store.resolve(prompt.descriptor, "latest")
    )

    assert list(params["properties"]) == ["q"]
    assert change.after == tools.replace('"q": {}', '"q": {"description": "What."}')


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "string"}, "expected an object with `properties`"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "additionalProperties:"),
        ({"type": "object", "oneOf": [{"properties": {"q": {}}}]}, "beside `oneOf`"),
    ],
)
def test_parameters_that_are_no_object_are_refused(
    schema: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    tools = json.dumps([{"name": "t", "description": "T.", "input_schema": schema}])
    path = written(tmp_path, "tools: t.json", t_json=tools)

    with pytest.raises(DataFormatError, match=r"t\.json: \[0\]\.input_schema") as caught:
        load_markdown_prompt(path)

    assert fault in str(caught.value)


def test_the_answer_of_an_mcp_server_is_read_unless_tools_are_missing(tmp_path: Path) -> None:
    tool = {**LISTS["MCP"]["tools"][0], "icons": None, "execution": None, "_meta": None}
    answer = {"tools": [tool], "_meta": None, "ttlMs": 0, "cacheScope": "private"}
    path = written(tmp_path, "tools: t.json", t_json=json.dumps({**answer, "nextCursor": None}))
    assert rendered_tool(path).name == "find-it"

    written(tmp_path, "tools: t.json", t_json=json.dumps({**answer, "nextCursor": "2"}))

    with pytest.raises(DataFormatError, match="nextCursor: further tools follow"):
        load_markdown_prompt(path)


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
