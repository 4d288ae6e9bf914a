"""Files of other tools, and cases that survive a round trip through every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from promptgraft import Case, Dataset
from promptgraft.adapters.base import Usage
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.types import Answer, Message, Speaker, ToolUse, Turn
from promptgraft.ground.serde import Json

FILES = Path(__file__).parent / "files"


def cases_in(
    name: str, *, fields: Mapping[str, str] | None = None, keep: Collection[str] = ()
) -> dict[str, Case]:
    return {case.id: case for case in Dataset.load(FILES / name, fields=fields, keep=keep)}


def test_an_eval_set_in_snake_case_with_parts_is_read() -> None:
    cases = cases_in("adk.evalset.json")
    assert cases["lights"] == Case(
        id="lights",
        input="Turn on the light\nin the hall.",
        expected="It is on.",
        tools=(
            ToolUse(
                name="set_light", arguments={"deviceId": "hall", "on": True}, result={"ok": True}
            ),
        ),
        state={"homeName": "North"},
        fields={"app_name": "home", "user_id": "u1"},
    )
    assert cases["dialogue"].turns == (
        Turn(user="Hello", expected="Hi!"),
        Turn(user="Bye", expected="See you.", tools=()),
    )
    assert (cases["dialogue"].input, cases["dialogue"].tools) == ("Bye", ())
    assert cases["dialogue"].origin == f"{FILES / 'adk.evalset.json'}:72"


def test_an_eval_set_in_camel_case_with_content_is_read() -> None:
    cases = cases_in("camel.evalset.json")
    calculator = ToolUse(name="calculator", arguments={"a": 123, "b": 456}, result={"sum": 579})
    assert cases["add"] == Case(
        id="add",
        input="add 123 456",
        expected="579",
        tools=(calculator,),
        context=(Message(Speaker.SYSTEM, "Be short."), Message(Speaker.ASSISTANT, "Ready.")),
        state={"unit": "m"},
        fields={"app_name": "sums", "user_id": "u"},
    )
    call = ToolUse(name="calculator", arguments={"a": 1, "b": 2}, result=3)
    assert cases["recorded"].recorded == Answer(text="It is 3.", tools=(call,))
    assert cases["recorded"].expected == "3"
    assert cases["recording_alone"].recorded == Answer(text="4")
    assert cases["recording_alone"].expected is None


def test_both_dialects_say_the_same() -> None:
    snake = {
        "eval_id": "a",
        "conversation": [
            {
                "user_content": {"role": "user", "parts": [{"text": "x"}]},
                "final_response": {"role": "model", "parts": [{"text": "y"}]},
                "intermediate_data": {"tool_uses": [{"name": "t", "args": {"camelKey": 1}}]},
            }
        ],
    }
    camel = {
        "evalId": "a",
        "conversation": [
            {
                "userContent": {"role": "user", "content": "x"},
                "finalResponse": {"role": "assistant", "content": "y"},
                "tools": [{"name": "t", "arguments": {"camelKey": 1}}],
            }
        ],
    }
    assert Dataset.of([snake]).cases == Dataset.of([camel]).cases


def test_eval_cases_and_plain_cases_may_stand_in_one_jsonl_file() -> None:
    cases = cases_in("cases.jsonl")
    assert cases["train_01"].input == '{"sport":"basketball"}'
    assert cases["train_01"].expected == "Nuggets win"
    assert (cases["2"].input, cases["2"].hints) == ({"a": 1}, {"": "short answers"})
    assert cases["2"].fields == {"category": "x"}


def test_a_csv_file_from_a_spreadsheet_is_read() -> None:
    fields = {"input": "Question", "expected": "Answer"}
    cases = cases_in("spreadsheet.csv", fields=fields, keep=["Category"])
    assert {i: (c.input, c.expected, c.fields["Category"]) for i, c in cases.items()} == {
        "1": ('Say "hello", please', "hello", "greeting"),
        "2": ("Two\nlines; one cell", "lines", "text"),
        "3": ("Grüße aus Köln", "1,50", "money"),
    }
    assert [c.origin.rsplit(":")[-1] for c in cases.values()] == ["2", "3", "6"]


def test_the_delimiter_is_found_or_given(tmp_path: Path) -> None:
    assert cases_in("separator_line.csv")["1"].input == "a, b"
    assert cases_in("tabs.tsv")["1"].input == "Where, is it?"
    path = tmp_path / "odd.csv"
    path.write_text("id;input|x\n1;2|3\n", "utf-8")
    found = Dataset.load(path, delimiter="|", fields={"input": ["id;input", "x"]})
    assert found.cases[0].input == {"id;input": "1;2", "x": "3"}


def test_columns_that_are_no_fields_are_parameters() -> None:
    cases = cases_in("parameters.csv")
    assert cases["1"].input == {"language": "de", "text": "Guten Tag"}
    assert [c.critical for c in cases.values()] == [True, False]


def test_structured_cells_hold_json() -> None:
    call = ToolUse(name="weather", arguments={"city": "Oslo"})
    assert cases_in("structured_cells.csv")["1"].tools == (call,)


def test_yaml_values_are_what_people_mean() -> None:
    cases = cases_in("questions.yaml")
    assert (cases["a"].expected, cases["a"].critical) == ("no", True)
    assert cases["b"].input == {
        "amount": 1000.0,
        "day": "2026-11-21",
        "time": "12:30",
        "code": "007",
        "empty": None,
        "list": ["on", 0.5, -3],
    }
    assert cases["b"].expected == "two\nlines\n"


def test_everything_a_plain_case_can_say_is_read() -> None:
    last = ToolUse(name="close")
    assert cases_in("whole.json")["t"] == Case(
        id="t",
        input="Bye",
        expected="See you",
        tools=(last,),
        turns=(
            Turn(user="Hello", expected="Hi"),
            Turn(user="Bye", expected="See you", tools=(last,)),
        ),
        context=(Message(Speaker.USER, "earlier"),),
        state={"n": 1},
        recorded=Answer(
            text="Bye!",
            usage=Usage(input_tokens=3, output_tokens=2),
            cost=Decimal("0.002"),
            seconds=1.5,
        ),
        hints={"exact": "no full stop"},
        critical=True,
    )


def test_a_data_set_is_a_collection_of_cases() -> None:
    dataset = Dataset.of([Case(id="a", input="x"), Case(id="b", input="y")])
    assert [c.input for c in dataset] == ["x", "y"]
    assert (len(dataset), dataset.ids) == (2, ("a", "b"))
    with pytest.raises(
        DataFormatError, match=r"mine: expected at least one case, such as .*, found none"
    ):
        Dataset.of([], name="mine")
    with pytest.raises(DataFormatError, match="case `a`: a second case with this id"):
        Dataset.of([*dataset, Case(id="a", input="z")])


def test_mappings_are_read_as_if_they_stood_in_a_file() -> None:
    with pytest.raises(DataFormatError) as caught:
        Dataset.of([{"input": "x", "expcted": 1}, {"id": "b"}, {"input": {"x": {object}}}])
    first, second, third = caught.value.faults
    assert first.startswith("cases:1: case `")
    assert "did you mean `expected`?" in first
    assert second == "cases:2: case `b`: expected the key `input`, found none"
    assert third.startswith("cases:3: $.input.x: expected plain data")


def test_a_case_without_an_id_has_the_same_one_in_any_order() -> None:
    rows = [{"input": "x"}, {"input": "y"}]
    assert set(Dataset.of(rows).ids) == set(Dataset.of(rows[::-1]).ids)


text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
scalar = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text
)
values = st.recursive(
    scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
rows = st.lists(
    st.fixed_dictionaries(
        {"id": text.filter(str.strip), "input": text | st.dictionaries(text, values, max_size=3)},
        optional={"expected": values, "fields": st.dictionaries(text, values, max_size=2)},
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: str(row["id"]),
)


@settings(max_examples=40, deadline=None)
@given(rows=rows)
def test_cases_go_through_jsonl_json_and_yaml_unchanged(
    rows: list[dict[str, Json]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    written = {
        "a.jsonl": "\n".join(json.dumps(row) for row in rows),
        "a.json": json.dumps(rows, indent=1, ensure_ascii=False),
        "a.yaml": yaml.safe_dump(rows, allow_unicode=True),
    }
    for name, content in written.items():
        path = folder / name
        path.write_text(content, "utf-8")
        try:
            cases = Dataset.load(path).cases
        except DataFormatError as error:  # the writer left a text like 0e0 without quotes
            ambiguous = name == "a.yaml" and all("ambiguous" in f for f in error.faults)
            if not ambiguous:
                raise
            continue
        for case, row in zip(cases, rows, strict=True):
            assert (case.id, case.input, case.expected) == (
                row["id"],
                row["input"],
                row.get("expected"),
            )
            assert case.fields == row.get("fields", {})


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(cells.filter(str.strip), cells.filter(bool), cells),
        min_size=1,
        max_size=4,
        unique_by=lambda row: row[0],
    ),
    delimiter=st.sampled_from(",;\t|"),
    bom=st.booleans(),
)
def test_cells_go_through_csv_unchanged(
    rows: list[tuple[str, str, str]],
    delimiter: str,
    bom: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Of tabs, such cells are refused: a bare quote makes them of the rows that it swallows.
    assume(
        delimiter != "\t" or not any("\t" in cell and "\n" in cell for row in rows for cell in row)
    )
    path = tmp_path_factory.getbasetemp() / "a.csv"
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows([("id", "input", "expected"), *rows])
    path.write_bytes(out.getvalue().encode("utf-8-sig" if bom else "utf-8"))
    found = [(c.id, c.input, c.expected or "") for c in Dataset.load(path)]
    assert found == rows


NESTED: dict[str, Json] = {
    "run": {"id": "r1"},
    "inputs": {"question": "Why?"},
    "outputs": {"answer": "So."},
}
PATHS = {"id": "run.id", "input": "inputs.question", "expected": "outputs.answer"}


def nested_file(folder: Path, suffix: str, rows: list[Json]) -> Path:
    texts = {
        ".json": json.dumps(rows),
        ".jsonl": "".join(f"{json.dumps(row)}\n" for row in rows),
        ".yaml": yaml.safe_dump(rows),
    }
    path = folder / f"cases{suffix}"
    path.write_text(texts[suffix])
    return path


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".yaml"])
@given(texts=st.lists(st.text("abc é", min_size=1), min_size=3, max_size=3))
@settings(max_examples=20)
def test_cases_that_nest_are_read_by_paths(
    suffix: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    case_id, question, answer = (f"x{text}x" for text in texts)
    row: Json = {
        "run": {"id": case_id, "seconds": 3},
        "inputs": {"question": question, "more": {"deep": 1}},
        "outputs": {"answer": answer},
        "meta": {"part": "train"},
    }
    path = nested_file(tmp_path_factory.mktemp("nested"), suffix, [row])
    [case] = Dataset.load(path, fields=PATHS, keep=["meta.part"])
    assert (case.id, case.input, case.expected) == (case_id, question, answer)
    assert case.fields == {"meta.part": "train"}


def test_a_column_of_the_very_name_of_a_path_comes_first(tmp_path: Path) -> None:
    row: Json = {**NESTED, "outputs.answer": "The column."}
    path = nested_file(tmp_path, ".jsonl", [row])
    [case] = Dataset.load(path, fields=PATHS, keep=["outputs"])
    assert (case.expected, case.fields) == ("The column.", {"outputs": {"answer": "So."}})


@pytest.mark.parametrize(
    "text",
    [
        # As MMLU and FLAN have them, and a table with a header.
        "What is 1+1?,0,1,2,3,C\nWhat is 1+2?,0,1,2,3,D\n",
        "Are more people today related to one emperor than to another one?,yes\nIs it dry?,no\n",
        "text,label\nIs the sea dry?,no\n",
    ],
    ids=["numbers", "a question", "a header"],
)
def test_a_table_without_a_header_is_told_to_get_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(text)
    hint = "; if the first line is a case, write a line of names above it"
    for fields in ({}, {"expected": "answer"}):
        with pytest.raises(DataFormatError) as caught:
            Dataset.load(path, fields=fields, parameters=["question"])
        assert caught.value.faults[0].endswith(hint) is not text.startswith("text,")


@pytest.mark.parametrize("key", ["expected_output", "expectedOutput"])
def test_a_key_that_begins_with_a_field_is_not_told_to_be_hidden(tmp_path: Path, key: str) -> None:
    path = nested_file(tmp_path, ".jsonl", [{"input": "Why?", key: "So.", "status": "x"}])
    with pytest.raises(DataFormatError) as caught:
        Dataset.load(path)
    assert f"{key}: unknown key (did you mean `expected`?)" in caught.value.faults[0]


def test_calls_and_messages_may_be_texts_of_json_in_any_file(tmp_path: Path) -> None:
    # As sets for tool calling are on Hugging Face.
    calls: list[Json] = [{"name": "find", "arguments": {"id": 7}}]
    said: list[Json] = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
    ]
    row: dict[str, Json] = {"query": "Why?", "answers": json.dumps(calls), "log": json.dumps(said)}
    path = nested_file(tmp_path, ".jsonl", [row, {**row, "query": "When?", "answers": calls}])
    fields = {"input": "query", "tools": "answers", "context": "log"}
    first, second = Dataset.load(path, fields=fields)
    assert (first.tools, first.context) == (second.tools, second.context)
    assert first.tools == (ToolUse(name="find", arguments={"id": 7}),)
    answered: dict[str, Json] = {"id": "a", "input": "Why?", "recorded": '{"text": "So."}'}
    [case] = Dataset.load(nested_file(tmp_path, ".json", [answered]))
    assert case.recorded == Answer(text='{"text": "So."}')


def test_a_path_may_begin_at_a_column_that_is_called_like_a_field(tmp_path: Path) -> None:
    # As Langfuse and Braintrust export them; the prompt has the placeholder `$input`.
    row: Json = {"input": {"question": "Why?", "user": "u"}, "expected": {"text": "So.", "n": 1}}
    path = nested_file(tmp_path, ".jsonl", [row])
    fields = {"input": "input.question", "expected": "expected.text"}
    [case] = Dataset.load(path, fields=fields, parameters=["input"])
    assert (case.input, case.expected) == ("Why?", "So.")


def test_several_paths_are_parameters(tmp_path: Path) -> None:
    row: dict[str, Json] = {"inputs": {"question": "Why?", "tone": "kind"}}
    path = nested_file(tmp_path, ".jsonl", [row])
    [case] = Dataset.load(path, fields={"input": ["inputs.question", "inputs.tone"]})
    assert case.input == {"question": "Why?", "tone": "kind"}
    path = nested_file(tmp_path, ".jsonl", [{**row, "meta": {"tone": "calm"}}])
    with pytest.raises(DataFormatError, match="another column of `input` is called 'tone', too"):
        Dataset.load(path, fields={"input": ["inputs.tone", "meta.tone"]})


def test_a_number_in_a_path_is_an_item_of_a_list(tmp_path: Path) -> None:
    # As Label Studio exports annotations, and logs of chats are.
    row: dict[str, Json] = {
        "data": {"messages": [{"content": "Be kind."}, {"content": "Why?"}]},
        "annotations": [{"result": [{"value": {"choices": ["So."]}}]}, {"result": []}],
    }
    path = nested_file(tmp_path, ".json", [row, {**row, "annotations": []}])
    label = "annotations.0.result.0.value.choices.0"
    fields = {"input": "data.messages.1.content", "expected": label}
    assert [(case.input, case.expected) for case in Dataset.load(path, fields=fields)] == [
        ("Why?", "So."),
        ("Why?", None),
    ]
    with pytest.raises(DataFormatError) as error:
        Dataset.load(path, fields={**fields, "expected": "annotations.7"}, keep=["annotations"])
    assert "paths: `data.messages.0.content`, `annotations.0.result.0.value.choices`" in str(
        error.value
    )


def test_parameters_may_be_called_otherwise_than_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("Customer Name,Größe,Antwort\nAda,3,yes\n", encoding="utf-8")
    names = {"name": "Customer Name", "size": "Größe"}
    [case] = Dataset.load(path, fields={"input": names, "expected": "Antwort"})
    assert (case.input, case.expected) == ({"name": "Ada", "size": "3"}, "yes")
    nested = nested_file(tmp_path, ".jsonl", [NESTED])
    paths = {"q": "inputs.question", "a": "outputs.answer"}
    [case] = Dataset.load(nested, fields={"input": paths}, keep=["run"])
    assert case.input == {"q": "Why?", "a": "So."}
    with pytest.raises(DataFormatError, match="there is no column 'Name'"):
        Dataset.load(path, fields={"input": {"name": "Name"}}, keep=["Größe"])
    with pytest.raises(ConfigError, match="the column 'Größe' has two meanings"):
        Dataset.load(path, fields={"input": {"a": "Größe", "b": "Größe"}})


@pytest.mark.parametrize(
    ("field", "typo", "what"),
    [
        ("input", "inputs.qestion", "expected the path `inputs.qestion` (did you mean `inputs."),
        ("expected", "outputs.anser", "no case has the path `outputs.anser` (did you mean `out"),
    ],
)
def test_a_missing_path_is_answered_with_those_that_exist(
    tmp_path: Path, field: str, typo: str, what: str
) -> None:
    path = nested_file(tmp_path, ".jsonl", [NESTED])
    with pytest.raises(DataFormatError) as error:
        Dataset.load(path, fields={**PATHS, field: typo})
    [fault] = error.value.faults
    assert what in fault
    assert fault.endswith("?); paths: `run.id`, `inputs.question`, `outputs.answer`")


def test_a_path_that_only_some_cases_have_is_absent_in_the_others(tmp_path: Path) -> None:
    rows: list[Json] = [{"inputs": {"question": "a"}}, NESTED]
    path = nested_file(tmp_path, ".jsonl", rows)
    fields = {"input": "inputs.question", "expected": "outputs.answer"}
    cases = Dataset.load(path, fields=fields, keep=["run"])
    assert [case.expected for case in cases] == [None, "So."]


class OfDspy(dict[str, object]):
    """An example as DSPy has it: some of its keys are marked as inputs."""

    marked: tuple[str, ...] = ()

    def with_inputs(self, *names: str) -> OfDspy:
        copy = OfDspy(self)
        copy.marked = names
        return copy

    def inputs(self) -> dict[str, object]:
        if not self.marked:
            raise ValueError("Inputs have not been set for this example.")
        return {key: self[key] for key in self.marked}

    def labels(self) -> dict[str, object]:
        return {key: value for key, value in self.items() if key not in self.marked}


def test_the_marks_of_dspy_say_what_is_the_input() -> None:
    example = OfDspy(question="Where?", answer="here")
    (case,) = Dataset.of([example.with_inputs("question")])
    assert (case.input, case.expected) == ({"question": "Where?"}, "here")
    several = OfDspy(question="Where?", answer="here", why="so")
    (case,) = Dataset.of([several.with_inputs("question")])
    assert case.expected == {"answer": "here", "why": "so"}
    (case,) = Dataset.of([several.with_inputs("question")], label="answer", keep=["why"])
    assert (case.input, case.expected) == ({"question": "Where?"}, "here")
    assert Dataset.of([example]).unsaid == ("question", "answer")


def test_pairs_are_an_input_and_an_expected_answer() -> None:
    (case,) = Dataset.of([("Where?", "here")])
    assert (case.input, case.expected) == ("Where?", "here")
    for other in (("Where?", "here", 1), ["Where?", "here"], "Where?"):
        with pytest.raises(DataFormatError, match=r"cases:1: expected \{.*\} or a tuple of both"):
            Dataset.of([other])  # type: ignore[list-item]


def test_decimals_are_numbers() -> None:
    (case,) = Dataset.of([({"price": Decimal("1.50")}, Decimal(12))])
    assert isinstance(case.expected, int)
    assert (case.input, case.expected) == ({"price": 1.5}, 12)
    with pytest.raises(DataFormatError, match="expected plain data"):
        Dataset.of([("Where?", Decimal("NaN"))])


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_the_only_list_of_objects_in_an_object_is_the_cases(tmp_path: Path, ending: str) -> None:
    rows: list[Json] = [{"input": f"Where is {n}?", "target": "here"} for n in range(3)]
    whole: dict[str, Json] = {
        "canary": "x",
        "metrics": ["exact"],
        "examples": rows,
        "page": {"n": 1},
    }
    path = tmp_path / f"task.{ending}"

    def write() -> str:
        is_json = ending == "json"
        text = json.dumps(whole, indent=1) if is_json else yaml.safe_dump(whole, sort_keys=False)
        path.write_text(text, "utf-8")
        return text

    lines = write().splitlines()
    cases = Dataset.load(path, fields={"expected": "target"}).cases
    assert [case.input for case in cases] == ["Where is 0?", "Where is 1?", "Where is 2?"]
    for case in cases:
        line = int(case.origin.rpartition(":")[2])
        assert str(case.input) in "".join(lines[line - 1 : line + 2])
    rows[1] = {"target": "here"}
    write()
    with pytest.raises(DataFormatError) as caught:
        Dataset.load(path, fields={"expected": "target"})
    assert str(caught.value).startswith(f"{cases[1].origin}: ")


_TALK: Json = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.mark.parametrize("ending", ["json", "yaml"])
@pytest.mark.parametrize(
    "single",
    [
        {"messages": _TALK},
        {"input": "Where?", "context": _TALK},
        {"expected": "here", "calls": [{"name": "find"}, {"name": "show"}]},
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
    ],
)
def test_a_single_case_is_no_list_of_cases(
    tmp_path: Path, ending: str, single: dict[str, Json]
) -> None:
    path = tmp_path / f"case.{ending}"
    path.write_text(json.dumps(single), "utf-8")  # which is YAML too
    with pytest.raises(DataFormatError, match=r"write a single case in a list: `\[\{…\}\]`"):
        Dataset.load(path)


class Fetched(NamedTuple):
    id: UUID
    input: str
    expected: str


def test_rows_of_databases_have_names_and_ids() -> None:
    (case,) = Dataset.of([Fetched(UUID(int=7), "Where?", "here")])  # type: ignore[list-item]
    assert case.id == "00000000-0000-0000-0000-000000000007"
    assert (case.input, case.expected) == ("Where?", "here")
