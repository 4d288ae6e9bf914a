"""The origin of a run, a prompt of a project or a job in Python, and its current state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict.checks import STRING
from promptgraft.overrides import OverrideAddress, PromptLike, RevisionedStore
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.adding import open_store
from promptgraft.project.files import project_around, project_path, runs_folder_of
from promptgraft.project.project import Project, load_project, open_project
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import (
    ObjectKind,
    PythonSource,
    as_maker,
    beside,
    call_maker,
    class_shown,
    place_of,
)
from promptgraft.prompt import Prompt
from promptgraft.runs import RunFolder, RunRecord
from promptgraft.runs.folder import RUN_ID, field_of, field_or_none
from promptgraft.search.job import OptimizationJob
from promptgraft.search.settings import Size
from promptgraft.targets.prompts import address_of

_JOB = ObjectKind[OptimizationJob | FunctionType](
    expected="an OptimizationJob, or a function without arguments that returns one",
    plural="jobs",
    read=lambda value: value if isinstance(value, OptimizationJob) else as_maker(value),
)


_ELSEWHERE = "/exported/"
"""Where a run that leaves its machine has its project."""


@contextlib.contextmanager
def loaded_project(file: str | None, *, budget: Size | None = None) -> Iterator[Project]:
    """Load the project of ``file``, or the nearest one, with all that it names except models.

    Inside, its code can import its neighbours, and what it prints goes to standard error. With a
    ``budget``, that of the file may be too small.
    """
    project = load_project(project_path(file), budget=budget)
    with beside(project.folder):
        yield project


@contextlib.contextmanager
def loaded_job(spec: str) -> Iterator[OptimizationJob]:
    """Load the job that ``module:NAME`` or ``file.py:NAME`` names.

    Inside, its code can import its neighbours, and what it prints goes to standard error.
    """
    job_found = PythonSource().load(spec, _JOB, "JOB")
    with beside(place_of(spec, "JOB").folder):
        job = call_maker(job_found, spec) if isinstance(job_found, FunctionType) else job_found
        if not isinstance(job, OptimizationJob):
            raise ConfigError(
                f"{spec}: expected an OptimizationJob, it returned {class_shown(job)}"
            )
        yield job


def moved_origin(config: Mapping[str, Json], folder: str = _ELSEWHERE) -> dict[str, Json]:
    """Return settings whose origin is in another folder; nobody needs to know where it was."""
    origin = config.get("origin")
    if not isinstance(origin, dict):
        return dict(config)
    moved = dict(origin)
    if "path" in moved:
        moved["path"] = f"{folder}{Path(str(moved['path'])).name}"
    if "folder" in moved:
        moved["folder"] = folder.rstrip("/") or "/"
    return {**config, "origin": moved}


class Origin:
    """The origin of a run, as ``config.json`` records it.

    ``name`` is the prompt of the project, or the job as the command line named it. All methods
    raise ``DataFormatError`` if the file is malformed.
    """

    def __init__(self, folder: RunFolder, config: Mapping[str, Json]) -> None:
        self._folder = folder
        self._config = config
        self.is_project: bool = self._text("kind") == "project"
        self.name: str = self._text("prompt" if self.is_project else "spec")

    def _text(self, name: str) -> str:
        return field_of(STRING, self._config, self._folder.config, "origin", name)

    @property
    def file_name(self) -> str:
        """The name of the project file, without its folder."""
        return Path(self._text("path")).name

    def refuse_project(self, file: str | None) -> None:
        """Raise a ``ConfigError`` if a project file is given for a run of a job."""
        if file is not None:
            raise ConfigError(
                f"--project: run {self._folder.id} was made from the job {self.name}, which takes "
                "no project; leave it out, and name the folder of the run with --runs"
            )

    def project_file(self, file: str | None) -> Path:
        """Return the project file: ``file``, or the one that the run was made from.

        The project of the current folder takes precedence if the run is in its runs folder: it
        may have been moved, or checked out elsewhere, since the run.
        """
        if file is not None:
            return project_path(file)
        path = self._around() or self._absolute("path")
        # Before the file is even looked at; `config.json` may name any path.
        self._refuse_inside_runs(path)
        if not path.is_file():
            raise ConfigError(
                f"run {self._folder.id} was made from {path}, which no longer exists; name "
                "the project file with --project"
            )
        return path

    def job_folder(self) -> Path:
        """Return the working folder of the job."""
        folder = self._absolute("folder")
        code = self.name.rpartition(":")[0]
        for place in (code, code.replace(".", "/")):
            self._refuse_inside_runs(folder / place)
        if not folder.is_dir():
            raise ConfigError(
                f"run {self._folder.id} was made in {folder}, which no longer exists; put it back"
            )
        return folder

    def _absolute(self, name: str) -> Path:
        path = Path(self._text(name))
        if not path.is_absolute():
            raise DataFormatError(
                f"{self._folder.config}: origin: {name}: expected an absolute path, found "
                f"{shown(str(path))}; restore it"
            )
        return path

    def _refuse_inside_runs(self, path: Path) -> None:
        """Refuse code in a run directory: runs are data, and may come from other people."""
        root, real = self._folder.path.resolve().parent, path.resolve()
        inside = real.relative_to(root).parts if real.is_relative_to(root) else ()
        if inside and RUN_ID.fullmatch(inside[0]):
            raise ConfigError(
                f"{self._folder.config}: origin: {path} is in a run directory, from which no code "
                "is run; name the project file with --project, or start a new run"
            )

    def _around(self) -> Path | None:
        path, kept_in = project_around(), self._folder.path.resolve().parent
        return path if path and runs_folder_of(path).resolve() == kept_in else None


@attrs.frozen(kw_only=True)
class RunTarget:
    """The current state of what a run was made from.

    Attributes:
        prompts: the sources.
        tag: the tag that the run started from.
        files: the prompts with their files; empty if these were not requested.
        folder: the folder of the project that contains these files.
    """

    name: str
    prompts: tuple[PromptLike, ...]
    store: RevisionedStore
    tag: str
    files: tuple[ProjectPrompt, ...]
    folder: Path

    @property
    def addresses(self) -> tuple[OverrideAddress, ...]:
        """The address of each prompt under the tag of the run."""
        described = [prompt.descriptor for prompt in self.prompts]
        return tuple(OverrideAddress(prompt.ns, prompt.key, self.tag) for prompt in described)


def project_of(run: RunRecord, file: str | None) -> Project | None:
    """Return the project that a run was made from; None if it was made from a job."""
    origin = Origin(run.folder, run.config)
    if origin.is_project:
        return open_project(origin.project_file(file))
    origin.refuse_project(file)
    return None


def files_folder(run: RunRecord, project: Project | None) -> Path | None:
    """Return the folder of the project that contains the prompts of a run, if there is one."""
    if project is not None:
        return project.folder
    with contextlib.chdir(Origin(run.folder, run.config).job_folder()):
        path = project_around()
    return None if path is None else path.absolute().parent


def _in_files(prompts: Mapping[str, Prompt[object]]) -> tuple[ProjectPrompt, ...]:
    """Return the prompts of a job, with their files if the surrounding project has them."""
    prompts_by_address: dict[str, ProjectPrompt] = {}
    if path := project_around():
        project = open_project(path)
        with beside(project.folder):
            project_prompts = map(project.prompt, project.names)
            prompts_by_address.update(
                (address_of(project_prompt.prompt), project_prompt)
                for project_prompt in project_prompts
            )
    return tuple(
        prompts_by_address.get(address, ProjectPrompt(name=address, prompt=prompt))
        for address, prompt in prompts.items()
    )


@contextlib.contextmanager
def found_target(
    run: RunRecord, project: Project | None, store: str | None, *, to_files: bool
) -> Iterator[RunTarget]:
    """Load what a run was made from; inside, its code can import its neighbours.

    Models of a project are not made, so no secrets are needed. ``to_files`` requests the files of
    the prompts.
    """
    origin = Origin(run.folder, run.config)
    opened = None if store is None else open_store(store)
    if project is not None:
        with beside(project.folder):
            prompt = project.prompt(origin.name)
            yield RunTarget(
                name=origin.name,
                prompts=prompt.prompts,
                store=opened or project.store(),
                tag=_run_tag(run, origin),
                files=(prompt,),
                folder=project.folder,
            )
        return
    # Code of a job may use relative paths, so it runs in the folder that it ran in then.
    with contextlib.chdir(origin.job_folder()), loaded_job(origin.name) as job:
        chosen_store = opened or job.context.overrides_store or open_store(None)
        if not isinstance(chosen_store, RevisionedStore):
            raise ConfigError(
                f"{origin.name}: the job keeps overrides in a {type(chosen_store).__name__}; "
                "`apply` writes into stores with a history: name one with --store"
            )
        if not job.prompts:
            raise ConfigError(
                f"run {run.id} improves `{job.name}`, which is no prompt: it keeps winners itself"
            )
        yield RunTarget(
            name=job.name,
            prompts=tuple(job.prompts.values()),
            store=chosen_store,
            tag=_run_tag(run, origin),
            files=_in_files(job.prompts) if to_files else (),
            folder=files_folder(run, None) or Path.cwd(),
        )


def _run_tag(run: RunRecord, origin: Origin) -> str:
    names_kept = ("settings", "store", "tag") if origin.is_project else ("settings", "tag")
    chosen, before = (
        field_or_none(STRING, run.config, run.folder.config, *path)
        for path in (("options", "tag"), names_kept)
    )
    ended = run.ended.tag if run.ended else None
    return ended or chosen or before or DEFAULT_TAG
