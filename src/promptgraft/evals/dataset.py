"""Data sets: ordered cases with unique ids, read from files, mappings and tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
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
from promptgraft.ground.notebook import Card, Shown, Table, cell, first_rows
from promptgraft.ground.serde import (
    HexDigest,
    Json,
    canonical_json,
    did_you_mean,
    digest,
    map_texts,
    shown,
    unstructure,
)
from promptgraft.ground.strict.checks import SHARE, instance, one_of
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

            refuse_several(path, root or Path())
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
            sets = [name for name, part in cases.items() if is_frame(part) or name in NAMES]
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


NAMES = ("train", "validation", "test")
# The middle of each place in the order, so that the sizes are the nearest to the shares.
_EVEN = 0.5


_DATASET = attrs.evolve(instance(Dataset), mend="write `Dataset.of(CASES)`")


@attrs.frozen
class Splits(Shown):
    """The training, validation and test sets of a search, which share no case.

    Attributes:
        train: shown to reflectors.
        validation: decides which candidates are kept; never shown.
        test: judged once, at the end. Without one, a run cannot report its gain on unseen cases.
        dropped: how many rows of the files were left out because they repeat another one.

    Raises:
        DataFormatError: two sets come from the same file, or share an id or a question; the error
            lists all faults.
    """

    train: Dataset
    validation: Dataset
    test: Dataset | None = None
    dropped: int = attrs.field(default=0, eq=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for name, part in self.parts().items():
            _DATASET.hold(name, part)
        faults = CaseFaults("splits")
        _check_sources({name: part.source for name, part in self.parts().items()}, faults)
        if not faults:  # all cases of the same file overlap, and one fault says so
            _check_cases(self.parts(), faults)
        faults.raise_all()

    def parts(self) -> dict[str, Dataset]:
        """Return the sets by name."""
        parts = {"train": self.train, "validation": self.validation}
        return parts if self.test is None else {**parts, "test": self.test}

    def narrowed(self, only: Mapping[str, Collection[str]]) -> Splits:
        """Return the splits with only the named cases, in their original order.

        Args:
            only: ids of cases by the name of their set; a set that is not named stays whole.

        Raises:
            ConfigError: there is no such set, or it has no such case.
        """
        parts = self.parts()
        for name, ids in only.items():
            if name not in parts:
                raise ConfigError(f"expected a set among {listed(parts)}, found {shown(name)}")
            if not ids:
                raise ConfigError(f"{name}: expected ids of cases, found none")
            part_ids = parts[name].ids
            if strange := sorted({*ids}.difference(part_ids)):
                near = did_you_mean(strange[0], list(part_ids))
                raise ConfigError(f"{name}: there is no case `{strange[0]}` in this set{near}")
            parts[name] = parts[name].subset({*ids}, f"{parts[name].name}, {len({*ids})} of them")
        return Splits(**parts, dropped=self.dropped) if only else self

    @classmethod
    def load(
        cls,
        train: str | Path,
        validation: str | Path | None = None,
        test: str | Path | None = None,
        *,
        fields: Names | None = None,
        keep: Collection[str] = (),
    ) -> Splits:
        """Read each set from its own file; naming a file twice is refused before reading.

        Raises:
            ConfigError: an argument is unusable.
            DataFormatError: a file is faulty, or two sets overlap.
        """
        named_paths = {"train": train, "validation": validation, "test": test}
        paths = {name: path for name, path in named_paths.items() if path is not None}
        faults = CaseFaults("splits")
        _check_sources({name: Path(path) for name, path in paths.items()}, faults)
        faults.raise_all()
        sets = {n: Dataset.load(path, fields=fields, keep=keep) for n, path in paths.items()}
        return cls.of_sets(sets)

    @classmethod
    def of_sets(cls, sets: Mapping[str, Dataset], *, dropped: int = 0) -> Splits:
        """Return sets by name; without validation cases a third of the training cases are taken."""
        named_sets = {SETS.get(name, name): part for name, part in sets.items()}
        if not {"train"} <= named_sets.keys() <= {*NAMES}:
            raise ConfigError(f"sets: expected {listed(NAMES)}, found {listed(sets)}")
        train, validation = named_sets["train"], named_sets.get("validation")
        if validation is None:
            parts = cls.by_ratio(train, train=2 / 3, validation=1 / 3, test=0)
            train, validation = parts.train, parts.validation
        return cls(train, validation, named_sets.get("test"), dropped=dropped)

    @classmethod
    def by_field(cls, dataset: Dataset, field: str, *, names: Mapping[str, str] = SETS) -> Splits:
        """Split a data set by the value of ``Case.fields[field]``.

        Args:
            dataset: the data set.
            field: a field that was kept when the file was loaded.
            names: the split for each value of the field, whose letter case may differ.

        Raises:
            ConfigError: ``names`` has a split other than train, validation and test.
            DataFormatError: a case lacks the field or has another value; the training set would
                be empty; or two sets overlap.
        """
        if strange := sorted(set(names.values()) - set(NAMES)):
            raise ConfigError(f"names: expected splits among {NAMES}, found {shown(strange[0])}")
        faults = CaseFaults(dataset.name)
        chosen: dict[str, str] = {}
        for case in dataset:
            value = _field(case, field, faults)
            if isinstance(value, str) and (name := names.get(value, names.get(value.casefold()))):
                chosen[case.id] = name
            elif value is not None:
                expected = f"expected one of {listed(names)}, found {shown(value)}"
                faults.add_of(case, f"{field}: {expected}")
        faults.raise_all()
        return _parted(dataset, chosen, f"name more of them in the field `{field}`", ["train"])

    @classmethod
    def by_ratio(
        cls,
        dataset: Dataset,
        *,
        train: float = 0.6,
        validation: float = 0.2,
        test: float = 0.2,
        seed: int = 0,
        stratify: str | None = None,
    ) -> Splits:
        """Split a data set at random, but reproducibly, by shares.

        The set of a case depends on the seed and on the rank of its id among the hashes of all
        ids, not on the order of the file. Adding a case moves at most one other case across each
        border. Cases that ask the same question, or are of one family, stay together and count as
        one.

        Args:
            dataset: the data set.
            train: share of the training set; if all are less than 1, other cases are in no set.
            validation: share of the validation set.
            test: share of the test set; 0 for none.
            seed: different seeds give different splits.
            stratify: a field in ``Case.fields`` whose values are spread over the sets in the same
                shares, to within one group of cases that stay together.

        Raises:
            ConfigError: a share is not between 0 and 1, or they add up to more than 1.
            DataFormatError: a set would be empty, or a case lacks the field.
        """
        _DATASET.hold("dataset", dataset)
        shares = dict(zip(NAMES, (train, validation, test), strict=True))
        for name, share in shares.items():
            if SHARE.fits(share) in (None, 1) or (share == 0 and name != "test"):
                raise ConfigError(f"{name}: expected a share between 0 and 1, found {shown(share)}")
        if (total := sum(shares.values())) > 1 + 1e-9:
            raise ConfigError(f"expected shares that sum to 1 or less, found {total:g}")
        faults = CaseFaults(dataset.name)
        chosen: dict[str, str] = {}
        for stratum, groups in (strata := _strata(dataset, stratify, faults)).items():
            # With the same offset, all small strata would be rounded to the same set.
            offset = _EVEN if stratify is None else _unit(seed, "stratum", stratum)
            ordered = sorted(groups, key=lambda ids: _unit(seed, "case", ids[0]))
            for rank, ids in enumerate(ordered):
                if name := _split_at((rank + offset) / len(ordered), shares):
                    chosen.update(dict.fromkeys(ids, name))
        faults.raise_all()
        names_wanted = [name for name, share in shares.items() if share]
        mend = _more_cases(len(dataset), sum(map(len, strata.values())))
        return _parted(dataset, chosen, mend, names_wanted)

    def _card(self) -> Card:
        parts = self.parts()
        whole = sum(len(part) for part in parts.values())
        rows = (
            (name, f"{len(part)}", f"{len(part) / whole:.0%}", part.name)
            for name, part in parts.items()
        )
        return Card(
            title="splits",
            lead=f"{counted(whole, 'case')}, each in one set",
            blocks=(Table(head=("set", "cases", "share", "from"), rows=rows),),
        )


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


def _check_sources(sources: Mapping[str, Path | None], faults: CaseFaults) -> None:
    there = {name: path for name, path in sources.items() if path is not None and path.exists()}
    for first, second in combinations(there, 2):
        # By inode: a link or another spelling of the path is no way around this.
        if there[first].samefile(there[second]):
            faults.add(0, f"{first} and {second} are the same file {there[second].resolve()}")


def _check_cases(parts: Mapping[str, Dataset], faults: CaseFaults) -> None:
    by_id = {name: {case.id: case for case in part} for name, part in parts.items()}
    digests = {n: {case.id: question_digest(case) for case in part} for n, part in parts.items()}
    by_digest = {n: {digests[n][case.id]: case for case in part} for n, part in parts.items()}
    for first, second in combinations(parts, 2):
        for case in parts[second]:
            if twin := by_id[first].get(case.id):
                faults.add(0, f"{first} and {second} share the id{_places(twin, case)}", case.id)
            elif twin := by_digest[first].get(digests[second][case.id]):
                overlap = f"`{twin.id}` in {first} asks the same as `{case.id}` in {second}"
                faults.add(0, f"{overlap}{_places(twin, case)}")


def _places(one: Case, other: Case) -> str:
    return f" ({one.origin}, {other.origin})" if one.origin and other.origin else ""


def _field(case: Case, field: str, faults: CaseFaults) -> Json:
    value = case.fields.get(field)
    if value is None:
        faults.add_of(case, f"lacks the field `{field}`; name it in `keep` when loading")
    return value


def _more_cases(cases: int, questions: int) -> str:
    advice = "a search needs 20 or more, and about 50 in the test set to prove a gain"
    if questions > 20:
        return f"split them more evenly, or without `stratify`; {advice}"
    same = f", which ask only {counted(questions, 'question')}" if questions < cases else ""
    return f"add cases to these {cases}{same}: {advice}"


def _parted(
    dataset: Dataset, chosen: Mapping[str, str], mend: str, needed: Collection[str]
) -> Splits:
    ids: dict[str, set[str]] = {name: set() for name in NAMES}
    for case_id, name in chosen.items():
        ids[name].add(case_id)
    if empty := [name for name in NAMES if name in needed and not ids[name]]:
        counts = ", ".join(f"{name} {len(ids[name])}" for name in NAMES)
        raise DataFormatError(
            f"{dataset.name}: no cases for {' and '.join(empty)} ({counts}); {mend}"
        )
    sets = {n: dataset.subset(ids[n], f"{dataset.name}[{n}]") for n in NAMES if ids[n]}
    return Splits.of_sets(sets)


def _split_at(place: float, shares: Mapping[str, float]) -> str:
    border, name = 0.0, ""
    for name in (name for name, share in shares.items() if share):
        border += shares[name]
        if place < border:
            return name
    return name if border > 1 - 1e-9 else ""  # rounding must leave no case out


def _strata(
    dataset: Dataset, stratify: str | None, faults: CaseFaults
) -> dict[str, list[tuple[str, ...]]]:
    """Return groups of cases that stay together, by the stratum of the smallest id of the group."""
    strata: dict[str, list[tuple[str, ...]]] = {}
    for cases in _together(dataset):
        values = {c.id: None if stratify is None else _field(c, stratify, faults) for c in cases}
        # The smallest id stands for its group, whatever the order of the file.
        ids = tuple(sorted(values))
        strata.setdefault(canonical_json(values[ids[0]]), []).append(ids)
    return strata


def _together(dataset: Dataset) -> Iterable[list[Case]]:
    """Return the groups of cases that ask the same or are of one family, directly or by others."""
    first: dict[str, str] = {}

    def root(key: str) -> str:
        while first.setdefault(key, key) != key:
            key = first[key]
        return key

    digests = {case.id: question_digest(case) for case in dataset}
    for case in (case for case in dataset if case.family):
        first[root(digests[case.id])] = root(f"family {case.family}")
    groups: dict[str, list[Case]] = {}
    for case in dataset:
        groups.setdefault(root(digests[case.id]), []).append(case)
    return groups.values()


def _unit(seed: int, kind: str, text: str) -> float:
    """Return a number from 0 to below 1 that depends on the arguments only."""
    # Not by `random`: a case keeps its number when others are added, whatever Python runs this.
    data = f"{seed}/{kind}/{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:8]) / 2**64
