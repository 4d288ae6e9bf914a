"""``promptgraft init``, ``check``, ``plan`` and ``docs``: everything before the first run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING

import attrs
import click
from click.core import ParameterSource

from promptgraft import project as projects  # whose names are imported at their first use
from promptgraft.cli.choosing import runs_of, shipped
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.options import at_least, command, json_option, project_option, runs_option
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.cli.summary import print_next
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.nodes import count_faults
from promptgraft.ground.text import (
    counted,
    dollars,
    listed,
    model_in_words,
    number_or_unknown,
    shell_word,
)
from promptgraft.project.files import (
    FILE_NAME,
    SCHEMA_FILE,
    SCHEMA_LINE,
    project_path,
    write_new,
)

if TYPE_CHECKING:
    from promptgraft.project.checking import Checked, Probed
    from promptgraft.project.running import Probe
    from promptgraft.search.plan import RolePlan, RunPlan, Use

_COMMON = (
    "promptgraft.yaml",
    "README.md",
    "data/reports.jsonl",
    "tests/test_prompt.py",
    ".gitignore",
    SCHEMA_FILE,
)
_OF_AGENT = (*_COMMON, "prompts/role.md", "prompts/teams.md", "triage.py", "judging.py")
TEMPLATES: Mapping[str, Sequence[str]] = {
    "classify": (*_COMMON, "prompts/triage.md"),
    "agent": (*_COMMON, "prompts/repairs.md", "prompts/tools.yaml", "agent.py", "data/fleet.json"),
    "graph": (*_COMMON, "agent.py"),
    "agent_python": (*_OF_AGENT, "agent.py"),
    "agent_http": (*_OF_AGENT, "service.py"),
    "agent_command": (*_OF_AGENT, "agent.py"),
}
"""The files of each template."""


@command("init", "init demo", "init --template agent my_agent", "init --agent http my_service")
@click.argument("folder", metavar="[DIR]", default=".")
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    metavar="NAME",
    default="classify",
    show_default=True,
    help="`classify`: a prompt that sorts texts; `agent`: with a tool; `graph`: several prompts; "
    "`agent_python`, `agent_http` or `agent_command`: an agent that can only be called.",
)
# Not a second option of the name `template`: Click 8.2 would take the default of this one, None.
@click.option("--graph", is_flag=True, help="Same as `--template graph`.")
@click.option(
    "--agent",
    type=click.Choice(("python", "http", "command")),
    help="Same as `--template agent_...`: an agent behind a function, a service or a command.",
)
@json_option
@click.pass_context
def init_command(
    context: click.Context,
    folder: str,
    *,
    template: str,
    graph: bool,
    agent: str | None,
    as_json: bool,
) -> None:
    """Create a project that is ready to run, without an API key or a network.

    DIR is the current folder by default, and is created if it does not exist. Existing files
    are never overwritten. The comments in `promptgraft.yaml` and the `README.md` explain what
    to change for your own prompt and a real model.
    """
    is_named = context.get_parameter_source("template") is not ParameterSource.DEFAULT
    if is_named + graph + (agent is not None) > 1:
        raise click.UsageError("--template, --graph and --agent each name a template; give one")
    template = f"agent_{agent}" if agent is not None else "graph" if graph else template
    target, names = Path(folder), sorted(TEMPLATES[template])
    stored = [_stored(name, template) for name in names]
    _refuse_to_overwrite(target, names)
    texts = {name: file.read_bytes() for name, file in zip(names, stored, strict=True)}
    texts[FILE_NAME] = SCHEMA_LINE.encode() + texts[FILE_NAME]
    try:
        write_new({target / name: text for name, text in texts.items()})
    except OSError as error:
        raise ConfigError(
            f"{error.filename} cannot be written: {error.strerror}; nothing was written; name a "
            "folder that can be written to"
        ) from error
    if as_json:
        print_json({"folder": str(target.resolve()), "template": template, "files": names})
        return
    screen = Screen()
    screen.line(f"wrote {len(names)} files to {folder}:")
    screen.body("\n".join(names))
    screen.line()
    screen.line("next:")
    enter = [] if folder == "." else [f"cd {shell_word(folder)}"]
    start = ["python3 service.py &"] if "service.py" in names else []
    screen.body("\n".join([*enter, *start, "promptgraft optimize", "promptgraft apply"]))


def _stored(name: str, template: str) -> Path:
    """Return the shipped copy of a template's file; the agent templates share most of theirs."""
    if name == SCHEMA_FILE:
        return shipped("project/project.schema.json")
    # Under the name `.gitignore` it would affect the repository of the template itself.
    file_name = name.replace(".gitignore", "_gitignore")
    origin = shipped(f"examples/projects/{template}") / file_name
    return origin if origin.exists() else shipped("examples/projects/agent_python") / file_name


