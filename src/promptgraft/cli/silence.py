"""Saying what a command waits for when nothing has happened for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from promptgraft.ground.text import duration

SECONDS = 10.0
"""The silence after which a command says what it waits for; then after twice as long, and so on."""


class Silence:
    """A context manager that breaks the silence of a slow model, agent or server.

    Args:
        say: prints a line; called from a thread.
        what: returns what the command waits for now; empty if it waits for nothing.
        seconds: the length of the first silence.
    """

    def __init__(
        self, say: Callable[[str], None], what: Callable[[], str], *, seconds: float = SECONDS
    ) -> None:
        self._say = say
        self._what = what
        self._seconds = seconds
        self._stirred = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def stir(self) -> None:
        """Record that something happened."""
        self._stirred.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._stirred.set()
        self._thread.join()

    def _watch(self) -> None:
        silent, limit = 0.0, self._seconds
        while not self._has_ended:
            if self._stirred.wait(limit):
                self._stirred.clear()
                silent, limit = 0.0, self._seconds
                continue
            silent += limit
            limit = silent
            if what := self._what():
                self._say(f"still waiting for {what} ({duration(silent)})")
