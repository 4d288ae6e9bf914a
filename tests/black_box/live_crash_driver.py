"""Runs candidates in live files and is killed at random effects; the next start puts them back.

    python live_crash_driver.py FOLDER KILLS

For each run one line of JSON is said: its seed, the signal, and the files before, after the kill
and after the next start.
"""

from __future__ import annotations

import functools
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from black_box.stored_texts import OLD, SKILL, make, opened
from killing import Killer, killed_by
from promptgraft.agents.live import LiveFiles

KEPT = ("system.md", SKILL, "store.txt")


class LiveKiller(Killer):
    """Also counts what is removed."""

    names = (*Killer.names, "unlink")


def run_live(folder: Path, run: Path, seed: int) -> None:
    """Run rollouts of twelve candidates in four threads."""
    chance = random.Random(seed)
    texts = [{**OLD, chance.choice(list(OLD)): f"Text {at}."} for at in range(12)]
    delivery = LiveFiles(opened(folder))

    def rollout(at: int) -> None:
        with delivery.deliver(texts[at]):
            pass

    with delivery.opened(run), ThreadPoolExecutor(4) as workers:
        list(workers.map(rollout, range(len(texts))))


def held(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_bytes().decode() for name in KEPT}


def main(folder: Path, kills: int) -> None:
    app = folder / "app"
    make(app)
    before, seed, killed = held(app), 0, 0
    while killed < kills:
        chance = random.Random(f"kill {seed}")
        killer = LiveKiller(chance.choice(["before", "after", "inside"]), chance.randrange(150))
        number = killed_by(functools.partial(run_live, app, folder / f"run-{seed}", seed), killer)
        between = held(app)
        opened(app)
        found = {"before": before, "between": between, "after": held(app)}
        sys.stdout.write(f"{json.dumps({'seed': seed, 'signal': number, **found})}\n")
        killed, seed = killed + bool(number), seed + 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
