"""Runs the example's job on a journal, and dies at the N-th append: ``FOLDER N``; 0 for never."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "own_algorithm"))

from bins import job

from dying_journal import DyingJournal
from promptgraft.ground.serde import digest


def main(folder: Path, fatal: int) -> None:
    found = job()
    with DyingJournal(folder / "journal.jsonl") as journal:
        journal.lives = fatal
        result = found.within(attrs.evolve(found.context, journal=journal)).run()
    texts = [str(sorted(one.section_bodies.items())) for one in result.candidates]
    print(digest([texts, list(result.means), result.total_rollouts, result.total_reflections]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
