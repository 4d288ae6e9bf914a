"""Replaces a file again and again, each time killed at another effect on the file system.

    python atomic_write_driver.py FOLDER

Each run has a folder of its own (:mod:`killing`), in which it replaces ``old`` by ``NEW`` and
creates ``fresh``. For each run one line is said: the folder and the signal that killed it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from killing import Killer, at_every_effect, killed_by, say
from promptgraft.ground.files import write_atomically

OLD, NEW = b"old\n" * 1000, b"new\n" * 2000


def write_both(folder: Path) -> None:
    write_atomically(folder / "old", NEW)
    write_atomically(folder / "fresh", NEW)


def run(when: str, fatal: int) -> int:
    """Replace and create, to be killed; return the signal."""
    folder = Path(sys.argv[1]) / f"{when}-{fatal}"
    folder.mkdir()
    (folder / "old").write_bytes(OLD)
    number = killed_by(lambda: write_both(folder), Killer(when, fatal))
    say(folder, number)
    return number


if __name__ == "__main__":
    at_every_effect(run)
