"""Which runs folder and which run a command means."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import attrs

from promptgraft.cli.projects import project_path
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.project import find_project, runs_folder_of
from promptgraft.runs import RunFolder, find_run

DEFAULT = Path("runs")
"""Where runs are kept that no project says it of."""


@attrs.frozen
class Runs:
    """A folder of run directories.

    Attributes:
        root: the folder; it need not exist.
        options: what names it on a command line; empty where it is found without.
    """

    root: Path
    options: str = ""

    def find(self, name: str) -> RunFolder:
        """Return the run that is meant: an id, the start of one, or ``latest``.

        Raises:
            ConfigError: there is none, or there are several.
        """
        return find_run(self.root, name)

    def command(self, what: str, folder: RunFolder, more: str = "") -> str:
        """Return a command line about a run, as it can be typed in the current folder."""
        words = ["promptgraft", what, folder.id, *([more] if more else []), self.options]
        return " ".join(word for word in words if word)


def chosen_runs(runs: str | None, project: str | None, *, runs_again: bool = False) -> Runs:
    """Return the folder that is meant: ``runs``, or that of the project, or ``runs`` here.

    Args:
        runs: the folder that is named.
        project: the project file that is named.
        runs_again: whether the command also makes again what a run was made from, so that the
            project counts though the folder is named.

    Raises:
        ConfigError: there is no such project file, or it would not be looked at.
        DataFormatError: the project file is at fault.
    """
    if runs is not None and project is not None and not runs_again:
        raise ConfigError("--project only says where the runs are, and --runs does; leave one out")
    if runs is not None:
        return Runs(Path(runs), f"--runs {shlex.quote(runs)}")
    if project is not None:
        root = runs_folder_of(project_path(project))
        return Runs(root, f"--project {shlex.quote(project)}")
    try:
        path = find_project()
    except ConfigError:
        return Runs(DEFAULT)
    return Runs(runs_folder_of(path))


def runs_of(root: Path, *, runs: str | None, project: str | None) -> Runs:
    """Return the folder that a new run is kept in: ``runs``, or else ``root``."""
    if runs is not None:
        return Runs(Path(runs), f"--runs {shlex.quote(runs)}")
    if project is not None:
        return Runs(root, f"--project {shlex.quote(project)}")
    with contextlib.suppress(DataFormatError):
        if chosen_runs(None, None).root.absolute() == root.absolute():
            return Runs(root)
    # A job in a project: its runs are not kept where those of the project are.
    return Runs(root, f"--runs {shlex.quote(str(root))}")


def relative(path: Path) -> Path:
    """Return a path as short as it can be named from the current folder."""
    absolute, here = path.absolute(), Path.cwd()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else absolute
