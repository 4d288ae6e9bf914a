"""``promptgraft check``: whether a project is right, found out without a call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.options import examples, json_option, project_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.projects import project_path

if TYPE_CHECKING:
    from promptgraft.project import Project
    from promptgraft.project.checking import Checked


@click.command(
    "check",
    epilog=examples(
        "promptgraft check", "promptgraft check --project demo/promptgraft.yaml --json"
    ),
)
@project_option
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of the project file, for editors."
)
@json_option
def command(*, project: str | None, schema: bool, as_json: bool) -> ExitCode:
    """Say whether a project is right, without a call.

    Looks at everything that its file names: prompts, cases, metrics, models, settings. Each
    fault is a line with its place, and the exit code is 2 then. A secret that is not set is a
    warning. Python that the project names is run.
    """
    if schema and project is not None:
        raise click.UsageError("--schema is the same for every project; leave --project out")
    if schema:
        from promptgraft.project import project_schema

        print_json(project_schema())
        return ExitCode.OK
    from promptgraft.project.checking import check_project
    from promptgraft.strict.nodes import count_faults

    path = project_path(project)
    checked = check_project(path)
    if as_json:
        print_json(_as_json(path, checked))
    else:
        _print(Screen(), path, checked)
    if checked.project is None:
        count = count_faults(checked.faults)
        complain(f"check: {path} has {count} fault{'' if count == 1 else 's'}")
        return ExitCode.WRONG_USE
    return ExitCode.OK


def _as_json(path: Path, checked: Checked) -> dict[str, object]:
    project = checked.project
    return {
        "project": str(path),
        "ok": project is not None,
        "faults": list(checked.faults),
        "warnings": list(checked.warnings),
        "cases": {} if project is None else _sizes(project),
        "plans": {name: plan.as_json() for name, plan in checked.plans.items()},
    }


def _sizes(project: Project) -> dict[str, int]:
    return {name: len(part) for name, part in project.splits.parts().items()}


def _print(screen: Screen, path: Path, checked: Checked) -> None:
    for fault in checked.faults:
        screen.line(fault, color="red")
    project = checked.project
    if project is not None:
        screen.line(f"{path} is right", bold=True)
        cases = ", ".join(f"{count:,} {name}" for name, count in _sizes(project).items())
        metrics = ", ".join(metric.name for metric in project.metrics)
        screen.fields([("cases", cases), ("metrics", metrics)])
        for name, plan in checked.plans.items():
            screen.fields([(name, plan.line)])
    for warning in checked.warnings:
        screen.line(f"warning: {warning}", color="yellow")
