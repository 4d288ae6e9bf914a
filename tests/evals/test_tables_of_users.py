"""Tables as users have them: their columns, encodings, repeated rows, and what is too large."""

from __future__ import annotations

import csv
import difflib
import importlib
import json
import os
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from promptgraft import Dataset, Splits
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.types import Message, Speaker, ToolUse
from promptgraft.ground.serde import Json

pyarrow = pytest.importorskip("pyarrow")


def written(folder: Path, text: str, name: str = "cases.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def faults_of(path: Path, **options: Any) -> list[str]:
    with pytest.raises(DataFormatError) as caught:
        Dataset.load(path, **options)
    return [fault.removeprefix(f"{path}:") for fault in caught.value.faults]


def test_a_markdown_table_has_neither_its_rule_nor_its_spaces(tmp_path: Path) -> None:
    fields = {"input": "text", "expected": "team"}
    table = "| text    | team  |\n|:--------|------:|\n| no lamp | roads |\n| - | none |\n"
    cases = Dataset.load(written(tmp_path, table), fields=fields)
    assert [(case.input, case.expected) for case in cases] == [("no lamp", "roads"), ("-", "none")]
    table = '| text | team |\n|---|---|\n| a \\| b | "x" |\n'
    [case] = Dataset.load(written(tmp_path, table), fields=fields)
    assert (case.input, case.expected) == ("a | b", '"x"')
    [fault] = faults_of(written(tmp_path, f"{table}| c | d | e | f |\n"), fields=fields)
    assert fault.endswith(r"write `\|` for a bar in a cell")
    plain = Dataset.load(written(tmp_path, "text|team\n- a|b\n"), fields=fields)
    assert [(case.input, case.expected) for case in plain] == [("- a", "b")]


# ---- paths ----


def test_a_key_of_a_path_may_have_dots_itself(tmp_path: Path) -> None:
    rows = [
        {"attributes": {"input.value": "a", "output.value": "x"}, "tags": [{"a.b": 1}]},
        {"attributes": {"input": {"value": "b"}, "output.value": "y"}, "tags": [{"a.b": 2}]},
    ]
    path = written(tmp_path, "".join(f"{json.dumps(row)}\n" for row in rows), "spans.jsonl")
    fields = {"id": "tags.0.a.b", "input": "attributes.input.value"}
    cases = Dataset.load(path, fields={**fields, "expected": "attributes.output.value"})
    assert [(case.id, case.input, case.expected) for case in cases] == [
        ("1", "a", "x"),
        ("2", "b", "y"),
    ]


def test_a_column_that_lies_deeper_is_named_by_its_path(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([{"row_idx": 0, "row": {"text": "a"}}]), "rows.json")
    faults = faults_of(path, fields={"input": "text"}, keep=["row", "row_idx"])
    assert any("the key `text` (did you mean `row.text`?)" in fault for fault in faults), faults


# ---- an expected answer in several columns ----

BILLS = """text,Vendor Name,total,paid,postcode,account,tags
a,Acme,12.50,TRUE,01067,11,"[""x""]"
b,Bolt,3,false,10115,12,[]
c,Acme,,True,80331,,
"""


def test_several_columns_make_an_object_of_what_is_expected(tmp_path: Path) -> None:
    path = written(tmp_path, BILLS)
    columns = ["total", "paid", "postcode", "account", "tags"]
    cases = Dataset.load(
        path, fields={"input": "text", "expected": columns}, keep=["Vendor Name"], texts=["account"]
    )
    assert [case.input for case in cases] == ["a", "b", "c"]
    # A column of numbers has numbers; postcodes are texts, since one of them begins with 0.
    assert [case.expected for case in cases] == [
        {"total": 12.5, "paid": True, "postcode": "01067", "account": "11", "tags": ["x"]},
        {"total": 3, "paid": False, "postcode": "10115", "account": "12", "tags": []},
        {"total": None, "paid": True, "postcode": "80331", "account": None, "tags": None},
    ]


def test_columns_of_what_is_expected_may_get_other_names(tmp_path: Path) -> None:
    path = written(tmp_path, BILLS)
    fields: dict[str, Any] = {
        "input": "text",
        "expected": {"vendor": "Vendor Name", "total": "total"},
    }
    cases = Dataset.load(path, fields=fields, keep=["paid", "postcode", "account", "tags"])
    assert [case.expected for case in cases] == [
        {"vendor": "Acme", "total": 12.5},
        {"vendor": "Bolt", "total": 3},
        {"vendor": "Acme", "total": None},
    ]


@pytest.mark.parametrize("label", [None, "expected", ["expected"]])
def test_an_expected_answer_may_be_kept_for_splits(label: str | list[str] | None) -> None:
    rows = [{"q": f"{n} apples", "expected": "ab"[n % 2]} for n in range(20)]
    cases = Dataset.of(rows, input="q", label=label, keep=["expected"])
    assert {str(case.expected)[-3:].strip("'}") for case in cases} == {"a", "b"}
    train, validation, _ = Splits.by_ratio(cases, stratify="expected").parts().values()
    for part in (train, validation):
        letters = [case.fields["expected"] for case in part]
        assert letters.count("a") == letters.count("b")


def test_what_is_expected_in_several_columns_of_objects_keeps_its_types() -> None:
    rows: list[dict[str, Json]] = [
        {"q": "a", "out": {"n": "1", "x": 2}, "c.d": "3"},
        {"q": "b", "out": {"n": "", "y": None}},
        {"q": "c"},
    ]
    expected = [
        {"n": "1", "x": 2, "y": None, "c.d": "3"},
        {"n": "", "x": None, "y": None, "c.d": None},
        None,
    ]
    cases = Dataset.of(rows, input="q", label=["out.n", "out.x", "out.y", "c.d"])
    assert [case.expected for case in cases] == expected


def test_what_lies_at_a_path_has_one_name_whatever_the_first_rows_lack() -> None:
    rows = [{"q": "b", "out": {"n": ""}}, {"q": "a", "out": {"n": "1", "x": 2}}]
    cases = Dataset.of(rows, input="q", label=["out.n", "out.x"])
    assert [case.expected for case in cases] == [{"n": "", "x": None}, {"n": "1", "x": 2}]


@pytest.mark.parametrize(
    "cell", ["1e999", "0x1F", "1_000", "12,50", "NaN", "null", '"5"', "007", "true", "[1]"]
)
def test_a_column_with_a_cell_that_is_no_number_stays_text(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "cases.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("q", "n", "m"), ("a", "1", "2"), ("b", cell, "3")])
    cases = Dataset.load(path, fields={"input": "q", "expected": ["n", "m"]})
    assert [case.expected for case in cases] == [{"n": "1", "m": 2}, {"n": cell, "m": 3}]


@pytest.mark.parametrize(
    ("rows", "label", "fault"),
    [
        (
            [{"q": "a", "n": 1}],
            ["n", "m"],
            "no case has the key 'm', which is named for `expected`",
        ),
        ([{"q": "a", "n": 1, "x": {"n": 2}}], ["n", "x.n"], "another column of `expected` is call"),
        (
            [{"q": "a", "n": 1, "m": 2}],
            ["n"],
            'm: unknown key; `Dataset.of(CASES, keep=["m"])` hides it',
        ),
    ],
)
def test_faults_of_several_columns_of_what_is_expected(
    rows: list[dict[str, Json]], label: list[str], fault: str
) -> None:
    with pytest.raises(DataFormatError) as caught:
        Dataset.of(rows, input="q", label=label)
    assert fault in str(caught.value)


# ---- the first row decides nothing ----


@pytest.mark.parametrize("seed", range(6))
def test_an_empty_row_is_one_fault_wherever_it_stands(tmp_path: Path, seed: int) -> None:
    rows = [",travel", "maps,travel", "odes,poetry", "soup,cooking", "pies,cooking"]
    random.Random(seed).shuffle(rows)
    path = written(tmp_path, "\n".join(["input,expected", *rows]))

    (fault,) = faults_of(path)

    assert fault.startswith(f"{rows.index(',travel') + 2}: case `")
    assert fault.endswith("`: input: expected a text, found nothing")


def test_the_rarer_form_is_at_fault_wherever_it_stands(tmp_path: Path) -> None:
    odd = '{"id": "odd", "input": "x"}'
    plain = [f'{{"id": "{n}", "note": "n{n}"}}' for n in range(3)]
    for at in range(4):
        path = written(tmp_path, "\n".join([*plain[:at], odd, *plain[at:]]), "cases.jsonl")
        said = "`input` here, but parameters in 3 other cases; use one of both"
        assert faults_of(path) == [f"{at + 1}: case `odd`: {said}"]


# ---- line ends ----


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["cases.csv", "cases.jsonl"])
def test_lines_may_end_as_on_any_machine(tmp_path: Path, end: str, name: str) -> None:
    rows = ["input,expected", "maps,travel", '"a ""map""",travel']
    if name.endswith("jsonl"):
        rows = ['{"input": "maps", "expected": "travel"}', '{"input": "a \\"map\\""}']
    path = written(tmp_path, end.join([*rows, ""]), name)
    assert [case.input for case in Dataset.load(path)] == ["maps", 'a "map"']
    path = written(tmp_path, end.join([*rows, "x,y,z"]), name)
    assert faults_of(path)[0].startswith(f"{len(rows) + 1}: ")


# ---- columns that are called like fields ----

CELLS: Mapping[str, str] = {
    "context": "The maps are on the second shelf.",
    "state": "Ohio",
    "tools": "hammer and saw",
    "turns": "left then right",
    "recorded": "The answer of a model.",
    "fields": "wheat",
}


@pytest.mark.parametrize("name", CELLS)
def test_a_column_of_other_values_is_a_parameter(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, f"question,{name},expected\nWhere?,{CELLS[name]},second\nWhy?,,no\n")
    first, second = Dataset.load(path)
    if name == "recorded":  # a text has the form of a recorded answer
        path = written(tmp_path, f"question,{name}\nWhere?,{CELLS[name]}\n", "other.csv")
        (first,) = Dataset.load(path, parameters=["question", name])
    else:
        assert second.input == {"question": "Why?", name: ""}
    assert first.input == {"question": "Where?", name: CELLS[name]}


def test_a_column_of_our_form_stays_a_field_unless_the_prompt_reads_it(tmp_path: Path) -> None:
    cell = '"[{""role"": ""user"", ""content"": ""Hello""}]"'
    path = written(tmp_path, f"question,context,hints\nWhere?,{cell},look twice\n")

    (case,) = Dataset.load(path)
    assert (case.input, case.hints[""]) == ({"question": "Where?"}, "look twice")
    assert case.context == (Message(Speaker.USER, "Hello"),)

    (case,) = Dataset.load(path, parameters=["question", "context", "hints"])
    text = '[{"role": "user", "content": "Hello"}]'
    assert case.input == {"question": "Where?", "context": text, "hints": "look twice"}
    assert (case.context, dict(case.hints)) == ((), {})


def test_where_both_forms_occur_the_message_names_the_mend(tmp_path: Path) -> None:
    path = written(tmp_path, 'question,context\nWhere?,[]\nWhy?,"The second shelf."\n')
    (fault,) = faults_of(path)
    mend = "`keep: [context]` hides the column, `fields: {input: [..., context]}` makes it a param"
    assert f"context: expected JSON in the cell; {mend}" in fault
    loaded = Dataset.load(path, fields={"input": ["question", "context"]})
    assert loaded.cases[1].input == {"question": "Why?", "context": "The second shelf."}


def test_a_column_with_the_name_of_a_field_beside_the_input_is_one_fault(tmp_path: Path) -> None:
    for name, text in CELLS.items():
        rows = [{"question": f"{text} {n}", name: f"{text} {n}"} for n in range(9)]
        lines = "\n".join(map(json.dumps, rows))
        path = written(tmp_path, lines, f"{name}.jsonl")
        if name != "recorded":  # a text has the form of a recorded answer
            (fault,) = faults_of(path, fields={"input": "question"})
            assert f"`keep: [{name}]` hides the column" in fault
            assert "the same in 8 more" in fault
        loaded = Dataset.load(path, fields={"input": "question"}, keep=[name])
        assert loaded.cases[0].input == f"{text} 0"


def test_a_column_input_is_a_parameter_beside_others_that_the_prompt_reads(tmp_path: Path) -> None:
    path = written(tmp_path, "input,context,expected\nWhere?,Second shelf.,second\n")
    (case,) = Dataset.load(path, parameters=["input", "context"])
    assert case.input == {"input": "Where?", "context": "Second shelf."}
    alone = written(tmp_path, "input,expected\nWhere?,second\n", "alone.csv")
    assert Dataset.load(alone, parameters=["input"]).cases[0].input == "Where?"


COLUMNS = "; columns: `question`, `answer`; name one of them in `fields` or `keep`"


def test_a_column_that_does_not_exist_is_one_fault_with_those_that_do(tmp_path: Path) -> None:
    rows = "".join(f"question {n},answer {n}\n" for n in range(9))
    path = written(tmp_path, f"question,answer\n{rows}")
    names = {"input": "query", "expected": "answr"}
    assert faults_of(path, fields=names, keep=["day"])[:3] == [
        f"2: there is no column 'answr' (did you mean `answer`?){COLUMNS}",
        f"2: there is no column 'day'{COLUMNS}",
        f"2: there is no column 'query'{COLUMNS}",
    ]


def test_a_path_leads_into_the_json_of_a_cell(tmp_path: Path) -> None:
    rows = [
        ({"question": f"Where is {n}?", "tone": "kind"}, {"answers": [f"at {n}", "there"]})
        for n in range(3)
    ]
    path = tmp_path / "traces.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["id", "inputs", "outputs"])
        lines.writerows(
            [n, json.dumps(one), json.dumps(other)] for n, (one, other) in enumerate(rows)
        )
    names = {"input": ["inputs.question", "inputs.tone"], "expected": "outputs.answers"}
    first, *_ = Dataset.load(path, fields=names)
    assert first.input == {"question": "Where is 0?", "tone": "kind"}
    assert first.expected == ["at 0", "there"]
    # A whole cell is still the text that it was.
    first, *_ = Dataset.load(path, fields={"input": "inputs", "expected": "outputs"})
    assert first.input == json.dumps(rows[0][0])
    wrong, absent = faults_of(path, fields={"input": "inputs.query", "expected": "output.x"})[:2]
    assert wrong.startswith("2: there is no column 'output.x'")
    assert "outputs: unknown key" in absent


# ---- conversations as input ----


def test_messages_as_input_are_the_last_question_with_what_was_said_before() -> None:
    said = [
        {"role": "system", "content": "You sort mail."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Where is it?"},
    ]
    (case,) = Dataset.of([{"id": "a", "input": said, "expected": "here"}])
    assert case.input == "Where is it?"
    assert [(one.speaker.value, one.text) for one in case.context] == [
        ("system", "You sort mail."),
        ("user", "Hello"),
        ("assistant", "Yes?"),
    ]
    kinds = {"user": "human", "assistant": "ai"}
    of_langchain = [
        {"type": kinds.get(one["role"], one["role"]), "content": one["content"]} for one in said
    ]
    (other,) = Dataset.of([{"id": "a", "input": of_langchain, "expected": "here"}])
    assert (other.input, other.context) == (case.input, case.context)
    for wrong in (said[:3], of_langchain[:3], [], [{"role": "tool", "content": "x"}]):
        with pytest.raises(DataFormatError, match="input"):
            Dataset.of([{"id": "a", "input": wrong}])


# ---- encodings, long cells, repeated rows ----

WORDS = {
    "cp1252": "Rückgabe, Café",
    "utf-16": "Задача 任务",
    "shift_jis": "質問",
    "koi8-r": "Задача",
    "utf-8-sig": "任务",
}


@pytest.mark.parametrize("encoding", WORDS)
def test_a_table_may_have_another_encoding(tmp_path: Path, encoding: str) -> None:
    text = f'input,expected\r\n"{WORDS[encoding]}\nsecond line",x\r\n'
    path = written(tmp_path, text, encoding=encoding)
    (case,) = Dataset.load(path, encoding=encoding)
    assert case.input == f"{WORDS[encoding]}\nsecond line"
    if encoding in ("utf-8-sig", "utf-16"):  # which a mark at the beginning names
        assert [*Dataset.load(path)] == [case]
    else:
        assert "name its `encoding`" in faults_of(path)[0]


def test_a_wrong_encoding_is_a_fault_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "input\nRückgabe\n", encoding="cp1252")
    assert faults_of(path, encoding="utf-8")[0].startswith("1: expected utf-8, found other bytes")
    path.write_bytes("input\n„Café“ – 5 €\n".encode("cp1252"))
    (fault,) = faults_of(path, encoding="latin-1")
    assert fault.startswith("2: expected latin-1, found bytes of control characters; `cp1252` ")
    assert [case.input for case in Dataset.load(path, encoding="cp1252")] == ["„Café“ – 5 €"]
    for unknown in ("utf8000", "hex", 5):
        with pytest.raises(ConfigError, match="encoding: expected the name of one"):
            Dataset.load(path, encoding=unknown)  # type: ignore[arg-type] # what is refused


def test_a_cell_may_be_long_and_the_limit_of_the_process_stays(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = written(tmp_path, f"id,input\n1,{'x' * 300_000}\n2,y\n")
    assert [len(str(case.input)) for case in Dataset.load(path)] == [300_000, 1]
    assert csv.field_size_limit() == before


def test_repeated_rows_are_refused_or_dropped_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "input,expected\na,x\nb,y\na,x\na,x\nb,z\n")
    first, second = faults_of(path)
    assert first.startswith("4: ")
    assert second.endswith(
        "the same case without an id as in line 2; take it out, or set `duplicates: drop`"
    )
    loaded = Dataset.load(path, duplicates="drop")
    assert [(case.input, case.expected) for case in loaded] == [("a", "x"), ("b", "y"), ("b", "z")]
    assert loaded.dropped == 2
    with pytest.raises(ConfigError, match="duplicates: expected one of `refuse`, `drop`"):
        Dataset.load(path, duplicates="keep")


# ---- work ----


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    parquet = importlib.import_module("pyarrow.parquet")
    texts = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 1_000, pyarrow.int32()), pyarrow.array(["x" * 4_000_000])
    )
    lists = pyarrow.ListArray.from_arrays(pyarrow.array(range(1_001), pyarrow.int32()), texts)
    for name, column in (("texts", texts), ("lists", lists)):
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(pyarrow.table({"input": column}), path)
        assert path.stat().st_size < 1_000_000
        (fault,) = faults_of(path)
        assert "expected at most 2,000,000,000 bytes in all, found 4,000,000,000" in fault


