"""What ends the work of a run: deadlines, cancellation, stop files; and waiting for its threads."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

import attrs

from promptgraft.clock import Clock, SystemClock
from promptgraft.errors import (
    ConfigError,
    DeadlineExceededError,
    RunCancelledError,
    StopFileFoundError,
)

Undo = Callable[[], None]


class Cancellation:
    """A flag that any thread can set, once; it is never cleared. ``reason`` is a few words.

    A copy in another process is a flag of its own: setting this one does not set it.

    Args:
        parent: another cancellation; this one is set when that one is.
    """

    def __init__(self, parent: Cancellation | None = None) -> None:
        self._parent = parent
        self.reason = ""  # empty while it is not set
        self._is_set = False
        self._listeners: dict[object, Callable[[], None]] = {}
        # A signal handler may run in the middle of any of the methods of its own thread.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return type(self), ()

    @property
    def is_set(self) -> bool:
        """Whether the run is to stop."""
        if not self._is_set:
            self._look()
        return self._is_set

    @property
    def look_every(self) -> float:
        """Seconds after which a waiting caller checks again; infinite if listening is enough."""
        return math.inf if self._parent is None else self._parent.look_every

    def set(self, reason: str) -> None:
        """Ask for the end; the first reason counts. Listeners are called in this thread."""
        with self._lock:
            if self._is_set:
                return
            self.reason = reason
            self._is_set = True
            listeners = tuple(self._listeners.values())
            self._listeners.clear()
        for listener in listeners:
            listener()

    def check(self) -> None:
        """Raise ``RunCancelledError`` if this is set, ``StopFileFoundError`` if by a stop file."""
        if self._parent is not None:
            self._parent.check()
        if self.is_set:
            raise RunCancelledError(f"the run was stopped: {self.reason}")

    def listen(self, listener: Callable[[], None]) -> Undo:
        """Call ``listener`` once when this is set, at once if it is set already.

        Returns a function that ends it; calling it twice is harmless.
        """
        mark = object()
        with self._lock:
            was_set = self._is_set
            if not was_set:
                self._listeners[mark] = listener
        if was_set:
            listener()
            return lambda: None
        undo_parent = None if self._parent is None else self._parent.listen(self._look)

        def undo() -> None:
            if undo_parent is not None:
                undo_parent()
            with self._lock:
                self._listeners.pop(mark, None)

        return undo

    def _look(self) -> None:
        if self._parent is not None and self._parent.is_set:
            self.set(self._parent.reason)


LOOK_EVERY = 0.25
"""Seconds after which a waiting caller looks for the file again."""

_LARGEST = 1_000
"""Bytes of a file that may be taken for a stop file and removed."""


def found_at(path: Path) -> str | None:
    """Return that a stop file is there, in words, or None."""
    return f"the stop file `{path}` is there" if os.path.lexists(path) else None


def remove_left_over(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Remove the stop files that an earlier run has left behind, and return them.

    A folder, or a file that is too large to be a stop file, raises a ``ConfigError``.
    """
    return tuple(path for path in dict.fromkeys(paths) if _remove(path))


def _remove(path: Path) -> bool:
    try:
        if path.is_dir() and not path.is_symlink():
            raise ConfigError(f"stop file: `{path}` is a folder; name a file that is not there yet")
        if os.lstat(path).st_size > _LARGEST:
            raise ConfigError(
                f"stop file: `{path}` has {os.lstat(path).st_size} bytes and may be needed; "
                "remove it or name another one"
            )
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            f"stop file: `{path}` is left over from an earlier run and cannot be removed: "
            f"{error.strerror}; remove it"
        ) from None
    return True


class StopFileCancellation(Cancellation):
    """Set when one of some files is there, or another cancellation is set.

    No thread watches the files. They are looked for each time the flag is read; waiting callers
    read it every ``look_every`` seconds.
    """

    def __init__(self, paths: Sequence[Path], parent: Cancellation | None = None) -> None:
        super().__init__(parent)
        self._paths = tuple(paths)
        self._found: set[str] = set()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return Cancellation, ()

    @property
    def look_every(self) -> float:
        return LOOK_EVERY

    def check(self) -> None:
        if self.is_set and self.reason in self._found:
            raise StopFileFoundError(self.reason)
        super().check()

    def _look(self) -> None:
        super()._look()
        for path in self._paths:
            if words := found_at(path):
                self._found.add(words)
                self.set(words)


