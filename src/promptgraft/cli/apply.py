"""``promptgraft apply``: put what a run has found where it is used."""

from __future__ import annotations

from enum import Enum

import click

from promptgraft.cli.apply_target import found_target, project_of
from promptgraft.cli.apply_writing import (
    Answer,
    Asked,
    apply_to_store,
    complete,
    make_patch,
    unfinished,
    write_to_source,
)
from promptgraft.cli.choosing import chosen_runs
from promptgraft.cli.exits import ExitCode, complain
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
from promptgraft.errors import ConfigError
from promptgraft.project import Project
from promptgraft.project.applying.winner import StaleWinnerError, choose
from promptgraft.runs import RunRecord, read_run


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
def apply_command(
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
        _say_nothing_improved(record, choice.why_not, as_json=as_json)
        return ExitCode.NOT_IMPROVED
    asked = Asked(run=record, candidate=choice.candidate, dry=dry_run, as_json=as_json)
    way = _Way.SOURCE if to_source else _Way.PATCH if patch else _Way.STORE
    try:
        answer = _carry_out(asked, project_of(record, project), store=store, tag=tag, way=way)
    except StaleWinnerError as error:
        for fault in error.faults:
            complain(fault)
        return ExitCode.WRONG_USE
    answer()
    return ExitCode.OK


class _Way(Enum):
    """Where the candidate goes."""

    STORE = "store"
    SOURCE = "source"
    PATCH = "patch"


def _carry_out(
    asked: Asked, project: Project | None, *, store: str | None, tag: str | None, way: _Way
) -> Answer:
    if project is not None:
        # Before the prompt is read: half written, its files may not fit together.
        intent = unfinished(asked.run.folder.path, project.folder)
        if intent is not None:
            if way is not _Way.SOURCE or intent.candidate != asked.candidate:
                raise ConfigError(
                    f"candidate {intent.candidate} of run {asked.run.id} is half written into the "
                    "files of the prompt; complete that first: promptgraft apply "
                    f"{asked.run.id} --candidate {intent.candidate} --to-source"
                )
            return complete(asked, intent, project.folder)
    with found_target(asked.run, project, store) as target:
        if way is _Way.SOURCE:
            return write_to_source(asked, target)
        if way is _Way.PATCH:
            return make_patch(asked, target)
        return apply_to_store(asked, target, tag)


def _say_nothing_improved(run: RunRecord, why: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "run": run.id,
                "candidate": None,
                "prompt": run.prompt,
                "where": None,
                "outcome": "not improved",
                "dry_run": False,
                "reason": why,
            }
        )
    else:
        screen = Screen()
        screen.line(f"run `{run.id}`: {why}; nothing was written", bold=True)
        if len(run.candidates) > 1:
            last = len(run.candidates) - 1
            screen.line(
                "--candidate 1 applies its one candidate"
                if last == 1
                else f"--candidate N applies one of its candidates 1 to {last}"
            )
