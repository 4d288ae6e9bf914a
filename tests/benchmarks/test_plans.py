"""Plans are within a factor of two of what local servers bill, in each setting."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from further import thorough

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import plans
from programs import Programs

# Labels, judges and tools are those of `tests/cli/test_plan_in_practice.py`.
QUICK = ("cached prompts", "batches")
HERE = (
    "with reasoning",
    "a graph",
    "an agent with usage",
    "batches",
    "cached prompts",
    "images",
)


@pytest.mark.parametrize("name", [*QUICK, *thorough(name for name in HERE if name not in QUICK)])
def test_a_plan_is_within_a_factor_of_two_of_the_bill(name: str, programs: Programs) -> None:
    figures = plans.measured(name, programs.promptgraft)
    assert figures.is_near, figures.line()
    assert (figures.planned is None) == (name == "an agent with usage")
    assert (figures.probed is None) == (name == "batches")


def test_a_plan_that_is_too_far_is_said_to_be() -> None:
    far = plans.Figures(setting="x", planned=2.1, probed=1.0, bill=1.0)
    assert far.line().endswith("TOO FAR")
    assert not plans.Figures(setting="x", planned=None, probed=None, bill=1.0).is_near