@attrs.frozen(kw_only=True)
class Deadline:
    """A point in time on a monotonic clock, which a cancellation brings forward.

    Attributes:
        clock: the clock that it is read from.
        expires_at: the value of ``clock.monotonic()`` at which time is up, in seconds;
            infinite when there is no such moment.
        cancellation: ends the time early; None if nothing can.
    """

    clock: Clock = attrs.field(factory=SystemClock)
    expires_at: float = math.inf
    cancellation: Cancellation | None = None

    @classmethod
    def after(cls, seconds: float, *, clock: Clock | None = None) -> Deadline:
        """Return the deadline ``seconds`` from now, which must be above 0."""
        if not seconds > 0:
            raise ConfigError(f"deadline: expected seconds > 0, found {seconds!r}")
        chosen = clock or SystemClock()
        return cls(clock=chosen, expires_at=chosen.monotonic() + seconds)

    def __reduce__(self) -> tuple[Callable[[Clock, float], Deadline], tuple[Clock, float]]:
        # Another machine has another clock, and a cancellation stays in its process.
        return _in_seconds, (self.clock, self.remaining)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative; infinite without a moment."""
        if self.cancellation is not None and self.cancellation.is_set:
            return 0.0
        return max(0.0, self.expires_at - self.clock.monotonic())

    @property
    def look_every(self) -> float:
        """Seconds after which a waiting caller checks again, even if ``remaining`` is more."""
        return math.inf if self.cancellation is None else self.cancellation.look_every

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining <= 0

    def check(self) -> None:
        """Raise ``RunCancelledError`` or ``DeadlineExceededError`` when there is no time left."""
        if self.cancellation is not None:
            self.cancellation.check()
        # Not `expired`: a run that is cancelled from here on has not outlived its deadline.
        if self.clock.monotonic() >= self.expires_at:
            raise DeadlineExceededError("the deadline of the run has passed")


def _in_seconds(clock: Clock, seconds: float) -> Deadline:
    return Deadline(clock=clock, expires_at=clock.monotonic() + seconds)


T = TypeVar("T")

GRACE = 1.0
"""Seconds that work in flight is given to end once the time is up."""

LONGEST_WAIT = 3600.0
"""Seconds; without a deadline, a wait is begun again so often."""


def as_ended(futures: Iterable[Future[T]], deadline: Deadline | None) -> Iterator[Future[T]]:
    """Yield futures as they end.

    Once the deadline has passed or its run is cancelled, what has not begun is cancelled, and what
    does not end within ``GRACE`` seconds is left behind.
    """
    waiting = set(futures)
    ended: SimpleQueue[Future[T] | None] = SimpleQueue()
    cancellation = deadline.cancellation if deadline is not None else None
    undo = cancellation.listen(lambda: ended.put(None)) if cancellation is not None else None
    try:
        for future in tuple(waiting):
            future.add_done_callback(ended.put)
        left, is_grace = deadline, False
        while waiting:
            found = _next(ended, left)
            if found is not None:
                waiting.discard(found)
                yield found
            elif left is not None and left.expired:
                if is_grace:
                    break
                for future in tuple(waiting):
                    future.cancel()
                left, is_grace = Deadline.after(GRACE), True
    finally:
        if undo is not None:
            undo()


def _next(ended: SimpleQueue[Future[T] | None], deadline: Deadline | None) -> Future[T] | None:
    seconds = LONGEST_WAIT
    if deadline is not None:
        seconds = min(seconds, deadline.remaining, deadline.look_every)
    try:
        return ended.get(timeout=seconds)
    except Empty:
        return None


_by_thread: dict[int, str] = {}


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Note what this thread does; inside it, something else may be noted."""
    thread = threading.get_ident()
    before = _by_thread.get(thread, "")
    _by_thread[thread] = what
    try:
        yield
    finally:
        _by_thread[thread] = before
        if not before:
            del _by_thread[thread]


def left_behind(seconds: float) -> list[str]:
    """Return what other threads are still doing after so many seconds; at once when nothing."""
    threads = [one for one in threading.enumerate() if one.ident in _by_thread]
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(seconds / len(threads))
    return [_by_thread[one.ident] for one in threads if one.ident in _by_thread]
