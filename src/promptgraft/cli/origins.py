"""What a run was made from, found again: a project, or a job in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from promptgraft.cli.projects import project_path
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.project import runs_folder_of
from promptgraft.runs import RunFolder
from promptgraft.runs.fields import Fields
from promptgraft.runs.folder import RUN_ID
from promptgraft.serde import Json, shown


class Origin:
    """What ``config.json`` says of where a run came from.

    Args:
        folder: the run.
        config: what ``config.json`` holds.

    Raises:
        DataFormatError: it is not what a run writes.
    """

    def __init__(self, folder: RunFolder, config: Mapping[str, Json]) -> None:
        self._folder = folder
        self._fields = Fields(config, str(folder.config)).inside("origin")
        self.is_project = self._fields.text("kind") == "project"

    @property
    def prompt(self) -> str:
        """The name of the prompt in the project."""
        return self._fields.text("prompt")

    @property
    def spec(self) -> str:
        """The job, as the command line named it."""
        return self._fields.text("spec")

    def refuse_project(self, file: str | None) -> None:
        """Refuse a project that is named for a run of a job.

        Raises:
            ConfigError: one is.
        """
        if file is not None:
            raise ConfigError(
                f"--project: run {self._folder.id} was made from the job {self.spec}, which takes "
                "no project; leave it out, and name the folder of the run with --runs"
            )

    def project_file(self, file: str | None) -> Path:
        """Return the project file: ``file``, or the one that the run was made from.

        A project may have been moved, or checked out elsewhere, since then: that around the
        current folder is taken when it keeps the run.

        Raises:
            ConfigError: it is not there any more.
            DataFormatError: the project file is at fault.
        """
        if file is not None:
            return project_path(file)
        path = self._around() or self._absolute("path")
        self._refuse_inside_runs(path)
        if not path.is_file():
            raise ConfigError(
                f"run {self._folder.id} was made from {path}, which is not there any more; name "
                "the project file with --project"
            )
        return path

    def job_folder(self) -> Path:
        """Return the folder that the job was run in.

        Raises:
            ConfigError: it is not there any more, or the job would be code in a run directory.
            DataFormatError: the folder is no absolute path.
        """
        folder = self._absolute("folder")
        code = self.spec.rpartition(":")[0]
        for place in (code, code.replace(".", "/")):
            self._refuse_inside_runs(folder / place)
        if not folder.is_dir():
            raise ConfigError(
                f"run {self._folder.id} was made in {folder}, which is not there any more; put it "
                "back"
            )
        return folder

    def _absolute(self, name: str) -> Path:
        path = Path(self._fields.text(name))
        if not path.is_absolute():
            raise DataFormatError(
                f"{self._folder.config}: origin: {name}: expected an absolute path, found "
                f"{shown(str(path))}; restore it"
            )
        return path

    def _refuse_inside_runs(self, path: Path) -> None:
        """Refuse what a run directory would bring along: a run is data, also that of others."""
        root, real = self._folder.path.resolve().parent, path.resolve()
        inside = real.relative_to(root).parts if real.is_relative_to(root) else ()
        if inside and RUN_ID.fullmatch(inside[0]):
            raise ConfigError(
                f"{self._folder.config}: origin: {path} is in a run directory, from which no code "
                "is run; name the project file with --project, or start a new run"
            )

    def _around(self) -> Path | None:
        try:
            path = project_path(None)
        except ConfigError:
            return None
        kept_in = self._folder.path.resolve().parent
        return path if runs_folder_of(path).resolve() == kept_in else None
