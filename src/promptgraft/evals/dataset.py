"""Data sets: ordered cases with unique ids, read from files, mappings and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.case_reader import CaseFiles, CaseReader
from promptgraft.evals.plain import Names, PlainReader
from promptgraft.evals.rows import ENDINGS, SETS, CaseFaults, Row, jsonl_rows
from promptgraft.evals.types import Case, as_cases, cases_of
from promptgraft.ground.content import in_words, named
from promptgraft.ground.files import as_path, is_file
from promptgraft.ground.frames import Frame, is_frame
from promptgraft.ground.notebook import Card, Shown, cell, first_rows
from promptgraft.ground.serde import (
    HexDigest,
    Json,
    did_you_mean,
    digest,
    map_texts,
    shown,
    unstructure,
)
from promptgraft.ground.strict.checks import one_of
from promptgraft.ground.strict.nodes import read_fault
from promptgraft.ground.text import counted, listed


def _reader(kind: str) -> Callable[..., Iterator[Any]]:
    if kind == "jsonl":
        return jsonl_rows
    from promptgraft.evals.tables import READERS  # most programs read JSONL only

    return READERS[kind]


FORMATS = ("jsonl", "json", "csv", "yaml", "parquet")
REFUSE, DROP = "refuse", "drop"
DUPLICATES = (REFUSE, DROP)
"""What is done with rows that repeat another one."""
_MENDS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the spreadsheet as CSV"),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".zip", ".7z"), "unpack it"),
    ".eval": "`inspect log dump FILE` writes it as JSON",
}


def format_of(path: Path, chosen: str | None) -> str:
    """Return the format of a file: the chosen one, or the one of its extension."""
    if chosen is not None:
        one_of(*FORMATS).hold("format", chosen)
        return chosen
    ending = path.suffix.lower()
    if ending in ENDINGS:
        return ENDINGS[ending]
    pandas = "; pandas writes JSONL with `to_json(FILE, orient='records', lines=True)`"
    mend = f"or give `format`, one of {', '.join(FORMATS)}"
    mend = _MENDS.get(ending, mend if ending in ("", ".txt", ".tab") else f"{mend}{pandas}")
    raise ConfigError(f"{path}: expected a file that ends in {', '.join(ENDINGS)}; {mend}")


def rows_of(
    path: Path, kind: str, faults: CaseFaults, *, delimiter: str | None, encoding: str | None
) -> Iterator[Row]:
    """Yield the rows of a file of format ``kind``."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        # A pipe would be waited for, perhaps for ever.
        faults.add(0, "expected a file, found a pipe or a device; write its content to a file")
        return iter(())
    if kind == "csv":
        return _reader("csv")(path, faults, delimiter=delimiter, encoding=encoding)
    for name, value in (("delimiter", delimiter), ("encoding", encoding)):
        if value is not None:
            raise ConfigError(f"{name}: only CSV files have one, and {path} is {kind}")
    return _reader(kind)(path, faults)


def file_and_case(path: str | Path) -> tuple[Path, str]:
    """Split ``FILE:ID`` into the file and the id of a case; the id is empty for a plain path."""
    # A file may have a colon in its name, so the files that exist decide.
    whole = as_path(path)
    file, _, case = str(whole).rpartition(":")
    if file and case and not is_file(whole) and is_file(Path(file)):
        return Path(file), case
    return whole, ""


