"""``promptgraft show``: what a local store holds."""

from __future__ import annotations

from itertools import groupby

import attrs
import click

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
from promptgraft.overrides import LocalPromptOverridesStore, SectionOverride, SkippedOverride
from promptgraft.overrides.entries import section_part
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.validation import shown_hash


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
    text of each override. `--template` tells which of them are stale, and why.
    """
    opened = open_store(store)
    if prompt is not None:
        _show_prompt(_check(find_tag(opened, prompt, tag), template), as_json=as_json)
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
            overrides = counted(len(found.present().override.sections), "override")
            when = moment(found.present().time)
            screen.line(f"    {short(found.current)} of {len(found.history)}, {overrides}, {when}")


def _summary_json(found: StoredTag) -> object:
    return {
        **tag_json(found),
        "revisions": len(found.history),
        "current": revision_json(found.present()),
        "overrides": len(found.present().override.sections),
    }


@attrs.frozen
class _Checked:
    """A tag, and which of its entries today's source does not take; None without a source."""

    found: StoredTag
    skipped: dict[str, SkippedOverride] | None

    @property
    def sections(self) -> list[SectionOverride]:
        """The overrides by path."""
        held = self.found.present().override.sections
        return [held[path] for path in sorted(held)]


def _check(found: StoredTag, template: str | None) -> _Checked:
    if template is None:
        return _Checked(found, None)
    from promptgraft.cli.source import load_template

    descriptor = load_template(template).descriptor
    if (descriptor.ns, descriptor.key) != (found.address.ns, found.address.prompt_key):
        raise ConfigError(
            f"--template: {template} is prompt `{descriptor.ns}/{descriptor.key}`, "
            f"not `{found.prompt}`; name the source of that prompt"
        )
    resolution = resolve_override(descriptor, found.present().override)
    return _Checked(found, {skipped.part: skipped for skipped in resolution.skipped})


def _show_prompt(checked: _Checked, *, as_json: bool) -> None:
    found = checked.found
    if as_json:
        parts = [_section_json(checked, section) for section in checked.sections]
        print_json(
            {
                **tag_json(found),
                "revisions": len(found.history),
                "current": revision_json(found.present()),
                "parts": parts,
            }
        )
        return
    screen = Screen()
    screen.fields(
        [
            ("prompt", found.prompt),
            ("tag", found.address.tag),
            *fields_of(found.present()),
            ("file", str(found.path)),
        ]
    )
    for section in checked.sections:
        screen.line()
        state = _state(checked, section)
        screen.line(f"{section_part(section.path)}{f': {state}' if state else ''}", bold=True)
        screen.body(section.body)


def _state(checked: _Checked, section: SectionOverride) -> str:
    if checked.skipped is None:
        return ""
    skipped = checked.skipped.get(section_part(section.path))
    if skipped is None:
        return "applied"
    if skipped.found_hash is None or skipped.found_hash == skipped.expected_hash:
        return f"not applied, {skipped.reason}"
    return (
        f"not applied, {skipped.reason}: written for source "
        f"{shown_hash(skipped.expected_hash)}, the source is now {shown_hash(skipped.found_hash)}"
    )


def _section_json(checked: _Checked, section: SectionOverride) -> object:
    skipped = (checked.skipped or {}).get(section_part(section.path))
    return {
        "part": section_part(section.path),
        "path": list(section.path),
        "expected_hash": section.expected_hash,
        "found_hash": skipped.found_hash if skipped else None,
        "body": section.body,
        "applied": None if checked.skipped is None else skipped is None,
        "skipped": skipped.reason if skipped else None,
    }
