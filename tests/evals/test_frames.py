"""Tables of other libraries as cases, and results as tables; each library is skipped if missing."""

from __future__ import annotations

import datetime as dt
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import promptgraft as pg
from image_files import png
from promptgraft import Case, Dataset
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals import metrics
from promptgraft.ground.content import File, Image

COLUMNS: dict[str, list[Any]] = {
    "ticket": [7, 8, 9],
    "text": ["Where is it?", "It is torn.", "Thanks!"],
    "queue": ["delivery", "quality", None],
    "tags": [["late"], [], ["nice", "short"]],
    "day": [dt.date(2026, 1, day) for day in (1, 2, 3)],
}


def of_pandas(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def of_polars(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


def of_arrow(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pyarrow").table(columns)


def of_datasets(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


def of_pandas_from_arrow(columns: dict[str, list[Any]]) -> Any:
    pytest.importorskip("pandas")
    return of_arrow(columns).to_pandas()


def of_lazy_polars(columns: dict[str, list[Any]]) -> Any:
    return of_polars(columns).lazy()


KINDS = (of_pandas, of_polars, of_arrow, of_datasets, of_pandas_from_arrow, of_lazy_polars)
Make = Callable[[dict[str, list[Any]]], Any]


@pytest.mark.parametrize("make", KINDS)
def test_a_table_gives_the_cases_that_its_rows_give(make: Make) -> None:
    named: dict[str, Any] = {"id": "ticket", "input": "text", "label": "queue"}
    keep = ["tags", "day"]
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    found = Dataset.of(make(COLUMNS), **named, keep=keep)
    assert found == Dataset.of(rows, **named, keep=keep)
    assert found.cases[1] == Case(
        id="8",
        input="It is torn.",
        expected="quality",
        fields={"tags": [], "day": "2026-01-02"},
        origin="cases:2",
    )
    assert found.cases[2].expected is None


def test_a_column_of_midnights_holds_days() -> None:
    pandas = pytest.importorskip("pandas")
    days = ["2026-01-02", None, "2026-01-04"]
    times = ["2026-01-02 00:00", None, "2026-01-04 10:30"]
    frame = pandas.DataFrame({"text": ["a", "b", "c"]})
    frame["day"], frame["time"] = pandas.to_datetime(days), pandas.to_datetime(times)
    cases = Dataset.of(frame, input="text", label="day", keep=["time"])
    assert [case.expected for case in cases] == days
    assert [case.fields.get("time") for case in cases] == [
        "2026-01-02T00:00:00",
        None,
        "2026-01-04T10:30:00",
    ]


@pytest.mark.parametrize("make", KINDS)
def test_faults_name_column_and_row(make: Make) -> None:
    columns: dict[str, list[Any]] = {
        "text": ["a", "b"],
        "queue": ["x", "y"],
        "picture": [b"\x89", b"\x90"],
    }
    with pytest.raises(DataFormatError) as caught:
        Dataset.of(make(columns), input="text", label="queue", keep=["picture"], name="tickets")
    assert str(caught.value).startswith("tickets:1: ")
    assert "picture" in str(caught.value)
    with pytest.raises(DataFormatError, match=r"cases:1: .* queue: unknown key; `Dataset"):
        Dataset.of(make({"text": ["a"], "queue": ["x"]}), input="text")


def test_missing_values_of_pandas_count_as_absent() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "input": ["a", "b", "c"],
            "expected": pandas.array([1, None, 3], dtype="Int64"),
            "critical": [True, None, False],
            "hints": ["", float("nan"), pandas.NaT],
        }
    )
    cases = Dataset.of(frame).cases
    assert [case.expected for case in cases] == [1, None, 3]
    assert [case.critical for case in cases] == [True, False, False]
    assert [dict(case.hints) for case in cases] == [{}, {}, {}]


def test_columns_without_names_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DataFormatError, match="columns: expected names that are texts, found 0"):
        Dataset.of(pandas.DataFrame([["a", "b"]]))
    with pytest.raises(DataFormatError, match="columns: 2 columns are called 'a'"):
        Dataset.of(pandas.DataFrame([["a", "b"]], columns=["a", "a"]))
    with pytest.raises(DataFormatError, match="out, of a table by `drop_duplicates"):
        Dataset.of(pandas.DataFrame({"input": ["a", "a"]}))


def test_a_parquet_file_is_a_data_set(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "tickets.parquet"
    parquet.write_table(of_arrow(COLUMNS), path)
    names = {"id": "ticket", "input": "text", "expected": "queue"}
    cases = Dataset.load(path, fields=names, keep=["tags", "day"])
    assert cases.ids == ("7", "8", "9")
    assert cases.cases[0].fields == {"tags": ["late"], "day": "2026-01-01"}
    assert Dataset.load(f"{path}:8", fields=names, keep=["tags", "day"]).ids == ("8",)

    path.write_text("no such thing", "utf-8")
    with pytest.raises(DataFormatError, match=r"tickets\.parquet: not Parquet: "):
        Dataset.load(path)
    with pytest.raises(DataFormatError, match=r"missing\.parquet: cannot be read"):
        Dataset.load(tmp_path / "missing.parquet")


@pytest.mark.parametrize("images", [(), ("photo",)])
def test_bytes_in_a_parquet_file_are_images_and_files(tmp_path: Path, images: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "photos.parquet"
    row = {
        "id": "1",
        "photo": {"bytes": png(), "path": "lamp.png"},  # as Hugging Face writes images
        "more": [{"bytes": png(), "path": None}],
        "contract": b"%PDF-1.7 ...",
        "page": {"bytes": png(), "caption": "A lamp."},
    }
    parquet.write_table(arrow.Table.from_pylist([row]), path)
    names = {"input": ["photo", "more", "contract", "page"]}
    [case] = Dataset.load(path, fields=names, images=images)
    value: Any = case.input
    photo, [more], contract = value["photo"], value["more"], value["contract"]
    assert isinstance(photo, Image)
    assert (photo.name, photo.read()) == ("lamp.png", png())
    assert isinstance(more, Image)
    assert isinstance(contract, File)
    assert contract.media_type == "application/pdf"
    assert value["page"]["caption"] == "A lamp."


def test_a_column_may_be_named_once_only() -> None:
    with pytest.raises(ConfigError, match="the column of `expected` is given twice"):
        Dataset.of([{"a": "b"}], label="a", fields={"expected": "a"})
    with pytest.raises(ConfigError, match="cases: expected cases, mappings or a table, found 5"):
        Dataset.of(5)  # type: ignore[arg-type]
    for path in ("cases.csv", Path("cases.csv")):
        with pytest.raises(ConfigError, match=r"cases.csv'?\)?; `Dataset.load` reads a file$"):
            Dataset.of(path)  # type: ignore[arg-type]


SCRIPT = """
import sys
from promptgraft import Dataset
Dataset.of([{"input": "a"}])
loaded = {"pandas", "polars", "pyarrow", "datasets", "numpy"} & set(sys.modules)
assert not loaded, loaded
"""


def test_nothing_is_imported_that_the_user_has_not() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def evaluation() -> pg.Evaluation:
    section = pg.MarkdownSection(title="Q", key="q", template="$q")
    prompt = pg.Prompt(pg.PromptTemplate[object](ns="tests", key="frames", sections=(section,)))
    cases = Dataset.of([{"id": n, "input": "yes" * n, "expected": "yes"} for n in (0, 1)])
    adapter = pg.ScriptedAdapter(lambda asked: "yes" if "yes" in asked.text else "no")
    return pg.evaluate(prompt, cases, (metrics.exact(),), adapter=adapter)


ROWS = [
    {
        "case": "0",
        "run": 0,
        "status": "failed",
        "score": 0.0,
        "error": "",
        "answer": "no",
        "metric exact": 0.0,
        "reason exact": 'expected "yes", found "no"',
    },
    {
        "case": "1",
        "run": 0,
        "status": "passed",
        "score": 1.0,
        "error": "",
        "answer": "yes",
        "metric exact": 1.0,
        "reason exact": 'found the expected "yes"',
    },
]


def test_an_evaluation_is_a_table() -> None:
    found = evaluation()
    assert of_pandas({}).__class__ is type(found.to_frame())
    assert found.to_frame().to_dict("records") == ROWS
    pytest.importorskip("polars")
    assert list(found.to_frame("polars").iter_rows(named=True)) == ROWS
    pytest.importorskip("pyarrow")
    assert found.to_frame("pyarrow").to_pylist() == ROWS


@pytest.mark.parametrize("form", ["dataset", "rows of pandas", "arrow", "parquet"])
def test_classes_of_hugging_face_are_their_names(form: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    kinds = datasets.ClassLabel(names=["bad", "good"])
    columns = {"text": datasets.Value("string"), "mood": kinds, "words": datasets.List(kinds)}
    columns["notes"] = datasets.List({"by": {"mood": kinds}, "at": datasets.Value("int8")})
    rows = {"text": ["a", "b", "c"], "mood": [1, 0, -1], "words": [[0, 1], [], [1]]}
    rows["notes"] = [[{"by": {"mood": 1}, "at": 0}], [], []]
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(columns))
    fields = {"input": "text", "expected": "mood"}
    if form == "parquet":
        path = tmp_path / "moods.parquet"
        table.to_parquet(path)
        read = Dataset.load(path, fields=fields, keep=["words", "notes"])
    else:
        source = table.with_format("pandas" if form == "rows of pandas" else None)
        source = table.with_format("arrow")[:] if form == "arrow" else source
        read = Dataset.of(source, fields=fields, keep=["words", "notes"])
    assert [case.expected for case in read] == ["good", "bad", None]
    assert [case.fields["words"] for case in read] == [["bad", "good"], [], ["good"]]
    assert read.cases[0].fields["notes"] == [{"by": {"mood": "good"}, "at": 0}]


@pytest.mark.parametrize("make", KINDS[:4])
def test_numbers_of_single_precision_are_as_they_are_written(make: Make) -> None:
    numpy = pytest.importorskip("numpy")
    numbers = numpy.array([0.1, 1e30], dtype="float32")
    pairs = zip(["a", "b"], numbers, strict=True)
    cases = [*Dataset.of(pairs), *Dataset.of(make({"input": ["a", "b"], "expected": numbers}))]
    assert [case.expected for case in cases] == [0.1, 1e30] * 2


def test_the_sets_of_a_table_are_passed_one_by_one() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"input": ["a"]})
    for sets in (datasets.DatasetDict({"train": table, "test": table}), {"train": table}):
        with pytest.raises(ConfigError, match=r"sets `?train.*; pass one, or each by `Splits"):
            Dataset.of(sets)
    with pytest.raises(ConfigError, match="found one mapping; write"):
        Dataset.of({"input": "a"})  # type: ignore[dict-item]


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    rows = [{"input": {"a": numpy.int64(3), "b": numpy.array([0.5])}, "expected": numpy.bool_(1)}]
    (case,) = Dataset.of(rows)
    assert (case.input, case.expected) == ({"a": 3, "b": [0.5]}, True)
    ((case,), labels) = Dataset.of([tuple(numpy.array(["a", "b"]))]), numpy.array(["b", "c"])
    assert [type(case.input), type(case.expected)] == [str, str]
    assert repr(metrics.classification(labels=labels).labels) == "('b', 'c')"


def test_rows_of_a_database_are_cases() -> None:
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row  # takes `dict()`, and is no `Mapping`
    database.execute("CREATE TABLE reports (message TEXT, team TEXT)")
    database.execute("INSERT INTO reports VALUES ('The lamp is out.', 'lighting')")
    (case,) = Dataset.of(database.execute("SELECT * FROM reports"), label="team")
    assert (case.input, case.expected) == ({"message": "The lamp is out."}, "lighting")
    database.close()


def test_a_library_that_makes_no_tables_is_refused() -> None:
    with pytest.raises(ConfigError, match="library: expected one of pandas, polars, pyarrow"):
        evaluation().to_frame("csv")
