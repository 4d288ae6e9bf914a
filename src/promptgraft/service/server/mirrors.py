"""Run directories of jobs, for reports and archives, each for one request at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from promptgraft.runs import RunFolder
from promptgraft.service.jobs import Job, JobManager


class _Lock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Mirrors:
    """Mirrors of jobs in a folder; safe to share between threads.

    Args:
        folder: the folder of run directories.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        # Locks that nobody holds or waits for are forgotten, however many jobs there are.
        self._locks: WeakValueDictionary[str, _Lock] = WeakValueDictionary()

    @contextmanager
    def of(self, manager: JobManager, job: Job) -> Iterator[RunFolder]:
        """Give the up-to-date run directory of a job, to one request at a time."""
        with self._guard:
            lock = self._locks.setdefault(job.id, _Lock())
        # Held while the folder is read, too: another request might write it anew.
        with lock.lock:
            yield RunFolder(manager.mirror(job.id, self._folder))
