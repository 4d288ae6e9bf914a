"""Loading all that a project names, to find its faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from promptgraft.errors import CallerError, DataFormatError
from promptgraft.ground.strict.nodes import raise_lines
from promptgraft.project.parts import load_teacher, twin_faults
from promptgraft.project.project import Project, open_project


def load_project(path: str | Path) -> Project:
    """Read a project file and load all it names except models, so no secrets are needed.

    Raises:
        DataFormatError: the first 20 faults, one line each, and the number of the others.
    """
    project = open_project(path)
    raise_lines(str(project.path), faults_of(project))
    return project


def faults_of(project: Project) -> Iterator[str]:
    """Load everything but the models, and yield a line for each fault."""
    around, config = project.surroundings, project.config
    parts: list[Callable[[], object]] = [
        *(partial(project.prompt, name) for name in project.names),
        lambda: project.parts,
        lambda: project.metrics,
        lambda: project.params,
        lambda: config.teacher and load_teacher(config.teacher, around),
        lambda: project.asking,
        project.store,
    ]
    lines = [line for part in parts for line in _lines(part)]
    yield from lines
    if lines:
        return
    yield from _lines(lambda: project.aggregation)
    yield from twin_faults(map(project.prompt, project.names), around)
    targets = config.optimizer.targets
    missing = [] if targets is None else project.missing_targets(targets)
    if missing:
        yield from (around.file.line(("optimizer", *place), fault) for place, fault in missing)
        return
    check = project.check_cases if project.unsplit else project.run_config
    for name in project.names:
        yield from _lines(partial(check, name))


def _lines(part: Callable[[], object]) -> tuple[str, ...]:
    try:
        part()
    except DataFormatError as error:
        return error.faults
    except CallerError as error:
        return (str(error),)
    return ()