@attrs.frozen
class Dataset(Shown):
    """An ordered set of cases.

    Made by :meth:`load` and :meth:`of`, and split by :class:`Splits`.

    Attributes:
        cases: at least one, with unique ids.
        name: its name in messages.
        source: the file that holds exactly these cases, if there is one.
        dropped: how many rows were left out because they repeat another one.
        unsaid: columns of the input of which nothing says whether the model may see them.

    Raises:
        DataFormatError: there is no case, or two have the same id.
    """

    cases: tuple[Case, ...]
    name: str = "cases"
    source: Path | None = attrs.field(default=None, eq=False)
    dropped: int = attrs.field(default=0, eq=False, kw_only=True)
    unsaid: tuple[str, ...] = attrs.field(default=(), eq=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        faults = CaseFaults(self.name)
        if not self.cases:
            faults.add(0, f"expected at least one case, such as {_CASE}, found none")
        ids: set[str] = set()
        for case in cases_of(self.cases):
            if not isinstance(case.id, str):
                raise DataFormatError(f"{self.name}: id: expected a text, found {shown(case.id)}")
            if case.id in ids:
                faults.add(0, "a second case with this id", case.id)
            ids.add(case.id)
        faults.raise_all()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        format: str | None = None,  # noqa: A002 - the usual name
        fields: Names | None = None,
        keep: Collection[str] = (),
        delimiter: str | None = None,
        encoding: str | None = None,
        duplicates: str = REFUSE,
        parameters: Collection[str] | None = None,
        texts: Collection[str] = (),
        images: Collection[str] = (),
        files: Collection[str] = (),
        root: Path | None = None,
    ) -> Dataset:
        """Read a file: JSONL, JSON, CSV, YAML, Parquet or an EvalSet (``specs/datasets.md``).

        Args:
            path: the file; ``FILE:ID`` for one case of it.
            format: ``jsonl``, ``json``, ``csv``, ``yaml`` or ``parquet``; by default that of the
                file's extension.
            fields: the names of the columns for ``id``, ``input``, ``expected``, ... where they
                differ; for ``input`` and ``expected`` also a list of columns, which makes an
                object. In a CSV file, columns of numbers, of true and false, or of JSON, are such
                values in ``expected``.
            keep: columns that are hidden from the agent and kept in ``Case.fields``.
            delimiter: of a CSV file; by default detected in its header.
            encoding: of a CSV file, such as ``cp1252``; UTF-8 by default.
            duplicates: ``refuse`` rows that repeat another one, or ``drop`` them.
            parameters: names of the prompt's placeholders: a column such as ``context`` is then
                a parameter, and not the field of that name. If they are given, and no row has an
                expected answer, columns are refused that neither they nor ``fields`` name.
            texts: members of such an object that are texts, even if they look like numbers.
            images: columns with the path of an image, from the folder of the file on, or its
                address.
            files: columns with the path or address of another file.
            root: a folder in which these may lie beside that of the file.

        Raises:
            ConfigError: an argument is unusable.
            DataFormatError: the file is faulty (the error lists all faults), or cannot be read.
        """
        path, chosen = file_and_case(path)
        if not is_file(path):
            from promptgraft.evals.several_files import refuse_several  # a mistake

            refuse_several(path, root)
        kind = format_of(path, format)
        one_of(*DUPLICATES).hold("duplicates", duplicates)
        plain = PlainReader(
            fields or {},
            keep,
            cells=kind == "csv",
            parameters=parameters,
            files=(*_listed("images", images), *_listed("files", files)),
            texts=texts,
        )
        reader = CaseReader(
            plain,
            # Cells are texts, and named columns say that the file is plain.
            finds_eval_cases=kind != "csv" and not fields,
            source=str(path),
            is_table=kind == "csv",
            drops_duplicates=duplicates == DROP,
            files=CaseFiles(
                folder=path.parent, root=root, images=images, files=files, data=plain.data_columns
            ),
        )
        try:
            cases = reader.read_all(
                rows_of(path, kind, reader.faults, delimiter=delimiter, encoding=encoding)
            )
        except OSError as error:
            raise read_fault(path, error) from None
        if chosen:
            cases = _only(chosen, cases, path)
        return cls(cases, str(path), path, dropped=reader.dropped, unsaid=plain.unsaid)

    @classmethod
    def of(
        cls,
        cases: Iterable[Case | Mapping[str, object] | tuple[object, object]] | Frame,
        *,
        id: str | None = None,  # noqa: A002 - the name of the field
        input: str | Sequence[str] | None = None,  # noqa: A002 - the same
        label: str | Sequence[str] | None = None,
        name: str = "cases",
        fields: Names | None = None,
        keep: Collection[str] = (),
        images: Collection[str] = (),
        files: Collection[str] = (),
        parameters: Collection[str] | None = None,
    ) -> Dataset:
        """Make a data set from cases, from mappings like the objects of a JSON file, or a table.

        Args:
            cases: cases; mappings; pairs of input and expected answer; examples of DSPy, whose
                marked inputs are the input; or a table of pandas, polars, Arrow or Hugging Face
                ``datasets``, where missing values count as absent.
            id: the column of the ids; short for ``id`` in ``fields``.
            input: the column or columns of the input; short for ``input`` in ``fields``.
            label: the column or columns of the ground truth; short for ``expected`` in ``fields``.
            name: the name of the data set in messages.
            fields: as in :meth:`load`.
            keep: as in :meth:`load`.
            images: columns with an ``Image``, the bytes of one, or its address.
            files: columns with a ``File``, the bytes of one, or its address.
            parameters: as in :meth:`load`.

        Raises:
            ConfigError: an argument is unusable.
            DataFormatError: the data are faulty; the error lists all faults and counts mappings
                and rows from 1.
        """
        fields = _named({"id": id, "input": input, "expected": label}, fields or {})
        if isinstance(cases, Mapping):
            sets = [name for name, part in cases.items() if is_frame(part) or name in SETS]
            mend = "pass one, or each by `Splits.of_sets`" if sets else f"write [{_CASE}, ...]"
            what = f"the sets {listed(map(str, sets))}" if sets else "one mapping"
            raise ConfigError(f"cases: expected a list of cases, found {what}; {mend}")
        if is_table := is_frame(cases):
            cases = _reader("frame")(cases)
        case_list = as_cases(cases, "cases, mappings or a table")
        ready = tuple(case for case in case_list if isinstance(case, Case))
        if len(ready) == len(case_list):
            return cls(ready, name)
        plain = PlainReader(
            fields or {},
            keep,
            parameters=parameters,
            files=(*_listed("images", images), *_listed("files", files)),
            in_python=True,
        )
        inside = CaseFiles(images=images, files=files, data=plain.data_columns)
        reader = CaseReader(
            plain, finds_eval_cases=not fields, source=name, is_table=is_table, files=inside
        )
        read = reader.read_all(_rows(case_list, inside, reader.faults, names_nothing=not fields))
        return cls(read, name, unsaid=plain.unsaid)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the cases, in order."""
        return tuple(case.id for case in self.cases)

    @cached_property
    def question_digests(self) -> Mapping[str, HexDigest]:
        """By id, a digest of what each case asks."""
        return {case.id: question_digest(case) for case in self.cases}

    def subset(self, ids: Collection[str], name: str) -> Dataset:
        """Return the cases with these ids, in the order of this set.

        Raises:
            DataFormatError: there is no such case.
        """
        chosen = tuple(case for case in self.cases if case.id in ids)
        return Dataset(chosen, name, unsaid=self.unsaid)

    def _card(self) -> Card:
        critical = sum(case.critical for case in self)
        lead = counted(len(self), "case") + (f", {critical} of them critical" if critical else "")
        rows = ((case.id, _cell(asked_by(case)), _cell(case.expected)) for case in self)
        return Card(
            title=self.name, lead=lead, blocks=(first_rows(rows, ("id", "input", "expected")),)
        )


def _only(name: str, cases: Sequence[Case], path: Path) -> tuple[Case, ...]:
    """Return the case of a file with an id, and what else has that id, which is refused later."""
    chosen = tuple(case for case in cases if case.id == name)
    if not chosen:
        near = did_you_mean(name, [case.id for case in cases])
        raise ConfigError(f"{path} has no case `{name}`{near}")
    return chosen


def _listed(option: str, columns: Collection[str]) -> Collection[str]:
    if isinstance(columns, str):
        raise ConfigError(f"{option}: expected a list of columns, found {shown(columns)}")
    return columns


def _named(given: Mapping[str, str | Sequence[str] | None], fields: Names) -> Names:
    """Return ``fields`` with the columns that were given as separate arguments."""
    named = {field: column for field, column in given.items() if column is not None}
    for field in named:
        if field in fields:
            raise ConfigError(f"fields: the column of `{field}` is given twice")
    return {**fields, **named}


def asked_by(case: Case) -> Json:
    """Return the input of a case, or the user's messages of a conversation."""
    return named([turn.user for turn in case.turns] if case.turns else case.input)


