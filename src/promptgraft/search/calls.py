"""Calls for answers that are not recorded: made by workers, taken in by one thread.

With them the lines of a run that wait for answers: a search and its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

import attrs

from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import CallerError, ConfigError
from promptgraft.journal.records import Record
from promptgraft.runtime.deadline import GRACE, LONGEST_WAIT, Deadline
from promptgraft.search.batches import Batch, Books, QuestionBatch
from promptgraft.search.stops import FaultyStretch
from promptgraft.targets.types import RolloutRecord


@attrs.define(eq=False)
class Pending:
    """A batch under way.

    Attributes:
        owner: which part of the run waits for it.
        batch: takes in the answers.
        left: calls that have not ended.
        futures: all its calls.
        failures: what calls have failed with, by their place in the batch.
        is_left_behind: whether nothing waits for it any more.
        is_complete: whether every call has been made.
    """

    owner: object
    batch: Batch
    left: int
    futures: list[Future[object]] = attrs.field(factory=list)
    failures: dict[int, BaseException] = attrs.field(factory=dict)
    is_left_behind: bool = False
    is_complete: bool = True

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.left == 0 or self.is_left_behind

    def cancel(self) -> None:
        """Cancel the calls that have not begun."""
        for future in self.futures:
            future.cancel()


T = TypeVar("T")

Waits: TypeAlias = Generator[Callable[[], bool], None, T]
"""Work of the driver for one line; yields what must hold before it continues."""


@attrs.frozen
class Made:
    """A rollout as a line has made it; its number in the run is known once the line is joined."""

    position: str
    record: RolloutRecord


@attrs.define(eq=False)
class Line(Generic[T]):
    """A search, or one of its branches, on its way.

    Attributes:
        number: where it was started: the search itself is (), its third branch (3,), and that
            one's first (3, 1).
        books: what it keeps for itself until it is joined.
        stretch: the latest rollouts of the run when it was started.
        earlier: for each line under way then, its batches as they grow.
        most_questions: questions that it can ask; None where that is not known.
        batches: for each rollout of each batch, whether the provider failed it.
        emitted: its events, in order.
        started: branches that it has started.
        held: its work, until it is released.
        is_given_up: whether it does not continue any more.
        has_ended: whether it has come to its end.
        error: what it ended with.
        value: what it has come to, once it has ended without an error.
    """

    number: tuple[int, ...]
    books: Books
    stretch: FaultyStretch
    earlier: Sequence[list[tuple[bool, ...]]] = ()
    most_questions: int | None = None
    batches: list[tuple[bool, ...]] = attrs.field(factory=list)
    emitted: list[object] = attrs.field(factory=list)
    started: int = 0
    held: Waits[None] | None = None
    is_given_up: bool = False
    has_ended: bool = False
    error: Exception | None = None
    value: T = attrs.field(init=False)

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used so far."""
        return self.books.ledger.rollouts


_Ended: TypeAlias = tuple[Pending, int, Future[object]]


