"""``promptgraft history``: every revision of a tag."""

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
    StoredTag,
    find_tag,
    origin_of,
    revision_json,
    scores_of,
    tag_json,
)
from promptgraft.overrides import PartDiff, Revision, diff_revisions
from promptgraft.overrides.diff import parts_json
from promptgraft.parts.validation import shown_hash
from promptgraft.text import counted, moment


@click.command(
    "history",
    epilog=examples(
        "promptgraft history support/triage",
        "promptgraft history support/triage --tag canary --json",
    ),
)
@prompt_argument
@tag_option
@project_option
@store_option
@json_option
def command(
    prompt: PromptName,
    *,
    tag: str | None,
    project: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """List every revision of a tag, the newest first.

    Each change of an override is a revision, and revisions stay; `*` marks the one in
    force. Below each are the parts whose override was added (`+`), changed (`~`) or taken
    away (`-`). PROMPT is `namespace/key`, or
    a name in `promptgraft.yaml`.
    """
    found = find_tag(chosen_store(store, project, prompt), prompt, tag)
    if as_json:
        print_json({**tag_json(found), "revisions": [_document(found, r) for r in found.history]})
    else:
        _print(found)
    return ExitCode.OK


def _document(found: StoredTag, revision: Revision) -> object:
    changes = _changes(found, revision)
    return {
        **revision_json(revision),
        "current": revision == found.current,
        "overrides": len(revision.override.entries()),
        "parts": None if changes is None else parts_json(changes, checked=False),
    }


def _changes(found: StoredTag, revision: Revision) -> tuple[PartDiff, ...] | None:
    """Return what a revision changed; None when the one before is not kept any more."""
    if revision.parent is None:
        return diff_revisions(found.address.empty(), revision.override)
    for older in found.history:
        if older.id == revision.parent:
            return diff_revisions(older.override, revision.override)
    return None


def _mark(part: PartDiff) -> str:
    if part.before is None:
        return "+"
    return "~" if part.after is not None else "-"


def _print(found: StoredTag) -> None:
    screen = Screen()
    screen.line(f"prompt `{found.prompt}`, tag `{found.address.tag}`", bold=True)
    for revision in reversed(found.history):
        current = revision == found.current
        made_from = f"  from {shown_hash(revision.parent)}" if revision.parent else ""
        screen.line(
            f"{'*' if current else ' '} {revision.number}  {shown_hash(revision.id)}  "
            f"{moment(revision.time)}{made_from}",
            bold=current,
        )
        notes = (counted(len(revision.override.entries()), "override"), scores_of(revision))
        screen.line(f"    {'; '.join(note for note in notes if note)}")
        if origin := origin_of(revision):
            screen.line(f"    {origin}")
        if revision.step:
            screen.line(f"    written with other tags, step {shown_hash(revision.step)}")
        for part in _changes(found, revision) or ():
            screen.line(f"    {_mark(part)} {part.part}")
    if found.current is None:
        screen.line("no revision is in force: the first one was rolled back")
