"""Replacing source files: all or none, and completed after a kill.

An :class:`Intent`, on disk before the first of them changes, says what is to be written.
Effects go through the calls of :mod:`promptgraft.files`, so that tests can end the process at
each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePath, PurePosixPath

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.files import write_atomically
from promptgraft.parts.validation import shown_hash
from promptgraft.project.files import FILE_NAME as PROJECT_FILE
from promptgraft.project.sources import FileChange
from promptgraft.serde import digest_text, parse_json, shown, structure, unstructure

FILE_NAME = "apply.json"
VERSION = 1

_SUFFIXES = {".md", ".yaml", ".yml"}


@attrs.frozen(kw_only=True)
class PlannedFile:
    """One file that is to change.

    Attributes:
        path: relative to the project's folder, with `/`.
        before: its whole text before.
        after: its whole text afterwards.
    """

    path: str
    before: str
    after: str


@attrs.frozen(kw_only=True)
class Intent:
    """The record of one write to source files.

    Attributes:
        run: id of the run.
        candidate: the candidate that is written.
        done: whether every file was written.
        files: the files, in the order in which they are written.
        version: of this format.
    """

    run: str
    candidate: int
    done: bool
    files: tuple[PlannedFile, ...]
    version: int = VERSION


def read_intent(path: Path) -> Intent | None:
    """Return what ``path`` records; None when nothing was ever begun.

    Raises:
        DataFormatError: it is no such record.
        OSError: the system refuses.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    where = str(path)
    mend = "; restore it, or delete it when every prompt file is as you want it"
    try:
        intent = structure(parse_json(data, where=where), Intent, where=where)
    except DataFormatError as error:
        raise DataFormatError(f"{error}{mend}") from None
    if intent.version != VERSION:
        raise DataFormatError(f"{where}: version: expected {VERSION}, found {intent.version}{mend}")
    for file in intent.files:
        if not may_hold_a_prompt(PurePosixPath(file.path)):
            raise DataFormatError(
                f"{where}: files: expected Markdown and YAML files of a prompt, found "
                f"{shown(file.path)}{mend}"
            )
    return intent


def may_hold_a_prompt(path: PurePath) -> bool:
    """Tell whether a file may be one of a prompt: none that says what code is run."""
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix in _SUFFIXES and path.name != PROJECT_FILE


@attrs.frozen(kw_only=True)
class FoundFile:
    """A file of an intent as it is now.

    Attributes:
        plan: what is to become of it.
        path: where it really stands.
        text: what it holds.
    """

    plan: PlannedFile
    path: Path
    text: str

    @property
    def is_old(self) -> bool:
        """Whether it is still to be written."""
        return self.text == self.plan.before

    @property
    def is_new(self) -> bool:
        """Whether it is written already."""
        return self.text == self.plan.after

    @property
    def stale(self) -> str:
        """Why it may not be written, in one line; empty when it may."""
        if self.is_old or self.is_new:
            return ""
        return (
            f"{self.path}: expected {shown_hash(digest_text(self.plan.before))} or "
            f"{shown_hash(digest_text(self.plan.after))}, found "
            f"{shown_hash(digest_text(self.text))}: somebody has changed the file; restore it "
            "from version control"
        )


def planned(folder: Path, changes: Iterable[FileChange]) -> tuple[PlannedFile, ...]:
    """Return the changes of a project as an intent keeps them; files that stay are left out.

    Raises:
        ConfigError: a file is not in the project's folder, a link leads out of it, it is none of
            a prompt by its name, or two changes are of one file.
    """
    plans = {}
    for change in changes:
        if change.before == change.after:
            continue
        relative = inside(folder, change.path).relative_to(folder.resolve())
        if not may_hold_a_prompt(relative):
            raise ConfigError(
                f"{change.path}: expected a file whose name ends in .md, .yaml or .yml, and in no "
                "hidden folder, found another, which is not written; rename it, or use --patch"
            )
        path = relative.as_posix()
        if path in plans:
            raise ConfigError(f"{change.path}: two parts of the prompt change the file in two ways")
        plans[path] = PlannedFile(path=path, before=change.before, after=change.after)
    return tuple(plans.values())


