"""``promptgraft meta list`` and ``diff``: what differs from the shipped meta-prompts."""

from __future__ import annotations

from pathlib import Path

import click

from promptgraft.cli.diff import print_parts
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.meta.stored import StoredMeta, stored_metas
from promptgraft.cli.named import chosen_store
from promptgraft.cli.options import examples, json_option, project_option, store_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import revision_json_or_none, short
from promptgraft.errors import ConfigError
from promptgraft.overrides import diff_override
from promptgraft.overrides.diff import parts_json
from promptgraft.project.meta_prompts import MetaCopy, read_copies
from promptgraft.text import counted


@click.command("list", epilog=examples("promptgraft meta list --json"))
@project_option
@store_option
@json_option
def list_command(*, project: str | None, store: str | None, as_json: bool) -> ExitCode:
    """List the meta-prompts, and which of them are overridden."""
    opened = chosen_store(store, project)
    metas = stored_metas(opened)
    if as_json:
        print_json({"store": str(opened.root_path), "prompts": [_listed(meta) for meta in metas]})
        return ExitCode.OK
    screen = Screen()
    screen.line(f"meta-prompts, store {opened.root_path}", bold=True)
    screen.fields([(meta.name, _state(meta)) for meta in metas])
    for meta in metas:
        for part in meta.stale:
            screen.line(f"{meta.name}: {part.part} is not applied: {part.state}", color="yellow")
    return ExitCode.OK


def _listed(meta: StoredMeta) -> dict[str, object]:
    return {
        "name": meta.name,
        "prompt": meta.prompt,
        "revision": revision_json_or_none(meta.current),
        "overridden": [part.part for part in meta.parts],
        "stale": [part.part for part in meta.stale],
    }


def _state(meta: StoredMeta) -> str:
    if meta.current is None or not meta.parts:
        return "as shipped"
    return f"{counted(len(meta.parts), 'section')} overridden, {short(meta.current)}"


@click.command(
    "diff", epilog=examples("promptgraft meta diff", "promptgraft meta diff meta-prompts")
)
@click.argument("folder", metavar="[DIR]", required=False)
@project_option
@store_option
@json_option
def diff_command(
    folder: str | None, *, project: str | None, store: str | None, as_json: bool
) -> ExitCode:
    """Compare the shipped ones with files or the store.

    With DIR its files are compared, else what the store holds. Sections whose shipped text
    has changed since the files were written are named.
    """
    if folder is not None and (store, project) != (None, None):
        given = "--project" if store is None else "--store"
        raise ConfigError(f"{given}: the files of DIR are not compared with a store; leave one out")
    if folder is not None:
        return _diff_copies(folder, copies_in(folder), as_json=as_json)
    opened = chosen_store(store, project)
    metas = [meta for meta in stored_metas(opened) if meta.parts]
    if as_json:
        prompts = [
            {"name": meta.name, "parts": parts_json(meta.parts, checked=True), "outdated": []}
            for meta in metas
        ]
        print_json({"store": str(opened.root_path), "folder": None, "prompts": prompts})
        return ExitCode.OK
    screen = Screen()
    for meta in metas:
        screen.line(f"{meta.name}, {short(meta.current)}", bold=True)
        print_parts(screen, meta.parts)
    if not metas:
        screen.line("every meta-prompt is as shipped")
    return ExitCode.OK


def copies_in(folder: str) -> tuple[MetaCopy, ...]:
    """Return the copies of meta-prompts in a folder that the command line names.

    Raises:
        ConfigError: there is no such folder.
        DataFormatError: a line for each fault of each file.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"DIR: expected a folder, found {folder!r}; name one that exists")
    return read_copies(path)


def _diff_copies(folder: str, copies: tuple[MetaCopy, ...], *, as_json: bool) -> ExitCode:
    differing = [copy for copy in copies if copy.edits or copy.outdated]
    if as_json:
        prompts = [
            {
                "name": copy.template.key,
                "parts": parts_json(diff_override(copy.template, copy.edits), checked=True),
                "outdated": list(copy.outdated),
            }
            for copy in differing
        ]
        print_json({"store": None, "folder": folder, "prompts": prompts})
        return ExitCode.OK
    screen = Screen()
    for copy in differing:
        screen.line(str(copy.path), bold=True)
        print_outdated(screen, copy)
        print_parts(screen, diff_override(copy.template, copy.edits))
    if not differing:
        screen.line("every copy is as shipped")
    return ExitCode.OK


def print_outdated(screen: Screen, copy: MetaCopy) -> None:
    """Name the sections of a copy whose shipped text is another one now."""
    for section in copy.outdated:
        problem = f"section {section}: the shipped text has changed since the copy was written"
        screen.line(problem, color="yellow")
