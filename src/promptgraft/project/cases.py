"""The cases that a project file names, loaded and split."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.dataset import Dataset, file_and_case
from promptgraft.evals.splits import Splits, question_digest
from promptgraft.ground.strict.nodes import raise_lines
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.format_search import DatasetConfig, SplitsConfig
from promptgraft.project.python_source import Surroundings

_OF_A_LINE = re.compile(r".*?:[0-9]+: ")


def load_whole(
    dataset: DatasetConfig,
    splits: SplitsConfig,
    around: Surroundings,
    *,
    parameters: Collection[str] = (),
) -> Dataset:
    """Load the cases of one file that is to be split; the error lists all its faults.

    ``parameters`` are the names that the prompts read, for columns that are called like fields.
    """
    if dataset.path is None:
        raise around.refusal(
            ("dataset",), "expected `path`, the file of cases; or name `splits.files`"
        )
    keep = tuple(filter(None, dict.fromkeys((*dataset.keep, splits.field or splits.stratify))))
    unreduced = attrs.evolve(dataset, keep=keep)
    return _load(unreduced, dataset.path, ("dataset", "path"), around=around, parameters=parameters)


def load_files(
    dataset: DatasetConfig,
    splits: SplitsConfig,
    around: Surroundings,
    *,
    parameters: Collection[str] = (),
) -> Splits:
    """Load the cases of a file for each set; the error lists all faults of all files."""
    load = functools.partial(_load, around=around, parameters=parameters)
    return _narrowed(_of_files(dataset, splits.files or {}, around, load), splits, around)


def parted(whole: Dataset, splits: SplitsConfig, around: Surroundings) -> Splits:
    """Split a data set as a project file says; the splits count what it left out."""
    with _placed_at(("splits",), around):
        if splits.field is not None:
            splits_found = Splits.by_field(whole, splits.field)
        else:
            shares = splits.ratio or {}
            splits_found = Splits.by_ratio(
                whole, seed=splits.seed, stratify=splits.stratify, **shares
            )
    return attrs.evolve(_narrowed(splits_found, splits, around), dropped=whole.dropped)


def is_divisible(whole: Dataset) -> bool:
    """Return whether cases ask more than one question, so that a search can learn and compare."""
    return len({question_digest(case) for case in whole}) > 1


def _narrowed(found: Splits, splits: SplitsConfig, around: Surroundings) -> Splits:
    with _placed_at(("splits", "only"), around):
        return found.narrowed(splits.only)


@contextlib.contextmanager
def _placed_at(path: YamlPath, around: Surroundings) -> Iterator[None]:
    """Name ``path`` in faults, except in those that name the line of a case already."""
    with around.placed(path):
        try:
            yield
        except DataFormatError as error:
            lines = tuple(
                line
                if _OF_A_LINE.match(line)
                else around.file.line(path, line.removeprefix("splits: "))
                for line in error.faults
            )
            raise DataFormatError.of(lines) from error


def _of_files(
    dataset: DatasetConfig,
    files: Mapping[str, str],
    around: Surroundings,
    load: Callable[[DatasetConfig, str, YamlPath], Dataset],
) -> Splits:
    if dataset.path is not None:
        raise around.refusal(
            ("dataset", "path"), "expected none beside `splits.files`; leave one of them out"
        )
    sets: dict[str, Dataset] = {}
    faults: list[str] = []
    for name, path in files.items():
        try:
            sets[name] = load(dataset, path, ("splits", "files", name))
        except DataFormatError as error:
            faults.extend(error.faults)
    raise_lines(around.file.name, faults)
    with _placed_at(("splits", "files"), around):
        dropped = sum(part.dropped for part in sets.values())
        return Splits(sets["train"], sets["validation"], sets.get("test"), dropped=dropped)


def _load(
    dataset: DatasetConfig,
    name: str,
    path: YamlPath,
    *,
    around: Surroundings,
    parameters: Collection[str],
) -> Dataset:
    file, case = file_and_case(around.folder / name)
    place: str | Path = file if case else around.existing(path, name)
    settings = attrs.asdict(dataset, recurse=False)
    del settings["path"]
    try:
        whole = f"{place}:{case}" if case else place
        return Dataset.load(whole, parameters=parameters, root=around.folder, **settings)
    except ConfigError as error:
        key, _, why = str(error).partition(": ")
        if key in settings:
            raise around.refusal(("dataset", key), why) from error
        raise around.refusal(path, error) from error
