"""A reader who follows one step passes a bounded number of modules and functions."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import promptgraft
from optimizers.worlds import config, optimize, twins
from promptgraft import RunState
from promptgraft.search import StopReason

SOURCE = Path(promptgraft.__file__).parent
OWN = (SOURCE / "search", SOURCE / "algorithms")
PAPER: dict[str, Any] = {"preset": "paper"}
DEFAULT: dict[str, Any] = {
    "preset": "lean",
    "additions": None,
    "training_examples": twins(20),
    "pareto_set_size": 20,
    "rollout_budget": 400,
}


class Trace:
    """A stopper that notes which functions of the package each step runs through."""

    def __init__(self) -> None:
        self.steps: list[set[tuple[Path, str]]] = []

    def __call__(self, state: RunState) -> str | None:
        self.steps.append(set())
        sys.setprofile(self._note)
        return "traced" if state.candidates == 4 else None

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        del arg
        code = frame.f_code
        # Comprehensions and lambdas are read with the function that they stand in.
        named = "<" not in code.co_name
        if event == "call" and named and code.co_filename.startswith(str(SOURCE)):
            self.steps[-1].add((Path(code.co_filename), code.co_qualname))


def longest_step(settings: dict[str, Any]) -> set[tuple[Path, str]]:
    """Return the functions of the step of a search that passes most of them."""
    trace = Trace()
    try:
        result = optimize(config(**settings, stoppers=[trace]))
    finally:
        sys.setprofile(None)
    assert result.stop_reason is StopReason.STOPPER
    assert len(result.candidates) == 4
    return max(trace.steps, key=len)


def test_a_step_can_be_followed() -> None:
    # One after the other: what the first search has parsed, the second one does not parse again.
    bounds = {
        "published": (PAPER, (21, 137), (59, 352)),
        "default": (DEFAULT, (30, 195), (69, 414)),
    }
    for name, (settings, of_search, of_all) in bounds.items():
        every = longest_step(settings)
        own = {(file, qualname) for file, qualname in every if any(map(file.is_relative_to, OWN))}
        assert {SOURCE / "algorithms/gepa/search.py", SOURCE / "search/driver.py"} <= {
            file for file, _ in own
        }
        for step, most in ((own, of_search), (every, of_all)):
            modules = sorted({file for file, _ in step})
            assert len(modules) <= most[0], (name, modules)
            assert len(step) <= most[1], (name, sorted(step))
