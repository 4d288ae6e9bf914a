"""A file that somebody makes when a run is to stop."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from promptgraft.errors import ConfigError, StopFileFoundError
from promptgraft.runtime.cancellation import Cancellation

LOOK_EVERY = 0.25
"""Seconds after which whoever waits looks for the file again."""

_LARGEST = 1_000
"""Bytes of a file that may be taken for a stop file and removed."""


def found_at(path: Path) -> str | None:
    """Return that a stop file is there, in words, or None."""
    return f"the stop file `{path}` is there" if os.path.lexists(path) else None


def remove_left_over(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Remove the stop files that an earlier run has left behind, and return them.

    Raises:
        ConfigError: what stands there is a folder, too large to be a stop file, or cannot be
            removed.
    """
    return tuple(path for path in dict.fromkeys(paths) if _removed(path))


def _removed(path: Path) -> bool:
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

    No thread watches the files. They are looked for whenever somebody asks whether this is
    set, and whoever waits asks every ``look_every`` seconds.

    Args:
        paths: the files.
        parent: the other cancellation.
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
        """Do nothing while nobody wants to stop.

        Raises:
            StopFileFoundError: a file is there.
            RunCancelledError: the other cancellation is set.
        """
        if self.is_set and self.reason in self._found:
            raise StopFileFoundError(self.reason)
        super().check()

    def _look(self) -> None:
        super()._look()
        for path in self._paths:
            if words := found_at(path):
                self._found.add(words)
                self.set(words)
