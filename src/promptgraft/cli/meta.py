"""``promptgraft meta``: listing, editing and resetting the meta-prompts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs
import click

from promptgraft.cli import stored
from promptgraft.cli.choosing import chosen_store, store_options
from promptgraft.cli.options import examples, json_option, project_option, store_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.errors import ConfigError
from promptgraft.ground.files import write_atomically
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.text import counted, shell_word
from promptgraft.overrides import (
    PartDiff,
    PromptOverride,
    Provenance,
    Revision,
    RevisionedStore,
    diff_override,
)
from promptgraft.overrides.differences import parts_json
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.project.meta_prompts import (
    SHIPPED,
    MetaCopy,
    Template,
    checked_edits,
    meta_text,
    read_copies,
)

FOLDER = "meta-prompts"


@click.group(
    "meta",
    epilog=examples(
        "meta list",
        f"meta write {FOLDER}",
        f"meta diff {FOLDER}",
        f"meta apply {FOLDER}",
        "meta reset",
    ),
)
def meta_command() -> None:
    """Change the meta-prompts for the reflection model and the simulated user.

    They are prompts in the namespaces `promptgraft/gepa`, `promptgraft/gradient` and
    `promptgraft/agents`, and can be overridden in a store like any other prompt.
    """


@attrs.frozen(kw_only=True)
class _StoredMeta:
    """A meta-prompt in a store, and how it differs from the shipped one."""

    template: Template
    address: OverrideAddress
    current: Revision | None
    parts: tuple[PartDiff, ...]

    @property
    def name(self) -> str:
        """The meta-prompt, without its namespace."""
        return self.template.key

    @property
    def names(self) -> dict[str, Json]:
        """Its name without and with its namespace, as plain data."""
        return {"name": self.name, "prompt": f"{self.template.ns}/{self.name}"}

    def to_json(self, **more: Json) -> dict[str, Json]:
        """Return its names, its revision and ``more``."""
        return {**self.names, "revision": stored.revision_json_or_none(self.current), **more}


def _stored_meta(store: RevisionedStore, template: Template) -> _StoredMeta:
    address = OverrideAddress(template.ns, template.key, DEFAULT_TAG)
    current = store.current_at(address)
    parts = diff_override(template, current.override if current else None)
    return _StoredMeta(template=template, address=address, current=current, parts=parts)


def _stored_metas(store: RevisionedStore, names: Sequence[str] = ()) -> list[_StoredMeta]:
    """Return the named meta-prompts, by default all, in the order in which they are shipped."""
    return [_stored_meta(store, SHIPPED[name]) for name in SHIPPED if not names or name in names]


@meta_command.command("list", epilog=examples("meta list --json"))
@store_options
def list_command(*, store: RevisionedStore, as_json: bool) -> None:
    """List the meta-prompts, and which of them are overridden."""
    metas = _stored_metas(store)
    if as_json:
        prompts = [
            meta.to_json(
                overridden=[part.part for part in meta.parts],
                stale=[part.part for part in meta.parts if part.state is not None],
            )
            for meta in metas
        ]
        print_json({"store": store.place, "prompts": prompts})
        return
    screen = Screen()
    screen.line(f"meta-prompts, store {store.place}", bold=True)
    screen.fields([(meta.name, _state(meta)) for meta in metas])
    for meta in metas:
        for part in meta.parts:
            if part.state is not None:
                problem = f"{meta.name}: {part.part} is not applied: {part.state}"
                screen.line(problem, color="yellow")


def _state(meta: _StoredMeta) -> str:
    if meta.current is None or not meta.parts:
        return "as shipped"
    return f"{counted(len(meta.parts), 'section')} overridden, {stored.short(meta.current)}"


@meta_command.command("write", epilog=examples(f"meta write {FOLDER}"))
@click.argument("folder", metavar="[DIR]", default=FOLDER)
@store_options
def write_command(folder: str, *, store: RevisionedStore, as_json: bool) -> None:
    """Write the current meta-prompts to Markdown files.

    DIR is `meta-prompts` by default. Files that exist and differ are not replaced.
    """
    target = Path(folder)
    texts: dict[Path, bytes] = {}
    for meta in _stored_metas(store):
        override = meta.current.override if meta.current else None
        texts[target / f"{meta.name}.md"] = meta_text(meta.template, override).encode()
    differing = [
        str(path) for path, text in texts.items() if path.exists() and path.read_bytes() != text
    ]
    if differing:
        raise ConfigError(
            f"{', '.join(differing)}: exists and differs; name another folder, or delete what you "
            "do not need"
        )
    target.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        # Only after all of them were compared: a refusal must not leave some files behind.
        write_atomically(path, text)
    if as_json:
        print_json({"folder": str(target), "files": [str(path) for path in texts]})
        return
    screen = Screen()
    for path in texts:
        screen.line(str(path))
    screen.line()
    screen.line(
        "Edit them, compare them with the shipped ones, apply them to the store:", bold=True
    )
    named = shell_word(str(target))
    screen.body(f"promptgraft meta diff {named}\npromptgraft meta apply {named}")


@meta_command.command("diff", epilog=examples("meta diff", "meta diff meta-prompts"))
@click.argument("folder", metavar="[DIR]", required=False)
@project_option
@store_option
@json_option
def diff_command(
    folder: str | None, *, project: str | None, store: str | None, as_json: bool
) -> None:
    """Compare the shipped meta-prompts with files or with the store.

    With DIR, compares its files; without, the overrides in the store. Lists the sections whose
    shipped text has changed since the files were written.
    """
    if folder is not None and (store, project) != (None, None):
        option = "--project" if store is None else "--store"
        raise ConfigError(
            f"{option}: the files of DIR are not compared with a store; leave one out"
        )
    root = None
    if folder is not None:
        compared = [
            (
                copy_of_file.template.key,
                str(copy_of_file.path),
                diff_override(copy_of_file.template, copy_of_file.edits),
                copy_of_file.outdated,
            )
            for copy_of_file in _copies_in(folder)
        ]
    else:
        opened = chosen_store(store, project)
        root, metas = opened.place, _stored_metas(opened)
        compared = [
            (meta.name, f"{meta.name}, {stored.short(meta.current)}", meta.parts, ())
            for meta in metas
        ]
    compared = [comparison for comparison in compared if any(comparison[2:])]
    if as_json:
        prompts = [
            {"name": name, "parts": parts_json(parts, checked=True), "outdated": list(outdated)}
            for name, _, parts, outdated in compared
        ]
        print_json({"store": root, "folder": folder, "prompts": prompts})
        return
    screen = Screen()
    for _, title, parts, outdated in compared:
        screen.line(title, bold=True)
        _print_outdated(screen, outdated)
        screen.parts(parts)
    if not compared:
        screen.line(f"every {'meta-prompt' if folder is None else 'copy'} is as shipped")


def _copies_in(folder: str) -> tuple[MetaCopy, ...]:
    path = Path(folder)
    if not path.is_dir():
        raise ConfigError(f"DIR: expected a folder, found {folder!r}; name one that exists")
    return read_copies(path)


def _print_outdated(screen: Screen, sections: Sequence[str]) -> None:
    """Print the sections of a copy whose shipped text has changed since."""
    for section in sections:
        problem = f"section {section}: the shipped text has changed since the copy was written"
        screen.line(problem, color="yellow")


@meta_command.command("apply", epilog=examples("meta apply meta-prompts"))
@click.argument("folder", metavar="DIR")
@store_options
def apply_command(folder: str, *, store: RevisionedStore, as_json: bool) -> None:
    """Write the edited sections in DIR to the store.

    Sections that were not edited are left out. Nothing is written unless every file is valid:
    all placeholders kept, and no edit of a shipped text that has changed since.
    """
    copies = _copies_in(folder)
    # All faults of all files are reported before anything is written.
    edits = checked_edits(copies)
    before = [_stored_meta(store, copy.template) for copy in copies]
    note = f"promptgraft meta apply, {', '.join(copy.path.name for copy in copies)}"
    changes = {
        meta.address: partial(_replaced, edit) for meta, edit in zip(before, edits, strict=True)
    }
    # One step for all, so that no reader finds only some of the edits.
    store.mutate_all(changes, provenance=Provenance(note=note))
    screen, prompts = Screen(), list[Json]()
    for copy, old in zip(copies, before, strict=True):
        new = _stored_meta(store, copy.template)
        is_changed = new.current != old.current
        parts = new.parts if is_changed else ()
        taken_back = [
            entry.part for entry in old.parts if entry.part not in {now.part for now in new.parts}
        ]
        if as_json:
            more: dict[str, Json] = {"taken_back": [*taken_back], "outdated": [*copy.outdated]}
            prompts.append(new.to_json(parts=parts_json(parts, checked=True), **more))
            continue
        state = stored.short(new.current) if is_changed else "nothing changed"
        screen.line(f"{new.name}: {state}", bold=is_changed)
        _print_outdated(screen, copy.outdated)
        for part in taken_back:
            screen.line(f"{part}: as shipped again")
        screen.parts(parts)
    if as_json:
        print_json({"store": store.place, "prompts": prompts})


def _replaced(edit: PromptOverride, present: PromptOverride) -> PromptOverride:
    del present
    return edit


@meta_command.command("reset", epilog=examples("meta reset", "meta reset reflect-section"))
@click.argument("names", metavar="[NAME]...", nargs=-1)
@store_options
def reset_command(names: tuple[str, ...], *, store: RevisionedStore, as_json: bool) -> None:
    """Return to the shipped meta-prompts: the named ones, or all.

    Nothing is lost: the revisions are kept, and `promptgraft rollback` returns to one.
    """
    for name in names:
        if name not in SHIPPED:
            raise ConfigError(
                f"NAME: there is no meta-prompt `{name}`{did_you_mean(name, list(SHIPPED))}; "
                f"there are {', '.join(SHIPPED)}"
            )
    current_metas = [(meta, meta.current) for meta in _stored_metas(store, names) if meta.current]
    for meta, _ in current_metas:
        store.delete(ns=meta.template.ns, prompt_key=meta.name, tag=DEFAULT_TAG)
    if as_json:
        prompts = [
            {**meta.names, "from": stored.revision_json(current)} for meta, current in current_metas
        ]
        print_json({"store": store.place, "prompts": prompts})
        return
    screen = Screen()
    for meta, current in current_metas:
        screen.line(f"{meta.name}: as shipped; it was {stored.short(current)}")
        back = stored.tag_command("rollback", meta.address, store)
        screen.body(f"{back} --to {shown_hash(current.id)}")
    if not current_metas:
        screen.line("every meta-prompt is as shipped already")
