"""Deadlines, cancellation and stop files of a run."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from promptgraft.errors import (
    ConfigError,
    DeadlineExceededError,
    RunCancelledError,
    StopFileFoundError,
)
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.serde import shown

Undo = Callable[[], None]


class Cancellation:
    """A flag that any thread can set once and that is never cleared; ``reason`` says why.

    A copy in another process is independent: setting this one does not set it.

    Args:
        parent: another cancellation; setting it sets this one too.
    """

    def __init__(self, parent: Cancellation | None = None) -> None:
        self._parent = parent
        self.reason: str = ""  # empty until it is set
        self._is_set = False
        self._listeners: dict[object, Callable[[], None]] = {}
        # Reentrant: a signal handler may interrupt any of these methods in its own thread.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return type(self), ()

    @property
    def is_set(self) -> bool:
        """Whether the run should stop."""
        if not self._is_set:
            self._look()
        return self._is_set

    @property
    def look_every(self) -> float:
        """Seconds after which a waiter must check again; infinite if listening is enough."""
        return math.inf if self._parent is None else self._parent.look_every

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.reason!r}>" if self.is_set else "<Cancellation>"

    def set(self, reason: str) -> None:
        """Request the end; the first reason wins. Listeners are called in this thread."""
        with self._lock:
            if self._is_set:
                return
            # Before the flag, which is read without the lock.
            self.reason = reason
            self._is_set = True
            listeners = tuple(self._listeners.values())
            self._listeners.clear()
        # Outside the lock: listeners are code of the callers and may take locks of their own.
        for listener in listeners:
            listener()

    def check(self) -> None:
        """Raise ``RunCancelledError`` if this is set, ``StopFileFoundError`` for a stop file."""
        # First, because a parent that found a stop file raises another error than this one.
        if self._parent is not None:
            self._parent.check()
        if self.is_set:
            raise RunCancelledError(f"the run was stopped: {self.reason}")

    def listen(self, listener: Callable[[], None]) -> Undo:
        """Call ``listener`` once when this is set, immediately if it is set already.

        Returns a function that stops listening; calling it twice is harmless.
        """
        # Not the listener itself, which may be registered twice.
        mark = object()
        with self._lock:
            was_set = self._is_set
            if not was_set:
                self._listeners[mark] = listener
        if was_set:
            listener()
            return lambda: None
        # Otherwise the parent would only be noticed when somebody reads the flag.
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
"""Seconds after which a waiting caller looks for the stop file again."""

_LARGEST = 1_000
"""Bytes; a larger file is not taken for a stop file and never removed."""


def found_at(path: Path) -> str | None:
    """Return the reason to stop if there is a stop file at ``path``, or None."""
    return f"the stop file `{path}` is there" if os.path.lexists(path) else None


def remove_left_over(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Remove stop files that are left over from an earlier run, and return them.

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
    """Set when one of several files exists, or another cancellation is set.

    No thread watches the files: each read of the flag looks for them, and waiting callers read it
    every ``look_every`` seconds.
    """

    def __init__(self, paths: Sequence[Path], parent: Cancellation | None = None) -> None:
        super().__init__(parent)
        self._paths = tuple(paths)
        self._found: set[str] = set()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        # A copy looks for no files: the process of the run does.
        return Cancellation, ()

    @property
    def look_every(self) -> float:
        return LOOK_EVERY

    def check(self) -> None:
        # The first reason wins, and that may be another one.
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
    """A point in time on a monotonic clock; a cancellation expires it early.

    Attributes:
        clock: the clock it is measured with.
        expires_at: the value of ``clock.monotonic()`` at which it expires, in seconds; infinite
            without a time limit.
        cancellation: expires it early; None if nothing can.
    """

    clock: Clock = attrs.field(factory=SystemClock)
    expires_at: float = math.inf
    cancellation: Cancellation | None = None

    @classmethod
    def after(cls, seconds: float, *, clock: Clock | None = None) -> Deadline:
        """Return the deadline that expires ``seconds`` from now; ``seconds`` must be above 0."""
        # Negated, so that NaN is refused too.
        limit: object = seconds
        if not isinstance(limit, int | float) or not limit > 0:
            raise ConfigError(f"deadline: expected seconds > 0, found {shown(seconds)}")
        chosen = clock or SystemClock()
        return cls(clock=chosen, expires_at=chosen.monotonic() + seconds)

    def __reduce__(self) -> tuple[Callable[[Clock, float], Deadline], tuple[Clock, float]]:
        # Another machine has another clock, and a cancellation stays in its process.
        return _in_seconds, (self.clock, self.remaining)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative; infinite without a time limit."""
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


def sooner(deadline: Deadline | None, seconds: float) -> Deadline:
    """Return a deadline that expires after ``seconds`` at the latest."""
    if deadline is None:
        return Deadline.after(seconds)
    ends = deadline.clock.monotonic() + seconds
    return attrs.evolve(deadline, expires_at=ends) if ends < deadline.expires_at else deadline


def rest(seconds: float, deadline: Deadline) -> None:
    """Wait so many seconds, or until the deadline; returns early when the run is cancelled."""
    woken, until = threading.Event(), deadline.clock.monotonic() + seconds
    cancellation = deadline.cancellation
    undo = cancellation.listen(woken.set) if cancellation is not None else None
    try:
        while (left := min(until - deadline.clock.monotonic(), deadline.remaining)) > 0:
            woken.wait(min(left, deadline.look_every, LONGEST_WAIT))
    finally:
        if undo is not None:
            undo()


GRACE = 1.0
"""Seconds that work in flight gets to end after the deadline."""

LONGEST_WAIT = 3600.0
"""Seconds after which a wait without a deadline is begun again."""
