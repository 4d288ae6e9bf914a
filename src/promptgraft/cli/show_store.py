"""What a local store holds, for people and for machines."""

from __future__ import annotations

from itertools import groupby

from promptgraft.cli.entry import entry_json, print_entry, shown_entries
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import StoredTag, fields_of, find_tags, revision_json, short, tag_json
from promptgraft.errors import ConfigError
from promptgraft.overrides import LocalPromptOverridesStore, PromptDescriptor
from promptgraft.text import counted, moment


def show_store(store: LocalPromptOverridesStore, tag: str | None, *, as_json: bool) -> None:
    """List prompts and tags."""
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


def show_prompt(found: StoredTag, template: str | None, *, as_json: bool) -> None:
    """Print every override of a tag.

    Raises:
        ConfigError: the template cannot be imported, or is of another prompt.
    """
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
