"""Changes of files as a patch that ``git apply`` takes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from promptgraft.project.sources import FileChange

_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\t": r"\t",
    "\n": r"\n",
    "\v": r"\v",
    "\f": r"\f",
    "\r": r"\r",
    '"': r"\"",
    "\\": r"\\",
}
_NEEDS_QUOTES = re.compile(r'[^ -~]|["\\]')
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def patch_root(folder: Path) -> Path:
    """Return what paths in a patch are relative to: the root of the repository, or ``folder``."""
    real = folder.resolve()
    for parent in (real, *real.parents):
        if (parent / ".git").exists():
            return parent
    return real


def patch_of(changes: Iterable[FileChange], *, root: Path) -> str:
    """Return a unified patch of all changes; nothing for files that stay as they are.

    Args:
        changes: of files below ``root``.
        root: what the paths in the patch are relative to, without links.

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
    return header + "".join(_ended(hunks))


def _quoted(path: str) -> str:
    """Return a path as git writes it: bytes that are not plain ASCII in octal digits."""
    if not _NEEDS_QUOTES.search(path):
        return path
    return '"' + "".join(map(_escaped, path)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def _lines(text: str) -> Sequence[str]:
    # Not splitlines: a form feed or a carriage return is a character of its line.
    *whole, rest = text.split("\n")
    return [*(f"{line}\n" for line in whole), *([rest] if rest else [])]


def _ended(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else line + _NO_NEWLINE
