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
    """

    def __init__(self) -> None:
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
        return self._is_set.is_set()

    @property
    def look_every(self) -> float:
        """Seconds after which whoever waits asks again; infinite when listening is enough."""
        return math.inf

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
        if self.is_set:
            raise RunCancelledError(f"the run was stopped: {self._reason}")

    def listen(self, listener: Callable[[], None]) -> Undo:
        """Call ``listener`` once when this is set, at once if it is set already.

        Returns a function that ends it; calling it twice is harmless.
        """
        mark = object()
        with self._lock:
            if not self._is_set.is_set():
                self._listeners[mark] = listener
                return lambda: self._forget(mark)
        listener()
        return lambda: None

    def _forget(self, mark: object) -> None:
        with self._lock:
            self._listeners.pop(mark, None)