def inside(folder: Path, path: Path) -> Path:
    """Return where ``path`` really stands: a regular file in the project's folder.

    Raises:
        ConfigError: it is no regular file, or not in the folder.
    """
    root, real = folder.resolve(), path.resolve()
    if not real.is_relative_to(root):
        raise ConfigError(
            f"{path}: leads out of the project's folder {root}, to {real}; only files in it are "
            "written; move the file there, or use --patch"
        )
    if not real.is_file():
        raise ConfigError(f"{path}: expected a file, found none; restore it from version control")
    return real


def found_files(folder: Path, files: Iterable[PlannedFile]) -> tuple[FoundFile, ...]:
    """Read every file that is to change.

    Raises:
        ConfigError: a file is not in the project's folder.
        DataFormatError: a file is not UTF-8.
        OSError: the system refuses.
    """
    found = []
    for plan in files:
        path = inside(folder, folder / plan.path)
        found.append(FoundFile(plan=plan, path=path, text=_text(path)))
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise DataFormatError(f"{path}: expected UTF-8; restore it from version control") from None


def replace_files(folder: Path, run_folder: Path, intent: Intent) -> None:
    """Let every file of ``intent`` hold its new text, or none.

    Files that hold it already stay as they are. Killed half-way, the same call completes it.

    Args:
        folder: the project's folder.
        run_folder: where the intent is recorded.
        intent: what to write.

    Raises:
        ConfigError: a file holds neither its old nor its new text; nothing was written.
        OSError: the system refuses; every file holds what it held before, unless the message
            says otherwise.
    """
    found = found_files(folder, intent.files)
    stale = [file.stale for file in found if file.stale]
    if stale:
        raise ConfigError("; ".join(stale))
    record = run_folder / FILE_NAME
    for path in (record, *(file.path for file in found)):
        _sweep(path)
    try:
        _record(record, attrs.evolve(intent, done=False))
        for file in found:
            if not file.is_new:
                _replace(file.path, file.plan.after)
        _record(record, attrs.evolve(intent, done=True))
    except OSError as error:
        _put_back(found, record)
        raise OSError(error.errno, f"{_why(error)}; no file was changed", error.filename) from error
    except KeyboardInterrupt:
        _put_back(found, record)
        raise


def _put_back(found: Iterable[FoundFile], record: Path) -> None:
    """Let every file that was written hold its old text again."""
    try:
        for file in found:
            if _text(file.path) == file.plan.after:
                _replace(file.path, file.plan.before)
    except OSError as error:
        problem = (
            f"{_why(error)}; some files hold the new text and some the old one: mend that and give "
            "the same command again, which completes it"
        )
        raise OSError(error.errno, problem, error.filename) from error
    # Left there, it says what a kill before the first file leaves: nothing is written yet.
    with contextlib.suppress(OSError):
        record.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode(), mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        # Not the name of the temporary file, which says nothing to users.
        raise OSError(error.errno, _why(error), str(path)) from error


def _record(path: Path, intent: Intent) -> None:
    try:
        document = json.dumps(unstructure(intent), indent=2, ensure_ascii=False)
        write_atomically(path, f"{document}\n".encode())
    except OSError as error:
        raise OSError(error.errno, _why(error), str(path)) from error


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _sweep(path: Path) -> None:
    """Remove what writers of ``path`` that were killed have left beside it."""
    left_over = re.compile(rf"\.{re.escape(path.name)}\.[^.]+\.tmp")
    for name in os.listdir(path.parent):  # noqa: PTH208 - names are all that is needed
        if left_over.fullmatch(name):
            (path.parent / name).unlink()
