"""Room for a file that a command is to write."""

from __future__ import annotations

from pathlib import Path

from promptgraft.errors import ConfigError


def make_room(path: Path) -> None:
    """Make the folders of a file that will be written, and refuse it early if it cannot be.

    Raises:
        ConfigError: a folder stands there.
        OSError: a folder cannot be made.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file to write, found a folder; name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
