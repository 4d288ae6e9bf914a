"""Projects on other cases than those that their files name, such as a data set of a database."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.splits import Splits
from promptgraft.ground.content import files_in
from promptgraft.ground.serde import Json, is_deeper, parse_json, shown
from promptgraft.project.parts import parted
from promptgraft.project.project import Project
from promptgraft.runs import RunFolder

_MOST_FAULTS = 20
_DEEPEST = 32
_HALF = re.compile(r"[\ud800-\udfff]")


def rows_in(text: str, name: str) -> list[dict[str, Json]]:
    """Return the cases in a tidy text, with a JSON object per line.

    Raises:
        DataFormatError: a line for each of the first 20 faults, with the number of its line.
    """
    rows: list[dict[str, Json]] = []
    faults: list[str] = []
    # The text ends with a line end.
    for number, line in enumerate(text.split("\n")[:-1], 1):
        where = f"data set {name}: line {number}"
        try:
            row = parse_json(line, where=where)
        except DataFormatError as error:
            faults.append(
                error.faults[0].replace(f"{where}:1:", f"{where}, not JSON at character ")
            )
            continue
        if not isinstance(row, dict) or is_deeper(row, _DEEPEST):
            depth = f", at most {_DEEPEST} deep"
            faults.append(f"{where}: expected an object{depth}, found {shown(row)}")
        elif _HALF.search(json.dumps(row, ensure_ascii=False)):
            faults.append(f"{where}: expected characters, found half of a surrogate pair")
        else:
            rows.append(row)
    if faults:
        raise DataFormatError.of(tuple(faults[:_MOST_FAULTS]))
    return rows


def cases_for(project: Project, rows: Sequence[Mapping[str, Json]], name: str) -> Dataset:
    """Return cases for a project, which whoever sends them need not be trusted for.

    Args:
        project: the project; its folder must be importable.
        rows: the cases, with the columns of the file that the project names.
        name: what they are called in messages and records.

    Raises:
        ConfigError: the project has cases of its own kind, such as a file for each set.
        DataFormatError: a line for each fault, with the number of its row.
    """
    config, splits = project.config.dataset, project.config.splits
    is_other = project.config.baml is not None or splits.files is not None
    if is_other or config.images or config.files:
        raise ConfigError(
            f"{project.path}: its cases are tests of BAML, have images or a file for each set; a "
            "data set replaces only texts of `dataset.path`"
        )
    # Without a folder, so that no row can name a file.
    cases = Dataset.of(
        rows,
        name=name,
        fields=config.fields,
        keep=tuple(filter(None, dict.fromkeys((*config.keep, splits.field or splits.stratify)))),
        parameters=project.case_names.parameters,
    )
    if any(files_in([case.input for case in cases])):
        raise ConfigError(f"{name}: its cases hold texts only, no images or files")
    return cases


def on_kept_cases(project: Project, folder: RunFolder) -> Project:
    """Return a project with the cases that a run has kept, if it has used others than its own.

    Raises:
        ConfigError, DataFormatError: the cases are damaged, or do not suit the project.
    """
    if not folder.cases.exists():
        return project
    try:
        text = folder.cases.read_text("utf-8")
    except UnicodeDecodeError:
        raise DataFormatError(f"{folder.cases}: expected UTF-8; restore the file") from None
    name = folder.cases.name
    return ProjectOnCases(project, cases_for(project, rows_in(text, name), name))


class ProjectOnCases(Project):
    """A project with other cases than those that its file names."""

    def __init__(self, project: Project, cases: Dataset) -> None:
        store = project.default_store
        super().__init__(project.surroundings.file, project.config, default_store=store)
        self._cases = cases
        # The same models: those made already, and those that stand in for them.
        self._adapters.update(project._adapters)  # noqa: SLF001 - of the same class

    @cached_property
    def splits(self) -> Splits:
        return parted(self._cases, self.config.splits, self.surroundings)

    def tuned(self, settings: Mapping[str, Json]) -> Project:
        return ProjectOnCases(super().tuned(settings), self._cases) if settings else self

    def described(self) -> dict[str, Json]:
        return {**super().described(), "dataset": self._cases.name}
