"""Overrides as JSON files in a project, with the history of all writes and the record of looks."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import attrs

from promptgraft.errors import RevisionNotFoundError, StoreError
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.serde import canonical_json
from promptgraft.overrides.base_store import Changes
from promptgraft.overrides.codec import decode_revision, encode_revision, make_revision, marked
from promptgraft.overrides.looks import Look, is_known
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.revision_files import (
    FOLDER,
    IntentFile,
    RevisionFiles,
    StoredRevision,
    addresses_in,
    find_root,
    read_file,
    refuse_foreign_links,
    seen_through,
    store_locked,
)
from promptgraft.overrides.revisioned import (
    RevisionedStore,
    check_expected,
    check_revision,
    one_id,
    wanted_revision,
)
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance, Revision

_logger = logging.getLogger("promptgraft")

FILE = Path(".promptgraft", "looks.jsonl")
"""The record of a local store, below its root."""

VERSION = 1
_SECONDS = 5.0
_MOST_BYTES = 64_000_000


class LookFile:
    """Keeps looks in a file, one JSON object on a line.

    Lines that cannot be read are skipped, and kept. Threads and processes may write at once.

    Args:
        root: the folder that holds ``.promptgraft``.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / FILE

    def looks(self) -> Sequence[Look]:
        try:
            refuse_foreign_links(self._root, [self._path])
            with self._path.open("rb") as file:
                # The latest ones; a line that this cuts is skipped like any damaged one.
                file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return ()
        except (OSError, StoreError) as error:
            _logger.warning("how often the test cases were used is not known: %s", error)
            return ()
        return tuple(look for line in lines if (look := _read(line)) is not None)

    def remember_look(self, look: Look) -> None:
        line = canonical_json({"version": VERSION, **attrs.asdict(look)}).encode()
        try:
            refuse_foreign_links(self._root, [self._path])
            with store_locked(self._path.with_name(".looks.lock"), _SECONDS):
                if is_known(look, self.looks()):
                    return
                with self._path.open("a+b") as file:
                    # A line that a killed process has left unfinished is ended first.
                    file.seek(0, os.SEEK_END)
                    if file.tell():
                        file.seek(-1, os.SEEK_END)
                        line = line if file.read(1) == b"\n" else b"\n" + line
                    file.write(line + b"\n")
        except (OSError, StoreError) as error:
            _logger.warning("this use of the test cases is not remembered: %s", error)


