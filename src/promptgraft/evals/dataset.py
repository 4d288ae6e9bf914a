"""Data sets: cases in order, each with an id of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.faults import Faults
from promptgraft.evals.loading import CaseReader, format_of, rows_of
from promptgraft.evals.plain import Names, PlainReader
from promptgraft.evals.reading import Row
from promptgraft.evals.types import Case
from promptgraft.notebook import Card, Shown
from promptgraft.serde import unstructure


@attrs.frozen
class Source:
    """The file that a data set is the whole of.

    Attributes:
        path: absolute, links resolved.
        file: device and number of the file, the same for all its names.
    """

    path: Path
    file: tuple[int, int]


@attrs.frozen
class Dataset(Shown):
    """Cases in order.

    Made by :meth:`load` and :meth:`of`, parted by ``promptgraft.evals.splits.Splits``.

    Attributes:
        cases: at least one; their ids are unique.
        name: how messages call it.
        source: the file that it is the whole of; None for other sets.

    Raises:
        DataFormatError: there is no case, or two have the same id.
    """

    cases: tuple[Case, ...]
    name: str = "cases"
    source: Source | None = attrs.field(default=None, eq=False)

    def __attrs_post_init__(self) -> None:
        faults = Faults(self.name)
        if not self.cases:
            faults.add(0, "expected at least one case, found none")
        seen: set[str] = set()
        for case in self.cases:
            if case.id in seen:
                faults.add(0, "a second case with this id", case.id)
            seen.add(case.id)
        faults.raise_all()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        format: str | None = None,  # noqa: A002 - what everybody calls it
        fields: Names | None = None,
        keep: Collection[str] = (),
        delimiter: str | None = None,
    ) -> Dataset:
        """Read a file: JSONL, JSON, CSV, YAML or an EvalSet (``specs/datasets.md``).

        Args:
            path: the file.
            format: ``jsonl``, ``json``, ``csv`` or ``yaml``; by the ending when it is None.
            fields: the columns that hold ``id``, ``input``, ``expected``, ... where they have
                other names; for ``input`` also a list of columns.
            keep: columns that are not shown to the agent and stay in ``Case.fields``.
            delimiter: of a CSV file; found in its header when it is None.

        Raises:
            ConfigError: an argument is unusable.
            DataFormatError: with all faults of the file, or because it cannot be read.
        """
        path = Path(path)
        kind = format_of(path, format)
        plain = PlainReader(fields or {}, keep, cells=kind == "csv")
        finds = kind != "csv" and not fields
        reader = CaseReader(plain, finds_eval_cases=finds, source=str(path))
        try:
            cases = reader.read_all(rows_of(path, kind, delimiter, reader.faults))
            return cls(cases, str(path), source_of(path))
        except OSError as error:
            raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None

    @classmethod
    def of(
        cls,
        cases: Iterable[Case | Mapping[str, object]],
        *,
        name: str = "cases",
        fields: Names | None = None,
        keep: Collection[str] = (),
    ) -> Dataset:
        """Make a data set of cases, or of mappings as they would stand in a JSON file.

        Raises:
            ConfigError: an argument is unusable.
            DataFormatError: with all faults; mappings are counted from 1.
        """
        given = tuple(cases)
        ready = tuple(case for case in given if isinstance(case, Case))
        if len(ready) == len(given):
            return cls(ready, name)
        plain = PlainReader(fields or {}, keep, cells=False)
        reader = CaseReader(plain, finds_eval_cases=not fields, source=name)
        return cls(reader.read_all(_rows(given, reader.faults)), name)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the cases, in their order."""
        return tuple(case.id for case in self.cases)

    def subset(self, ids: Collection[str], name: str) -> Dataset:
        """Return the cases with these ids, in the order of this set.

        Raises:
            DataFormatError: there is none.
        """
        return Dataset(tuple(case for case in self.cases if case.id in ids), name)

    def _card(self) -> Card:
        from promptgraft.evals.cards import dataset_card

        return dataset_card(self)


def source_of(path: Path) -> Source:
    """Return what tells a file from all others.

    Raises:
        OSError: the system refuses.
    """
    status = path.stat()
    return Source(path.resolve(), (status.st_dev, status.st_ino))


def _rows(given: Iterable[Case | Mapping[str, object]], faults: Faults) -> Iterator[Row]:
    for number, item in enumerate(given, start=1):
        if isinstance(item, Case):
            faults.add(number, "expected mappings only, found a Case among them", item.id)
            continue
        try:
            yield Row(number, unstructure(item))
        except DataFormatError as error:
            faults.add(number, str(error))
