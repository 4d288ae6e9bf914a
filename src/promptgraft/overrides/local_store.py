"""Overrides as JSON files in a project, with a history of every write."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import attrs

from promptgraft.clock import Clock, SystemClock
from promptgraft.errors import InvalidIdentifierError, RevisionNotFoundError
from promptgraft.overrides.base_store import BasePromptOverridesStore, Change
from promptgraft.overrides.codec import decode_revision, encode_revision, make_revision
from promptgraft.overrides.locations import FOLDER, addresses_in, find_root
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.overrides.revision_files import RevisionFiles, StoredRevision, read_file
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance, Revision
from promptgraft.overrides.validation import shown_hash
from promptgraft.serde import shown

_REVISION = re.compile(r"[0-9a-f]{4,64}")
_SYSTEM_CLOCK = SystemClock()

# Two changes within one tick of the file system's clock may leave the same status behind.
_SETTLED_NS = 100_000_000


@attrs.frozen
class _Parsed:
    status: tuple[int, ...]
    override: PromptOverride


class LocalPromptOverridesStore(BasePromptOverridesStore):
    """Keeps overrides in ``<root>/.promptgraft/overrides/<ns>/<key>/<tag>.json``.

    The document of a tag is the whole revision that it points at; earlier ones stand beside
    it in ``.revisions``. Writers lock the prompt's folder; readers lock nothing. Several
    stores, threads and processes may use one root (``specs/overrides.md``).

    Args:
        root_path: an existing folder; by default the nearest folder from the current one
            upwards that holds ``.promptgraft``, or else the root of the repository, or else
            the current folder.
        clock: decides the times of revisions.
        lock_timeout_seconds: how long a write waits for other writers of the prompt.

    Raises:
        ConfigError: ``root_path`` is no folder, or the project cannot be searched.
    """

    def __init__(
        self,
        root_path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        lock_timeout_seconds: float = 30.0,
    ) -> None:
        self._root = find_root(root_path)
        self._folder = str(self._root / FOLDER)
        self._clock = clock
        self._lock_timeout_seconds = lock_timeout_seconds
        self._parsed: dict[OverrideAddress, _Parsed] = {}

    @property
    def root_path(self) -> Path:
        """The folder that holds ``.promptgraft``."""
        return self._root

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        address = OverrideAddress(descriptor.ns, descriptor.key, tag)
        path = f"{self._folder}/{address.ns}/{address.prompt_key}/{address.tag}.json"
        parsed = self._parsed.get(address)
        if parsed is not None:
            with contextlib.suppress(OSError):  # what is wrong with the file, reading it will tell
                if parsed.status == _signature(os.stat(path)):  # noqa: PTH116 - three times faster
                    return parsed.override
        return self._read(address, path)

    def mutate(
        self, address: OverrideAddress, change: Change, *, provenance: Provenance | None = None
    ) -> PromptOverride:
        files = RevisionFiles(self._root, address)
        # A change that is refused, or changes nothing, leaves no folder behind.
        if not files.folder_exists() and change(address.empty()) == address.empty():
            return address.empty()
        with files.locked(self._lock_timeout_seconds):
            present = files.read()
            before = present.revision.override if present else address.empty()
            after = change(before)
            if after == before:
                return before
            revision = make_revision(
                number=_latest_number(files, present) + 1,
                parent=present.revision.id if present else None,
                time=self._clock.now(),
                provenance=provenance or Provenance(),
                override=after,
            )
            document = encode_revision(revision)
            if present:
                files.keep(present)
            files.put(document)
            return after

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        files = self._files(ns, prompt_key, tag)
        if files.read() is None:
            return
        with files.locked(self._lock_timeout_seconds):
            if present := files.read():
                files.keep(present)
                files.remove()

    def current(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> Revision | None:
        """Return the revision that the tag points at, or None.

        Raises:
            InvalidIdentifierError: a part of the address is no identifier.
            StoreError: its file cannot be read or is damaged.
        """
        present = self._files(ns, prompt_key, tag).read()
        return present.revision if present else None

    def history(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> tuple[Revision, ...]:
        """Return every revision that the tag has pointed at, by number.

        Raises:
            InvalidIdentifierError: a part of the address is no identifier.
            StoreError: a file cannot be read or is damaged.
        """
        files = self._files(ns, prompt_key, tag)
        # The tag first: a write in between moves what it holds into the archive.
        present = files.read()
        revisions = [files.load(file).revision for file in files.archived()]
        if present:
            revisions.append(present.revision)
        by_id = {revision.id: revision for revision in revisions}
        return tuple(sorted(by_id.values(), key=lambda revision: (revision.number, revision.id)))

    def rollback(
        self,
        *,
        ns: str,
        prompt_key: str,
        tag: str = DEFAULT_TAG,
        revision: str | None = None,
    ) -> Revision | None:
        """Point the tag at an earlier revision (default: the parent of the present one).

        An archived revision that is later than the present one may be named too.

        Raises:
            InvalidIdentifierError: a part of the address, or ``revision``, is no identifier.
            RevisionNotFoundError: there is no such revision, or nothing to roll back.
            StoreError: a file cannot be read or written, or is damaged.
        """
        _check_revision(revision)
        files = self._files(ns, prompt_key, tag)
        where = f"tag `{tag}` of prompt `{ns}/{prompt_key}`"
        if not files.folder_exists():
            raise RevisionNotFoundError(f"{where} has no revisions; there is nothing to roll back")
        with files.locked(self._lock_timeout_seconds):
            present = files.read()
            target = _target(files, present, revision, where)
            if present and present != target:
                files.keep(present)
            if target is None:
                files.remove()
                return None
            if target != present:
                files.put(target.data)
            return target.revision

    def addresses(self) -> tuple[OverrideAddress, ...]:
        """Return the address of every document that the store holds, sorted.

        Only names are looked at; files whose name is no address are passed over.

        Raises:
            StoreError: a folder cannot be read.
        """
        return addresses_in(self._root)

    def _files(self, ns: str, prompt_key: str, tag: str) -> RevisionFiles:
        return RevisionFiles(self._root, OverrideAddress(ns, prompt_key, tag))

    def _read(self, address: OverrideAddress, path: str) -> PromptOverride | None:
        now = time.time_ns()
        found = read_file(path)
        if found is None:
            self._parsed.pop(address, None)
            return None
        data, status = found
        override = decode_revision(data, address, where=f"override file {path}").override
        if now - status.st_ctime_ns > _SETTLED_NS:
            self._parsed[address] = _Parsed(_signature(status), override)
        return override


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _latest_number(files: RevisionFiles, present: StoredRevision | None) -> int:
    archived = max((file.number for file in files.archived()), default=0)
    return max(archived, present.revision.number if present else 0)


def _check_revision(revision: str | None) -> None:
    if revision is not None and not _REVISION.fullmatch(revision):
        raise InvalidIdentifierError(
            f"revision: expected 4 to 64 hexadecimal digits of an id, found {shown(revision)}"
        )


def _target(
    files: RevisionFiles, present: StoredRevision | None, revision: str | None, where: str
) -> StoredRevision | None:
    """Return what the tag shall point at after a rollback."""
    if revision is not None:
        return _find(files, present, revision, where)
    if present is None:
        raise RevisionNotFoundError(
            f"{where} holds nothing that could be rolled back; name one of its revisions"
        )
    parent = present.revision.parent
    return None if parent is None else _find(files, present, parent, where)


def _find(
    files: RevisionFiles, present: StoredRevision | None, wanted: str, where: str
) -> StoredRevision:
    near = [file for file in files.archived() if file.id_start.startswith(wanted[:12])]
    known = [files.load(file) for file in near] + ([present] if present else [])
    found = {
        stored.revision.id: stored for stored in known if stored.revision.id.startswith(wanted)
    }
    if len(found) == 1:
        return found.popitem()[1]
    if not found:
        raise RevisionNotFoundError(
            f"{where} has no revision {shown_hash(wanted)}; see its history for those it has"
        )
    ids = ", ".join(shown_hash(found_id) for found_id in sorted(found))
    raise RevisionNotFoundError(f"{where} has several revisions {wanted}…: {ids}; give more digits")
