"""Cancellation of a run, seen by all of its threads; a stop file can cause it."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from promptgraft.errors import ConfigError, RunCancelledError, StopFileFoundError

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
