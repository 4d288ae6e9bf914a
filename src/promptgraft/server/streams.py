"""Events of a job as server-sent events, for as long as somebody reads them."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from promptgraft.database import DatabaseError
from promptgraft.jobs import Job, JobManager, JobNotFoundError
from promptgraft.server.access import Access, Caller

SECONDS_BETWEEN_LOOKS = 0.4
SECONDS_TO_READ = 30.0
"""How long a client may leave what it was sent unread."""

_SECONDS_OF_SILENCE = 15.0
_AT_ONCE = 100

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class EventStream:
    """An answer that does not end before the job does.

    A client that goes on sends the number of the last event that it has, as ``Last-Event-ID``.
    One that leaves what it was sent unread for ``patience`` seconds is left.

    Args:
        manager: the jobs.
        job: the job.
        after: the number to go on behind.
        access: counts streams.
        caller: who reads.
        patience: seconds.
    """

    def __init__(
        self,
        manager: JobManager,
        job: Job,
        *,
        after: int,
        access: Access,
        caller: Caller,
        patience: float = SECONDS_TO_READ,
    ) -> None:
        self._manager, self._job, self._after = manager, job, after
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
            has_ended, chunk = await run_in_threadpool(self._next)
            silent = 0.0 if chunk else silent + SECONDS_BETWEEN_LOOKS
            if silent >= _SECONDS_OF_SILENCE:
                chunk, silent = b": still here\n\n", 0.0
            if chunk:
                async with asyncio.timeout(self._patience):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if has_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not chunk:
                await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _next(self) -> tuple[bool, bytes]:
        """Return whether the job has ended, and the events that have come since."""
        try:
            last, has_ended = self._manager.look(self._job)
            if last <= self._after:
                return has_ended, b""
            found = self._manager.events(self._job.id, after=self._after, limit=_AT_ONCE)
        except (JobNotFoundError, DatabaseError):
            return True, b""  # it asks again, and is told why
        # The latest may be gone: lines of progress are removed when a job ends.
        self._after = found[-1][0] if found else last
        # Without names, so that a browser hears them all; each line says what it is.
        chunks = (b"id: %d\ndata: %s\n\n" % (number, line) for number, _, line in found)
        return has_ended and self._after >= last, b"".join(chunks)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
