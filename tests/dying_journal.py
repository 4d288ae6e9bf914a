"""A journal whose process dies with SIGKILL after an append."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from promptgraft.journal import FileJournal, Record


class DyingJournal(FileJournal):
    """Counts appends down from ``lives`` and ends the process at 0; below that, never."""

    lives = 0

    def append_all(self, records: Sequence[Record]) -> None:
        super().append_all(records)
        self.lives -= 1
        if self.lives == 0:
            os.kill(os.getpid(), signal.SIGKILL)
