"""Events of a job as server-sent events, for as long as somebody reads them."""

from __future__ import annotations

import asyncio
import threading
import time

import attrs
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from promptgraft.database import DatabaseError
from promptgraft.jobs import Job, JobManager, JobNotFoundError
from promptgraft.server.access import Access, Caller

SECONDS_BETWEEN_LOOKS = 0.4
SECONDS_TO_READ = 30.0
"""How long a client may leave what it was sent unread."""

_SECONDS_OF_SILENCE = 15.0
_SECONDS_OF_A_LOOK = 0.2
_AT_ONCE = 100
_MOST_KEPT = 256

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@attrs.frozen
class _Look:
    """What was seen of a job, and when, in seconds that only grow."""

    at: float
    last: int
    has_ended: bool


class Feed:
    """Reads jobs for streams: what many want at the same time is read once.

    Args:
        manager: the jobs.
    """

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._looks: dict[int, _Look] = {}
        self._pages: dict[int, tuple[int, bytes, int]] = {}

    def next(self, job: Job, after: int) -> tuple[bool, bytes, int]:
        """Return whether a stream ends now, what it sends, and the number to go on behind."""
        try:
            with self._lock:
                look = self._look(job)
                if look.last <= after:
                    return look.has_ended, b"", after
                chunk, last = self._page(job, after)
        except (JobNotFoundError, DatabaseError):
            return True, b"", after  # it asks again, and is told why
        # The latest may be gone: lines of progress are removed when a job ends.
        after = last if chunk else look.last
        return look.has_ended and after >= look.last, chunk, after

    def _look(self, job: Job) -> _Look:
        now, known = time.monotonic(), self._looks.get(job.number)
        if known is None or now - known.at >= _SECONDS_OF_A_LOOK:
            if len(self._looks) >= _MOST_KEPT:
                self._looks.clear()
                self._pages.clear()
            known = self._looks[job.number] = _Look(now, *self._manager.look(job))
        return known

    def _page(self, job: Job, after: int) -> tuple[bytes, int]:
        behind, chunk, last = self._pages.get(job.number, (-1, b"", 0))
        # A page that was not full when it was read may have grown.
        if behind != after or last < self._looks[job.number].last:
            found = self._manager.events(job.id, after=after, limit=_AT_ONCE)
            # Without names, so that a browser hears them all; each line says what it is.
            lines = (b"id: %d\ndata: %s\n\n" % (number, line) for number, _, line in found)
            chunk, last = b"".join(lines), found[-1][0] if found else after
            self._pages[job.number] = after, chunk, last
        return chunk, last


class EventStream:
    """An answer that does not end before the job does.

    A client that goes on sends the number of the last event that it has, as ``Last-Event-ID``.
    One that leaves what it was sent unread for ``patience`` seconds is left.

    Args:
        feed: reads the job.
        job: the job.
        after: the number to go on behind.
        access: counts streams.
        caller: who reads.
        patience: seconds.
    """

    def __init__(
        self,
        feed: Feed,
        job: Job,
        *,
        after: int,
        access: Access,
        caller: Caller,
        patience: float = SECONDS_TO_READ,
    ) -> None:
        self._feed, self._job, self._after = feed, job, after
        self._access, self._caller, self._patience = access, caller, patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        del scope
        self._access.begin_stream(self._caller)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            sending = asyncio.ensure_future(self._send_all(send))
            leaving = asyncio.ensure_future(_left(receive))
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        finally:
            self._access.end_stream(self._caller)

    async def _send_all(self, send: Send) -> None:
        silent = 0.0
        while True:
            ends, chunk, self._after = await run_in_threadpool(
                self._feed.next, self._job, self._after
            )
            silent = 0.0 if chunk else silent + SECONDS_BETWEEN_LOOKS
            if silent >= _SECONDS_OF_SILENCE:
                chunk, silent = b": still here\n\n", 0.0
            if chunk:
                async with asyncio.timeout(self._patience):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if ends:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not chunk:
                await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
