"""Threads whose calls of models are gathered into batches, and the ids of these batches."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import attrs

from promptgraft.adapters.base import CallWaiting
from promptgraft.adapters.calling.batch_forms import Intended
from promptgraft.errors import JournalCorruptError
from promptgraft.journal.base import Journal
from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.session import EventBus
from promptgraft.serde import Json, digest

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 1_000
"""Threads, each of which waits for the answer to its call."""

BATCH_SHARE = Decimal("0.5")
"""What a call in a batch costs, of what it would cost alone."""

PAUSED = "the run was asked to pause"

_KIND = "batch"


class Gatherer(Protocol):
    """Holds calls that wait for their batch to be sent."""

    def wake(self) -> None:
        """Have the event loop look whether a batch is to be sent; from any thread."""
        ...


class BatchExecutor(ThreadPoolExecutor):
    """Threads in which adapters with ``mode="batch"`` have their calls answered in batches.

    A batch is sent as soon as every thread waits for an answer, so that it depends on no clock.

    Args:
        workers: calls that may wait at the same time, and so the size of a batch.
        journal: keeps the ids of batches, which another process then fetches instead of paying
            again; begun. None keeps none.
        deadline: when the run ends; a batch that it leaves behind is only cancelled when the run
            was.
        pause: ends the waiting when it is set; the batch goes on.
        notices: is told of each batch that is waited for.
    """

    def __init__(
        self,
        workers: int = AT_ONCE,
        *,
        journal: Journal | None = None,
        deadline: Deadline | None = None,
        pause: Cancellation | None = None,
        notices: EventBus | None = None,
    ) -> None:
        super().__init__(workers, thread_name_prefix="promptgraft-batch")
        self._workers = workers
        self._journal = journal
        self._deadline = deadline or Deadline()
        self._pause = pause or Cancellation()
        self._notices = notices
        self._gatherers: dict[object, Gatherer] = {}
        self._undo: list[Callable[[], None]] = []
        self._left = self._waiting = self._held = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            self._left += 1
        try:
            future = super().submit(at, Seat(self), partial(fn, *args, **kwargs))
        except RuntimeError:
            self._change(left=-1)
            raise
        future.add_done_callback(lambda _: self._change(left=-1))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for undo in self._undo:
            undo()
        super().shutdown(wait, cancel_futures=cancel_futures)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Send no batch before the block has ended, which submits work that belongs together."""
        self._change(held=1)
        try:
            yield
        finally:
            self._change(held=-1)

    def _change(self, *, left: int = 0, held: int = 0) -> None:
        with self._lock:
            self._left += left
            self._held += held
            gatherers = tuple(self._gatherers.values())
        for gatherer in gatherers:
            gatherer.wake()

    # What follows is for gatherers, in the event loop.

    def gatherer(self, name: object, make: Callable[[], Gatherer]) -> Gatherer:
        """Return the gatherer of this name, made if it is new."""
        with self._lock:
            if name not in self._gatherers:
                self._gatherers[name] = made = make()
                self._undo.append(self._pause.listen(made.wake))
            return self._gatherers[name]

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a call that waits for an answer."""
        self._waiting += 1
        try:
            if self.all_wait:
                # Later: others may have got their answer just now, and have another call to make.
                self._change()
            yield
        finally:
            self._waiting -= 1

    @property
    def all_wait(self) -> bool:
        """Whether no thread is left that could still make a call."""
        return not self._held and self._waiting >= min(self._left, self._workers)

    @property
    def is_paused(self) -> bool:
        """Whether the run is asked to pause."""
        return self._pause.is_set

    @property
    def gives_up(self) -> bool:
        """Whether nobody will ask for a batch that is left behind."""
        if self._journal is None:
            return True
        cancellation = self._deadline.cancellation
        is_cancelled = cancellation is not None and cancellation.is_set
        return is_cancelled or not (self._pause.is_set or self._deadline.expired)

    def intend(self, who: str, requests: Sequence[str]) -> Intended:
        """Keep the ids of the requests of a batch before it is made; raises ``JournalError``."""
        now = datetime.now(UTC)
        wanted = Intended(mark=uuid.uuid4().hex, since=now, requests=tuple(requests))
        answer: dict[str, Json] = {"of": who, "since": now.timestamp(), "requests": [*requests]}
        self._append(wanted.mark, answer)
        return wanted

    def keep(self, who: str, batch: str, wanted: Intended) -> None:
        """Keep the id of a batch that was made; raises ``JournalError``."""
        self._append(f"{wanted.mark}/made", {"of": who, "batch": batch})

    def _append(self, name: str, answer: dict[str, Json]) -> None:
        if self._journal is not None:
            self._journal.append(f"{_KIND}/{name}", digest([answer["of"]]), _KIND, answer)
            self._journal.sync()

    def kept(self, who: str) -> Sequence[Intended]:
        """Return what is kept of batches.

        Raises:
            JournalError: the journal cannot be read.
        """
        found: dict[str, Intended] = {}
        for record in () if self._journal is None else self._journal.records():
            if record.kind != _KIND:
                continue
            mark = record.key.split("/")[1]
            match record.answer:
                case {"of": str(of)} if of != who:
                    pass
                case {"since": float(since), "requests": list(requests)}:
                    ids, begun = tuple(map(str, requests)), datetime.fromtimestamp(since, UTC)
                    found[mark] = Intended(mark=mark, since=begun, requests=ids)
                case {"batch": str(batch)} if mark in found:
                    found[mark] = attrs.evolve(found[mark], batch=batch)
                case _:
                    raise JournalCorruptError(
                        f"the journal's record `{record.key}` is no batch; restore the journal"
                    )
        return tuple(found.values())

    def tell(self, notice: CallWaiting) -> None:
        """Publish what is waited for."""
        if self._notices is not None:
            self._notices.publish(notice)


@attrs.frozen
class Seat:
    """Where calls are made: in a thread of ``executor``, for what is asked at ``position``."""

    executor: BatchExecutor
    position: str = ""


_taken = ContextVar[Seat | None]("promptgraft_seat", default=None)


def seat() -> Seat | None:
    """Return where the present call is made; None outside of a ``BatchExecutor``."""
    return _taken.get()


def at(place: Seat, work: Callable[[], T]) -> T:
    """Do ``work`` as what happens at ``place``."""
    token = _taken.set(place)
    try:
        return work()
    finally:
        _taken.reset(token)


def positioned(position: str, work: Callable[[], T]) -> T:
    """Do ``work`` as what is asked for at ``position``, wherever it is done."""
    here = seat()
    return work() if here is None else at(attrs.evolve(here, position=position), work)
