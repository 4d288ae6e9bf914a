"""Run directories of jobs, for reports and archives, and what pages show of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from promptgraft.ground.folders import remove_tree
from promptgraft.runs import RunFolder
from promptgraft.runs.report.data import ReportData, gather
from promptgraft.runs.report.page import Links, render, sections
from promptgraft.service.jobs import Job, JobManager
from promptgraft.service.jobs.mirror import folder_of

_MOST_REPORTS = 16
_MOST_FOLDERS = 64
_MOST_BYTES = 1_900_000


class JobReport:
    """What the report of a job shows at one moment; used under the lock of its job."""

    def __init__(self, moment: tuple[int, bool], data: ReportData) -> None:
        self.data, self._moment = data, moment
        self._sections: dict[tuple[Sequence[str], Links], str] = {}
        self._files: dict[str, str] = {}

    def is_of(self, moment: tuple[int, bool]) -> bool:
        """Return whether nothing has happened since it was made."""
        return self._moment == moment

    def sections(self, names: Sequence[str], links: Links) -> str:
        """Return sections of the report as HTML, by the names of their templates."""
        key = (names, links)
        if key not in self._sections:
            self._sections[key] = sections(self.data, names, links, _MOST_BYTES)
        return self._sections[key]

    def file(self, address: str) -> str:
        """Return the report as one HTML file that links to the page of the job."""
        if address not in self._files:
            self._files[address] = render(self.data, address=address)
        return self._files[address]


class _Lock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Mirrors:
    """Mirrors of jobs in a folder; safe to share between threads.

    Args:
        folder: the folder of run directories.
        most: run directories to keep; those that were used last stay.
    """

    def __init__(self, folder: Path, *, most: int = _MOST_FOLDERS) -> None:
        self._folder, self._most = folder, most
        self._guard = threading.Lock()
        # Locks that nobody holds or waits for are forgotten, however many jobs there are.
        self._locks: WeakValueDictionary[str, _Lock] = WeakValueDictionary()
        self._reports: OrderedDict[str, JobReport] = OrderedDict()
        self._folders: OrderedDict[str, Path] = OrderedDict()

    @contextmanager
    def of(self, manager: JobManager, job: Job, *, pages: bool = True) -> Iterator[RunFolder]:
        """Give the up-to-date run directory of a job, to one request at a time.

        Without ``pages`` it may lack files for readers.
        """
        # Held while the folder is read, too: another request might write it anew.
        with self._lock(job.id):
            yield self._mirrored(manager, job, pages=pages)

    @contextmanager
    def report(self, manager: JobManager, job: Job) -> Iterator[JobReport]:
        """Give the up-to-date report of a job, to one request at a time.

        A report that was made since the latest event of its job is not made again.

        Raises:
            DataFormatError, JournalCorruptError: the job has not started, or is damaged.
        """
        with self._lock(job.id):
            moment = manager.peek(job)
            report = self._reports.get(job.id)
            if report is None or not report.is_of(moment):
                report = JobReport(moment, gather(self._mirrored(manager, job, pages=False)))
            with self._guard:
                self._reports[job.id] = report
                self._reports.move_to_end(job.id)
                while len(self._reports) > _MOST_REPORTS:
                    self._reports.popitem(last=False)
            yield report

    def forget(self, job: str) -> None:
        """Delete what there is of a job here; if a request reads it, with the next new mirror."""
        with self._lock(job, wait=False) as has_lock:
            if has_lock:
                with self._guard:
                    self._reports.pop(job, None)
                    path = self._folders.pop(job, None)
                if path is not None and path.exists():
                    remove_tree(path)

    @contextmanager
    def _lock(self, job: str, *, wait: bool = True) -> Iterator[bool]:
        """Give the lock of a job, or False if another request has it and this must not wait."""
        with self._guard:
            lock = self._locks.setdefault(job, _Lock())
        has_lock = lock.lock.acquire(blocking=wait)
        try:
            yield has_lock
        finally:
            if has_lock:
                lock.lock.release()

    def _mirrored(self, manager: JobManager, job: Job, *, pages: bool) -> RunFolder:
        """Bring the mirror of a job up to date, under its lock; a new one makes room for itself."""
        with self._guard:
            others = list(self._folders)
            self._folders[job.id] = folder_of(job, self._folder).path
            self._folders.move_to_end(job.id)
        if others and job.id not in others:
            # Other servers and the command line delete jobs, too.
            absent = {*others} - manager.present(others)
            for other in absent.union(others[: 1 - self._most]):
                self.forget(other)
        return RunFolder(manager.mirror(job.id, self._folder, pages=pages))