def _refuse_to_overwrite(target: Path, names: Sequence[str]) -> None:
    if target.is_file():
        raise ConfigError(f"{target} is a file; name a folder")
    # A link that leads nowhere counts too: nothing is written through it.
    there = [name for name in names if os.path.lexists(target / name)]
    if there:
        where = "the current folder" if target == Path() else str(target)
        raise ConfigError(
            f"{', '.join(there)} already {'exists' if len(there) == 1 else 'exist'} in {where}; "
            "nothing was written; name another folder"
        )


@command("check", "check", "check --project demo/promptgraft.yaml --json")
@project_option
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of the project file, for editors."
)
@click.option(
    "--no-code",
    is_flag=True,
    help="Import and run no Python of the project; name what stays unchecked.",
)
@click.option(
    "--probe",
    "is_probed",
    is_flag=True,
    help="Also call the agent of the project once, with one case, and show its answer.",
)
@json_option
def check_command(
    *, project: str | None, schema: bool, no_code: bool, is_probed: bool, as_json: bool
) -> ExitCode:
    """Check a project without calling a model.

    Checks everything that the project file names: prompts, cases, metrics, models, settings.
    Prompts are rendered, metrics are tried on an empty answer and on an expected one, and a
    model is asked whether it takes the prompt. What cannot be tried is named as not checked.
    Each fault is one line with its place, and the exit code is then 2. A secret that is not set
    is a warning. Python code that the project names is run, unless --no-code is given. Nothing is
    called unless --probe is given, which calls an agent once.
    """
    if is_probed and (schema or no_code):
        raise click.UsageError("--probe calls the agent; leave --schema and --no-code out")
    if schema and no_code:
        raise click.UsageError("--schema runs no code; leave --no-code out")
    if schema and project is not None:
        raise click.UsageError("--schema is the same for every project; leave --project out")
    if schema:
        print_json(projects.project_schema())
        return ExitCode.OK
    from promptgraft.project import checking

    path = project_path(project)
    checked = checking.check_without_code(path) if no_code else checking.check_project(path)
    opened = checked.project
    probed = checking.probe_agent(opened) if is_probed and opened is not None else None
    return _show_check(path, checked, probed, as_json=as_json)


