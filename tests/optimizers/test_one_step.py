"""A reader who follows one step of the published algorithm passes few modules and functions."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import promptgraft
from optimizers.worlds import config, optimize
from promptgraft import RunState
from promptgraft.search import StopReason

SOURCE = Path(promptgraft.__file__).parent
OWN = (str(SOURCE / "search"), str(SOURCE / "algorithms"))

MOST_MODULES = 24
MOST_FUNCTIONS = 110


class Trace:
    """A stopper that notes which functions of the engine and of GEPA each step runs through."""

    def __init__(self) -> None:
        self.steps: list[set[tuple[str, str]]] = []

    def __call__(self, state: RunState) -> str | None:
        self.steps.append(set())
        sys.setprofile(self._note)
        return "traced" if state.candidates == 4 else None

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        del arg
        code = frame.f_code
        # Comprehensions and lambdas are read with the function that they stand in.
        named = "<" not in code.co_name
        if event == "call" and named and code.co_filename.startswith(OWN):
            self.steps[-1].add((code.co_filename, code.co_qualname))


def test_a_step_of_the_published_algorithm_can_be_followed() -> None:
    trace = Trace()
    try:
        result = optimize(config(preset="paper", stoppers=[trace]))
    finally:
        sys.setprofile(None)
    assert result.stop_reason is StopReason.STOPPER
    assert len(result.candidates) == 4
    longest = max(trace.steps, key=len)
    modules = {Path(file).relative_to(SOURCE) for file, _ in longest}
    assert Path("algorithms/gepa/search.py") in modules
    assert Path("search/driver.py") in modules
    assert len(modules) <= MOST_MODULES, sorted(modules)
    assert len(longest) <= MOST_FUNCTIONS, sorted(longest)
