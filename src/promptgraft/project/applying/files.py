"""Changes of source files: written all or none and completed after a kill, or as a patch.

An :class:`Intent`, on disk before the first file changes, records what is to be written.
Effects go through the calls of :mod:`promptgraft.files`, so that tests can end the process at
each of them.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePath, PurePosixPath

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.files import sweep, write_atomically
from promptgraft.parts.validation import shown_hash
from promptgraft.project.files import FILE_NAME as PROJECT_FILE
from promptgraft.project.files import FileChange
from promptgraft.serde import digest_text, parse_json, shown, unstructure
from promptgraft.strict import structure

FILE_NAME = "apply.json"
VERSION = 1

_SUFFIXES = {".md", ".yaml", ".yml"}
_ESCAPES = dict(zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))
"""What a character is in a path that git quotes, behind a backslash."""
_NEEDS_QUOTES = re.compile(r'[^ -~]|["\\]')
_NO_NEWLINE = "\n\\ No newline at end of file\n"


@attrs.frozen(kw_only=True)
class PlannedFile:
    """A change of one file; ``path`` is relative to the project's folder, with `/`."""

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
        files: in the order in which they are written.
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
    """A file of an intent as it is now: where it really stands, and what it holds."""

    plan: PlannedFile
    path: Path
    text: str

    @property
    def is_old(self) -> bool:
        """Whether it is still to be written."""
        return self.text == self.plan.before

    @property
    def stale(self) -> str:
        """Why it may not be written, in one line; empty when it may."""
        if self.text in (self.plan.before, self.plan.after):
            return ""
        return (
            f"{self.path}: expected {shown_hash(digest_text(self.plan.before))} or "
            f"{shown_hash(digest_text(self.plan.after))}, found "
            f"{shown_hash(digest_text(self.text))}: the file has changed since; restore it "
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
    """Let every file of ``intent`` hold its new text, or none; recorded in ``run_folder``.

    Files that hold it already stay as they are. Killed half-way, the same call completes it.

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
        sweep(path)
    try:
        _record(record, attrs.evolve(intent, done=False))
        for file in found:
            if file.text != file.plan.after:
                _replace(file.path, file.plan.after)
        _record(record, attrs.evolve(intent, done=True))
    except OSError as error:
        _put_back(found, record)
        raise OSError(
            error.errno, f"{error.strerror}; no file was changed", error.filename
        ) from error
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
            f"{error.strerror}; some files hold the new text and some the old one: mend that and "
            "give the same command again, which completes it"
        )
        raise OSError(error.errno, problem, error.filename) from error
    # Left there, it says what a kill before the first file leaves: nothing is written yet.
    with contextlib.suppress(OSError):
        record.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), mode=stat.S_IMODE(path.stat().st_mode))


def _record(path: Path, intent: Intent) -> None:
    document = json.dumps(unstructure(intent), indent=2, ensure_ascii=False)
    write_atomically(path, f"{document}\n".encode())


def patch_root(folder: Path) -> Path:
    """Return what paths in a patch are relative to: the root of the repository, or ``folder``."""
    real = folder.resolve()
    for parent in (real, *real.parents):
        if (parent / ".git").exists():
            return parent
    return real


def patch_of(changes: Iterable[FileChange], *, root: Path) -> str:
    """Return a unified patch of all changes; nothing for files that stay as they are.

    Paths in it are relative to ``root``, which holds no links.

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
    # A name that holds a space ends with a tab, as git writes it.
    end = "\t" if " " in path else ""
    before, after = _lines(change.before), _lines(change.after)
    hunks = list(difflib.unified_diff(before, after))[2:]
    header = f"diff --git {old} {new}\n--- {old}{end}\n+++ {new}{end}\n"
    return header + "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in hunks)


def _quoted(path: str) -> str:
    """Return a path as git writes it: bytes that are not plain ASCII in octal digits."""
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
    # Not splitlines: a form feed or a carriage return is a character of its line.
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]