def _show_check(path: Path, checked: Checked, probed: Probed | None, *, as_json: bool) -> ExitCode:
    """Show the result of a check as lines or as one document, and return the exit code."""
    checked_project = checked.project
    parts = {} if checked_project is None else checked_project.parts
    cases = {name: len(part) for name, part in parts.items()}
    if as_json:
        print_json(
            {
                "project": str(path),
                "ok": not checked.faults,
                "faults": list(checked.faults),
                "warnings": list(checked.warnings),
                "unchecked": list(checked.unchecked),
                "protected": list(checked.protected),
                "notes": list(checked.notes),
                "sent": list(checked.sent),
                "cases": cases,
                "plans": {name: plan.as_json() for name, plan in checked.plans.items()},
                **({} if probed is None else {"probe": attrs.asdict(probed)}),
            }
        )
    else:
        screen = Screen()
        for fault in checked.faults:
            screen.line(fault, color="red")
        if checked_project is not None:
            screen.line(f"{path} is valid", bold=True)
            sizes = ", ".join(f"{count:,} {name}" for name, count in cases.items())
            metrics = ", ".join(metric.name for metric in checked_project.metrics)
            screen.fields([("cases", sizes), ("metrics", metrics)])
            for name, plan in checked.plans.items():
                screen.fields([(name, plan.line)])
        elif not checked.faults:
            screen.line(f"{path} has no faults in what was checked without code", bold=True)
        probe = () if probed is None else (probed.line,)
        document = {
            "protected": checked.protected,
            "note": checked.notes,
            "probe": probe,
            "sent": checked.sent,
            "warning": checked.warnings,
            "not checked": checked.unchecked,
        }
        for kind, line in ((kind, line) for kind, lines in document.items() for line in lines):
            color = "yellow" if kind in ("warning", "not checked") else None
            screen.line(f"{kind}: {line}", color=color)
    if checked.faults:
        count = count_faults(checked.faults)
        complain(f"check: {path} has {count} fault{'' if count == 1 else 's'}")
        return ExitCode.WRONG_USE
    return ExitCode.OK


@command("plan", "plan", "plan --probe 5", "plan optimize.py:job", "plan my_agent.jobs:JOB")
@click.argument("target", metavar="[PROMPT|JOB]", required=False)
@project_option
@runs_option
@click.option(
    "--probe",
    type=at_least(1),
    metavar="N",
    help="Make the first N test calls of the run, which costs money, and plan by what they used; "
    "`promptgraft resume` goes on from them.",
)
@json_option
def plan_command(
    target: str | None, *, project: str | None, runs: str | None, probe: int | None, as_json: bool
) -> None:
    """Show the expected and the maximum usage of a run.

    Shows test calls, candidates, tokens and money; no API key is needed. PROMPT is a name in
    `promptgraft.yaml`; it may be left out if there is only one. JOB is `file.py:NAME` or
    `module:NAME`: an OptimizationJob, or a function without arguments that returns one. Its
    code is run, but no model is called without `--probe`.
    """
    from promptgraft.project.running import loaded

    probe_made: Probe | None = None
    with loaded(target, project, to_plan=probe is None) as loaded_run:
        name = loaded_run.job.name
        kept_in = runs_of(loaded_run.runs, runs=runs, project=project)
        if probe is None:
            plan = loaded_run.plan()
        else:
            probe_made = loaded_run.probed(probe, kept_in.root)
            plan = probe_made.plan
    if as_json:
        print_json({"prompt": name, **plan.as_json(), "probe": _probe_json(probe_made)})
        return
    screen = Screen()
    _print_plan(screen, name, plan)
    if probe_made is not None:
        screen.line()
        screen.line(
            f"probe: {counted(probe_made.rollouts, 'test call')} for {dollars(probe_made.cost)}, "
            f"kept in run {probe_made.folder.id}"
        )
        print_next(screen, kept_in.command("resume", probe_made.folder))


def _probe_json(probe: Probe | None) -> dict[str, Json] | None:
    if probe is None:
        return None
    # The same as `ledger.money`, whose import takes long.
    cost = None if probe.cost is None else f"{probe.cost:f}"
    return {"run": probe.folder.id, "rollouts": probe.rollouts, "cost": cost}


