"""What a local store holds, for people and for machines."""

from __future__ import annotations

from itertools import groupby

import attrs

from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import StoredTag, fields_of, find_tags, revision_json, short, tag_json
from promptgraft.errors import ConfigError
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    PromptDescriptor,
    PromptOverride,
    SkippedOverride,
)
from promptgraft.overrides.diff import part_json
from promptgraft.overrides.resolution import resolve_override
from promptgraft.parts import in_order
from promptgraft.parts.entry import Entry
from promptgraft.parts.validation import shown_hash
from promptgraft.serde import Json
from promptgraft.text import counted, moment


@attrs.frozen(kw_only=True)
class ShownEntry:
    """One entry, and what today's source makes of it.

    Attributes:
        entry: the entry.
        checked: whether a source was looked at.
        skipped: why it is not applied to that source; None when it is, or is not checked.
    """

    entry: Entry
    checked: bool
    skipped: SkippedOverride | None


def shown_entries(
    override: PromptOverride, descriptor: PromptDescriptor | None
) -> tuple[ShownEntry, ...]:
    """Return every entry, kind by kind, checked against ``descriptor`` if there is one."""
    resolution = resolve_override(descriptor, override) if descriptor else None
    skipped = {found.part: found for found in resolution.skipped} if resolution else {}
    return tuple(
        ShownEntry(entry=entry, checked=descriptor is not None, skipped=skipped.get(entry.part))
        for entry in in_order(override.entries())
    )


def entry_json(shown: ShownEntry) -> dict[str, Json]:
    """Return an entry for machines."""
    entry, skipped = shown.entry, shown.skipped
    return {
        **part_json(
            entry.kind,
            entry.part,
            checked=shown.checked,
            reason=skipped.reason if skipped else None,
        ),
        "expected_hash": entry.expected_hash,
        "found_hash": skipped.found_hash if skipped else None,
        "content": {
            name: value for name, value in entry.plain().items() if name != "expected_hash"
        },
    }


def print_entry(screen: Screen, shown: ShownEntry) -> None:
    """Print the part, whether its override is applied, and what it says."""
    entry = shown.entry
    state = f": {_state(shown.skipped)}" if shown.checked else ""
    screen.line(f"{entry.part}{state}", bold=True)
    if entry.texts():
        screen.body(entry.show(), wrapped=not entry.is_text)
    else:
        screen.body("The example of the source is not shown.")


def _state(skipped: SkippedOverride | None) -> str:
    if skipped is None:
        return "applied"
    if skipped.found_hash is None or skipped.found_hash == skipped.expected_hash:
        return f"not applied, {skipped.reason}"
    return (
        f"not applied, {skipped.reason}: written for source "
        f"{shown_hash(skipped.expected_hash)}, the source is now {shown_hash(skipped.found_hash)}"
    )


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
    from promptgraft.cli.choosing import load_template

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
