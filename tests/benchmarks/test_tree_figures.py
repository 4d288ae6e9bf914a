"""Figures of the source tree that may not get worse."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import tree_figures


def test_variables_name_what_they_hold() -> None:
    names = Counter(tree_figures.local_names(tree_figures.trees()))
    vague = {name: names[name] for name in tree_figures.PRONOUNS if names[name]}
    assert sum(vague.values()) / names.total() <= 0.02, vague


def test_a_pronoun_is_counted_once_for_each_function_that_binds_it() -> None:
    tree = ast.parse(
        "def f():\n    found = [one for one in x]\n    one = 1\ndef g():\n    count = 2\n"
    )
    assert Counter(tree_figures.local_names({Path("a.py"): tree})) == {
        "found": 1,
        "one": 1,
        "count": 1,
    }