def test_a_path_leads_into_the_nested_columns_of_a_parquet_file(tmp_path: Path) -> None:
    parquet = importlib.import_module("pyarrow.parquet")
    path = tmp_path / "squad.parquet"
    answers = [{"text": ["Paris"], "answer_start": [3]}, {"text": ["Rome"], "answer_start": [0]}]
    parquet.write_table(pyarrow.table({"question": ["F?", "I?"], "answers": answers}), path)
    cases = Dataset.load(path, fields={"input": "question", "expected": "answers.text.0"})
    assert [(case.input, case.expected) for case in cases] == [("F?", "Paris"), ("I?", "Rome")]
    with pytest.raises(DataFormatError, match=r"no case has the path `answers\.txt`"):
        Dataset.load(path, fields={"input": "question", "expected": "answers.txt"})


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    os.mkfifo(path)
    with pytest.raises(DataFormatError, match="expected a file, found a pipe or a device"):
        Dataset.load(path)


def test_a_million_keys_are_compared_with_fields_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared, compare = list[str](), difflib.get_close_matches

    def counting(word: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
        compared.append(word)
        return compare(word, known, n, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    keys: dict[str, Json] = {f"key {n}": "x" for n in range(20_000)}
    (case,) = Dataset.of([keys])
    assert isinstance(case.input, dict)
    assert (len(case.input), len(compared)) == (20_000, 1_000)

    compared.clear()
    with pytest.raises(DataFormatError) as caught:
        Dataset.of([{"input": "x", **keys}])
    assert "19,960 more unknown keys" in "\n".join(caught.value.faults)
    assert len(compared) < 2_000


def test_columns_that_nothing_reads_are_named_once_with_the_line_that_keeps_them(
    tmp_path: Path,
) -> None:
    rows = [
        {"id": "a", "input": "x", "expectd": "y", "model": "m", "latency ms": 3},
        {"id": "b", "input": "x2", "expectd": "y", "model": "m", "latency ms": 3, "true": 1},
        *({"id": f"c{n}", "input": f"x{n}", "model": "m"} for n in range(9)),
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(DataFormatError) as caught:
        Dataset.load(path)
    *near, several, single = [fault.partition(": case ")[2] for fault in caught.value.faults]
    assert near == [
        f"`{name}`: expectd: unknown key (did you mean `expected`?), or put it into `keep`"
        for name in "ab"
    ]
    assert several.startswith('`a`: 2 unknown keys; `keep: [model, "latency ms"]` hides them ')
    assert single.startswith('`b`: true: unknown key; `keep: ["true"]` hides it from ')
    kept = ["model", "latency ms", "true"]
    assert len(Dataset.load(path, fields={"expected": "expectd"}, keep=kept)) == 11


def test_a_table_may_have_questions_and_conversations(tmp_path: Path) -> None:
    turns = '"[{""user"": ""Hello""}, {""user"": ""Why?""}]"'
    path = written(tmp_path, f"question,turns\nWhere?,\n,{turns}\n")
    asked, talked = Dataset.load(path, fields={"input": ["question"]})
    assert (asked.input, asked.turns) == ({"question": "Where?"}, ())
    assert (talked.input, len(talked.turns)) == ("Why?", 2)
    path = written(tmp_path, f"question,turns\nWhere?,{turns}\n")
    (fault,) = faults_of(path, fields={"input": ["question"]})
    assert fault.endswith("question: expected either this or `turns`, found both")


@pytest.mark.parametrize("at", ["9" * 5_000, "²", "٣"])
def test_a_path_to_no_item_is_a_fault(tmp_path: Path, at: str) -> None:
    path = written(tmp_path, '[{"input": ["a"]}, {"input": ["b"]}]', "cases.json")
    faults = faults_of(path, fields={"input": f"input.{at}"})
    assert len(faults) == 2
    assert all("expected the path" in fault for fault in faults)


def test_null_at_a_path_into_a_cell_is_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, 'o,kind\n"{""b"": null}",x\n"{""b"": ""Where?""}",y\n')
    (fault,) = faults_of(path, fields={"input": "o.b", "expected": "kind"})
    assert fault.startswith("2: case `")
    assert fault.endswith("`: o.b: expected a text, found nothing")


# ---- keys that nothing reads ----


def test_the_line_for_a_wide_table_is_whole(tmp_path: Path) -> None:
    names = [f"column_{number}" for number in range(22)]
    path = written(tmp_path, ",".join(["input", "expected", *names]) + "\n" + "x," * 23 + "x\n")
    (fault,) = faults_of(path)
    assert f": 22 unknown keys; `keep: [{', '.join(names)}]` hides them from the model" in fault


def test_keys_without_a_value_are_read_nowhere() -> None:
    golden = {"input": "Where?", "expected_output": "here", "expected_tools": None, "notes": None}
    (case,) = Dataset.of([golden], label="expected_output")
    assert (case.input, case.expected) == ("Where?", "here")


def test_keys_beside_messages_are_refused_like_those_beside_a_text() -> None:
    said = [{"role": "user", "content": "Where?"}]
    for given in ("Where?", said, [{"type": "text", "text": "Where?"}]):
        with pytest.raises(DataFormatError, match=r"ideal: unknown key; `Dataset\.of\("):
            Dataset.of([{"input": given, "ideal": "here"}])


@pytest.mark.parametrize(
    ("key", "meant"),
    [("title", ""), ("status", ""), ("expcted", "expected"), ("expected_output", "expected")],
)
def test_only_a_field_that_is_not_there_is_suggested_for_a_key(key: str, meant: str) -> None:
    with pytest.raises(DataFormatError) as caught:
        Dataset.of([{"input": "Where?", key: "here"}])
    assert ("did you mean" in str(caught.value)) is bool(meant)
    assert f"did you mean `{meant}`" in str(caught.value) or not meant
    with pytest.raises(DataFormatError) as caught:
        Dataset.of([{"input": "Where?", "expected": "here", key: "here"}])
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "form"),
    [
        ("context", ["Passage one."], "a list of messages"),
        ("tools", [{"type": "function", "function": {"name": "find"}}], "a list of calls"),
        ("tools", [{"name": "find", "input_schema": {}}], "a list of calls"),
        ("tools", [{"name": "find", "description": "Finds."}], "a list of calls"),
        ("tools", [{"name": "find", "parameters": {"type": "object"}}], "a list of calls"),
        ("critical", "high", "true or false"),
    ],
)
def test_a_value_that_no_field_has_is_told_how_to_hide_its_column(
    column: str, value: Json, form: str
) -> None:
    rows = [{"input": f"Where is {n}?", "expected": "here", column: value} for n in range(9)]
    with pytest.raises(DataFormatError) as caught:
        Dataset.of(rows)
    hides = f'`Dataset.of(CASES, keep=["{column}"])` hides'
    assert f"{column}: expected {form}, as the field of this name; {hides}" in str(caught.value)
    assert Dataset.of(rows, keep=[column]).cases[0].fields[column] == value


