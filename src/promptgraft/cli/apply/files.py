"""``promptgraft apply --to-source`` and ``--patch``: back into the files of the prompt."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import click

from promptgraft.cli.apply.target import Target
from promptgraft.cli.apply.told import Asked, print_origin, scores_json
from promptgraft.cli.diff import print_parts
from promptgraft.cli.exits import complain
from promptgraft.cli.output import Screen
from promptgraft.cli.text import echo
from promptgraft.errors import ConfigError
from promptgraft.overrides import PartDiff, PromptOverride, diff_override
from promptgraft.overrides.diff import parts_json
from promptgraft.project.applying.files import found_files, planned, replace_files
from promptgraft.project.applying.handover import winner_of
from promptgraft.project.applying.intent import FILE_NAME, Intent, read_intent
from promptgraft.project.applying.patch import patch_of, patch_root
from promptgraft.project.applying.storing import StaleWinnerError, fresh_entries
from promptgraft.project.applying.winner import Winner
from promptgraft.project.sources import FileChange
from promptgraft.text import visible


def unfinished(run_folder: Path, folder: Path) -> Intent | None:
    """Return the write that a kill has left half done: some files are new already.

    Raises:
        StaleWinnerError: a file holds neither its old nor its new text.
        ConfigError, DataFormatError: the record, or a file that it names, is unusable.
    """
    intent = read_intent(run_folder / FILE_NAME)
    if intent is None or intent.done:
        return None
    found = found_files(folder, intent.files)
    if all(file.is_old for file in found):
        return None
    give_up = f", or delete {run_folder / FILE_NAME} to leave the files as they are"
    if stale := tuple(f"{file.stale}{give_up}" for file in found if file.stale):
        raise StaleWinnerError(stale)
    return intent


def other_first(asked: Asked, intent: Intent) -> ConfigError:
    """Return the error that says which half done write is to be completed before anything else."""
    return ConfigError(
        f"candidate {intent.candidate} of run {asked.run.id} is half written into the files of the "
        f"prompt; complete that first: promptgraft apply {asked.run.id} --candidate "
        f"{intent.candidate} --to-source"
    )


@attrs.frozen(kw_only=True)
class CompletedAnswer:
    """A write that a kill had left half done, and that is whole now."""

    asked: Asked
    paths: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return the answer for machines."""
        return self.asked.document("source", "completed", files=list(self.paths))

    def print(self, screen: Screen) -> None:
        """Print the answer for people."""
        screen.line(f"run `{self.asked.run.id}`, candidate {self.asked.candidate}", bold=True)
        verb = "would be completed" if self.asked.dry else "is completed now"
        screen.line(f"an earlier `apply --to-source` was interrupted: it {verb}")
        _print_files(screen, self.asked, self.paths)


def complete(asked: Asked, intent: Intent, folder: Path) -> CompletedAnswer:
    """Complete a write that a kill has left half done.

    Raises:
        OSError: the system refuses.
    """
    if not asked.dry:
        replace_files(folder, asked.run.folder.path, intent)
    return CompletedAnswer(asked=asked, paths=tuple(file.path for file in intent.files))


@attrs.frozen(kw_only=True)
class SourceAnswer:
    """What became of a candidate in the files of its prompt.

    Attributes:
        asked: what was asked for.
        winner: the candidate.
        parts: how the source changes.
        paths: the files that were written; none when the source said it already.
        tag: the tag that the run began with.
        stale: the parts whose overrides under that tag are stale now.
    """

    asked: Asked
    winner: Winner
    parts: tuple[PartDiff, ...]
    paths: tuple[str, ...]
    tag: str
    stale: tuple[str, ...]

    def document(self) -> dict[str, object]:
        """Return the answer for machines."""
        return self.asked.document(
            "source",
            "applied" if self.paths else "already applied",
            scores=scores_json(self.winner),
            files=list(self.paths),
            parts=parts_json(self.parts, checked=True),
            stale_overrides={"tag": self.tag, "parts": list(self.stale)},
        )

    def print(self, screen: Screen) -> None:
        """Print the answer for people."""
        print_origin(screen, self.asked, self.winner)
        if not self.paths:
            screen.line("already applied: the source says just that")
            return
        print_parts(screen, self.parts)
        screen.line()
        _print_files(screen, self.asked, self.paths)
        if self.stale:
            screen.line(
                f"tag `{self.tag}` holds overrides of {', '.join(self.stale)}: they were written "
                "for the old text and are not applied to the new one",
                color="yellow",
            )


