"""What the first program of the README loads."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import tree_figures

MOST_LINES = 62_600
"""Lines of the package that the program loads; may only fall."""
NOT_NEEDED = (
    "bridges/",
    "cli/",
    "service/",
    "runs/",
    "adapters/anthropic.py",
    "adapters/openai.py",
    "algorithms/gradient/search.py",
    "evals/parquet.py",
    "journal/file.py",
    "prompt/jinja.py",
    "prompt/sandbox.py",
)
"""Files for other programs."""


def test_the_first_program_loads_only_what_it_needs() -> None:
    paths = tree_figures.loaded_by_the_readme()
    names = [path.relative_to(tree_figures.SOURCE).as_posix() for path in paths]
    assert [name for name in names if name.startswith(NOT_NEEDED)] == []
    assert tree_figures.lines(paths) <= MOST_LINES
