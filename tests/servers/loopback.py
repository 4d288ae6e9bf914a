"""A server on loopback that stands for a provider, on a socket that it controls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Collection
from types import TracebackType
from typing import Self

from servers.behaviour import WELL, Asked, Brain, Break, Script, always
from servers.desk import Counts, Desk, Response, Rules
from servers.http1 import chunks_of, head_of, read_request
from servers.provider import Provider

KEY = "loopback-key-0123456789"
MODEL = "loopback-1"

_DRIP = 0.02


class LoopbackServer:
    """Speaks a provider's protocol on 127.0.0.1 in a thread of its own, while it is entered.

    Requests are checked against the provider's documented shapes and rules and refused as the
    provider refuses them. Good ones are answered by ``brain``, unless ``script`` says
    otherwise. Entered once.

    Args:
        provider: the protocol.
        brain: what answers.
        script: how each good request is answered.
        key: the only one that is let in.
        models: those that exist.
        at_once: requests that may be in work; more are answered with 429. None for no limit.
        caching: whether repeated beginnings are counted as cached.
        cached_from: tokens of the shortest beginning that is cached.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        brain: Brain,
        script: Script = always(WELL),  # noqa: B008 - a value without state
        key: str = KEY,
        models: Collection[str] = (MODEL,),
        at_once: int | None = None,
        caching: bool = False,
        cached_from: int = 0,
    ) -> None:
        self.provider = provider
        rules = Rules(
            brain=brain,
            script=script,
            key=key,
            models=models,
            at_once=at_once,
            caching=caching,
            cached_from=cached_from,
        )
        self._desk = Desk(provider, rules)
        self._own_faults: list[Exception] = []
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._end = asyncio.Event()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._thread = threading.Thread(target=self._run, name=f"loopback-{provider.name}")

    @property
    def base_url(self) -> str:
        """What the provider's SDK takes as its ``base_url``."""
        return f"http://127.0.0.1:{self._port}{self.provider.base_path}"

    @property
    def counts(self) -> Counts:
        """What it has seen so far."""
        return self._desk.counts

    @property
    def asked(self) -> tuple[Asked, ...]:
        """Every good request so far, in the order of arrival."""
        return self._desk.asked

    def wait_for(self, in_flight: int, seconds: float = 10) -> None:
        """Wait until so many requests are in work.

        Raises:
            TimeoutError: they are not.
        """
        self._desk.wait_for(in_flight, seconds)

    def hold(self) -> None:
        """Let requests in, but answer none until :meth:`release`."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        """Answer what was held."""
        self._loop.call_soon_threadsafe(self._open.set)

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._port = self._listening.getsockname()[1]
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        for fault in self._own_faults:
            if error is None:
                raise fault
            error.add_note(f"the loopback server failed: {fault!r}")

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listening)
        await self._end.wait()
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # the transports are told now that they are closed

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._disconnected)

    def _disconnected(self, task: asyncio.Task[None]) -> None:
        writer = self._connections.pop(task)
        writer.transport.abort()  # by name: a writer that nobody holds warns before it is closed
        if not task.cancelled() and isinstance(fault := task.exception(), Exception):
            self._own_faults.append(fault)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun: bytes | None = b""
        while begun is not None:
            request = await read_request(reader, begun)
            if request is None:
                return
            begun = await self._exchange(self._desk.take(request), reader, writer)

    async def _exchange(
        self, response: Response, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """Send a response; return what was read of the next request, None when there is none."""
        sending = asyncio.ensure_future(self._send(response, writer))
        # A client that leaves is only noticed by reading.
        leaving = asyncio.ensure_future(reader.read(1))
        whole = False
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            whole = sending.done() and sending.exception() is None and sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            _, read = await asyncio.gather(sending, leaving, return_exceptions=True)
            if not whole:
                self._desk.broke()
        if not whole or read == b"":
            return None
        return read if isinstance(read, bytes) else b""

    async def _send(self, response: Response, writer: asyncio.StreamWriter) -> bool:
        """Send a response; return whether all of it was sent."""
        await self._open.wait()
        await asyncio.sleep(response.behaviour.seconds)
        head, body = _bytes_of(response)
        breaks = response.behaviour.breaks
        if breaks is Break.DRIPS:
            await _drip(head, body[:-1], writer)
            head, body, breaks = b"", body[-1:], Break.NOWHERE
        if breaks is Break.NOWHERE:
            # Counted first: who has the response may look at the counts.
            self._desk.sent(response)
            writer.write(head + body)
            await writer.drain()
            return True
        writer.write(_beginning(head, body, breaks))
        if breaks in {Break.HANGS, Break.HANGS_AFTER_HEADERS}:
            await self._end.wait()
        elif breaks is not Break.ENDS_EARLY:
            _reset_on_close(writer)
        return False


def _bytes_of(response: Response) -> tuple[bytes, bytes]:
    """Return head and body as they go over the wire."""
    if response.behaviour.chunked:
        head = head_of(response.status, response.headers | {"transfer-encoding": "chunked"})
        return head, b"".join(chunks_of(response.body))
    length = {"content-length": str(len(response.body))}
    return head_of(response.status, response.headers | length), response.body


def _beginning(head: bytes, body: bytes, breaks: Break) -> bytes:
    """Return what is sent before a connection goes wrong."""
    match breaks:
        case Break.IN_HEADERS:
            return head[: len(head) // 2]
        case Break.AFTER_HEADERS | Break.HANGS_AFTER_HEADERS:
            return head
        case Break.IN_BODY | Break.ENDS_EARLY:
            return head + body[: len(body) // 2]
        case _:
            return b""


async def _drip(head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(head)
    for position in range(len(body)):
        writer.write(body[position : position + 1])
        await writer.drain()
        await asyncio.sleep(_DRIP)


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Make the end of a connection a reset instead of an orderly close."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
