"""How long the first answer takes: whole processes, the fastest of several runs."""

from __future__ import annotations

import subprocess
import sys
import time

from figures import Figure

TITLE = "Start"
RUNS = 7


def measure() -> list[Figure]:
    """Return the start-up figures, in milliseconds of wall time."""
    bare = _fastest([sys.executable, "-c", "pass"])
    package = _fastest([sys.executable, "-c", "import promptgraft"])
    optimizer = _fastest([sys.executable, "-c", "from promptgraft import GepaOptimizer"])
    help_text = _fastest([sys.executable, "-m", "promptgraft", "--help"])
    return [
        Figure("python that does nothing", bare, "ms", None),
        Figure("import promptgraft (beside python)", package - bare, "ms", 150),
        Figure("import GepaOptimizer (beside python)", optimizer - bare, "ms", None),
        Figure("promptgraft --help (whole process)", help_text, "ms", 250),
    ]


def _fastest(command: list[str]) -> float:
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times) * 1000
