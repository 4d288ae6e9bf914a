"""Figures of the source tree that may not get worse."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import tree_figures

MOST_LINES = 46_850
"""Lines of the package that the program loads; may only fall."""
NOT_NEEDED = (
    "agents/adapter.py",
    "agents/delivery.py",
    "agents/writing.py",
    "bridges/",
    "cli/",
    "service/",
    "runs/",
    "adapters/anthropic.py",
    "adapters/openai.py",
    "algorithms/gradient/search.py",
    "evals/judges/panel.py",
    "evals/parquet.py",
    "graphs/",
    "journal/file.py",
    "project/markdown/writing.py",
    "prompt/jinja.py",
    "prompt/sandbox.py",
)
"""Files for other programs."""
MOST_WIDE = 15
"""Classes of more than 15 attributes: settings and documents of a given form, and readers."""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return tree_figures.trees()


def test_the_first_program_loads_only_what_it_needs() -> None:
    paths = tree_figures.loaded_by_the_readme()
    names = [path.relative_to(tree_figures.SOURCE).as_posix() for path in paths]
    assert [name for name in names if name.startswith(NOT_NEEDED)] == []
    assert tree_figures.lines(paths) <= MOST_LINES


def test_variables_and_parameters_name_what_they_hold(trees: dict[Path, ast.Module]) -> None:
    names = Counter(tree_figures.local_names(trees))
    vague = {name: names[name] for name in tree_figures.PRONOUNS if names[name]}
    assert sum(vague.values()) / names.total() <= 0.007, vague


def test_hardly_any_class_is_wide(trees: dict[Path, ast.Module]) -> None:
    classes = tree_figures.classes(trees)
    wide = [
        node.name
        for node in classes
        if tree_figures.attributes(node) > tree_figures.MOST_ATTRIBUTES
    ]
    assert len(wide) <= MOST_WIDE, wide


def test_a_pronoun_is_counted_once_for_each_function_that_binds_it() -> None:
    tree = ast.parse(
        "def f(given):\n    found = [one for one in x]\n    one = 1\ndef g():\n    count = 2\n"
    )
    assert Counter(tree_figures.local_names({Path("a.py"): tree})) == {
        "given": 1,
        "found": 1,
        "one": 1,
        "count": 1,
    }
