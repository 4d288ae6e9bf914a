"""``promptgraft meta apply`` and ``reset``: what a store holds of meta-prompts."""

from __future__ import annotations

import attrs
import click

from promptgraft.cli.diff import print_parts
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.meta.looking import copies_in, print_outdated
from promptgraft.cli.meta.stored import StoredMeta, stored_metas
from promptgraft.cli.named import chosen_store
from promptgraft.cli.options import examples, json_option, project_option, store_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import revision_json_or_none, short
from promptgraft.errors import ConfigError
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    PartDiff,
    PromptOverride,
    Provenance,
)
from promptgraft.overrides.diff import parts_json
from promptgraft.parts.validation import shown_hash
from promptgraft.project.meta_prompts import SHIPPED, MetaCopy, checked_edits
from promptgraft.serde import did_you_mean


@attrs.frozen(kw_only=True)
class _Taken:
    """A copy that the store has taken."""

    copy: MetaCopy
    before: StoredMeta
    after: StoredMeta

    @property
    def is_changed(self) -> bool:
        return self.before.current != self.after.current

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How it differs from the shipped one now; empty when nothing was written."""
        return self.after.parts if self.is_changed else ()

    @property
    def taken_back(self) -> tuple[str, ...]:
        """The sections that were overridden and are as shipped again."""
        now = {part.part for part in self.after.parts}
        return tuple(part.part for part in self.before.parts if part.part not in now)


@click.command("apply", epilog=examples("promptgraft meta apply meta-prompts"))
@click.argument("folder", metavar="DIR")
@project_option
@store_option
@json_option
def apply_command(
    folder: str, *, project: str | None, store: str | None, as_json: bool
) -> ExitCode:
    """Take what was edited in DIR into the store.

    That is every edited section, and no other. Nothing is written unless every file is
    right: each placeholder kept, and no edit of a shipped text that has changed since.
    """
    opened = chosen_store(store, project)
    copies = copies_in(folder)
    # Every fault of every file is known before the first write.
    wanted = checked_edits(copies)
    taken = [_take(opened, copy, edits) for copy, edits in zip(copies, wanted, strict=True)]
    if as_json:
        print_json({"store": str(opened.root_path), "prompts": [_taken_json(one) for one in taken]})
        return ExitCode.OK
    screen = Screen()
    for one in taken:
        state = short(one.after.current) if one.is_changed else "nothing changed"
        screen.line(f"{one.after.name}: {state}", bold=one.is_changed)
        print_outdated(screen, one.copy)
        for part in one.taken_back:
            screen.line(f"{part}: as shipped again")
        print_parts(screen, one.parts)
    return ExitCode.OK


def _take(store: LocalPromptOverridesStore, copy: MetaCopy, edits: PromptOverride) -> _Taken:
    names = (copy.template.key,)
    (before,) = stored_metas(store, names)
    note = Provenance(note=f"promptgraft meta apply, {copy.path.name}")
    store.mutate(before.address, lambda _: edits, provenance=note)
    (after,) = stored_metas(store, names)
    return _Taken(copy=copy, before=before, after=after)


def _taken_json(taken: _Taken) -> dict[str, object]:
    return {
        "name": taken.after.name,
        "prompt": taken.after.prompt,
        "revision": revision_json_or_none(taken.after.current),
        "parts": parts_json(taken.parts, checked=True),
        "taken_back": list(taken.taken_back),
        "outdated": list(taken.copy.outdated),
    }


@click.command(
    "reset", epilog=examples("promptgraft meta reset", "promptgraft meta reset reflect-section")
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@project_option
@store_option
@json_option
def reset_command(
    names: tuple[str, ...], *, project: str | None, store: str | None, as_json: bool
) -> ExitCode:
    """Use the shipped meta-prompts again: those named, or all.

    Nothing is lost: the revisions stay, and `promptgraft rollback` goes back to one.
    """
    for name in names:
        if name not in SHIPPED:
            raise ConfigError(
                f"NAME: there is no meta-prompt `{name}`{did_you_mean(name, list(SHIPPED))}; "
                f"there are {', '.join(SHIPPED)}"
            )
    opened = chosen_store(store, project)
    held = [meta for meta in stored_metas(opened, names) if meta.current is not None]
    for meta in held:
        address = meta.address
        opened.delete(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
    if as_json:
        prompts = [
            {"name": meta.name, "prompt": meta.prompt, "from": revision_json_or_none(meta.current)}
            for meta in held
        ]
        print_json({"store": str(opened.root_path), "prompts": prompts})
        return ExitCode.OK
    screen = Screen()
    for meta in held:
        screen.line(f"{meta.name}: as shipped; it was {short(meta.current)}")
        revision = shown_hash(meta.current.id) if meta.current else ""
        screen.body(f"promptgraft rollback {meta.prompt} --tag {meta.address.tag} --to {revision}")
    if not held:
        screen.line("every meta-prompt is as shipped already")
    return ExitCode.OK
