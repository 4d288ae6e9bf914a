"""The files of a local store: their paths, locks, reading, writing, and writes of several tags.

A tag has the document of the revision that it points at, and an archive of earlier ones.
Everything here raises ``StoreError`` when the system refuses or a file is not as expected.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import attrs

from promptgraft.errors import ConfigError, DataFormatError, InvalidIdentifierError, StoreError
from promptgraft.ground.files import make_folder, sync_folder, write_atomically
from promptgraft.ground.locks import locked
from promptgraft.ground.serde import parse_json, shown
from promptgraft.ground.strict import structure
from promptgraft.overrides.codec import decode_revision, marked, parse_revision, printable
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import Revision

FOLDER = Path(".promptgraft", "overrides")
"""The folder of a store, relative to its root."""

LOCK = ".lock"
"""The name of the lock file in each folder."""

_ARCHIVED = re.compile(r"(?P<number>[0-9]{6,})-(?P<id>[0-9a-f]{12})\.json")
_TEMPORARY = re.compile(r"\..+\.json\.[^.]+\.tmp")
_POLL_SECONDS = 0.01


def find_root(root_path: str | os.PathLike[str] | None) -> Path:
    """Return the given folder, or the root of the project around the current folder.

    That is the nearest folder upwards that holds ``.promptgraft``, within the repository; without
    one, the root of the repository, or else the current folder.

    Raises:
        ConfigError: ``root_path`` is not a folder, or the project cannot be searched.
    """
    try:
        root = _project_root() if root_path is None else Path(os.path.realpath(root_path))
        if root.is_dir():
            return root
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        what_is_wanted = "the folder of the project" if root_path is None else shown(root_path)
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"root_path: cannot read {what_is_wanted}: {why}") from error
    raise ConfigError(f"root_path: expected a folder, found none at {root}; create it first")


def _project_root() -> Path:
    start = Path.cwd()
    for folder in (start, *start.parents):
        if (folder / FOLDER.parts[0]).is_dir() or (folder / ".git").exists():
            return folder
    return start


def addresses_in(root: Path) -> tuple[OverrideAddress, ...]:
    """Return the address of every document below ``root``, sorted; documents are not opened."""
    folder = root / FOLDER
    addresses = (_address(document.relative_to(folder)) for document in _documents(folder))
    return tuple(sorted(address for address in addresses if address))


def _documents(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        # A store has no folder before its first write.
        if not isinstance(error, FileNotFoundError):
            raise StoreError(
                f"cannot list override folder {error.filename}: {error.strerror}; make it readable"
            ) from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        # In place, so that `os.walk` does not enter the archives.
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if name.endswith(".json"))


def _address(document: Path) -> OverrideAddress | None:
    ns, key = document.parent.parent.as_posix(), document.parent.name
    # No store writes such a name, so the file is foreign.
    with contextlib.suppress(InvalidIdentifierError):
        return OverrideAddress(ns, key, document.name.removesuffix(".json"))
    return None


@attrs.frozen
class StoredRevision:
    """A revision and the bytes that hold it."""

    revision: Revision
    data: bytes


@attrs.frozen
class ArchivedRevision:
    """The name of a file in the archive, and its parts."""

    name: str
    number: int
    id_start: str


class RevisionFiles:
    """Reads and writes the files of one tag; writers must hold :attr:`lock`."""

    def __init__(self, root: Path, address: OverrideAddress) -> None:
        self._root = root
        self.address = address
        self.folder: Path = root / FOLDER / address.ns / address.prompt_key
        self.document: Path = self.folder / f"{address.tag}.json"
        self.archive: Path = self.folder / ".revisions" / address.tag
        self.lock: Path = self.folder / LOCK
        self.paths: tuple[Path, ...] = (self.lock, self.document, self.archive)

    def folder_exists(self) -> bool:
        """Return whether the prompt has a folder, and so perhaps a history."""
        try:
            return stat.S_ISDIR(self.folder.stat().st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _refused("find", self.folder, error, "make it a folder") from error

    def read(self) -> StoredRevision | None:
        """Return what the tag points at, or None."""
        content = read_file(self.document)
        if content is None:
            return None
        data, _ = content
        where = f"override file {self.document}"
        return StoredRevision(decode_revision(data, self.address, where=where), data)

    def archived(self) -> tuple[ArchivedRevision, ...]:
        """Return the files of the archive, oldest first; foreign files are ignored."""
        try:
            names = _names_in(self.archive)
        except OSError as error:
            raise _refused("list", self.archive, error, "make it a readable folder") from error
        matches = [match for name in names if (match := _ARCHIVED.fullmatch(name))]
        archived_revisions = [
            ArchivedRevision(match.string, int(match["number"]), match["id"]) for match in matches
        ]
        return tuple(sorted(archived_revisions, key=lambda file: (file.number, file.id_start)))

    def load(self, file: ArchivedRevision) -> StoredRevision:
        """Return the revision in a file of the archive."""
        path = self.archive / file.name
        where = f"archived override file {path}"
        content = read_file(path)
        if content is None:
            raise StoreError(f"{where} is gone; restore it from version control")
        data, _ = content
        revision = decode_revision(data, self.address, where=where)
        if (revision.number, revision.id[:12]) != (file.number, file.id_start):
            raise StoreError(
                f"{where} holds revision {revision.number} ({revision.id[:12]}…); "
                f"rename it to {_archive_name(revision)}"
            )
        return StoredRevision(revision, data)

    def keep(self, present: StoredRevision) -> None:
        """Archive ``present`` unless the same bytes are archived already."""
        path = self.archive / _archive_name(present.revision)
        data = read_file(path)
        # Other bytes under this name, which holds the number and the id, are damage.
        if data is not None and data[0] == present.data:
            return
        write_file(path, present.data, self._root)

    def put(self, data: bytes) -> None:
        """Make the tag point at the revision in ``data``."""
        write_file(self.document, data, self._root)

    def remove(self) -> None:
        """Make the tag point at nothing."""
        remove_file(self.document)


@contextlib.contextmanager
def store_locked(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock on the file at ``path``, against threads and processes alike."""
    with contextlib.ExitStack() as lock:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked(path, seconds=timeout_seconds, every=_POLL_SECONDS))
        except TimeoutError:
            raise StoreError(
                f"override store {path.parent} is locked: waited {timeout_seconds:g} s for {path}; "
                f"find out which process holds it (`fuser {path}`), let it finish, and try again"
            ) from None
        except OSError as error:
            raise _refused("lock", path, error, "make the folder writable") from error
        yield


