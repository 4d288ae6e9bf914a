"""Measures how long an agent waits for its texts: ``python benchmarks/deliveries.py [FOLDER]``.

Copies of a folder of 100 files, below FOLDER (by default the one for temporary files), and live
files, of which each rollout wants another candidate than the one before it. Milliseconds, the
median and the worst of 200 rollouts in turn.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from promptgraft.agents import Delivery, FileSource, FolderCopy, LiveFiles, Sources, read_sources

ROLLOUTS = 200


def project(folder: Path) -> Sources:
    """Make a folder with two texts and 98 other files of 2 kB, and read the texts."""
    for number in range(98):
        path = folder / f"part{number % 10}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 2000)
    for name in ("system", "skill"):
        (folder / f"{name}.md").write_text(f"{name} " * 100)
    files = {name: FileSource(Path(f"{name}.md")) for name in ("system", "skill")}
    return read_sources(files, folder=folder)


def measured(delivery: Delivery, use: Callable[[Path], object]) -> list[float]:
    """Return the milliseconds that each rollout waits before and after ``use``."""
    found = []
    for number in range(ROLLOUTS):
        texts = {"system": f"System {number}.", "skill": "Skill."}
        began = time.perf_counter()
        with delivery.deliver(texts) as folder:
            inside = time.perf_counter()
            assert folder is not None
            use(folder)
            left = time.perf_counter()
        found.append(1000 * (time.perf_counter() - left + inside - began))
    return found


def log(folder: Path) -> None:
    """Do what agents do: read the text, and write a file that was not there."""
    (folder / "system.md").read_text()
    (folder / "agent.log").write_text("log")


def overwrite(folder: Path) -> None:
    """Change a file in place, which is put back before the copy is used again."""
    (folder / "part1" / "1.txt").write_text("changed")


def main(root: Path | None) -> None:
    """Print a line for each way."""
    with tempfile.TemporaryDirectory(dir=root) as name:
        folder = Path(name)
        sources = project(folder / "app")
        ways: dict[str, tuple[Delivery, Callable[[Path], object]]] = {
            "folder of 100 files": (FolderCopy(sources, sources.folder), log),
            "the same, one changed in place": (FolderCopy(sources, sources.folder), overwrite),
            "live, another candidate each": (LiveFiles(sources), lambda _: None),
        }
        for what, (delivery, use) in ways.items():
            with delivery.opened(folder / "run"):
                found = measured(delivery, use)
            print(f"{what:32} {statistics.median(found):6.2f} {max(found):7.2f} ms")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
