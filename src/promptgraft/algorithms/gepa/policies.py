"""How a search spends its rollouts: what users choose."""

from __future__ import annotations

from enum import StrEnum

import attrs

from promptgraft.errors import ConfigError
from promptgraft.serde import shown


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


class FrontierPruning(StrEnum):
    """Which leaders are dropped before a parent is chosen.

    ``DOMINATED``: those that another candidate dominates on all examples. ``REDUNDANT``: in
    ascending order of their means, those that lead only where somebody else leads who is left,
    so that few are left where many lead together.
    """

    DOMINATED = "dominated"
    REDUNDANT = "redundant"


class ModuleChoice(StrEnum):
    """How the module of a step is chosen.

    ``TURNS``: in turn. ``BLAMED``: in half of the steps all those are changed together that
    feedback and traces name, up to four; in a quarter only those have their turn that are named
    most often. Examples are always changed one at a time.
    """

    TURNS = "turns"
    BLAMED = "blamed"


@attrs.frozen
class Full:
    """Every candidate is tried on all of D_pareto; as published."""

    ranks = True

    def baseline(self, pareto: int, critical: int) -> int:
        """Return the examples of D_pareto that the baseline is tried on first."""
        del critical
        return pareto

    def entries(self, pareto: int, critical: int, candidates: int, *, merges: int) -> int:
        """Return the rollouts on D_pareto that so many candidates and merges can use."""
        del critical
        return (candidates + merges) * pareto

    def finals(self, pareto: int, critical: int) -> int:
        """Return the rollouts that are kept for the end of a search."""
        del pareto, critical
        return 0


@attrs.frozen(kw_only=True)
class Racing:
    """A candidate races the best one, and is tried on more of D_pareto only while it keeps up.

    It is tried on ``first`` examples, and dropped if its mean is below that of the best one on
    the same examples by more than half a standard error; else on as many as races take: ``first``
    at the beginning, and as many more after every ``every`` accepted proposals that have raced,
    together or alone. It is the best one from then on if its mean is higher on them, or the same
    and it is a child of the best one.

    Each race takes the examples in another order, so that luck of the best one on a few of them
    does not keep everybody out. At the end of the search the baseline and the most promising
    candidates are tried on all of D_pareto, and the one with the highest mean wins. After the
    intensification of SMAC (Hutter, Hoos and Leyton-Brown 2011) and FocusedILS (Hutter et al.
    2009).

    Attributes:
        first: examples that a race begins with, at least 1.
        every: proposals after which races take ``first`` examples more, at least 1.
        finalists: candidates that are tried on all of D_pareto at the end, at least 1: the best
            one for certain, the others as far as rollouts are left.
    """

    first: int = attrs.field(default=4)
    every: int = attrs.field(default=8)
    finalists: int = attrs.field(default=3)

    ranks = False

    def baseline(self, pareto: int, critical: int) -> int:
        """Return the examples of D_pareto that the baseline is tried on first."""
        return min(pareto, max(self.first, critical))

    def depth(self, pareto: int, critical: int, races: int) -> int:
        """Return the examples of D_pareto that a race takes after so many others, at most."""
        more = self.first * (races // self.every)
        return min(pareto, self.baseline(pareto, critical) + more)

    def entries(self, pareto: int, critical: int, candidates: int, *, merges: int) -> int:
        """Return the rollouts on D_pareto that so many candidates and merges can use.

        Those are included that the best one is tried on because races take more.
        """
        races = candidates + merges
        growing = min(races, self.every * pareto)
        depths = [self.depth(pareto, critical, race) for race in range(merges, growing)]
        rest = (candidates - len(depths)) * pareto
        deepest = self.depth(pareto, critical, max(0, races - 1))
        late = deepest - self.baseline(pareto, critical)
        return sum(depths) + rest + late + merges * pareto

    def finals(self, pareto: int, critical: int) -> int:
        """Return the rollouts that are kept for the end of a search."""
        return 2 * (pareto - self.baseline(pareto, critical))

    @first.validator
    @every.validator
    @finalists.validator
    def _check(self, attribute: attrs.Attribute[int], value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(
                f"Racing: {attribute.name}: expected an integer of at least 1, found {shown(value)}"
            )


Validation = Full | Racing
"""How much of D_pareto candidates are tried on."""


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
    """How a search spends its rollouts; each part is a setting of ``GepaConfig`` too."""

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
