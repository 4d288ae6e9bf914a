"""``promptgraft plan``: what a run can use, said without a call."""

from __future__ import annotations

from decimal import Decimal

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import examples, json_option, project_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.runnable import loaded
from promptgraft.search.plan import RolePlan, RunPlan


@click.command(
    "plan",
    epilog=examples(
        "promptgraft plan",
        "promptgraft plan optimize.py:job",
        "promptgraft plan my_agent.jobs:JOB",
    ),
)
@click.argument("target", metavar="[PROMPT|JOB]", required=False)
@project_option
@json_option
def command(target: str | None, *, project: str | None, as_json: bool) -> ExitCode:
    """Say what a run can use, without a call.

    Rollouts, reflections, tokens and money, at most. PROMPT is a name in `promptgraft.yaml`;
    with one prompt it may be left out. JOB is `file.py:NAME` or `module:NAME`: an
    OptimizationJob, or a function without arguments that returns one. Its code is run, but no
    model is called.
    """
    with loaded(target, project) as found:
        plan = found.job.plan()
        descriptor = found.job.prompt.descriptor
    name = f"{descriptor.ns}/{descriptor.key}"
    if as_json:
        print_json({"prompt": name, **plan.as_json()})
    else:
        _print(Screen(), name, plan)
    return ExitCode.OK


def _print(screen: Screen, name: str, plan: RunPlan) -> None:
    fewest, most = plan.proposals.if_accepted, plan.proposals.if_refused
    screen.line(f"{name}: what a run can use", bold=True)
    screen.fields(
        [
            ("rollouts", f"{plan.rollouts:,}"),
            ("proposals", f"{fewest:,} if all are accepted, {most:,} if none is"),
            ("reflections", f"{plan.reflections:,}"),
        ]
    )
    screen.line()
    screen.table(
        [
            ("at most", "calls", "in", "out", "tokens", "dollars", "model"),
            *(_role_row(role) for role in plan.roles),
            ("together", "", "", "", _number(plan.tokens), _dollars(plan.cost), _limits(plan)),
        ]
    )
    for warning in plan.warnings:
        screen.line()
        screen.line(f"warning: {warning}", color="yellow")


def _role_row(role: RolePlan) -> tuple[str, ...]:
    return (
        role.role,
        f"{role.calls:,}",
        f"{role.input_tokens:,}",
        _number(role.output_tokens),
        _number(role.tokens),
        _dollars(role.cost),
        role.model,
    )


def _limits(plan: RunPlan) -> str:
    limits = {"max_tokens": plan.max_tokens, "max_cost": plan.max_cost}
    named = [f"{name} {value:,}" for name, value in limits.items() if value is not None]
    return f"({', '.join(named)})" if named else ""


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _dollars(value: Decimal | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"
