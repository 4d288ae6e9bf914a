"""A wish to stop that reaches every thread of a run."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from promptgraft.errors import RunCancelledError

Undo = Callable[[], None]


class Cancellation:
    """Set once, by anybody, from any thread; never taken back.

    Copied to another process it is a new one that nobody sets: a process cannot be told.

    Args:
        parent: another cancellation; this one is set when that one is.
    """

    def __init__(self, parent: Cancellation | None = None) -> None:
        self._parent = parent
        self._reason = ""
        self._is_set = threading.Event()
        self._listeners: dict[object, Callable[[], None]] = {}
        # A signal handler may run in the middle of any of the methods of its own thread.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return type(self), ()

    @property
    def is_set(self) -> bool:
        """Whether the run is to stop."""
        if not self._is_set.is_set():
            self._look()
        return self._is_set.is_set()

    @property
    def look_every(self) -> float:
        """Seconds after which whoever waits asks again; infinite when listening is enough."""
        return math.inf if self._parent is None else self._parent.look_every

    @property
    def reason(self) -> str:
        """Why, in a few words; empty while it is not set."""
        return self._reason

    def set(self, reason: str) -> None:
        """Ask for the end; the first reason counts. Listeners are called in this thread."""
        with self._lock:
            if self._is_set.is_set():
                return
            self._reason = reason
            self._is_set.set()
            listeners = tuple(self._listeners.values())
            self._listeners.clear()
        for listener in listeners:
            listener()

    def check(self) -> None:
        """Do nothing while nobody wants to stop.

        Raises:
            RunCancelledError: somebody does.
        """
        if self._parent is not None:
            self._parent.check()
        if self.is_set:
            raise RunCancelledError(f"the run was stopped: {self._reason}")

    def listen(self, listener: Callable[[], None]) -> Undo:
        """Call ``listener`` once when this is set, at once if it is set already.

        Returns a function that ends it; calling it twice is harmless.
        """
        mark = object()
        with self._lock:
            was_set = self._is_set.is_set()
            if not was_set:
                self._listeners[mark] = listener
        if was_set:
            listener()
            return lambda: None
        if self._parent is None:
            return lambda: self._forget(mark)
        forget_parent = self._parent.listen(self._look)

        def undo() -> None:
            forget_parent()
            self._forget(mark)

        return undo

    def _look(self) -> None:
        if self._parent is not None and self._parent.is_set:
            self.set(self._parent.reason)

    def _forget(self, mark: object) -> None:
        with self._lock:
            self._listeners.pop(mark, None)
