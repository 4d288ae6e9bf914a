"""Calls for answers that are not recorded yet: made by workers, collected by one thread.

Also the strands of a run that wait for those answers: the search and its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import count
from queue import Empty, PriorityQueue, SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

import attrs

from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import CallerError, ConfigError
from promptgraft.journal.base import Journal
from promptgraft.journal.records import Record
from promptgraft.runtime.deadline import GRACE, LONGEST_WAIT, Deadline
from promptgraft.search.answers import Answers, accepted_faults
from promptgraft.search.batches import Batch, QuestionBatch
from promptgraft.search.stops import FaultyStretch
from promptgraft.targets.types import RolloutRecord


@attrs.define(eq=False)
class Pending:
    """A batch whose calls are being made.

    Attributes:
        owner: the part of the run that waits for it.
        batch: receives the answers.
        left: calls that have not ended.
        futures: all calls.
        failures: the exceptions of failed calls, by their place in the batch.
        is_left_behind: whether nothing waits for it any longer.
        is_complete: whether no call was cancelled.
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
        """Whether no further answer is expected."""
        return self.left == 0 or self.is_left_behind

    def cancel(self) -> None:
        """Cancel the calls that have not begun."""
        for future in self.futures:
            future.cancel()


T = TypeVar("T")

Waits: TypeAlias = Generator[Callable[[], bool], None, T]
"""Work of the driver for one strand; yields conditions that must hold before it continues."""


@attrs.frozen
class Made:
    """A rollout of a strand; it gets its number in the run once the strand is joined."""

    position: str
    record: RolloutRecord


