"""Server-sent events: the events of a job as a stream."""

from __future__ import annotations

import asyncio
import threading
import time

import attrs
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from promptgraft.service.database import DatabaseError
from promptgraft.service.jobs import Job, JobManager, JobNotFoundError
from promptgraft.service.server.access import Access
from promptgraft.service.server.tokens import ApiCaller

SECONDS_BETWEEN_LOOKS = 0.4
SECONDS_TO_READ = 30.0
"""Seconds after which the stream of a client that does not read, or may no longer, is closed."""

# Keeps proxies from closing a quiet stream as idle.
_SECONDS_OF_SILENCE = 15.0
_SECONDS_OF_A_LOOK = 0.2
_EVENTS_PER_PAGE = 100
# The caches are cleared when they are full: streams fill them again within a look.
_LOCKS = 64
_MOST_KEPT = 256

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx would otherwise hold events back until its buffer is full.
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@attrs.frozen
class _Look:
    """Latest event of a job, and whether it has ended, at a time of the monotonic clock."""

    at: float
    last: int
    has_ended: bool


class Feed:
    """Reads events for all streams, so that streams of one job share their reads.

    Args:
        manager: the jobs.
        ending: set when the server stops, which ends all streams.
    """

    def __init__(self, manager: JobManager, ending: threading.Event) -> None:
        self._manager, self.ending = manager, ending
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._looks: dict[int, _Look] = {}
        self._pages: dict[int, tuple[int, bytes, int]] = {}

    def next(self, job: Job, after: int) -> tuple[bool, bytes, int]:
        """Return whether a stream ends now, the bytes to send, and the number of the last event."""
        try:
            # Held while the database is read: streams of one job then find the page of the first.
            with self._lock_of(job):
                look = self._look(job)
                if look.last <= after:
                    return look.has_ended, b"", after
                chunk, last = self._page(job, after, look)
        except (JobNotFoundError, DatabaseError):
            return True, b"", after  # the client reconnects, and gets the error as its reply
        # The latest event may be gone: progress lines are deleted when a job ends.
        after = last if chunk else look.last
        return look.has_ended and after >= look.last, chunk, after

    def latest(self, job: Job) -> int:
        """Return the number of the latest event of a job, as it was a moment ago.

        Raises:
            JobNotFoundError: the job was deleted.
            DatabaseError: the database cannot be reached.
        """
        with self._lock_of(job):
            return self._look(job).last

    def _lock_of(self, job: Job) -> threading.Lock:
        # One for each of many jobs, so that a slow read makes few others wait.
        return self._locks[job.number % _LOCKS]

    def _look(self, job: Job) -> _Look:
        now, look = time.monotonic(), self._looks.get(job.number)
        if look is None or now - look.at >= _SECONDS_OF_A_LOOK:
            if len(self._looks) >= _MOST_KEPT:
                self._looks.clear()
                self._pages.clear()
            look = self._looks[job.number] = _Look(now, *self._manager.peek(job))
        return look

    def _page(self, job: Job, after: int, look: _Look) -> tuple[bytes, int]:
        behind, chunk, last = self._pages.get(job.number, (-1, b"", 0))
        # A page that was not full may have grown since.
        if behind != after or last < look.last:
            page = self._manager.events(job.id, after=after, limit=_EVENTS_PER_PAGE)
            # No `event:` fields: browsers would need a listener for each name.
            lines = (b"id: %d\ndata: %s\n\n" % (number, line) for number, _, line in page)
            chunk, last = b"".join(lines), page[-1][0] if page else after
            self._pages[job.number] = after, chunk, last
        return chunk, last


@attrs.define(eq=False, kw_only=True)
class ServerStream:
    """ASGI response that streams the events of a job until the job ends.

    A client resumes with the number of its last event as ``Last-Event-ID``. The stream of a client
    that does not read for ``patience`` seconds is closed, and within that time also one whose token
    was revoked or whose session has ended.

    Attributes:
        feed: reads the events.
        after: number of the last event that was sent, or that the client has.
        access: counts streams.
        caller: the client.
        patience: seconds.
    """

    feed: Feed
    job: Job
    after: int
    access: Access
    caller: ApiCaller
    patience: float = SECONDS_TO_READ

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self.access.streaming(self.caller, self.job.project):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            sending = asyncio.ensure_future(self._send_all(send))
            # Sending alone would not notice a client that leaves while the job is silent.
            leaving = asyncio.ensure_future(_disconnected(receive))
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, leaving):
                task.cancel()
            # Also waits for the cancelled one, so that nothing of a stream outlives its count.
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        silent, last_look = 0.0, time.monotonic()
        while True:
            ends, chunk, self.after = await run_in_threadpool(self.feed.next, self.job, self.after)
            if time.monotonic() - last_look >= self.patience:
                last_look = time.monotonic()
                if not await run_in_threadpool(self.access.is_still_in, self.caller):
                    ends, chunk = True, b""
            silent = 0.0 if chunk else silent + SECONDS_BETWEEN_LOOKS
            if silent >= _SECONDS_OF_SILENCE:
                chunk, silent = b": still here\n\n", 0.0
            if chunk:
                # A client that does not read would otherwise hold one of the streams for ever.
                async with asyncio.timeout(self.patience):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if ends or self.feed.ending.is_set():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not chunk:
                await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