@attrs.define(eq=False)
class Calls:
    """Makes calls. A context manager: on leaving it, what is in flight is waited for and recorded.

    Answers that have ended together are recorded in one append, before anything sees them.

    Attributes:
        record: records answers.
        executor: makes rollouts side by side; None makes one call at a time.
        questions_at_once: questions that may be asked side by side, where there is an executor.
        gathering: makes what has evaluations of whole sets answered in batches; None for nothing.
        deadline: when nothing new is begun.
        pending: the batches under way.
        are_side_by_side: whether calls are made while the search continues.
    """

    _record: Callable[[Sequence[Record]], None]
    _executor: Executor | None
    _questions_at_once: int = 1
    _gathering: Callable[[], BatchExecutor] | None = None
    _deadline: Deadline = attrs.field(factory=Deadline)
    pending: list[Pending] = attrs.field(factory=list, init=False)
    are_side_by_side: bool = attrs.field(init=False)
    _asking: ThreadPoolExecutor | None = attrs.field(default=None, init=False)
    _gatherer: BatchExecutor | None = attrs.field(default=None, init=False)
    _ended: SimpleQueue[_Ended | None] = attrs.field(factory=SimpleQueue, init=False)
    # A question that does not end; its thread cannot be waited for.
    _hangs: bool = attrs.field(default=False, init=False)
    _stop_listening: Callable[[], None] = attrs.field(default=lambda: None, init=False)

    def __attrs_post_init__(self) -> None:
        self.are_side_by_side = self._executor is not None

    def __enter__(self) -> Self:
        if self._deadline.cancellation is not None:
            self._stop_listening = self._deadline.cancellation.listen(
                partial(self._ended.put, None)
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._cancel()
            if isinstance(error, KeyboardInterrupt):
                self._leave_behind()
            while self.pending:
                self.collect()
        finally:
            self._stop_listening()
            if self._asking is not None:
                self._asking.shutdown(wait=not self._hangs, cancel_futures=True)
            if self._gatherer is not None:
                self._gatherer.shutdown(wait=False, cancel_futures=True)

    def make(self, owner: object, batch: Batch) -> Waits[None]:
        """Find the missing answers of a batch.

        Raises:
            LimitReachedError: the time is up.
            Exception: what the first call in order has failed with that has failed.
        """
        executor = self._executor
        if batch.is_patient and self._gathering is not None:
            executor = self._gatherer = self._gatherer or self._gathering()
        if executor is None:
            for number in range(batch.missing):
                self._deadline.check()
                if entry := batch.take(number, batch.work(number)):
                    self._record([entry])
        elif batch.missing:
            with executor.held() if isinstance(executor, BatchExecutor) else nullcontext():
                pending = self._submit(owner, batch, executor)
            yield lambda: pending.is_over
            if pending.failures:
                raise pending.failures[min(pending.failures)]
            if pending.left or not pending.is_complete:
                self._deadline.check()
                raise ConfigError(
                    f"executor: {type(executor).__name__} cancelled calls of the run; "
                    "keep it open until the run has ended"
                )

    def _submit(self, owner: object, batch: Batch, executor: Executor) -> Pending:
        self._deadline.check()
        if isinstance(batch, QuestionBatch):
            executor = self._asking = self._asking or ThreadPoolExecutor(
                self._questions_at_once, thread_name_prefix="promptgraft-question"
            )
        pending = Pending(owner, batch, left=batch.missing)
        self.pending.append(pending)
        for number in range(batch.missing):
            try:
                future = executor.submit(batch.work(number))
            except RuntimeError as error:
                # What was not submitted never ends, so nothing may wait for it.
                pending.left -= batch.missing - number
                self.pending = [one for one in self.pending if not one.is_over]
                raise ConfigError(
                    f"executor: {type(executor).__name__} takes no calls: {error}; "
                    "keep it open until the run has ended"
                ) from error
            pending.futures.append(future)
            future.add_done_callback(partial(self._note, pending, number))
        return pending

    def _note(self, pending: Pending, number: int, ended: Future[object]) -> None:
        self._ended.put((pending, number, ended))

    def collect(self) -> None:
        """Wait for a call to end, and take in all that have ended by then.

        Once the time is up, calls that have not begun are cancelled, and those that do not end
        within ``GRACE`` seconds are left behind.
        """
        if not self.pending:
            raise CallerError("the search waits for a branch that it has not released")
        deadline = self._deadline
        self._take_in(self._next(min(LONGEST_WAIT, deadline.remaining, deadline.look_every)))
        if deadline.expired:
            self._cancel()
            grace = Deadline.after(GRACE)
            while self.pending and not grace.expired:
                self._take_in(self._next(grace.remaining))
            self._leave_behind()

    def _cancel(self) -> None:
        for pending in self.pending:
            pending.cancel()

    def _leave_behind(self) -> None:
        for pending in self.pending:
            pending.is_left_behind = True
            self._hangs = self._hangs or isinstance(pending.batch, QuestionBatch)
        self.pending = []

    def _next(self, seconds: float) -> list[_Ended]:
        """Return the calls that have ended, once there is one or the time has passed."""
        ended: list[_Ended] = []
        try:
            found = self._ended.get(timeout=seconds)
            while True:
                if found is not None:
                    ended.append(found)
                found = self._ended.get_nowait()
        except Empty:
            return ended

    def _take_in(self, ended: Sequence[_Ended]) -> None:
        # First of all, so that nothing waits for them if taking one in ends the run.
        for pending, _, _ in ended:
            pending.left -= 1
        self.pending = [pending for pending in self.pending if not pending.is_over]
        entries = []
        for pending, number, future in ended:
            if future.cancelled():
                pending.is_complete = False
                continue
            try:
                entry = pending.batch.take(number, future.result)
            except Exception as error:  # noqa: BLE001 - raised where the answer is waited for
                pending.failures[number] = error
                if pending.batch.stops_at_failure:
                    pending.cancel()
            else:
                if entry is not None:
                    entries.append(entry)
        if entries:
            self._record(entries)
