"""Reading a large data set: 200,000 cases of JSONL, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from figures import Figure

TITLE = "Datasets (200,000 cases of JSONL)"
CASES = 200_000
_SCRIPT = """
import resource, sys, time
from promptgraft.evals.dataset import Dataset
started = time.process_time()
dataset = Dataset.load(sys.argv[1])
took = time.process_time() - started
assert len(dataset) == int(sys.argv[2])
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure(folder: Path) -> list[Figure]:
    """Return processor time and the largest memory of loading it."""
    path = folder / "cases.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(CASES):
            file.write(json.dumps(_case(number)) + "\n")
    command = [sys.executable, "-c", _SCRIPT, str(path), str(CASES)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, done.stdout.split())
    return [
        Figure("size of the file", path.stat().st_size / 1e6, "MB", None),
        Figure("loading it, processor time", seconds, "s", 5),
        Figure("largest memory of the process", megabytes, "MiB", 286),
    ]


def _case(number: int) -> dict[str, str]:
    return {
        "id": f"ticket-{number:06}",
        "input": f"My order {number} has not come yet, where is it, and can I still change it?",
        "expected": f"delivery/{number % 17}",
    }
