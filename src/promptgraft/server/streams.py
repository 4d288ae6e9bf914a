"""Events of a job as server-sent events, for as long as somebody reads them."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from promptgraft.jobs import JobManager
from promptgraft.server.access import Access, Caller

SECONDS_BETWEEN_LOOKS = 0.4
_SECONDS_TO_READ = 30.0
_SECONDS_OF_SILENCE = 15.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class EventStream:
    """An answer that does not end before the job does.

    A client that goes on sends the number of the last event that it has, as ``Last-Event-ID``.
    One that does not read for 30 seconds is left.

    Args:
        manager: the jobs.
        job: id of the job.
        after: the number to go on behind.
        access: counts streams.
        caller: who reads.
    """

    def __init__(
        self, manager: JobManager, job: str, *, after: int, access: Access, caller: Caller
    ) -> None:
        self._manager, self._job, self._after = manager, job, after
        self._access, self._caller = access, caller

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
                async with asyncio.timeout(_SECONDS_TO_READ):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            elif has_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            else:
                await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _next(self) -> tuple[bool, bytes]:
        """Return whether the job has ended, and the events that have come since."""
        # In this order: what is told at the end is there when it has ended.
        has_ended = self._manager.get(self._job).has_ended
        found = self._manager.events(self._job, after=self._after)
        if found:
            self._after = found[-1][0]
        # Without names, so that a browser hears them all; each line says what it is.
        chunks = (b"id: %d\ndata: %s\n\n" % (number, line) for number, _, line in found)
        return has_ended, b"".join(chunks)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
