"""What the first program of the README loads."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(name="figures")
def module_of_figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "tree_figures", ROOT / "benchmarks" / "tree_figures.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tree_figures", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    return module


def test_the_first_program_loads_only_what_it_needs(figures: ModuleType) -> None:
    paths = figures.loaded_by_the_readme()
    names = [path.relative_to(figures.SOURCE).as_posix() for path in paths]
    assert [name for name in names if name.startswith(NOT_NEEDED)] == []
    assert figures.lines(paths) <= MOST_LINES
