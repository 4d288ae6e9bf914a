"""``promptgraft show``: what a local store holds."""

from __future__ import annotations

from itertools import groupby

import click

from promptgraft.cli.entry import entry_json, print_entry, shown_entries
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import (
    PromptName,
    examples,
    json_option,
    prompt_argument,
    store_option,
    tag_option,
    template_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import (
    StoredTag,
    fields_of,
    find_tag,
    find_tags,
    open_store,
    revision_json,
    short,
    tag_json,
)
from promptgraft.cli.text import counted, moment
from promptgraft.errors import ConfigError
from promptgraft.overrides import LocalPromptOverridesStore, PromptDescriptor


@click.command(
    "show",
    epilog=examples(
        "promptgraft show",
        "promptgraft show support/triage",
        "promptgraft show support/triage --template app.py:TRIAGE",
    ),
)
@prompt_argument(required=False)
@tag_option
@template_option
@store_option
@json_option
def command(
    prompt: PromptName | None,
    *,
    tag: str | None,
    template: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """Show the overrides that a store holds.

    Without PROMPT it lists prompts and tags; with PROMPT (`namespace/key`) it prints the
    text of each override, kind by kind. `--template` tells which of them are stale, and why.
    """
    opened = open_store(store)
    if prompt is not None:
        _show_prompt(find_tag(opened, prompt, tag), template, as_json=as_json)
    elif template is not None:
        raise click.UsageError("--template needs PROMPT; name the prompt as `namespace/key`")
    else:
        _show_store(opened, tag, as_json=as_json)
    return ExitCode.OK


def _show_store(store: LocalPromptOverridesStore, tag: str | None, *, as_json: bool) -> None:
    tags = find_tags(store, tag)
    if as_json:
        print_json(
            {"store": str(store.root_path), "tags": [_summary_json(found) for found in tags]}
        )
        return
    screen = Screen()
    if not tags:
        where = f" under tag `{tag}`" if tag else ""
        screen.line(f"no overrides in {store.root_path}{where}; `promptgraft demo` makes some")
        return
    screen.line(f"store {store.root_path}", bold=True)
    for prompt, group in groupby(tags, key=lambda found: found.prompt):
        screen.line()
        screen.line(prompt, bold=True)
        for found in group:
            screen.line(f"  {found.address.tag}")
            overrides = counted(len(found.present().override.entries()), "override")
            when = moment(found.present().time)
            screen.line(f"    {short(found.current)} of {len(found.history)}, {overrides}, {when}")


def _summary_json(found: StoredTag) -> object:
    return {
        **tag_json(found),
        "revisions": len(found.history),
        "current": revision_json(found.present()),
        "overrides": len(found.present().override.entries()),
    }


def _source(found: StoredTag, template: str | None) -> PromptDescriptor | None:
    if template is None:
        return None
    from promptgraft.cli.source import load_template

    descriptor = load_template(template).descriptor
    if (descriptor.ns, descriptor.key) != (found.address.ns, found.address.prompt_key):
        raise ConfigError(
            f"--template: {template} is prompt `{descriptor.ns}/{descriptor.key}`, "
            f"not `{found.prompt}`; name the source of that prompt"
        )
    return descriptor


def _show_prompt(found: StoredTag, template: str | None, *, as_json: bool) -> None:
    source = _source(found, template)
    entries = shown_entries(found.present().override, source)
    if as_json:
        print_json(
            {
                **tag_json(found),
                "revisions": len(found.history),
                "current": revision_json(found.present()),
                "parts": [entry_json(shown) for shown in entries],
            }
        )
        return
    rows = [
        ("prompt", found.prompt),
        ("tag", found.address.tag),
        *fields_of(found.present()),
        ("file", str(found.path)),
    ]
    if source is not None:
        applied = sum(shown.skipped is None for shown in entries)
        rows.append(("applied", f"{applied} of {counted(len(entries), 'override')}"))
    screen = Screen()
    screen.fields(rows)
    for shown in entries:
        screen.line()
        print_entry(screen, shown)
