"""Whether a project is right, found out without a call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.project.models import checked_model
from promptgraft.project.project import Project, load_project
from promptgraft.search.context import OptimizationContext
from promptgraft.search.job import OptimizationJob
from promptgraft.search.plan import RunPlan
from promptgraft.yaml_text import YamlPath

_NO_TEST = "there is no test set, so a run cannot say what its gain on unseen cases is"


@attrs.frozen(kw_only=True)
class Checked:
    """A project without faults, or its faults; warnings, one line each; plans by prompt."""

    project: Project | None = None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    plans: Mapping[str, RunPlan] = attrs.field(factory=dict)


def check_project(path: Path) -> Checked:
    """Look at everything that a project names. No call is made; secrets need not be set."""
    try:
        project = load_project(path)
    except DataFormatError as error:
        return Checked(faults=error.faults)
    faults: list[str] = []
    warnings: list[str] = []
    adapters: dict[YamlPath, ProviderAdapter] = {}
    around = project.surroundings
    for place, config in project.models().items():
        try:
            model = checked_model(config, what="model", python=around.python)
        except ConfigError as error:
            faults.extend(around.refusal(place, error).faults)
            continue
        adapters[place] = model.adapter
        warnings.extend(around.file.line((*place, *at), text) for at, text in model.warnings)
    if project.splits.test is None:
        warnings.append(around.file.line(("splits",), _NO_TEST))
    plans = {}
    for name in () if faults else project.names:
        try:
            plans[name] = _plan(project, name, adapters)
        except ConfigError as error:
            faults.extend(around.refusal(("optimizer",), error).faults)
        else:
            warnings.extend(around.file.line(("prompts", name), w) for w in plans[name].warnings)
    if faults:
        return Checked(faults=tuple(dict.fromkeys(faults)), warnings=tuple(warnings))
    return Checked(project=project, warnings=tuple(warnings), plans=plans)


def _plan(project: Project, name: str, adapters: Mapping[YamlPath, ProviderAdapter]) -> RunPlan:
    task = adapters["models", "task"]
    context = OptimizationContext(
        adapter=task,
        reflection_adapter=adapters.get(("models", "reflection"), task),
        overrides_store=project.store(),
        overrides_tag=project.tag,
    )
    return OptimizationJob(project.prompt(name).prompt, context, project.run_config(name)).plan()
