"""``promptgraft diff``: what overrides change."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
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
    template_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import (
    StoredTag,
    find_tag,
    revision_json_or_none,
    short,
    tag_json,
)
from promptgraft.overrides import PartDiff, Revision, diff_override, diff_revisions
from promptgraft.overrides.diff import parts_json


@attrs.frozen(kw_only=True)
class _Comparison:
    found: StoredTag
    before: Revision | None
    after: Revision | None
    source: str | None
    parts: tuple[PartDiff, ...]


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
@project_option
@store_option
@json_option
def command(
    prompt: PromptName,
    *,
    tag: str | None,
    before: str | None,
    after: str | None,
    template: str | None,
    exit_code: bool,
    project: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """Show what overrides change, as a unified diff.

    Compares two revisions, or with `--template` the source with a revision. A REV is the
    first digits of an id, at least four. PROMPT is `namespace/key`, or
    a name in `promptgraft.yaml`.
    """
    if template is not None and before is not None:
        raise click.UsageError("--from and --template exclude each other; leave one out")
    found = find_tag(chosen_store(store, project, prompt), prompt, tag)
    if template is not None:
        comparison = _against_source(found, template, after)
    else:
        comparison = _between(found, before, after)
    if as_json:
        print_json(_document(comparison))
    else:
        _print(comparison)
    return ExitCode.NOT_IMPROVED if exit_code and comparison.parts else ExitCode.OK


def _between(found: StoredTag, before: str | None, after: str | None) -> _Comparison:
    newer = found.present() if after is None else found.revision(after)
    wanted = before or newer.parent
    older = None if wanted is None else found.revision(wanted)
    empty = found.address.empty()
    return _Comparison(
        found=found,
        before=older,
        after=newer,
        source=None,
        parts=diff_revisions(older.override if older else empty, newer.override),
    )


def _against_source(found: StoredTag, template: str, after: str | None) -> _Comparison:
    from promptgraft.cli.source import load_template

    newer = found.present() if after is None else found.revision(after)
    parts = diff_override(load_template(template), newer.override)
    return _Comparison(
        found=found,
        before=None,
        after=newer,
        source=template,
        parts=tuple(part for part in parts if part.text or part.state),
    )


def _document(comparison: _Comparison) -> object:
    return {
        **tag_json(comparison.found),
        "template": comparison.source,
        "from": revision_json_or_none(comparison.before),
        "to": revision_json_or_none(comparison.after),
        "parts": parts_json(comparison.parts, checked=comparison.source is not None),
    }


def _print(comparison: _Comparison) -> None:
    screen = Screen()
    found = comparison.found
    screen.line(f"prompt `{found.prompt}`, tag `{found.address.tag}`", bold=True)
    before = short(comparison.before) if comparison.source is None else comparison.source
    screen.fields([("from", before), ("to", short(comparison.after))])
    print_parts(screen, comparison.parts)
    if not comparison.parts:
        screen.line("no differences")


def print_parts(screen: Screen, parts: Sequence[PartDiff]) -> None:
    """Print differences for people."""
    for part in parts:
        screen.line()
        if part.state is not None:
            screen.line(f"{part.part} is not applied: {part.state}", color="yellow")
        elif not part.text:
            screen.line(f"{part.part}: {_unspoken(part)}")
        if part.text:
            screen.diff(part)


def _unspoken(part: PartDiff) -> str:
    """Tell what changes where no text does."""
    if part.before is None:
        return "added"
    return "taken away" if part.after is None else "the same text, written for another source"
