"""``promptgraft rollback``: point a tag at an earlier revision."""

from __future__ import annotations

import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.named import chosen_store, prompt_argument
from promptgraft.cli.options import (
    PromptName,
    examples,
    json_option,
    project_option,
    store_option,
    tag_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import (
    find_tag,
    revision_json_or_none,
    short,
    tag_json,
    written_with,
)


@click.command(
    "rollback",
    epilog=examples(
        "promptgraft rollback support/triage",
        "promptgraft rollback support/triage --to 3f9c",
    ),
)
@prompt_argument
@tag_option
@click.option(
    "--to",
    "revision",
    metavar="REV",
    help="The revision, by the first digits of its id; by default the one before.",
)
@project_option
@store_option
@json_option
def command(
    prompt: PromptName,
    *,
    tag: str | None,
    revision: str | None,
    project: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """Point a tag at an earlier revision.

    Nothing is deleted: `--to` goes forward again just as well. Rolling back the first
    revision leaves the plain source. PROMPT is `namespace/key`, or
    a name in `promptgraft.yaml`.
    """
    found = find_tag(chosen_store(store, project, prompt), prompt, tag)
    wanted = None if revision is None else found.revision(revision).id
    address = found.address
    reached = found.store.rollback(
        ns=address.ns, prompt_key=address.prompt_key, tag=address.tag, revision=wanted
    )
    others = written_with(found, found.current) if reached != found.current else []
    if as_json:
        moved = {"from": revision_json_or_none(found.current), "to": revision_json_or_none(reached)}
        print_json({**tag_json(found), **moved, "written_with": others})
        return ExitCode.OK
    screen = Screen()
    screen.line(f"prompt `{found.prompt}`, tag `{address.tag}`", bold=True)
    screen.fields([("from", short(found.current)), ("to", short(reached))])
    if reached is None:
        screen.line("no override is in force now: the plain source is rendered")
    if others:
        screen.line(f"written in one step with it and still in force: {'; '.join(others)}")
    return ExitCode.OK