def _print_plan(screen: Screen, name: str, plan: RunPlan) -> None:
    from promptgraft.adapters.abilities import PRICES_LINE  # loads much

    fewest, most = plan.proposals.if_accepted, plan.proposals.if_refused
    screen.line(f"{name}: what a run will use", bold=True)
    screen.fields(
        [
            ("test calls", f"{plan.rollouts:,}"),
            ("candidates", f"{fewest:,} (all kept) to {most:,} (none kept)"),
        ]
    )
    if plan.answer_tokens is not None:
        each = f"about {counted(plan.answer_tokens, 'token')} each, {plan.answer_from}"
        screen.fields([("answers", each)], width=len("test calls"))
    for role in plan.roles:
        if role.thinking:
            thinking = f"about {counted(role.thinking, 'token')} a call of {role.role}"
            thinking_text = f"{thinking}, {role.thinking_from}"
            screen.fields([("thinking", thinking_text)], width=len("test calls"))
    expected = [role.expected for role in plan.roles]
    for title, of_role, tokens, cost in (
        ("expected", expected, plan.expected_tokens, plan.expected_cost),
        ("at most", plan.roles, plan.tokens, plan.cost),
    ):
        head = title, "calls", "in", "out", "tokens", "dollars", "model"
        rows = [_row(role, use) for role, use in zip(plan.roles, of_role, strict=True)]
        total = "total", "", "", "", number_or_unknown(tokens), _dollars(cost), _limits(plan)
        screen.line()
        screen.table([head, *rows, total])
    unknown = [model_in_words(role.model) for role in plan.roles if role.is_unpriced]
    for model in dict.fromkeys(unknown):
        screen.line()
        screen.line(
            f"price unknown: {model}; for US dollars in the plan and max_cost, add this line to "
            "the model, with its prices for a million tokens:"
        )
        screen.line(f"  {PRICES_LINE}")
    if plan.first_call:
        screen.line()
        screen.line(plan.first_call)
    for warning in plan.warnings:
        screen.line()
        screen.line(f"warning: {warning}", color="yellow")


def _row(role: RolePlan, use: Use) -> tuple[str, ...]:
    numbers = map(number_or_unknown, (use.calls, use.input_tokens, use.output_tokens, use.tokens))
    return role.role, *numbers, _dollars(use.cost), model_in_words(role.model)


def _limits(plan: RunPlan) -> str:
    limits = {"max_tokens": plan.max_tokens, "max_cost": plan.max_cost}
    named = [f"{name} {value:,}" for name, value in limits.items() if value is not None]
    return f"({', '.join(named)})" if named else ""


def _dollars(value: Decimal | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


_START = "docs/README.md"


@command("docs", "docs", "docs specs/metrics.md", "docs examples/closed_loop")
@click.argument("page", metavar="[PAGE]", default=_START)
@json_option
def docs_command(page: str, *, as_json: bool) -> None:
    """Print a page of the documentation of this version, in Markdown.

    PAGE is a path such as `specs/metrics.md`, a name such as `costs`, or a link of the start page,
    which is printed by default and lists the user documentation. For a folder without a
    `README.md`, the paths below it are printed.
    """
    top = shipped("README.md").parent
    folders = (shipped(name) for name in ("docs", "specs", "examples"))
    files = [*top.glob("*.md"), *(file for folder in folders for file in folder.rglob("*.md"))]
    pages = {file.relative_to(top).as_posix(): file for file in sorted(files)}
    places = [normpath(place) for place in (page, f"docs/{page}")]
    pages_found = [
        file
        for place in places
        for file in (place, f"{place}.md", f"{place}/README.md")
        if file in pages
    ]
    below = [file for file in pages if file.startswith(f"{places[0]}/")]
    if not pages_found and not below:
        # `promptgraft docs costs`: the name of a page is enough where only one page has it.
        pages_found = [
            file for file in pages if file.endswith((f"/{places[0]}", f"/{places[0]}.md"))
        ]
        if len(pages_found) > 1:
            raise ConfigError(f"several pages are called `{page}`: {listed(pages_found)}")
        if not pages_found:
            near = did_you_mean(page, list(pages))
            there = f"there is no page `{page}`{near}"
            raise ConfigError(f"{there}; `promptgraft docs` lists the pages")
    text = pages[pages_found[0]].read_text("utf-8") if pages_found else "\n".join(below)
    if as_json:
        print_json({"folder": str(top), "page": text, "pages": list(pages)})
    else:
        echo(text.removesuffix("\n"))
