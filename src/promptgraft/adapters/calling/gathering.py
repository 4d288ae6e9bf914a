"""Threads whose calls of models are gathered into batches, and the record of these batches."""

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
from promptgraft.errors import JournalCorruptError
from promptgraft.ground.serde import Json, digest
from promptgraft.journal.base import Journal
from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.session import EventBus

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 1_000
"""Default number of threads, each of which waits for the answer to its call."""

BATCH_SHARE = Decimal("0.5")
"""Price of a call in a batch, relative to an ordinary call."""

PAUSED = "the run was asked to pause"

_KIND = "batch"


class Gatherer(Protocol):
    """Holds calls that wait for their batch to be sent."""

    def wake(self) -> None:
        """Have the event loop check whether a batch is due; thread-safe."""
        ...


@attrs.frozen(kw_only=True)
class Intended:
    """A batch as recorded before it is created; ``batch`` is its id once that is known."""

    mark: str
    since: datetime
    requests: tuple[str, ...]
    batch: str | None = None


class BatchExecutor(ThreadPoolExecutor):
    """Threads in which adapters with ``mode="batch"`` have their calls answered in batches.

    A batch is sent as soon as every thread waits for an answer, so that its content does not depend
    on a clock.

    Args:
        workers: most calls that wait at the same time, and so the size of a batch.
        journal: an open journal for the ids of batches, so that another process fetches them
            instead of paying again; None to record none.
        deadline: end of the run; only a cancelled run cancels the batches that it leaves behind.
        pause: ends the waiting when set; batches continue at the provider.
        notices: receives a notice for each batch that is waited for.
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
        # Count it before it can run, so that no batch is sent without its call.
        with self._lock:
            self._left += 1
        try:
            future = super().submit(at, Seat(self), partial(fn, *args, **kwargs))
        except RuntimeError:
            self._change(calls=-1)
            raise
        future.add_done_callback(lambda _: self._change(calls=-1))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for undo in self._undo:
            # A pause outlives the executor and must not wake its gatherers later.
            undo()
        super().shutdown(wait, cancel_futures=cancel_futures)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Send no batch before the block ends; for submitting work that belongs together."""
        self._change(holds=1)
        try:
            yield
        finally:
            self._change(holds=-1)

    def _change(self, *, calls: int = 0, holds: int = 0) -> None:
        with self._lock:
            self._left += calls
            self._held += holds
            gatherers = tuple(self._gatherers.values())
        for gatherer in gatherers:
            gatherer.wake()

    # The methods below are for gatherers, in the event loop.

    def gatherer(self, name: object, make: Callable[[], Gatherer]) -> Gatherer:
        """Return the gatherer of this name, creating it if necessary."""
        with self._lock:
            if name not in self._gatherers:
                self._gatherers[name] = new_gatherer = make()
                self._undo.append(self._pause.listen(new_gatherer.wake))
            return self._gatherers[name]

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a call that waits for an answer."""
        self._waiting += 1
        try:
            if self.all_wait:
                # Check again later: a thread that was just answered may have another call to make.
                self._change()
            yield
        finally:
            self._waiting -= 1

    @property
    def all_wait(self) -> bool:
        """Whether every thread that could make a call is waiting."""
        return not self._held and self._waiting >= min(self._left, self._workers)

    @property
    def is_paused(self) -> bool:
        """Whether the run was asked to pause."""
        return self._pause.is_set

    @property
    def gives_up(self) -> bool:
        """Whether no later process will fetch a batch that is left behind."""
        if self._journal is None:
            return True
        cancellation = self._deadline.cancellation
        is_cancelled = cancellation is not None and cancellation.is_set
        # Paused or out of time: a resumed run fetches the batch. Otherwise its calls were given up.
        return is_cancelled or not (self._pause.is_set or self._deadline.expired)

    def intend(self, who: str, requests: Sequence[str]) -> Intended:
        """Record the custom ids of a batch before it is created; raises ``JournalError``."""
        now = datetime.now(UTC)
        intended = Intended(mark=uuid.uuid4().hex, since=now, requests=tuple(requests))
        answer: dict[str, Json] = {"of": who, "since": now.timestamp(), "requests": [*requests]}
        self._append(intended.mark, answer)
        return intended

    def keep(self, who: str, batch: str, intended: Intended) -> None:
        """Record the id of a batch that was created; raises ``JournalError``."""
        self._append(f"{intended.mark}/made", {"of": who, "batch": batch})

    def _append(self, name: str, answer: dict[str, Json]) -> None:
        if self._journal is not None:
            self._journal.append(f"{_KIND}/{name}", digest([answer["of"]]), _KIND, answer)
            # Durable before the batch is created or waited for: a crash must not lose what is paid.
            self._journal.sync()

    def kept(self, who: str) -> Sequence[Intended]:
        """Return the recorded batches.

        Raises:
            JournalError: the journal cannot be read.
        """
        intents: dict[str, Intended] = {}
        for record in () if self._journal is None else self._journal.records():
            if not record.key.startswith(f"{_KIND}/"):
                continue
            mark = record.key.split("/")[1]
            match record.answer:
                case {"of": str(of)} if of != who:
                    pass
                case {"since": float(since), "requests": list(requests)}:
                    ids, begun = tuple(map(str, requests)), datetime.fromtimestamp(since, UTC)
                    intents[mark] = Intended(mark=mark, since=begun, requests=ids)
                # `intend` always comes before `keep`, so an unknown mark means a damaged journal.
                case {"batch": str(batch)} if mark in intents:
                    intents[mark] = attrs.evolve(intents[mark], batch=batch)
                case _:
                    raise JournalCorruptError(
                        f"the journal's record `{record.key}` is no batch; restore the journal"
                    )
        return tuple(intents.values())

    def announce(self, notice: CallWaiting) -> None:
        """Publish a notice."""
        if self._notices is not None:
            self._notices.publish(notice)


@attrs.frozen
class Seat:
    """Where calls are made: a thread of ``executor``, and the ``position`` in the run."""

    executor: BatchExecutor
    position: str = ""


_taken = ContextVar[Seat | None]("promptgraft_seat", default=None)


def seat() -> Seat | None:
    """Return where the current call is made; None outside of a ``BatchExecutor``."""
    return _taken.get()


def at(place: Seat, work: Callable[[], T]) -> T:
    """Call ``work`` with ``place`` as the current seat."""
    token = _taken.set(place)
    try:
        return work()
    finally:
        _taken.reset(token)


def positioned(position: str, work: Callable[[], T]) -> T:
    """Call ``work`` at ``position`` of the run; outside of a ``BatchExecutor``, just call it."""
    here = seat()
    return work() if here is None else at(attrs.evolve(here, position=position), work)
