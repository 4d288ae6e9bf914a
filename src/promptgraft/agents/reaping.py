"""Ends what a killed process has left running: a helper process that outlives it for a moment.

A process that is killed cannot end the commands that it has started. The helper reads from a pipe
which process groups are alive; when the pipe closes, because its other end has died, it kills them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

_PROGRAM = """
import os, sys
alive = set()
for line in sys.stdin.buffer:
    if line.endswith(b"\\n"):
        (alive.discard if line[:1] == b"-" else alive.add)(int(line[1:]))
for group in alive:
    try:
        os.killpg(group, 9)
    except OSError:
        pass
"""


class _Reaper:
    """The helper of this process, started when it is first needed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        # A forked process has neither the helper nor the lock of the one that it was forked from.
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None
        self._alive: set[int] = set()

    def add(self, group: int) -> None:
        with self._lock:
            self._alive.add(group)
            # One that something else has ended knows nothing any more.
            is_new = self._helper is None or self._helper.poll() is not None
            for one in self._alive if is_new else (group,):
                self._tell("+", one)

    def discard(self, group: int) -> None:
        with self._lock:
            self._alive.discard(group)
            self._tell("-", group)

    def _tell(self, sign: str, group: int) -> None:
        if self._helper is None or self._helper.poll() is not None:
            self._helper = subprocess.Popen(  # noqa: S603 - the program above
                [sys.executable, "-I", "-S", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                # Ctrl+C and the end of a terminal reach the group of this process only.
                start_new_session=True,
            )
        assert self._helper.stdin is not None  # noqa: S101 - it has a pipe
        with contextlib.suppress(BrokenPipeError):
            self._helper.stdin.write(f"{sign}{group}\n".encode())

    def close(self) -> None:
        with self._lock:
            if self._helper is not None and self._helper.stdin is not None:
                self._helper.stdin.close()
                self._helper.wait()
                self._helper = None


_reaper = _Reaper()
atexit.register(_reaper.close)
os.register_at_fork(after_in_child=_reaper.forget)


@contextlib.contextmanager
def reaped(group: int) -> Iterator[None]:
    """Have a process group killed if this process dies meanwhile."""
    _reaper.add(group)
    try:
        yield
    finally:
        _reaper.discard(group)