def write_to_source(asked: Asked, target: Target) -> SourceAnswer:
    """Write the candidate into the files of its prompt, all or none.

    Raises:
        StaleWinnerError: a part has changed since the run began.
        ConfigError: the prompt is not written in files, or a file may not be written.
        OSError: the system refuses; no file was changed.
    """
    winner, override, changes = _rewritten(asked, target)
    folder = target.folder or Path()
    files = planned(folder, changes)
    if files and not asked.dry:
        intent = Intent(run=asked.run.id, candidate=asked.candidate, done=False, files=files)
        replace_files(folder, asked.run.folder.path, intent)
    return SourceAnswer(
        asked=asked,
        winner=winner,
        parts=diff_override(target.prompt, override),
        paths=tuple(file.path for file in files),
        tag=target.tag,
        stale=_left_behind(target, override),
    )


@attrs.frozen(kw_only=True)
class PatchAnswer:
    """A candidate as a patch of the files of its prompt."""

    asked: Asked
    winner: Winner
    root: Path
    patch: str

    def document(self) -> dict[str, object]:
        """Return the answer for machines."""
        return self.asked.document(
            "patch",
            "applied" if self.patch else "already applied",
            scores=scores_json(self.winner),
            root=str(self.root),
            patch=self.patch,
        )

    def print(self, screen: Screen) -> None:
        """Print the patch: as bytes, because in another encoding it would be that of others."""
        del screen
        if not self.patch:
            complain("already applied: the source says just that; the patch is empty")
        elif sys.stdout is not None and sys.stdout.isatty():
            # Nobody pipes it into git: what a terminal would obey is spelled out.
            echo(visible(self.patch).removesuffix("\n"))
        else:
            click.echo(self.patch.encode(), nl=False)


def make_patch(asked: Asked, target: Target) -> PatchAnswer:
    """Return a patch that makes the files say what the candidate says; writes nothing.

    Raises:
        StaleWinnerError: a part has changed since the run began.
        ConfigError: the prompt is not written in files, or in files elsewhere.
    """
    winner, _, changes = _rewritten(asked, target)
    root = patch_root(target.folder or Path())
    planned(root, changes)  # refuses files outside of what the patch is for
    patch = patch_of(changes, root=root)
    return PatchAnswer(asked=asked, winner=winner, root=root, patch=patch)


def _rewritten(
    asked: Asked, target: Target
) -> tuple[Winner, PromptOverride, tuple[FileChange, ...]]:
    if target.source is None:
        raise ConfigError(
            f"prompt `{asked.run.prompt}` is written in Python: only Markdown prompts of a project "
            "can be written back; leave --to-source and --patch out to use the store"
        )
    winner = winner_of(asked.run, asked.candidate, target.address)
    entries = fresh_entries(winner, target.prompt, target.tag)
    override = winner.base.holding(entries)
    return winner, override, target.source.rewritten(override) if entries else ()


def _left_behind(target: Target, override: PromptOverride) -> tuple[str, ...]:
    """Return the parts that the tag overrides and that now stand in the source."""
    address = target.address
    held = target.store.current(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
    kept = held.override if held else address.empty()
    return tuple(entry.part for entry in override.entries() if kept.find(entry) is not None)


def _print_files(screen: Screen, asked: Asked, paths: tuple[str, ...]) -> None:
    if asked.dry:
        screen.line("a dry run: nothing was written")
    verb = "would be written" if asked.dry else "written"
    screen.fields([(verb, path) for path in paths])
