"""How many rollouts the steps of a run take, and what a number of rollouts can pay for."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import attrs


class Auto(StrEnum):
    """A size for those who do not want to count rollouts; see :func:`auto_budget`."""

    LIGHT = "light"
    MEDIUM = "medium"
    HEAVY = "heavy"


ACCEPTED = {Auto.LIGHT: 6, Auto.MEDIUM: 15, Auto.HEAVY: 40}
"""Proposals that a budget of each size can accept, if it accepts every one that it tries."""


class Sizes(Protocol):
    """What of the settings decides how many rollouts a run takes."""

    @property
    def batch_size(self) -> int:
        """Examples that a proposal is tried on."""
        ...

    @property
    def pareto_set_size(self) -> int:
        """Examples that candidates are compared on."""
        ...

    @property
    def merges(self) -> int:
        """Merges that may be tried."""
        ...


@attrs.frozen(kw_only=True)
class Affordable:
    """What a number of rollouts pays for.

    Attributes:
        if_accepted: proposals tried when every one is accepted, and merged where that is on.
        if_refused: proposals tried when none is.
    """

    if_accepted: int
    if_refused: int


def auto_budget(auto: Auto, sizes: Sizes) -> int:
    """Return the rollouts that pay for ``ACCEPTED[auto]`` accepted proposals and their merges.

    Fewer are accepted in practice, and what that saves pays for more proposals.
    """
    steps = ACCEPTED[auto]
    merges = min(sizes.merges, steps)
    pareto = sizes.pareto_set_size
    return pareto + steps * (2 * sizes.batch_size + pareto) + merges * pareto


def affordable(rollouts: int, sizes: Sizes) -> Affordable:
    """Return what ``rollouts`` pay for, by the rules of the loop.

    The baseline takes D_pareto once. A step is begun only while the budget pays for all of it,
    a minibatch for parent and child and D_pareto for an accepted child; a refused child leaves
    the last of these unused.
    """
    batches, pareto = 2 * sizes.batch_size, sizes.pareto_set_size
    left = rollouts - pareto
    if left < batches + pareto:
        return Affordable(if_accepted=0, if_refused=0)
    refused = (left - batches - pareto) // batches + 1
    accepted = 0
    merges = sizes.merges
    while left >= batches + pareto:
        left -= batches + pareto
        accepted += 1
        if merges and left >= pareto:
            left -= pareto
            merges -= 1
    return Affordable(if_accepted=accepted, if_refused=refused)
