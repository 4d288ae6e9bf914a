"""Pieces of work that overlap where they wait, and nowhere else.

One thread works at a time, the one that holds the *baton*. Whoever waits for an answer lays it
down. So what pieces of work share needs no lock of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TypeVar

import attrs

from promptgraft.errors import PromptgraftError
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.side_by_side import as_ended

T = TypeVar("T")


class HaltedError(PromptgraftError):
    """A piece of work is given up, because what it is a part of has ended."""


@attrs.define
class Task:
    """A piece of work that was started.

    Attributes:
        ended: whether it has ended.
        error: what it ended with; None when that was nothing.
    """

    ended: bool = False
    error: BaseException | None = None


class Overlap(Protocol):
    """Where pieces of work are done, and wait. A context manager: inside it they may be started."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up what has not ended, and wait until that is done."""
        ...

    def start(self, work: Callable[[], None]) -> Task:
        """Start a piece of work."""
        ...

    def await_one(self) -> None:
        """Wait until one more piece of work has ended."""
        ...

    def await_that(self, holds: Callable[[], bool]) -> None:
        """Wait, in a piece of work, for something that the end of another one brings about.

        Raises:
            HaltedError: it is given up.
        """
        ...

    def resting(self) -> AbstractContextManager[None]:
        """Let others work while this block waits."""
        ...

    def as_ended(
        self, futures: Iterable[Future[T]], deadline: Deadline | None
    ) -> Iterator[Future[T]]:
        """Yield futures as they end, as :func:`promptgraft.runtime.side_by_side.as_ended` does.

        When the work is given up, those that have not begun are cancelled.
        """
        ...

    def check(self) -> None:
        """Do nothing while the work goes on.

        Raises:
            HaltedError: it is given up.
        """
        ...


class InTurn:
    """Does each piece of work when it is started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def start(self, work: Callable[[], None]) -> Task:
        try:
            work()
        except PromptgraftError as error:
            return Task(ended=True, error=error)
        return Task(ended=True)

    def await_one(self) -> None:
        pass

    def await_that(self, holds: Callable[[], bool]) -> None:
        del holds  # whatever was started has ended

    def resting(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def as_ended(
        self, futures: Iterable[Future[T]], deadline: Deadline | None
    ) -> Iterator[Future[T]]:
        return as_ended(futures, deadline)

    def check(self) -> None:
        pass


class SideBySide:
    """Does each piece of work in a thread of its own.

    The thread that enters it holds the baton, and lays it down when it waits.

    Args:
        threads: pieces of work that may be under way.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="promptgraft-step")
        self._baton = threading.Condition(threading.Lock())
        self._cancels: set[Callable[[], bool]] = set()
        self._ended = 0
        self._entered = False
        self._halted = False
        self._left = False

    def __enter__(self) -> Self:
        self._baton.acquire()
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._halted = True
        self._cancel_all()
        self._baton.notify_all()
        self._baton.release()
        try:
            self._pool.shutdown(wait=True)
        finally:
            # Somebody who does not want to wait for that, with Ctrl+C: nobody works any more.
            with self._baton:
                self._left = True
        self._entered = self._halted = False

    def _cancel_all(self) -> None:
        for cancel in tuple(self._cancels):
            cancel()

    def start(self, work: Callable[[], None]) -> Task:
        task = Task()
        future = self._pool.submit(self._do, work)
        future.add_done_callback(lambda ended: self._end(task, ended))
        return task

    def _do(self, work: Callable[[], None]) -> None:
        with self._baton:
            self.check()
            work()

    def _end(self, task: Task, ended: Future[None]) -> None:
        with self._baton:
            task.ended, task.error = True, ended.exception()
            self._ended += 1
            self._baton.notify_all()

    def await_one(self) -> None:
        before = self._ended
        self._baton.wait_for(lambda: self._ended > before)

    def await_that(self, holds: Callable[[], bool]) -> None:
        self._baton.wait_for(lambda: self._halted or holds())
        self.check()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        if not self._entered:
            yield
            return
        self._baton.release()
        try:
            yield
        finally:
            self._baton.acquire()
            if self._left:
                raise HaltedError("the run was left")

    def as_ended(
        self, futures: Iterable[Future[T]], deadline: Deadline | None
    ) -> Iterator[Future[T]]:
        waited_for = tuple(futures)
        cancels = [future.cancel for future in waited_for]
        self._cancels.update(cancels)
        if self._halted:
            self._cancel_all()
        ended = as_ended(waited_for, deadline)
        try:
            while True:
                with self.resting():
                    future = next(ended, None)
                if future is None:
                    return
                yield future
        finally:
            self._cancels.difference_update(cancels)

    def check(self) -> None:
        if self._halted:
            raise HaltedError("the run has ended")
