"""Images and files kept beside a journal, each content once, under its SHA-256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from promptgraft.errors import JournalWriteError
from promptgraft.ground.content import File
from promptgraft.ground.files import make_folder, sweep, write_atomically

FOLDER = "files"
"""The folder beside a journal."""

_ENDING = re.compile(r"(?:image|application|text)/([a-z0-9]{2,10})")


def keep_files(folder: Path, files: Iterable[File]) -> None:
    """Write files to a folder, except those that it holds, and addresses, which have no bytes.

    Raises:
        DataFormatError: a file cannot be read, or has changed.
        JournalWriteError: the folder cannot be written.
    """
    for file in files:
        if file.url is not None:
            continue
        path = folder / _name_of(file)
        try:
            if not _holds(path, file):
                make_folder(folder, under=folder.parent)
                sweep(path)
                write_atomically(path, file.read())
        except OSError as error:
            raise JournalWriteError(
                f"{path}: the file {file.name} cannot be kept: {error.strerror}; fix the cause "
                "and run again"
            ) from error


def kept_file(folder: Path, short: str) -> Path | None:
    """Return a kept file by the beginning of its SHA-256, as its name has it; None without one."""
    if not re.fullmatch(r"[0-9a-f]{16,64}", short):
        return None
    return next(folder.glob(f"{short}*"), None)


def _holds(path: Path, file: File) -> bool:
    # A file of the right length may still be damaged, which nothing would repair later.
    return (
        path.is_file()
        and path.stat().st_size == file.size
        and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    )


def _name_of(file: File) -> str:
    ending = _ENDING.fullmatch(file.media_type)
    return f"{file.sha256}.{ending[1] if ending else 'bin'}"
