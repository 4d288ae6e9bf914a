"""Every broken file gives exactly the error lines in the file beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expected_lines import check_lines
from promptgraft import Dataset
from promptgraft.errors import ConfigError, DataFormatError

BROKEN = Path(__file__).parent / "broken"
FILES = sorted(path for path in BROKEN.iterdir() if path.suffix != ".expected")


def faults_of(path: str | Path) -> tuple[str, ...]:
    with pytest.raises(DataFormatError) as caught:
        Dataset.load(path)
    assert "\n" not in str(caught.value)
    return caught.value.faults


def test_there_are_forty_broken_files_each_with_what_is_expected() -> None:
    assert len(FILES) >= 40
    assert {f"{path.name}.expected" for path in FILES} == {
        p.name for p in BROKEN.glob("*.expected")
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_broken_file_gives_exactly_the_expected_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BROKEN)
    check_lines(faults_of(path.name), Path(f"{path.name}.expected"))


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    missing = tmp_path / "none.jsonl"
    assert faults_of(missing) == (f"{missing}: cannot be read: No such file or directory",)
    fault = "https:/example.org/a.csv: cannot be read: No such file or directory; it is an address"
    assert faults_of("https://example.org/a.csv") == (f"{fault}: download it",)
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    fault = f"expected a file, found a folder at {folder}; name a file of cases in it"
    assert faults_of(folder) == (fault,)
    train, test = folder / "train-0.csv", folder / "test-0.csv"
    files = [os.path.relpath(file) for file in (train, test)]
    train.touch()
    assert faults_of(folder)[0].endswith(f"; name a file, such as {files[0]!r}")
    test.touch()
    assert faults_of(folder)[0].endswith(
        f"; write `Splits.load(train={files[0]!r}, test={files[1]!r})`"
    )
    (folder / "train-1.csv").touch()
    assert "or join them: `Dataset.of(" in faults_of(folder)[0]
    (tmp_path / "cases.jsonl").touch()
    meant = tmp_path / "case.jsonl"
    assert faults_of(meant) == (
        f"{meant}: cannot be read: No such file or directory (did you mean `cases.jsonl`?)",
    )


def test_a_cell_that_is_too_long_points_to_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"id,input\n1,{'x' * 16_777_217}\n", "utf-8")
    (fault,) = faults_of(path)
    assert (
        fault == f"{path}:2: a cell is longer than 16,777,216 characters; use JSONL for such texts"
    )


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("cases.jsonl.gz", "unpack it"),
        ("cases.xlsx", "save the spreadsheet as CSV"),
        ("cases.eval", "`inspect log dump FILE` writes it as JSON"),
        ("cases.arrow", "`to_json(FILE, orient='records', lines=True)`"),
        ("cases.txt", "jsonl, json, csv, yaml, parquet"),
    ],
)
def test_a_file_of_another_kind_says_how_to_convert_it(
    tmp_path: Path, name: str, mend: str
) -> None:
    with pytest.raises(ConfigError, match="expected a file that ends in") as caught:
        Dataset.load(tmp_path / name)
    assert str(caught.value).endswith(mend)


def test_faults_that_differ_in_values_share_a_line_where_there_are_too_many(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cases.jsonl"
    for count, lines in ((20, 20), (21, 1)):
        path.write_text("".join(f'{{"id": {n}.5, "input": "x"}}\n' for n in range(count)), "utf-8")
        faults = faults_of(path)
        assert len(faults) == lines
    assert faults[0].endswith(f"found 0.5; similar in 20 more: {path}:2, {path}:3, …")


@pytest.mark.parametrize(
    ("name", "load", "message"),
    [
        ("cases.txt", Dataset.load, "expected a file that ends in .jsonl"),
        (
            "cases.txt",
            lambda path: Dataset.load(path, format="xml"),
            "format: expected one of `jsonl`, `json`, `csv`, `yaml`, `parquet`",
        ),
        ("cases.json", lambda path: Dataset.load(path, delimiter=";"), "only CSV files have one"),
        (
            "cases.csv",
            lambda path: Dataset.load(path, delimiter=";;"),
            "delimiter: expected one character",
        ),
        (
            "cases.csv",
            lambda path: Dataset.load(path, fields={"expcted": "answer"}),
            r"'expcted' \(did you mean `expected`\?",
        ),
        (
            "cases.csv",
            lambda path: Dataset.load(path, fields={"input": "a", "expected": "a"}),
            "'a' has two meanings",
        ),
        (
            "cases.csv",
            lambda path: Dataset.load(path, fields={"input": ["a", "b"]}, keep=["b"]),
            "'b' has two meanings",
        ),
    ],
)
def test_an_unusable_argument_is_refused(
    name: str, load: Callable[[Path], Dataset], message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text("id,input\n1,x\n", "utf-8")
    with pytest.raises(ConfigError, match=message):
        load(path)


@settings(max_examples=60, deadline=None)
@given(
    data=st.one_of(st.binary(max_size=60), st.text("{}[]\",:;-\n #&*!|>'a1e.~%@`\t", max_size=40)),
    kind=st.sampled_from(["jsonl", "json", "csv", "yaml"]),
)
def test_any_file_is_read_or_refused_with_its_name(
    data: bytes | str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.data"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    faults: tuple[str, ...] = ()
    try:
        assert len(Dataset.load(path, format=kind)) >= 1
    except DataFormatError as error:
        faults = error.faults
    assert all(fault.startswith(f"{path}:") for fault in faults)
