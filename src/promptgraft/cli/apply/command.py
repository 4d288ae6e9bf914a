"""The command ``promptgraft apply``."""

from __future__ import annotations

from enum import Enum

import click

from promptgraft.cli.apply.files import (
    CompletedAnswer,
    PatchAnswer,
    SourceAnswer,
    complete,
    make_patch,
    other_first,
    unfinished,
    write_to_source,
)
from promptgraft.cli.apply.store import StoreAnswer, apply_to_store
from promptgraft.cli.apply.target import found_target, project_of
from promptgraft.cli.apply.told import Asked, refuse, say_nothing_improved
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import (
    at_least,
    examples,
    json_option,
    project_option,
    read_tag,
    run_argument,
    runs_option,
    store_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.run_choice import chosen_runs
from promptgraft.project import Project
from promptgraft.project.applying.handover import choose
from promptgraft.project.applying.storing import StaleWinnerError
from promptgraft.runs import read_run


@click.command(
    "apply",
    epilog=examples(
        "promptgraft apply",
        "promptgraft apply --dry-run",
        "promptgraft apply 20260101-120000-triage --candidate 4",
        "promptgraft apply --to-source",
        "promptgraft apply --patch | git apply",
    ),
)
@run_argument
@click.option(
    "--candidate",
    metavar="N",
    callback=at_least(0),
    help="The candidate, by its number; by default the winner of the run.",
)
@click.option(
    "--tag",
    metavar="TAG",
    callback=read_tag,
    help="The tag that gets it; by default the one that the run began with.",
)
@click.option("--to-source", is_flag=True, help="Write it into the prompt's files instead.")
@click.option("--patch", is_flag=True, help="Print a patch of the files, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Check everything and write nothing.")
@project_option
@runs_option
@store_option
@json_option
def command(
    run: str,
    *,
    candidate: int | None,
    tag: str | None,
    to_source: bool,
    patch: bool,
    dry_run: bool,
    project: str | None,
    runs: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """Put what a run has found where it is used: into the store, as one revision.

    RUN is the id of a run, or the beginning of one; by default the newest. Refuses (exit code
    2) when the source or the tag has changed since in a part that the winner changes, and
    exits with 1 when nothing beat the baseline.
    """
    if to_source and patch:
        raise click.UsageError("--to-source and --patch exclude each other; leave one out")
    if tag is not None and (to_source or patch):
        raise click.UsageError("--tag names a tag of the store; leave it or the files out")
    if patch and (dry_run or store is not None):
        given = "--store" if store is not None else "--dry-run"
        raise click.UsageError(
            f"{given}: --patch touches no store and writes nothing; leave one out"
        )
    record = read_run(chosen_runs(runs, project, runs_again=True).find(run))
    choice = choose(record, candidate)
    if choice.candidate is None:
        return say_nothing_improved(record, choice.why_not, as_json=as_json)
    asked = Asked(run=record, candidate=choice.candidate, dry=dry_run)
    way = _Way.SOURCE if to_source else _Way.PATCH if patch else _Way.STORE
    try:
        answer = _carried_out(asked, project_of(record, project), store=store, tag=tag, way=way)
    except StaleWinnerError as error:
        return refuse(error.faults)
    if as_json:
        print_json(answer.document())
    else:
        answer.print(Screen())
    return ExitCode.OK


class _Way(Enum):
    """Where the candidate goes."""

    STORE = "store"
    SOURCE = "source"
    PATCH = "patch"


def _carried_out(
    asked: Asked, project: Project | None, *, store: str | None, tag: str | None, way: _Way
) -> StoreAnswer | SourceAnswer | PatchAnswer | CompletedAnswer:
    if project is not None:
        # Before the prompt is read: half written, its files may not fit together.
        intent = unfinished(asked.run.folder.path, project.folder)
        if intent is not None:
            if way is not _Way.SOURCE or intent.candidate != asked.candidate:
                raise other_first(asked, intent)
            return complete(asked, intent, project.folder)
    with found_target(asked.run, project, store) as target:
        if way is _Way.SOURCE:
            return write_to_source(asked, target)
        if way is _Way.PATCH:
            return make_patch(asked, target)
        return apply_to_store(asked, target, tag)
