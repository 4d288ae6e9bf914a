"""``promptgraft diff``: what overrides change."""

from __future__ import annotations

from collections.abc import Sequence

import click

from promptgraft.cli.choosing import load_template, prompt_argument, store_options
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import (
    PromptName,
    examples,
    json_option,
    tag_option,
    template_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import (
    find_tag,
    revision_json_or_none,
    short,
    tag_json,
)
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    PartDiff,
    Revision,
    diff_override,
    diff_revisions,
)
from promptgraft.overrides.diff import parts_json


@click.command(
    "diff",
    epilog=examples(
        "promptgraft diff support/triage",
        "promptgraft diff support/triage --from 3f9c --to 77b0",
        "promptgraft diff support/triage --template app.py:TRIAGE",
    ),
)
@prompt_argument
@tag_option
@click.option(
    "--from",
    "before",
    metavar="REV",
    help="The older revision; by default the one that the newer was made from.",
)
@click.option("--to", "after", metavar="REV", help="The newer revision; by default the current.")
@template_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there are differences.")
@store_options
@json_option
def diff_command(
    prompt: PromptName,
    *,
    tag: str | None,
    before: str | None,
    after: str | None,
    template: str | None,
    exit_code: bool,
    store: LocalPromptOverridesStore,
    as_json: bool,
) -> ExitCode:
    """Show what overrides change, as a unified diff.

    Compares two revisions, or with `--template` the source with a revision. A REV is the
    first digits of an id, at least four. PROMPT is
    `namespace/key`, or a name in `promptgraft.yaml`.
    """
    if template is not None and before is not None:
        raise click.UsageError("--from and --template exclude each other; leave one out")
    found = find_tag(store, prompt, tag)
    newer = found.present() if after is None else found.revision(after)
    older: Revision | None = None
    parts: Sequence[PartDiff]
    if template is not None:
        compared = diff_override(load_template(template), newer.override)
        parts = [part for part in compared if part.text or part.state]
    else:
        if wanted := before or newer.parent:
            older = found.revision(wanted)
        empty = found.address.empty()
        parts = diff_revisions(older.override if older else empty, newer.override)
    if as_json:
        print_json(
            {
                **tag_json(found),
                "template": template,
                "from": revision_json_or_none(older),
                "to": revision_json_or_none(newer),
                "parts": parts_json(parts, checked=template is not None),
            }
        )
    else:
        screen = Screen()
        screen.line(found.title, bold=True)
        screen.fields([("from", template or short(older)), ("to", short(newer))])
        screen.parts(parts)
        if not parts:
            screen.line("no differences")
    return ExitCode.NOT_IMPROVED if exit_code and parts else ExitCode.OK