def question_digest(case: Case) -> HexDigest:
    """Return a digest of what a case asks, ignoring letter case and white space."""
    question: Json = [
        asked_by(case),
        [[message.speaker.value, in_words(message.text)] for message in case.context],
        unstructure(case.state),
    ]
    return asked_digest(question)


def asked_digest(asked: Json) -> HexDigest:
    """Return a digest of plain data, ignoring letter case and white space."""
    return digest(map_texts(asked, lambda text: " ".join(text.split()).casefold()))


def _cell(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "" if value is None else cell(text)


_CASE = '{"input": ..., "expected": ...}'


def _rows(
    given: Iterable[object], files: CaseFiles, faults: CaseFaults, *, names_nothing: bool
) -> Iterator[Row]:
    """Yield a row for each mapping; ``names_nothing`` if no column is named as a field."""
    for number, given_item in enumerate(given, start=1):
        item = given_item
        if names_nothing and (isinstance(item, tuple) or hasattr(item, "with_inputs")):
            from promptgraft.evals.foreign import as_mapping  # most cases are mappings

            item = as_mapping(item)
        if isinstance(item, Case):
            faults.add(number, "expected mappings only, found a Case among them", item.id)
            continue
        kind: type = type(item)
        # All fields of a GepaExample would be input, so the model would be shown its label.
        is_ours = kind.__module__.startswith("promptgraft.") and not issubclass(kind, Mapping)
        if is_ours or isinstance(item, (str, list, tuple)):
            what = f"a {kind.__name__}" if is_ours else shown(item)
            faults.add(number, f"expected {_CASE} or a tuple of both, found {what}")
            continue
        try:
            yield Row(number, files.plain(item))
        except (ConfigError, DataFormatError) as error:
            faults.add(number, str(error))


def cases_digest(cases: Iterable[Case]) -> HexDigest:
    """Return the SHA-256 of everything that cases ask and expect, independent of their order.

    Places in files and hints for reflectors do not count.
    """
    # Moving a file or writing a better hint must not make a journal or a baseline stale.
    bare = (attrs.evolve(case, origin="", hints={}) for case in cases)
    return digest([_case_plain(case) for case in sorted(bare, key=lambda case: case.id)])


def _case_plain(case: Case) -> object:
    recorded = case.recorded
    if recorded is None or recorded.cost is None:
        return unstructure(case)
    # A `Decimal` is not plain data.
    free = attrs.evolve(case, recorded=attrs.evolve(recorded, cost=None))
    return [unstructure(free), str(recorded.cost)]
