"""Calls in threads of a pool, the most urgent first instead of the first to be submitted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from queue import Empty, PriorityQueue

import attrs


@attrs.frozen(order=True)
class _QueuedCall:
    """A call that waits for a thread; equally urgent calls are made in the order of their number.

    Attributes:
        order: the smaller, the more urgent.
        number: counts the calls.
        future: receives the outcome.
        call: makes the call.
    """

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