def test_calls_may_have_their_arguments_as_parameters() -> None:
    [found] = Dataset.of([{"input": "a", "tools": [{"name": "find", "parameters": {"of": 1}}]}])
    assert found.tools == (ToolUse(name="find", arguments={"of": 1}),)


def test_passages_are_a_parameter_beside_others() -> None:
    passages = ["One.", "Two."]
    row = {"question": "Where?", "context": passages, "expected": "here", "notes": None}
    (case,) = Dataset.of([row], parameters=["question", "context"])
    assert case.input == {"question": "Where?", "context": passages}
    (case,) = Dataset.of([{"question": "Where?", "context": passages}])
    assert case.input == {"question": "Where?", "context": passages}


ADVISED: dict[str, list[dict[str, Json]]] = {
    "unknown": [{"input": "a", "expected": "b", "team": "x", "run": 1}],
    "no list of messages": [{"input": "a", "expected": "b", "context": "c"}],
    "no list, and no input": [{"q": "a", "expected": "b", "state": "c"}, {"q": "a", "state": {}}],
    "the answer": [{"q": "a", "answer": "b"}],
}


@pytest.mark.parametrize("what", ADVISED)
def test_the_advice_for_cases_of_python_is_a_call_that_reads_them(what: str) -> None:
    rows = ADVISED[what]
    with pytest.raises(DataFormatError) as caught:
        Dataset.of(rows, parameters=["q"])
    advice = re.findall(r"`(Dataset\.of\(CASES, (?:keep|label).*?\))`", str(caught.value))
    assert advice
    assert "keep: [" not in str(caught.value)
    for call in advice:
        made = eval(call, {"Dataset": Dataset, "CASES": rows})
        assert len(made) == len(rows)


@pytest.mark.parametrize("field", ["id", "expected", "critical"])
def test_a_named_column_that_no_case_has_is_refused(field: str) -> None:
    rows = [{"input": "a", "more": 1}]
    with pytest.raises(DataFormatError, match=f"no case has the key 'no', .* for `{field}`"):
        Dataset.of(rows, fields={field: "no"}, keep=["more"])
    with pytest.raises(DataFormatError, match="there is no column 'no'; columns: `input`, `more`"):
        Dataset.of(
            pytest.importorskip("pandas").DataFrame(rows), fields={field: "no"}, keep=["more"]
        )