def refuse_foreign_links(root: Path, paths: Iterable[Path]) -> None:
    """Refuse paths that leave the root through a symbolic link."""
    for path in paths:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root):
            raise StoreError(
                f"override file {path} leads out of the store's root {root}, to {real}; "
                "replace the symbolic link by a file or folder"
            )


def write_file(path: Path, data: bytes, root: Path) -> None:
    """Replace a file below ``root`` durably; remove temporary files of killed writers."""
    try:
        names = _names_in(path.parent)
        # Without a document the folder may be new, and its name not durable yet.
        if not any(name.endswith(".json") for name in names):
            make_folder(path.parent, under=root)
        for name in names:
            # Only the holder of the lock writes here, so these are left by killed writers.
            if _TEMPORARY.fullmatch(name):
                (path.parent / name).unlink()
        write_atomically(path, data)
    except OSError as error:
        mend = "make the folder writable, or make space on the disk"
        raise _refused("write", path, error, mend) from error


def remove_file(path: Path) -> None:
    """Remove a file durably."""
    try:
        path.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise _refused("remove", path, error, "make the folder writable") from error


def read_file(path: str | os.PathLike[str]) -> tuple[bytes, os.stat_result] | None:
    """Return the bytes and the status of a regular file; None if there is no file."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            # The status of the open file, because the path may be replaced between two calls.
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(), status
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused("read", path, error, "make it a readable file") from error
    raise StoreError(f"override file {path} is not a regular file; remove it")


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except FileNotFoundError:
        return []


def _archive_name(revision: Revision) -> str:
    return f"{revision.number:06d}-{revision.id[:12]}.json"


def _refused(verb: str, path: str | os.PathLike[str], error: OSError, mend: str) -> StoreError:
    return StoreError(f"cannot {verb} override file {path}: {error.strerror or error}; {mend}")


_INTENT_VERSION = 1
_MEND_INTENT = "compare the tags it names with their history, then delete the file"


@attrs.frozen(kw_only=True)
class IntentDocument:
    """The file of an intent: the new documents of all its tags."""

    version: int
    documents: tuple[str, ...]


Intent: TypeAlias = Mapping[OverrideAddress, StoredRevision]
"""The revisions of one write of several tags: readers read through it until it is completed.

