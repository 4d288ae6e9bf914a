"""Cases out of files and mappings: which reader, ids, duplicates, all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from promptgraft.errors import ConfigError
from promptgraft.evals.evalset import eval_case_id, is_eval_case, read_eval_case
from promptgraft.evals.faults import Faults
from promptgraft.evals.plain import PlainReader
from promptgraft.evals.reading import Row
from promptgraft.evals.rows_csv import csv_rows
from promptgraft.evals.rows_json import json_rows, jsonl_rows
from promptgraft.evals.rows_yaml import yaml_rows
from promptgraft.evals.types import Case
from promptgraft.serde import Json, digest, shown
from promptgraft.strict.nodes import Node, Source

FORMATS: dict[str, Callable[[Path, Faults], Iterator[Row]]] = {
    "jsonl": jsonl_rows,
    "json": json_rows,
    "csv": csv_rows,
    "yaml": yaml_rows,
}
_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_SHORT_DIGEST = 12


def format_of(path: Path, chosen: str | None) -> str:
    """Return the format of a file, by its ending when none is chosen.

    Raises:
        ConfigError: there is no such format.
    """
    if chosen is None and path.suffix.lower() in _ENDINGS:
        return _ENDINGS[path.suffix.lower()]
    if chosen in FORMATS:
        return str(chosen)
    if chosen is None:
        raise ConfigError(
            f"{path}: expected a file that ends in {', '.join(_ENDINGS)}; "
            f"or give `format`, one of {', '.join(FORMATS)}"
        )
    raise ConfigError(f"format: expected one of {', '.join(FORMATS)}, found {shown(chosen)}")


def rows_of(path: Path, kind: str, delimiter: str | None, faults: Faults) -> Iterator[Row]:
    """Yield the rows of a file, whatever its format.

    Raises:
        ConfigError: a delimiter that is not one character, or for a format without one.
        OSError: the system refuses.
    """
    if kind != "csv":
        if delimiter is not None:
            raise ConfigError(f"delimiter: only CSV files have one, and {path} is {kind}")
        return FORMATS[kind](path, faults)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ConfigError(f"delimiter: expected one character, found {shown(delimiter)}")
    return csv_rows(path, faults, delimiter=delimiter)


class CaseReader:
    """Turns rows into cases, and notes what is wrong with them.

    Args:
        plain: reads what does not stand in an EvalSet.
        finds_eval_cases: whether a row may be a case of an EvalSet by its looks.
        source: how messages call what is read.
    """

    def __init__(self, plain: PlainReader, *, finds_eval_cases: bool, source: str) -> None:
        self._plain = plain
        self._finds = finds_eval_cases
        self._source = source
        self._lines: dict[str, int] = {}
        self._noted = Source("")  # shared by all cases until one has a fault
        self.faults = Faults(source)

    def read_all(self, rows: Iterable[Row]) -> tuple[Case, ...]:
        """Return every case.

        Raises:
            DataFormatError: with all faults of the source.
        """
        read = map(self._read, rows)
        cases = tuple(case for case in read if case is not None)
        if not cases and not self.faults:
            self.faults.add(0, "expected at least one case, found none")
        self.faults.raise_all()
        return cases

    def _read(self, row: Row) -> Case | None:
        line, value, in_eval_set = row
        if not isinstance(value, dict):
            self.faults.add(line, f"expected an object, found {shown(value)}")
            return None
        node = Node(value, (), self._noted)
        origin = f"{self._source}:{line}"
        if in_eval_set or (self._finds and is_eval_case(value)):
            case_id = self._id(eval_case_id(value), node, line)
            case = read_eval_case(node, case_id=case_id, origin=origin)
        else:
            case_id = self._id(self._plain.id_of(value), node, line)
            case = self._plain.read(node, case_id=case_id, origin=origin)
        if not node.is_right():
            for fault in self._noted.faults:
                self.faults.add(line, fault, case_id)
            self._noted = Source("")
        return case

    def _id(self, given: Json, node: Node, line: int) -> str:
        if given is None:
            case_id, what = str(digest(node.value))[:_SHORT_DIGEST], "the same case without an id"
        elif (isinstance(given, str) and given.strip()) or type(given) is int:
            case_id, what = str(given), "the same id"
        else:
            node.fault(f"id: expected a text or an integer, found {shown(given)}")
            return ""
        first = self._lines.setdefault(case_id, line)
        if first != line:
            node.fault(f"{what} as in line {first}")
        return case_id
