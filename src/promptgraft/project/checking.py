"""A check of everything that a project names, without a model call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.project.project import Project, load_project
from promptgraft.search import RunPlan


@attrs.frozen(kw_only=True)
class Checked:
    """The result of a check: the project, or its faults.

    Attributes:
        project: the project; None if it has faults.
        faults: one line each.
        warnings: one line each.
        plans: the plan of a run of each prompt, by name.
    """

    project: Project | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    plans: Mapping[str, RunPlan] = attrs.field(factory=dict)


def check_project(path: Path) -> Checked:
    """Check everything that a project names. No model is called; secrets need not be set."""
    try:
        project = load_project(path)
    except DataFormatError as error:
        return Checked(faults=error.faults)
    faults: list[str] = []
    warnings: list[str] = []
    try:
        warnings.extend(project.stand_in())
    except DataFormatError as error:
        faults.extend(error.faults)
    around = project.surroundings
    try:
        project.config.trackers.check()
    except ConfigError as error:
        # Only a run needs the package, so the project itself is valid.
        warnings.append(around.file.line(("trackers",), str(error)))
    plans = {}
    warnings.extend(project.warnings())
    # Without all models no job can be made.
    for name in () if faults or project.unsplit else project.names:
        try:
            plans[name] = project.job(name).plan()
        except ConfigError as error:
            faults.extend(around.refusal(("optimizer",), error).faults)
        else:
            warnings.extend(around.file.line(("prompts", name), w) for w in plans[name].warnings)
    if faults:
        return Checked(faults=tuple(dict.fromkeys(faults)), warnings=tuple(warnings))
    return Checked(project=project, warnings=tuple(warnings), plans=plans)
