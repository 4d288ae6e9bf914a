"""Replaces source files again and again, each time killed at another effect on the file system.

    python crash_driver.py FOLDER

Each run has a folder of its own (:mod:`killing`). Afterwards the same call is made once more, and
nobody kills it. For each run one line of JSON is said: the folder, the signal, and the texts
between the two calls and at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from killing import Killer, at_every_effect, killed_by
from promptgraft.project.applying.files import Intent, planned, replace_files
from promptgraft.project.files import FileChange

TEXTS = {"a.md": ("old a\n", "new a\n" * 500), "sub/b.yaml": ("old b\r\n", "new b\r\n")}


class ReplacingKiller(Killer):
    """Also counts what is removed."""

    names = (*Killer.names, "unlink")


def call(folder: Path) -> None:
    changes = [FileChange(folder / name, old, new) for name, (old, new) in TEXTS.items()]
    files = planned(folder, changes)
    intent = Intent(run="run", candidate=3, done=False, files=files)
    replace_files(folder, folder / "runs", intent)


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_bytes().decode() for name in TEXTS}


def run(when: str, fatal: int) -> int:
    """Replace twice in a folder of its own, the first time to be killed; return the signal."""
    folder = Path(sys.argv[1]) / f"{when}-{fatal}"
    for name in ("runs", "sub"):
        (folder / name).mkdir(parents=True)
    for name, (old, _) in TEXTS.items():
        (folder / name).write_bytes(old.encode())
    number = killed_by(lambda: call(folder), ReplacingKiller(when, fatal))
    between = texts(folder)
    call(folder)
    found = {"between": between, "after": texts(folder)}
    sys.stdout.write(f"{json.dumps({'folder': str(folder), 'signal': number, **found})}\n")
    return number


if __name__ == "__main__":
    at_every_effect(run)
