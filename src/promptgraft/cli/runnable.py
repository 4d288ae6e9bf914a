"""What a run is made from: a prompt of a project, or a job in Python; and made from again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.cli.jobs import loaded_job
from promptgraft.cli.origins import Origin
from promptgraft.cli.projects import loaded_project
from promptgraft.cli.run_choice import DEFAULT
from promptgraft.errors import ConfigError
from promptgraft.project import Project
from promptgraft.runs import RunFolder
from promptgraft.runs.settings import described_job
from promptgraft.search.job import OptimizationJob
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Runnable:
    """A job with where it came from.

    Attributes:
        job: the job.
        name: what the command line calls it.
        origin: what ``config.json`` says of where it came from.
        settings: what it says of the settings.
        runs: where its runs are kept by default.
        workers: rollouts side by side; None leaves that to the job.
    """

    job: OptimizationJob
    name: str
    origin: Mapping[str, Json]
    settings: Mapping[str, Json]
    runs: Path
    workers: int | None = None


@contextlib.contextmanager
def loaded(target: str | None, project: str | None) -> Iterator[Runnable]:
    """Give what ``target`` names, to be run inside: a prompt of the project, or a JOB.

    Raises:
        ConfigError: there is no such thing, or several may be meant.
        DataFormatError: the project file is at fault.
    """
    if target is not None and (":" in target or target.endswith(".py")):
        if project is not None:
            raise ConfigError(f"--project: {target} is a job and takes no project; leave one out")
        with loaded_job(target) as job:
            origin: dict[str, Json] = {"kind": "job", "spec": target, "folder": str(Path.cwd())}
            yield Runnable(
                job=job,
                name=target,
                origin=origin,
                settings=described_job(job),
                runs=DEFAULT,
            )
        return
    with loaded_project(project) as found:
        yield _of_project(found, target)


def _of_project(project: Project, prompt: str | None) -> Runnable:
    name = project.prompt(prompt).name
    return Runnable(
        job=project.job(name),
        name=name,
        origin={"kind": "project", "path": str(project.path.absolute()), "prompt": name},
        settings=project.described(),
        runs=project.runs_folder,
        workers=project.workers,
    )


@contextlib.contextmanager
def loaded_again(
    folder: RunFolder, config: Mapping[str, Json], project: str | None
) -> Iterator[Runnable]:
    """Give what a run was made from, as it is today, to be run inside.

    Raises:
        ConfigError: it is not there any more.
        DataFormatError: ``config.json`` or the project file is at fault.
    """
    origin = Origin(folder, config)
    if origin.is_project:
        with loaded(origin.prompt, str(origin.project_file(project))) as found:
            yield found
        return
    origin.refuse_project(project)
    with contextlib.chdir(origin.job_folder()), loaded(origin.spec, None) as found:
        yield found
