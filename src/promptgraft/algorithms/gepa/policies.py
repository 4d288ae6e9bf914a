"""How a search spends its rollouts: what users choose."""

from __future__ import annotations

from enum import StrEnum

import attrs

from promptgraft.search.frontier import FrontierPruning
from promptgraft.search.validation import Full, Racing, Validation


class MinibatchChoice(StrEnum):
    """How the examples of a minibatch are chosen.

    ``RANDOM``: at random. ``EPOCHS``: all of D_feedback in random order, again and again in
    another one, so that every example is chosen before any is chosen again. ``TEACHING``: seven
    of ten places go to examples on which the parent has failed before, those first that were
    chosen least often for that; the last place and the others take D_feedback in epochs.
    """

    RANDOM = "random"
    EPOCHS = "epochs"
    TEACHING = "teaching"


class ModuleChoice(StrEnum):
    """How the module of a step is chosen.

    ``TURNS``: in turn. ``BLAMED``: in half of the steps all those are changed together that
    feedback and traces name, up to four; in a quarter only those have their turn that are named
    most often. Examples are always changed one at a time.
    """

    TURNS = "turns"
    BLAMED = "blamed"


class Preset(StrEnum):
    """A whole strategy by name.

    ``LEAN``: what reached the highest scores with the fewest rollouts in ``benchmarks/search``; the
    default is what wins, not what was published. ``PAPER``: the published algorithm (Agrawal et
    al. 2025, arXiv:2507.19457).
    """

    PAPER = "paper"
    LEAN = "lean"


@attrs.frozen(kw_only=True)
class Strategy:
    """How a search spends its rollouts; each part is a setting of ``GepaSettings`` too."""

    validation: Validation
    frontier_pruning: FrontierPruning
    exploration: float
    minibatches: MinibatchChoice
    reuse_rollouts: bool
    module_choice: ModuleChoice
    reflections_per_module: int


STRATEGIES = {
    Preset.PAPER: Strategy(
        validation=Full(),
        frontier_pruning=FrontierPruning.REDUNDANT,
        exploration=1.0,
        minibatches=MinibatchChoice.EPOCHS,
        reuse_rollouts=False,
        module_choice=ModuleChoice.TURNS,
        reflections_per_module=1,
    ),
    Preset.LEAN: Strategy(
        validation=Racing(),
        frontier_pruning=FrontierPruning.DOMINATED,
        exploration=0.1,
        minibatches=MinibatchChoice.TEACHING,
        reuse_rollouts=True,
        module_choice=ModuleChoice.BLAMED,
        reflections_per_module=2,
    ),
}


ATTEMPTS = 2
"""Reflections that a text can use: one, and a repair."""

MOST_AT_ONCE = 4
"""Modules that a proposal can change."""

_FAILURES_EACH = 3


def parts_of(failures: int, reflections: int) -> int:
    """Return among how many of so many reflections failures are shared; one for each three."""
    return max(1, min(reflections, -(-failures // _FAILURES_EACH)))
