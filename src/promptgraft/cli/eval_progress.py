"""Progress of the evaluation of ``promptgraft eval``, as lines."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.output import echo
from promptgraft.cli.progress import SECONDS, Silence, waiting
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.ground.text import counted, visible_line


class EvalProgress:
    """Progress of an evaluation that reports only waits. Safe to share between threads.

    Args:
        total: the number of answers; None if that is not known.
        quiet: whether it reports nothing.
        silence: seconds without an answer after which it says what it waits for.
    """

    def __init__(
        self, total: int | None = None, *, quiet: bool = False, silence: float = SECONDS
    ) -> None:
        self._quiet = quiet
        self._expected = total
        self._asked = self._answered = 0
        self._counts = threading.Lock()
        self._silence = Silence(self._say, self._awaited, seconds=silence)

    def __enter__(self) -> Self:
        self._silence.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._silence.__exit__(*error)

    def begun(self) -> None:
        """Record that an answer was requested."""
        with self._counts:
            self._asked += 1

    def ended(self, attempt: CaseAttempt | None) -> None:
        """Record a finished attempt; None for one that raised."""
        del attempt
        with self._counts:
            self._answered += 1
        self._silence.stir()

    def waits(self, notice: CallWaiting) -> None:
        """Report that a call is waiting, and why."""
        self._silence.stir()
        self._say(waiting(notice.model, notice.seconds, notice.reason))

    def _awaited(self) -> str:
        in_flight = self._asked - self._answered
        of = "" if self._expected is None else f" of {self._expected:,}"
        return f"{counted(in_flight, 'answer')}, {self._answered:,}{of} are there"

    def _say(self, what: str) -> None:
        if not self._quiet:
            with contextlib.suppress(OSError):
                echo(visible_line(what), error=True)