@attrs.define(eq=False)
class Strand(Generic[T]):
    """A running search, or one of its branches.

    Attributes:
        number: its place in the tree of branches: () is the search, (3,) its third branch, and
            (3, 1) the first branch of that one.
        answers: its own accounts until it is joined.
        stretch: the latest rollouts of the run at its start.
        earlier: the batches of each branch that was running at its start; they still grow.
        most_questions: how many questions it can ask; None if that is unknown.
        batches: for each rollout of each batch, whether it is unscored.
        emitted: its events, in order.
        started: branches that it has started.
        unreleased: its work, until it is released.
        is_given_up: whether it is not continued.
        has_ended: whether it has ended.
        error: the exception that ended it.
        value: its result, once it has ended without an exception.
    """

    number: tuple[int, ...]
    answers: Answers
    stretch: FaultyStretch
    earlier: Sequence[list[tuple[bool, ...]]] = ()
    most_questions: int | None = None
    batches: list[tuple[bool, ...]] = attrs.field(factory=list)
    emitted: list[object] = attrs.field(factory=list)
    started: int = 0
    unreleased: Waits[None] | None = None
    is_given_up: bool = False
    has_ended: bool = False
    error: Exception | None = None
    value: T = attrs.field(init=False)

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used so far."""
        return self.answers.ledger.rollouts


_Ended: TypeAlias = tuple[Pending, int, Future[object]]


@attrs.define(eq=False)
class Calls:
    """Makes calls. A context manager that awaits and records calls in flight when it exits.

    Answers that arrive together are recorded in one append, before anything sees them.

    Attributes:
        journal: receives the answers, and says whether further ones may be obtained.
        executor: makes rollouts in parallel; with None, one call is made at a time.
        questions_at_once: questions that may be asked in parallel if there is an executor.
        gathering: creates the executor of evaluations that are answered in provider batches;
            None if no model answers in batches.
        deadline: nothing is begun after it.
        pending: the batches whose calls are being made.
        are_side_by_side: whether calls are made while the search continues.
    """

    _journal: Journal
    _executor: Executor | None
    _questions_at_once: int = 1
    _gathering: Callable[[], BatchExecutor] | None = None
    _deadline: Deadline = attrs.field(factory=Deadline)
    pending: list[Pending] = attrs.field(factory=list, init=False)
    are_side_by_side: bool = attrs.field(init=False)
    _asking: ThreadPoolExecutor | None = attrs.field(default=None, init=False)
    _gatherer: BatchExecutor | None = attrs.field(default=None, init=False)
    _pools: dict[Executor, OrderedCalls] = attrs.field(factory=dict, init=False)
    _ended: SimpleQueue[_Ended | None] = attrs.field(factory=SimpleQueue, init=False)
    # Whether a question was left behind: its thread may never end and cannot be joined.
    _hangs: bool = attrs.field(default=False, init=False)
    _stop_listening: Callable[[], None] = attrs.field(default=lambda: None, init=False)

    def __attrs_post_init__(self) -> None:
        self.are_side_by_side = self._executor is not None

    def __enter__(self) -> Self:
        if self._deadline.cancellation is not None:
            # None in the queue wakes the thread that waits for calls.
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
                self._leave_behind()  # a user who presses Ctrl-C does not want to wait
            while self.pending:
                self.collect()
        finally:
            self._stop_listening()
            if self._asking is not None:
                self._asking.shutdown(wait=not self._hangs, cancel_futures=True)
            if self._gatherer is not None:
                self._gatherer.shutdown(wait=False, cancel_futures=True)

    def make(self, owner: object, batch: Batch, *, order: tuple[int, ...] = ()) -> Waits[None]:
        """Obtain the missing answers of a batch.

        Args:
            owner: the part of the run that waits for it.
            batch: the batch.
            order: in threads, calls with the smallest are made first. With the number of a strand
                these are the calls of older branches, which the search waits for first.

        Raises:
            LimitReachedError: the time is up.
            Exception: the exception of the first failed call, in the order of the batch.
        """
        if batch.missing:
            # The journal of a replay is complete and refuses: nothing may be paid for again.
            self._journal.admit(batch.first_key)
        executor = self._executor
        if batch.is_patient and self._gathering is not None:
            executor = self._gatherer = self._gatherer or self._gathering()
        if executor is None:
            for number in range(batch.missing):
                self._deadline.check()
                if entry := batch.take(number, batch.work(number)):
                    self._journal.append_all([*accepted_faults(batch.earlier), entry])
        elif batch.missing:
            # Else a provider batch could be sent with the first few of them.
            with executor.held() if isinstance(executor, BatchExecutor) else nullcontext():
                pending = self._submit(owner, batch, executor, order)
            yield lambda: pending.is_over
            if pending.failures:
                # Not the first to arrive, which would depend on the workers.
                raise pending.failures[min(pending.failures)]
            if pending.left or not pending.is_complete:
                # Calls are cancelled at the limits of the run, or by the owner of the executor.
                self._deadline.check()
                raise ConfigError(
                    f"executor: {type(executor).__name__} cancelled calls of the run; "
                    "keep it open until the run has ended"
                )

    def _submit(
        self, owner: object, batch: Batch, executor: Executor, order: tuple[int, ...]
    ) -> Pending:
        self._deadline.check()
        if isinstance(batch, QuestionBatch):
            # In threads of our own: the session of a question is read here after the call, so it
            # cannot be in another process.
            executor = self._asking = self._asking or ThreadPoolExecutor(
                self._questions_at_once, thread_name_prefix="promptgraft-question"
            )
        submit: Callable[[Callable[[], object]], Future[object]] = executor.submit
        if isinstance(executor, ThreadPoolExecutor):
            pool = self._pools.setdefault(executor, OrderedCalls(executor))
            submit = partial(pool.submit, order)
        pending = Pending(owner, batch, left=batch.missing)
        self.pending.append(pending)
        for number in range(batch.missing):
            try:
                future = submit(batch.work(number))
            except RuntimeError as error:
                # Calls that were not submitted never end, so nothing may wait for them.
                pending.left -= batch.missing - number
                self.pending = [call for call in self.pending if not call.is_over]
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
        """Wait until a call ends, and process all that have ended by then.

        Once the time is up, calls that have not begun are cancelled, and those that do not end
        within ``GRACE`` seconds are left behind.
        """
        if not self.pending:
            raise CallerError("the search waits for a branch that it has not released")
        deadline = self._deadline
        self._process(self._next(min(LONGEST_WAIT, deadline.remaining, deadline.look_every)))
        if deadline.expired:
            self._cancel()
            grace = Deadline.after(GRACE)
            while self.pending and not grace.expired:
                self._process(self._next(grace.remaining))
            self._leave_behind()

    def _cancel(self) -> None:
        for pending in self.pending:
            pending.cancel()

    def _leave_behind(self) -> None:
        for pending in self.pending:
            pending.is_left_behind = True
            # Questions only: the executor of rollouts is not joined here.
            self._hangs = self._hangs or isinstance(pending.batch, QuestionBatch)
        self.pending = []

    def _next(self, seconds: float) -> list[_Ended]:
        """Return the calls that have ended, as soon as there is one or the time is up."""
        ended: list[_Ended] = []
        try:
            ended_call = self._ended.get(timeout=seconds)
            while True:
                if ended_call is not None:
                    ended.append(ended_call)
                ended_call = self._ended.get_nowait()
        except Empty:
            return ended

    def _process(self, ended: Sequence[_Ended]) -> None:
        # First, so that nothing waits for these calls if processing one of them ends the run.
        for pending, _, _ in ended:
            pending.left -= 1
        self.pending = [pending for pending in self.pending if not pending.is_over]
        entries: list[Record] = []
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
                    entries += [*accepted_faults(pending.batch.earlier), entry]
        if entries:
            self._journal.append_all(entries)


@attrs.frozen(order=True)
class _QueuedCall:
    """A call that waits for a thread: the smaller its order, then its number, the earlier."""

    order: tuple[int, ...]
    number: int
    future: Future[object] = attrs.field(order=False)
    call: Callable[[], object] = attrs.field(order=False)


@attrs.define(eq=False)
class OrderedCalls:
    """Makes calls in the threads of a pool.

    The pool takes turns from its queue in the order of submission, and each turn makes whichever
    call is the most urgent by then.

    Attributes:
        pool: the pool; it may have other work.
    """

    _pool: ThreadPoolExecutor
    _calls: PriorityQueue[_QueuedCall] = attrs.field(factory=PriorityQueue, init=False)
    _numbers: count[int] = attrs.field(factory=count, init=False)

    def submit(self, order: tuple[int, ...], call: Callable[[], object]) -> Future[object]:
        """Have a call made; the smaller ``order``, the earlier.

        Raises:
            RuntimeError: the pool has been shut down.
        """
        future: Future[object] = Future()
        # Before its turn, which may begin at once.
        self._calls.put(_QueuedCall(order, next(self._numbers), future, call))
        try:
            turn = self._pool.submit(self._make_next)
        except RuntimeError:
            future.cancel()
            raise
        turn.add_done_callback(self._lose_turn)
        return future

    def _make_next(self) -> None:
        # A cancelled call may have left its turn behind, or may have had none.
        while (waiting := self._next()) is not None:
            if waiting.future.set_running_or_notify_cancel():
                try:
                    outcome = waiting.call()
                except BaseException as error:  # noqa: BLE001 - raised where the outcome is read
                    waiting.future.set_exception(error)
                else:
                    waiting.future.set_result(outcome)
                return

    def _lose_turn(self, turn: Future[None]) -> None:
        # The pool was shut down with `cancel_futures`: without a turn, a call would never end.
        if turn.cancelled() and (waiting := self._next()) is not None:
            waiting.future.cancel()

    def _next(self) -> _QueuedCall | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            return None
