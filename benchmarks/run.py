"""What promptgraft itself costs; ``make bench``. Ends with 1 when a limit is not kept."""

from __future__ import annotations

import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import agents
import baml_calls
import calling
import data_sets
import durable
import graph_faults
import graphs
import overhead
import rendering
import replay
import run_directory
import scale
import startup


def main() -> int:
    """Measure everything, print it, and return the exit code."""
    print(
        f"Python {platform.python_version()}, {platform.machine()}, {platform.system()}, "
        f"gepa {version('gepa')}"
    )
    with tempfile.TemporaryDirectory() as folder:
        groups = {
            overhead.TITLE: overhead.measure(Path(folder)),
            run_directory.TITLE: run_directory.measure(Path(folder)),
            replay.TITLE: replay.measure(Path(folder)),
            durable.TITLE: durable.measure(Path(folder)),
            graphs.TITLE: graphs.measure(Path(folder)),
            graph_faults.TITLE: graph_faults.measure(),
            scale.TITLE: scale.measure(Path(folder)),
            rendering.TITLE: rendering.measure(Path(folder)),
            data_sets.TITLE: data_sets.measure(Path(folder)),
            startup.TITLE: startup.measure(),
            calling.TITLE: calling.measure(),
            agents.TITLE: agents.measure(),
            baml_calls.TITLE: baml_calls.measure(),
        }
    for title, figures in groups.items():
        print(f"\n{title}")
        for figure in figures:
            print(figure.line())
    return 0 if all(figure.kept for figures in groups.values() for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
