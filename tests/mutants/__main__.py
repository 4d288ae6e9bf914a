"""Breaks the core in a copy, one line at a time, and sees that a test notices: ``make mutants``.

A break is a row of ``breaks.toml``. One whose text is no longer found once in its file is refused:
the list is kept with the code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("breaks.toml")
_COPIED = ("src", "tests", "examples", "benchmarks", "docs", "specs", "pyproject.toml", "README.md")
_SECONDS = 120.0
"""How long the tests of one break may take; a break that makes them hang is noticed too."""
_INTERRUPTED = 2
"""The exit code of pytest after an interrupt, and after an error during collection."""


@attrs.frozen(kw_only=True)
class Break:
    """One line of the core, broken.

    Attributes:
        name: what is wrong then.
        path: the file, from the root of the repository.
        before: a text that occurs once in it.
        after: what takes its place.
        tests: the files of tests of which at least one must fail.
    """

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]

    def fault(self, root: Path) -> str:
        """Return why the break cannot be tried; empty if it can."""
        file = root / self.path
        if not file.is_file():
            return f"there is no {self.path}"
        if (count := file.read_text("utf-8").count(self.before)) != 1:
            return f"{self.path}: expected this once, found it {count} times: {self.before.strip()}"
        missing = [name for name in self.tests if not (root / name).is_file()]
        return f"there is no {missing[0]}" if missing else ""


def breaks() -> tuple[Break, ...]:
    """Return the kept list."""
    rows = tomllib.loads(LIST.read_text("utf-8"))["break"]
    return tuple(Break(**{**row, "tests": tuple(row["tests"])}) for row in rows)


def faults(kept: Sequence[Break], root: Path = ROOT) -> list[str]:
    """Return a line for each break that cannot be tried."""
    return [f"{one.name}: {fault}" for one in kept if (fault := one.fault(root))]


def is_noticed(one: Break, root: Path) -> bool:
    """Return whether a test fails in ``root`` while the break is there."""
    file = root / one.path
    whole = file.read_text("utf-8")
    file.write_text(whole.replace(one.before, one.after), "utf-8")
    try:
        return not _tests_pass(root, one.tests)
    finally:
        file.write_text(whole, "utf-8")


def _tests_pass(root: Path, tests: Sequence[str]) -> bool:
    # The copy comes first, before the sources that the environment was installed from.
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-n", "0", *tests]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    # A test that ends like Ctrl+C has run; one that cannot be collected has not.
    is_ended = done.returncode == _INTERRUPTED and b"during collection" not in done.stdout
    if done.returncode > 1 and not is_ended:  # neither passed nor failed: they could not be run
        sys.exit(done.stdout.decode(errors="replace")[-2_000:])
    return done.returncode == 0


def main(arguments: Sequence[str]) -> int:
    """Try all breaks, or those whose names hold a text; return the exit code."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the name of a break")
    only: str = parser.parse_args(arguments).only
    chosen = [one for one in breaks() if only in one.name]
    if wrong := faults(chosen):
        print("\n".join(wrong))
        return 2
    if not chosen:
        print(f"no break has `{only}` in its name")
        return 2
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="promptgraft-mutants-") as folder:
        root = Path(folder)
        for name in _COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, root / name)
        for one in chosen:
            noticed = is_noticed(one, root)
            print(f"{'noticed' if noticed else 'SURVIVED':9} {one.name}", flush=True)
            survivors += [] if noticed else [one.name]
    print(f"{len(chosen)} breaks, {len(survivors)} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