def _read(line: bytes) -> Look | None:
    """Return the look of a line; None for a damaged one, or one of a later version."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        return None
    run, prompt, time = (data.get(name) for name in ("run", "prompt", "time"))
    cases = data.get("cases")
    if not all(isinstance(text, str) for text in (run, prompt, time)):
        return None
    if not isinstance(cases, list) or not all(isinstance(case, str) for case in cases):
        return None
    return Look(run=str(run), prompt=str(prompt), time=str(time), cases=tuple(cases))


_SYSTEM_CLOCK = SystemClock()

# Younger documents are not cached: two changes within one tick of the file system's clock may
# leave the same status.
_SETTLED_NS = 100_000_000


@attrs.frozen
class _Parsed:
    status: tuple[int, ...]
    override: PromptOverride


@attrs.frozen
class _Planned:
    files: RevisionFiles
    present: StoredRevision | None
    before: PromptOverride
    after: PromptOverride

    @classmethod
    def of(cls, files: RevisionFiles, present: StoredRevision | None, changes: Changes) -> _Planned:
        before = present.revision.override if present else files.address.empty()
        return cls(files, present, before, changes[files.address](before))

    @property
    def is_changed(self) -> bool:
        return self.after != self.before

    def revision(self, time: datetime, provenance: Provenance) -> Revision:
        # After a rollback the archive has later numbers; without an archive the document counts.
        latest = max((file.number for file in self.files.archived()), default=0)
        present = self.present.revision if self.present else None
        return make_revision(
            number=max(latest, present.number if present else 0) + 1,
            parent=present.id if present else None,
            time=time,
            provenance=provenance,
            override=self.after,
        )


class LocalPromptOverridesStore(RevisionedStore):
    """Keeps overrides in ``<root>/.promptgraft/overrides/<ns>/<key>/<tag>.json``.

    The document of a tag is the complete revision that it points at; earlier ones are archived
    beside it in ``.revisions``. Writers lock the prompt's folder; readers take no lock. Several
    stores, threads and processes may share a root (``specs/overrides.md``).

    Args:
        root_path: an existing folder; by default the nearest folder from the current one
            upwards that holds ``.promptgraft``, or else the root of the repository, or else
            the current folder.
        clock: gives the times of revisions.
        lock_timeout_seconds: how long a write waits for other writers of the prompt.

    Raises:
        ConfigError: ``root_path`` is not a folder, or the project cannot be searched.
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
        self._intent = IntentFile(self._root)
        self._looks = LookFile(self._root)
        self._parsed: dict[OverrideAddress, _Parsed] = {}

    @property
    def root_path(self) -> Path:
        """The folder that holds ``.promptgraft``."""
        return self._root

    @property
    def place(self) -> str:
        return str(self._root)

    @property
    def is_of_machine(self) -> bool:
        return True

    def looks(self) -> Sequence[Look]:
        return self._looks.looks()

    def remember_look(self, look: Look) -> None:
        self._looks.remember_look(look)

    def file_of(self, address: OverrideAddress) -> Path:
        return RevisionFiles(self._root, address).document

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        address = OverrideAddress(descriptor.ns, descriptor.key, tag)
        # The cached document may be older than the intent.
        if self._intent.exists():
            stored = self._stored(RevisionFiles(self._root, address))
            return stored.revision.override if stored else None
        # A string, because building a Path would take longer than the stat.
        path = f"{self._folder}/{address.ns}/{address.prompt_key}/{address.tag}.json"
        parsed = self._parsed.get(address)
        if parsed is not None:
            with contextlib.suppress(OSError):  # reading the file below reports its fault
                if parsed.status == _signature(os.stat(path)):  # noqa: PTH116 - three times faster
                    return parsed.override
        return self._read(address, path)

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        tags = [RevisionFiles(self._root, address) for address in changes]
        if not all(files.folder_exists() for files in tags):
            # Checked without the lock first: refused and empty changes must not create a folder.
            planned = [_Planned.of(files, self._stored(files), changes) for files in tags]
            if not any(plan.is_changed for plan in planned):
                return {plan.files.address: plan.after for plan in planned}
        with self._locked(tags):
            planned = [_Planned.of(files, files.read(), changes) for files in tags]
            self._write([plan for plan in planned if plan.is_changed], provenance or Provenance())
        return {plan.files.address: plan.after for plan in planned}

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        files = self._files(ns, prompt_key, tag)
        # Checked without the lock first: locking would create a folder for an empty tag.
        if self._stored(files) is None:
            return
        with self._locked([files]):
            if present := files.read():
                # Archived first, or a crash in between would lose the revision.
                files.keep(present)
                files.remove()

    def current(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> Revision | None:
        present = self._stored(self._files(ns, prompt_key, tag))
        return present.revision if present else None

    def history(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> tuple[Revision, ...]:
        files = self._files(ns, prompt_key, tag)
        # In this order, because a write moves revisions from intent to document to archive.
        intent = self._intent.read()
        present = files.read()
        revisions_found = [files.load(file) for file in files.archived()]
        revisions_found += [present] if present else []
        if planned := seen_through(intent, files.address, present):
            revisions_found.append(planned)
        by_id = {stored.revision.id: stored.revision for stored in revisions_found}
        # A merge of branches may leave two revisions with one number; their ids decide then.
        return tuple(sorted(by_id.values(), key=lambda revision: (revision.number, revision.id)))

    def rollback_all(
        self,
        revisions: Mapping[OverrideAddress, str | None],
        *,
        expected: Mapping[OverrideAddress, str] | None = None,
    ) -> dict[OverrideAddress, Revision | None]:
        tags = [RevisionFiles(self._root, address) for address in revisions]
        for files in tags:
            check_revision(revisions[files.address])
            if not files.folder_exists() and self._stored(files) is None:
                raise RevisionNotFoundError(
                    f"{_named(files)} has no revisions; there is nothing to roll back"
                )
        with self._locked(tags):
            # All moves are prepared first, so that no tag moves if one cannot.
            moves = [_Move.of(files, revisions[files.address]) for files in tags]
            present = {
                move.files.address: move.present.revision if move.present else None
                for move in moves
            }
            check_expected(present, expected)
            for move in moves:
                move.make()
        return {move.files.address: move.target.revision if move.target else None for move in moves}

    def addresses(self) -> tuple[OverrideAddress, ...]:
        intent = self._intent.read()
        addresses_found = addresses_in(self._root)
        return tuple(sorted({*addresses_found, *intent})) if intent else addresses_found

    def _files(self, ns: str, prompt_key: str, tag: str) -> RevisionFiles:
        return RevisionFiles(self._root, OverrideAddress(ns, prompt_key, tag))

    def _stored(self, files: RevisionFiles) -> StoredRevision | None:
        intent = self._intent.read()  # before the document, which replaces it
        return seen_through(intent, files.address, files.read())

    @contextlib.contextmanager
    def _locked(self, tags: Iterable[RevisionFiles]) -> Iterator[None]:
        """Lock out other writers of some prompts, and complete the write of a killed one.

        Locks are always taken in the same order, which rules out deadlocks. A write of several tags
        also takes the lock of the store, so there is one intent at a time. A writer that gets all
        locks of an intent knows that its author is dead.
        """
        files_by_address = {files.address: files for files in tags}
        while True:
            involved: list[RevisionFiles | IntentFile] = [*files_by_address.values()]
            if len(files_by_address) > 1:
                involved.append(self._intent)
            refuse_foreign_links(self._root, [path for files in involved for path in files.paths])
            with contextlib.ExitStack() as locks:
                for lock in sorted({files.lock for files in involved}):
                    locks.enter_context(store_locked(lock, self._lock_timeout_seconds))
                intent = self._intent.read()
                if intent is None or intent.keys() <= files_by_address.keys():
                    if intent:
                        self._intent.complete(intent)
                    yield
                    return
            # The intent has other tags too: start again with their locks, in order.
            for address in intent:
                files_by_address[address] = RevisionFiles(self._root, address)

    def _write(self, planned: Sequence[_Planned], provenance: Provenance) -> None:
        """Write a revision of each tag: all or none."""
        now = self._clock.now()
        revisions = marked(plan.revision(now, provenance) for plan in planned)
        written = {
            plan.files.address: StoredRevision(revision, encode_revision(revision))
            for plan, revision in zip(planned, revisions, strict=True)
        }
        # Archived before anything is replaced, so that a crash cannot lose a revision.
        for plan in planned:
            if plan.present:
                plan.files.keep(plan.present)
        if len(written) > 1:
            self._intent.write(written)
            # Committed: if the system refuses from here on, the next write completes it.
            with contextlib.suppress(StoreError):
                self._intent.complete(written)
            return
        for plan in planned:
            plan.files.put(written[plan.files.address].data)

    def _read(self, address: OverrideAddress, path: str) -> PromptOverride | None:
        # Taken first, so that a file that changes meanwhile counts as young.
        now = time.time_ns()
        content = read_file(path)
        if content is None:
            self._parsed.pop(address, None)
            return None
        data, status = content
        override = decode_revision(data, address, where=f"override file {path}").override
        if now - status.st_ctime_ns > _SETTLED_NS:
            self._parsed[address] = _Parsed(_signature(status), override)
        return override


def _signature(status: os.stat_result) -> tuple[int, ...]:
    # The inode shows that a file was replaced, size and times that it was edited in place.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@attrs.frozen
class _Move:
    """What a tag points at, and what it should point at after a rollback; None for nothing."""

    files: RevisionFiles
    present: StoredRevision | None
    target: StoredRevision | None

    @classmethod
    def of(cls, files: RevisionFiles, revision: str | None) -> _Move:
        present = files.read()
        where = _named(files)
        revision_id = wanted_revision(present.revision if present else None, revision, where)
        if revision_id is None:
            return cls(files, present, None)
        # Names hold 12 digits of an id; the rest is compared below.
        near = [file for file in files.archived() if file.id_start.startswith(revision_id[:12])]
        candidates = [files.load(file) for file in near] + ([present] if present else [])
        by_id: dict[str, StoredRevision] = {stored.revision.id: stored for stored in candidates}
        return cls(files, present, by_id[one_id(by_id, revision_id, where)])

    def make(self) -> None:
        # Archived before it is replaced: a crash in between loses nothing.
        if self.present and self.present != self.target:
            self.files.keep(self.present)
        if self.target is None:
            self.files.remove()
        elif self.target != self.present:
            self.files.put(self.target.data)


def _named(files: RevisionFiles) -> str:
    address = files.address
    return f"tag `{address.tag}` of prompt `{address.ns}/{address.prompt_key}`"