The write is committed once its intent is on disk; the next writer completes what a killed one has
left. Before that, nothing of the write is visible.
"""


def seen_through(
    intent: Intent | None, address: OverrideAddress, present: StoredRevision | None
) -> StoredRevision | None:
    """Return what a tag points at, given what its document holds.

    A document that already holds the intended revision, or a later one, wins over the intent.
    """
    planned = intent.get(address) if intent else None
    return planned if planned and _follows(planned, present) else present


class IntentFile:
    """The one file of a store that may hold an intent; writers must hold :attr:`lock`.

    Every method raises ``StoreError`` when the system refuses or a file is not as expected.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / FOLDER / ".intent.json"
        self._name = str(self._path)
        self.lock: Path = root / FOLDER / LOCK
        self.paths: tuple[Path, ...] = (self.lock, self._path)

    def exists(self) -> bool:
        """Return whether there is an intent; fast, since there is hardly ever one."""
        return os.access(self._name, os.F_OK)

    def read(self) -> Intent | None:
        """Return the intent, or None."""
        data = read_file(self._path) if self.exists() else None
        if data is None:
            return None
        try:
            return _intent(data[0], self._path.name)
        except ValueError as error:  # also an integer of more digits than Python reads
            fault = printable(str(error))
            raise StoreError(f"override intent {self._path}: {fault}; {_MEND_INTENT}") from None

    def write(self, revisions: Mapping[OverrideAddress, StoredRevision]) -> None:
        """Write an intent durably; this commits the write of its tags."""
        documents = [stored.data.decode() for stored in revisions.values()]
        plain = {"version": _INTENT_VERSION, "documents": documents}
        data = json.dumps(plain, indent=2, ensure_ascii=False).encode()
        write_file(self._path, data, self._root)

    def complete(self, intent: Intent) -> None:
        """Write the documents of an intent, then remove it; may be interrupted and repeated."""
        # All documents are checked before any is written.
        unwritten: list[tuple[RevisionFiles, StoredRevision]] = []
        for address, planned in intent.items():
            files = RevisionFiles(self._root, address)
            present = files.read()
            if _follows(planned, present):
                unwritten.append((files, planned))
            elif not present or present.revision != planned.revision:
                raise StoreError(
                    f"override intent {self._path} was not made for what override file "
                    f"{files.document} holds; {_MEND_INTENT}"
                )
        for files, planned in unwritten:
            files.put(planned.data)
        remove_file(self._path)


def _follows(planned: StoredRevision, present: StoredRevision | None) -> bool:
    return planned.revision.parent == (present.revision.id if present else None)


def _intent(data: bytes, where: str) -> Intent:
    document = structure(parse_json(data, where=where), IntentDocument, where=where)
    if document.version != _INTENT_VERSION:
        raise DataFormatError(
            f"{where}: version: expected {_INTENT_VERSION}, found {shown(document.version)}"
        )
    texts = [text.encode() for text in document.documents]
    revisions = tuple(parse_revision(text, None, where=where) for text in texts)
    overrides = [revision.override for revision in revisions]
    addresses = [
        OverrideAddress(override.ns, override.prompt_key, override.tag) for override in overrides
    ]
    # At least two, and each of another tag.
    if len(set(addresses)) < max(len(revisions), 2) or marked(revisions) != revisions:
        raise DataFormatError(f"{where}: expected every revision of one write of several tags")
    return dict(zip(addresses, map(StoredRevision, revisions, texts), strict=True))
