"""How a search spends its rollouts: what users choose."""

from __future__ import annotations

from enum import StrEnum

import attrs

from promptgraft.errors import ConfigError
from promptgraft.serde import shown


class MinibatchChoice(StrEnum):
    """How the examples of a minibatch are chosen.

    ``RANDOM``: at random. ``TEACHING``: seven of ten places go to examples on which the parent
    has failed before, the last place and the others take D_feedback in epochs.
    """

    RANDOM = "random"
    TEACHING = "teaching"


class ModuleChoice(StrEnum):
    """How the module of a step is chosen.

    ``TURNS``: in turn. ``BLAMED``: in three of four steps only those have their turn that
    feedback and traces name most often.
    """

    TURNS = "turns"
    BLAMED = "blamed"


@attrs.frozen
class Full:
    """Every candidate is tried on all of D_pareto; as published."""

    ranks = True

    def finals(self, pareto: int) -> int:
        """Return the rollouts that are kept for the end of a search."""
        del pareto
        return 0


@attrs.frozen(kw_only=True)
class Racing:
    """A candidate races the best one, and is tried on more of D_pareto only while it keeps up.

    It is tried on ``first`` examples, then on twice as many, and so on, and dropped as soon as
    its mean is below that of the best one on the same examples. Who has got through as many
    examples as the races have come to (``growth`` more with each) is the best one from then
    on, if its mean is higher, or the same and it is a child of the best one. At the end of the
    search the most promising candidates are tried on all of D_pareto, and the one with the
    highest mean wins. After the intensification of SMAC (Hutter, Hoos and Leyton-Brown 2011) and
    FocusedILS (Hutter et al. 2009).

    Attributes:
        first: examples that a race begins with, at least 1.
        growth: examples that each race adds to what the next ones take, at least 0.
        finalists: candidates that are tried on all of D_pareto at the end, at least 1, as far as
            the rollouts reach that are kept for them: one and a half times D_pareto.
    """

    first: int = attrs.field(default=8)
    growth: int = attrs.field(default=4)
    finalists: int = attrs.field(default=3)

    ranks = False

    def finals(self, pareto: int) -> int:
        """Return the rollouts that are kept for the end of a search."""
        return -(-3 * pareto // 2)

    @first.validator
    @growth.validator
    @finalists.validator
    def _check(self, attribute: attrs.Attribute[int], value: object) -> None:
        least = 0 if attribute.name == "growth" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"Racing: {attribute.name}: expected an integer of at least {least}, "
                f"found {shown(value)}"
            )


Validation = Full | Racing
"""How much of D_pareto candidates are tried on."""


class Preset(StrEnum):
    """A whole strategy by name.

    ``PAPER``: the published algorithm (Agrawal et al. 2025, arXiv:2507.19457). ``LEAN``: what
    reached the highest scores with the fewest rollouts in ``benchmarks/search``.
    """

    PAPER = "paper"
    LEAN = "lean"


@attrs.frozen(kw_only=True)
class Strategy:
    """How a search spends its rollouts; each part is a setting of ``GepaConfig`` too."""

    validation: Validation
    exploration: float
    minibatches: MinibatchChoice
    reuse_rollouts: bool
    module_choice: ModuleChoice


STRATEGIES = {
    Preset.PAPER: Strategy(
        validation=Full(),
        exploration=1.0,
        minibatches=MinibatchChoice.RANDOM,
        reuse_rollouts=False,
        module_choice=ModuleChoice.TURNS,
    ),
    Preset.LEAN: Strategy(
        validation=Racing(),
        exploration=0.1,
        minibatches=MinibatchChoice.TEACHING,
        reuse_rollouts=True,
        module_choice=ModuleChoice.BLAMED,
    ),
}
