"""The main commands with the lowest versions that pyproject.toml allows: ``make lowest``.

For each Python that promptgraft supports and this machine has. Those that it lacks are named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "examples/projects/classify"

COMMANDS = (
    ("--version",),
    ("init", "new"),
    ("check",),
    ("plan",),
    ("eval",),
    ("optimize", "--budget", "400"),
    ("runs",),
    ("show", "latest"),
    ("report", "latest"),
    ("resume", "latest"),
)
"""In the folder of a project, in this order."""

_PASSED = (0, 1)
"""A search may find nothing better, and an evaluation may stay below what was required."""


def versions() -> list[str]:
    """Return the versions of Python that pyproject.toml names, such as ``3.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"]]
    return [name for name in named if name.startswith("3.")]


def run(*command: str | Path, allowed: Sequence[int] = (0,), cwd: Path = ROOT) -> None:
    """Run a command; end with its output if it fails."""
    ended = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    if ended.returncode not in allowed:
        output = f"{ended.stdout}{ended.stderr}".strip()
        raise SystemExit(f"{' '.join(map(str, command))}: ended with {ended.returncode}\n{output}")


def installer() -> str:
    """Return the path of uv, which can resolve the lowest versions."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if (uv := shutil.which("uv", path=beside)) is None:
        raise SystemExit("uv is not installed; it is in the group `dev` of pyproject.toml")
    return uv


def find_interpreter(uv: str, version: str) -> str:
    """Return the path of a Python of this machine; empty if there is none."""
    command = [uv, "python", "find", "--no-python-downloads", "--no-project", version]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    return ended.stdout.strip() if ended.returncode == 0 else ""


def try_lowest(uv: str, interpreter: str, folder: Path) -> None:
    """Install the lowest versions for one Python, and run the commands."""
    environment = folder / "environment"
    run(uv, "venv", "--quiet", "--python", interpreter, environment)
    python, lowest = environment / "bin/python", ("--resolution", "lowest-direct")
    run(uv, "pip", "install", "--quiet", "--system-certs", "--python", python, *lowest, ROOT)
    project = shutil.copytree(PROJECT, folder / "project")
    for command in COMMANDS:
        run(environment / "bin/promptgraft", *command, allowed=_PASSED, cwd=project)


def main() -> None:
    """Try each version of Python."""
    uv = installer()
    for version in versions():
        interpreter = find_interpreter(uv, version)
        if not interpreter:
            print(f"Python {version}: absent, not tried", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="promptgraft-lowest-") as folder:
            try_lowest(uv, interpreter, Path(folder))
        print(f"Python {version}: {len(COMMANDS)} commands with the lowest versions", flush=True)


if __name__ == "__main__":
    main()
