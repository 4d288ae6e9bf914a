"""Runs ``promptgraft`` again and again, each time killed before another effect on the file system.

    python cli_crash_driver.py PROJECT FOLDER STEP

For each of the commands each run is a forked child in a copy of PROJECT below FOLDER. It kills
itself with SIGKILL before its n-th effect; n grows, by STEP, until a run is not killed any more.
Then the same command is given once more, and nobody kills it. For each run one line of JSON is
said: the command, the copy, the signal, the exit code of the second command, and the texts of the
prompt between the two.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from apply.world import World
from promptgraft.cli.main import run

COMMANDS = (["apply"], ["apply", "--to-source"])
NAMES = ("write", "fsync", "replace", "rename", "unlink", "mkdir")
REAL: dict[str, Callable[..., object]] = {name: getattr(os, name) for name in NAMES}


def install(fatal: int) -> None:
    """Let this process end before its effect of that number; 0 for never."""
    effects = itertools.count(1)

    def killing(name: str) -> Callable[..., object]:
        def effect(*arguments: object, **options: object) -> object:
            if next(effects) == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return REAL[name](*arguments, **options)

        return effect

    for name in NAMES:
        setattr(os, name, killing(name))


def checked_output(folder: Path, arguments: Sequence[str], fatal: int) -> tuple[int, int]:
    """Return the signal that killed the command, or 0, and its exit code."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        install(fatal)
        os._exit(run(arguments))
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status), 0
    return 0, os.WEXITSTATUS(status)


def main() -> None:
    """Say a line for each run."""
    project, folder, step = sys.argv[1:]
    with contextlib.chdir(project), contextlib.redirect_stdout(None):
        run(["apply", "--dry-run"])  # loads, once, what every child would load again
    for command in COMMANDS:
        for fatal in itertools.count(1, int(step)):
            copy = Path(folder) / f"{command[-1]}{fatal}"
            shutil.copytree(project, copy)
            killed_by, _ = checked_output(copy, command, fatal)
            between = World(copy).texts
            _, code = checked_output(copy, command, 0)
            line = {
                "command": command[-1],
                "copy": str(copy),
                "signal": killed_by,
                "code": code,
                "between": between,
            }
            os.write(1, f"{json.dumps(line)}\n".encode())
            if not killed_by:
                break


if __name__ == "__main__":
    main()
