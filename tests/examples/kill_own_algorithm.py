"""Runs the example's job on a journal, and dies at the N-th append: ``FOLDER N``; 0 for never."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

from promptgraft.journal import FileJournal, Record
from promptgraft.serde import digest


class Mortal(FileJournal):
    """Ends the process with SIGKILL after an append."""

    lives = 0

    def append_all(self, records: Sequence[Record]) -> None:
        super().append_all(records)
        self.lives -= 1
        if self.lives == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, fatal: int) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "own_algorithm"))
    from bins import job

    found = job()
    with Mortal(folder / "journal.jsonl") as journal:
        journal.lives = fatal
        result = found.within(attrs.evolve(found.context, journal=journal)).run()
    texts = [str(sorted(one.section_bodies.items())) for one in result.candidates]
    print(digest([texts, list(result.means), result.total_rollouts, result.total_reflections]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
