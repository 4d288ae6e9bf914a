"""Compressed files of members by name (zip), written by us and read from strangers.

An archive from outside is hostile: its names may lead anywhere, its members may be links, and a few
bytes may unpack to gigabytes. Everything is checked, and the work taken from a budget, before the
first byte is unpacked.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.files import NEW_FILE
from promptgraft.ground.serde import shown
from promptgraft.ground.work import WorkBudget

_PART = re.compile(r"(?!\.{1,2}$)[^/\\:\x00-\x1f\x7f]{1,200}")
_DEEPEST = 20
_MOST_MEMBERS = 100_000
_CHUNK = 1 << 20  # unpacked at a time: a small member may unpack to gigabytes
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1  # a bit of the flags of a member
# A fixed time makes archives of the same members equal.
_TIME = (1980, 1, 1, 0, 0, 0)
# What zipfile raises for damaged archives; its documentation names the first alone.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    ValueError,
    OverflowError,
)


def write_archive(path: Path, members: Mapping[str, bytes | Path]) -> None:
    """Write an archive so that readers and crashes see the old file or the new one.

    Args:
        path: the file; its folder must exist.
        members: the content of each member by its name, or the file that has it.

    Raises:
        OSError: a file cannot be read, or the archive not be written; names it.
    """
    # Packed beside its place, because a large one would not fit in memory.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
            for name, content in members.items():
                entry = zipfile.ZipInfo(name, _TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (stat.S_IFREG | NEW_FILE & 0o644) << 16
                if isinstance(content, bytes):
                    packed.writestr(entry, content)
                    continue
                entry.file_size = content.stat().st_size
                with content.open("rb") as file, packed.open(entry, "w") as member:
                    while chunk := file.read(_CHUNK):
                        member.write(chunk)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@attrs.frozen
class Archive:
    """The checked members of an archive, by name. Made by :func:`read_archive`."""

    path: Path
    _entries: Mapping[str, zipfile.ZipInfo]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the members, relative and with `/`."""
        return tuple(self._entries)

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises:
            DataFormatError: there is none, or it is damaged.
        """
        if name not in self._entries:
            raise DataFormatError(f"{self.path}: expected a member `{name}`, found none")
        return b"".join(self._chunks(name))

    def unpack(self, folder: Path, names: Mapping[str, str]) -> None:
        """Write members to files below a folder that was made for them.

        Args:
            folder: the folder; nothing in it is replaced.
            names: the relative path of each file by the name of its member.

        Raises:
            DataFormatError: a member is damaged.
            OSError: a file cannot be written.
        """
        for name, place in names.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                for chunk in self._chunks(name):
                    file.write(chunk)

    def _chunks(self, name: str) -> Iterator[bytes]:
        try:
            with zipfile.ZipFile(self.path) as packed, packed.open(self._entries[name]) as member:
                # At most as many bytes as the entry says; the checksum shows whether it lies.
                while chunk := member.read(_CHUNK):
                    yield chunk
        # An OSError too: a damaged entry may lead to a place before the file.
        except (*_DAMAGED, OSError) as error:
            raise _damaged(self.path, f"member {shown(name)}: {error}") from None


def read_archive(path: Path, budget: WorkBudget) -> Archive:
    """Check the list of an archive's members, without unpacking any.

    Args:
        path: the file.
        budget: pays for the file and for what its members unpack to, before that.

    Raises:
        DataFormatError: it cannot be read, is too large, or names something unsafe.
    """
    mend = "ask for a smaller export"
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
    budget.spend("bytes", size, str(path), mend)
    try:
        with zipfile.ZipFile(path) as packed:
            entries = packed.infolist()
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except _DAMAGED as error:
        raise _damaged(path, str(error)) from None
    if len(entries) > _MOST_MEMBERS:
        raise DataFormatError(
            f"{path}: expected at most {_MOST_MEMBERS:,} members, found {len(entries):,}"
        )
    by_name: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        if fault := _fault_of(entry) or ("it is there twice" if entry.filename in by_name else ""):
            raise DataFormatError(
                f"{path}: member {shown(entry.filename)}: {fault}; nothing was unpacked"
            )
        budget.spend("bytes", entry.file_size, str(path), mend)
        by_name[entry.filename] = entry
    return Archive(path, by_name)


def _fault_of(entry: zipfile.ZipInfo) -> str:
    """Return what is unsafe about a member; empty if nothing is."""
    # `orig_filename` differs where zipfile has cut a name at a zero byte or changed separators.
    parts = entry.orig_filename.split("/")
    if len(parts) > _DEEPEST or not all(_PART.fullmatch(part) for part in parts):
        return "expected a relative path below the archive"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        return "expected a plain file"
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        return "expected a member that is stored or deflated, and not encrypted"
    return ""


def _damaged(path: Path, why: str) -> DataFormatError:
    return DataFormatError(
        f"{path}: is damaged, or is no archive of promptgraft: {why}; restore it from a copy"
    )
