"""``promptgraft show``: what a run directory or a local store holds."""

from __future__ import annotations

import re

import click

from promptgraft.cli.choosing import Runs, chosen_runs, chosen_store, in_project, read_prompt
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import (
    PromptName,
    at_least,
    examples,
    json_option,
    project_option,
    runs_option,
    store_option,
    tag_option,
    template_option,
)
from promptgraft.cli.show_store import show_prompt, show_store
from promptgraft.cli.stored import find_tag
from promptgraft.overrides import LocalPromptOverridesStore

RUN_NAME = re.compile(r"\d|latest$")
"""How the id of a run begins, and no prompt without a namespace."""


@click.command(
    "show",
    epilog=examples(
        "promptgraft show",
        "promptgraft show support/triage",
        "promptgraft show support/triage --template app.py:TRIAGE",
        "promptgraft show latest",
        "promptgraft show 20260131-1204 --candidate 3",
        "promptgraft show latest --case t-17 --candidate 3",
    ),
)
@click.argument("what", metavar="[PROMPT|RUN]", required=False)
@tag_option
@template_option
@store_option
@click.option(
    "--candidate",
    metavar="N",
    callback=at_least(0),
    help="Of a run: what one candidate says, and what it changes.",
)
@click.option(
    "--rejected", is_flag=True, help="Of a run: every rejected proposal, with the reason."
)
@click.option(
    "--case", metavar="ID", help="Of a run: what was answered to one case, and what was said of it."
)
@project_option
@runs_option
@json_option
@click.pass_context
def show_command(
    context: click.Context,
    *,
    what: str | None,
    tag: str | None,
    template: str | None,
    store: str | None,
    candidate: int | None,
    rejected: bool,
    case: str | None,
    project: str | None,
    runs: str | None,
    as_json: bool,
) -> ExitCode:
    """Show a run, or the overrides that a store holds.

    Without an argument it lists the prompts and tags of the store. PROMPT is `namespace/key`,
    or a name in `promptgraft.yaml`: it prints the text of each override, kind by kind;
    `--template` tells which of them are stale, and why. RUN is the id of a run, the start of
    one, or `latest`: it prints where the run stands and its candidates.
    """
    if what is None or "/" in what or (not RUN_NAME.match(what) and in_project(project)):
        _refuse(context, of="a run", names=("candidate", "rejected", "case", "runs"))
        found = None if what is None else read_prompt(context, context.command.params[0], what)
        opened = chosen_store(store, project, found)
        _show_stored(found, opened, tag=tag, template=template, as_json=as_json)
    elif not RUN_NAME.match(what):
        raise click.BadParameter(
            f"expected a prompt, `namespace/key`, or a run, its id or `latest`, found {what!r}",
            context,
            context.command.params[0],
        )
    else:
        _refuse(context, of="a store", names=("tag", "template", "store"))
        chosen = chosen_runs(runs, project)
        _show_run(what, chosen, (candidate, rejected, case), as_json=as_json)
    return ExitCode.OK


def _refuse(context: click.Context, *, of: str, names: tuple[str, ...]) -> None:
    for name in names:
        if context.params[name]:
            other = "RUN, an id or `latest`" if of == "a run" else "no RUN"
            raise click.UsageError(f"--{name} is for what {of} holds; give {other}")


def _show_stored(
    prompt: PromptName | None,
    store: LocalPromptOverridesStore,
    *,
    tag: str | None,
    template: str | None,
    as_json: bool,
) -> None:
    if prompt is not None:
        show_prompt(find_tag(store, prompt, tag), template, as_json=as_json)
    elif template is not None:
        raise click.UsageError("--template needs PROMPT; name the prompt as `namespace/key`")
    else:
        show_store(store, tag, as_json=as_json)


def _show_run(
    name: str,
    runs: Runs,
    wanted: tuple[int | None, bool, str | None],
    *,
    as_json: bool,
) -> None:
    from promptgraft.cli import show_run
    from promptgraft.runs import read_run

    candidate, rejected, case = wanted
    record = read_run(runs.find(name))
    if rejected and (candidate is not None or case is not None):
        raise click.UsageError("--rejected goes with neither --candidate nor --case; choose one")
    if case is not None:
        show_run.show_case(record, case, candidate=candidate, as_json=as_json)
    elif candidate is not None:
        show_run.show_candidate(record, candidate, as_json=as_json)
    elif rejected:
        show_run.show_rejections(record, as_json=as_json)
    else:
        show_run.show_overview(record, runs, as_json=as_json)
