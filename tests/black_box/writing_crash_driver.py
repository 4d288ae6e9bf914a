"""Writes texts back and is killed at each effect; says what was left, as a line of JSON each."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from black_box.stored_texts import NEW, make, opened
from killing import Killer, at_every_effect, killed_by


class WritingKiller(Killer):
    names = ("write", "fsync", "replace", "unlink")


def main(folder: Path) -> None:
    pattern = folder / "pattern"
    make(pattern)

    def run(when: str, fatal: int) -> int:
        copy = folder / f"{when}-{fatal}"
        shutil.copytree(pattern, copy)
        sources = opened(copy)
        signal = killed_by(lambda: sources.write(NEW, by="a test"), WritingKiller(when, fatal))
        sys.stdout.write(json.dumps({"folder": str(copy), "signal": signal}) + "\n")
        return signal

    at_every_effect(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
