"""Winners written into the sources of their prompts, or shown as a patch of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

import attrs

from promptgraft.agents.writing import CallbackSource, SourceWriter, WrittenText
from promptgraft.errors import ConfigError
from promptgraft.overrides import (
    PartDiff,
    PromptLike,
    PromptOverride,
    VisibilityOverride,
    diff_override,
)
from promptgraft.project.agents import TextsSource
from promptgraft.project.applying.winner import StaleWinnerError, Winner, fresh_entries, winners_of
from promptgraft.project.files import FILE_NAME as PROJECT_FILE
from promptgraft.project.files import FileChange
from promptgraft.project.markdown.prompts import MarkdownSource
from promptgraft.project.origins import RunTarget
from promptgraft.project.parts import ForeignSource
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.runs import RunRecord

_SUFFIXES = {".baml", ".md", ".yaml", ".yml"}
_ESCAPES = dict(zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))
"""The letters with which git escapes characters of a quoted path."""
_NEEDS_QUOTES = re.compile(r'[^ -~]|["\\]')
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def may_hold_a_prompt(path: PurePath) -> bool:
    """Return whether a file may belong to a prompt; files that configure code may not."""
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix in _SUFFIXES and path.name != PROJECT_FILE


def planned(folder: Path, changes: Iterable[FileChange]) -> tuple[WrittenText, ...]:
    """Return the file changes of a project for the writer, without files that stay the same.

    Raises:
        ConfigError: a file is outside the project's folder, or a link leads out of it; its name is
            not that of a prompt file; or two changes are of one file.
    """
    plans: dict[str, WrittenText] = {}
    root = folder.resolve()
    for change in changes:
        real = change.path.resolve()
        if change.before == change.after:
            continue
        if not real.is_relative_to(root):
            raise ConfigError(
                f"{change.path}: leads out of the project's folder {root}, to {real}; only files "
                "in it are written; move the file there, or use --patch"
            )
        relative = real.relative_to(root)
        if not may_hold_a_prompt(relative):
            raise ConfigError(
                f"{change.path}: expected a file whose name ends in .md, .yaml, .yml or .baml, in "
                "no hidden folder, found another, which is not written; rename it, or use --patch"
            )
        path = relative.as_posix()
        # Each change is the whole file, so that the second would write over the first.
        if path in plans:
            raise ConfigError(f"{change.path}: two parts of the prompt change the file in two ways")
        plans[path] = WrittenText(name=path, path=path, old=change.before, new=(change.after,))
    return tuple(plans.values())


def patch_root(folder: Path) -> Path:
    """Return the base of paths in a patch: the root of the git repository, or ``folder``."""
    real = folder.resolve()
    for parent in (real, *real.parents):
        if (parent / ".git").exists():
            return parent
    return real


def patch_of(changes: Iterable[FileChange], *, root: Path) -> str:
    """Return a unified patch of all changes.

    Paths in it are relative to ``root``, which must not contain links.

    Raises:
        ValueError: a file is not below ``root``.
    """
    return "".join(
        _patch(change, PurePosixPath(change.path.resolve().relative_to(root)).as_posix())
        for change in changes
        if change.before != change.after
    )


def _patch(change: FileChange, path: str) -> str:
    old, new = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    # git writes a tab after a name with a space, to mark its end.
    end = "\t" if " " in path else ""
    before, after = _lines(change.before), _lines(change.after)
    hunks = list(difflib.unified_diff(before, after))[2:]
    header = f"diff --git {old} {new}\n--- {old}{end}\n+++ {new}{end}\n"
    return header + "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in hunks)


def _quoted(path: str) -> str:
    """Return a path quoted as git does, with other bytes than ASCII in octal."""
    if not _NEEDS_QUOTES.search(path):
        return path
    return '"' + "".join(map(_escaped, path)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return f"\\{_ESCAPES[character]}"
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def _lines(text: str) -> list[str]:
    # Not splitlines: to git, a form feed or a carriage return is part of a line.
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


@attrs.frozen(kw_only=True)
class Rewritten:
    """A candidate, to be written into the current sources.

    Attributes:
        winner: the candidate, for the first prompt.
        entries: for each prompt, the overrides to write and the prefix of names of its parts.
        changes: the changes of Markdown and BAML files.
        texts: the changes of texts of agents.
        callbacks: the callbacks that store some of these texts.
    """

    winner: Winner
    entries: Sequence[tuple[PromptLike, PromptOverride, str]]
    changes: Sequence[FileChange]
    texts: Sequence[WrittenText]
    callbacks: Mapping[str, CallbackSource]

    @classmethod
    def of(cls, run: RunRecord, candidate: int, target: RunTarget) -> Rewritten:
        """Prepare a candidate for writing, without writing it.

        Raises:
            ConfigError: a prompt that it changes is written in Python.
            StaleWinnerError: a source has changed since the run; with the place, if known.
        """
        winners = winners_of(run, candidate, target.addresses)
        entries: list[tuple[PromptLike, PromptOverride, str]] = []
        changes: list[FileChange] = []
        texts: list[WrittenText] = []
        callbacks: dict[str, CallbackSource] = {}
        for winner, winner_texts in zip(winners, target.files, strict=True):
            if winner_texts.source is None and winner.changes:
                raise ConfigError(
                    f"prompt `{winner.of}` is written in Python: only Markdown prompts and texts "
                    "in files or callbacks of a project can be written back; leave --to-source "
                    "and --patch out to use the store"
                )
            of = f"{winner.of}#" if len(winners) > 1 else ""
            try:
                fresh = fresh_entries(winner, winner_texts.prompt, target.tag, of=of)
            except StaleWinnerError as error:
                raise StaleWinnerError(
                    (*error.faults, *_places(run, winner, winner_texts))
                ) from None
            override = winner.base.holding(fresh)
            entries.append((winner_texts.prompt, override, of))
            if isinstance(winner_texts.source, TextsSource):
                texts += winner_texts.source.changes(override)
                callbacks.update(winner_texts.source.sources.callbacks)
            elif isinstance(winner_texts.source, (MarkdownSource, ForeignSource)) and override:
                changes += winner_texts.source.rewritten(override)
        return cls(
            winner=winners[0], entries=entries, changes=changes, texts=texts, callbacks=callbacks
        )

    def write(self, run: RunRecord, candidate: int, target: RunTarget, *, dry: bool) -> list[str]:
        """Write the candidate, all or nothing, and return the names of what was written."""
        texts = (*planned(target.folder, self.changes), *self.texts)
        if texts and not dry:
            writer = SourceWriter(target.folder.resolve(), self.callbacks)
            with writer.held():
                writer.write(texts, by=f"the write of candidate {candidate} of run {run.id}")
        return [text.where for text in texts]

    @property
    def parts(self) -> list[PartDiff]:
        """The differences between the candidate and the sources."""
        return [
            attrs.evolve(diff, part=f"{of}{diff.part}")
            for prompt, override, of in self.entries
            for diff in diff_override(prompt, override)
        ]

    def left_behind(self, target: RunTarget) -> list[str]:
        """Return the parts whose overrides under the tag are stale after the write."""
        parts = []
        for (_, override, of), address in zip(self.entries, target.addresses, strict=True):
            current = target.store.current_at(address)
            override_now = current.override if current else address.empty()
            parts += [
                f"{of}{entry.part}"
                for entry in override.entries()
                # What is shown is bound to texts that such a write does not change.
                if override_now.find(entry) and not isinstance(entry, VisibilityOverride)
            ]
        return parts


def _places(run: RunRecord, winner: Winner, found: ProjectPrompt) -> Iterator[str]:
    """Yield a line for each text that has changed since the run began, if that is known."""
    if run.started is not None and isinstance(found.source, TextsSource):
        yield from found.source.changed_since(run.started.texts, winner.base)
