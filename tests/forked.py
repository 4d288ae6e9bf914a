"""Runs ``main`` of a program in forked processes, so that it is imported once for all of them.

As a program, ``python forked.py PROGRAM``: each line of standard input holds the arguments of
``main`` as JSON, the first of them a path; the reply holds the exit code and what was printed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from programs import SEARCH

Run = Callable[..., tuple[int, str]]
"""Takes a path and further arguments; returns the exit code and the output of their process."""


@contextlib.contextmanager
def forking(program: Path) -> Iterator[Run]:
    """Start a process that forks one for each call; its hashes of texts are its own."""
    command = [sys.executable, __file__, str(program)]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=path, stdin=pipe, stdout=pipe, text=True) as server:

        def run(path: Path, *arguments: object) -> tuple[int, str]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps([str(path), *arguments]) + "\n")
            server.stdin.flush()
            code, output = json.loads(server.stdout.readline())
            return code, output

        yield run


def ends_the_same_when_killed(driver: Path, folder: Path, kills: int) -> None:
    """Kill a search at random appends to its journal and resume it: its end is always the same.

    Args:
        driver: ``FILE N`` runs a search that dies at the N-th append, with 0 never; it prints what
            came of it, and how many answers there are.
        folder: where journals are kept.
        kills: how many searches are killed; every second one is killed again when it is resumed.
    """
    with forking(driver) as run, forking(driver) as run_again:
        ended = run(folder / "whole.jsonl", 0)
        assert ended[0] == 0
        answers = int(ended[1].split()[1])
        chance = random.Random(kills)
        for number in range(kills):
            journal = folder / f"{number}.jsonl"
            # Answers that end together are one append, so there are fewer appends than answers.
            assert run(journal, chance.randrange(1, answers // 4))[0] == -signal.SIGKILL
            if number % 2:  # and again on the way, if there is still something to ask for
                assert run_again(journal, chance.randrange(1, 6))[0] in {-signal.SIGKILL, 0}
            assert run_again(journal, 0) == ended


def _serve(program: Path) -> None:
    main: Callable[..., object] = runpy.run_path(str(program))["main"]
    for module in SEARCH:
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(writing, 1)
                path, *arguments = json.loads(line)
                main(Path(path), *arguments)
                sys.stdout.flush()
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as said:
            output = said.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([code, output]), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
