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
    def trial_size(self) -> int:
        """Rollouts of parent and child on a minibatch, all repeats included."""
        ...

    @property
    def batch_size(self) -> int:
        """Examples that a proposal is tried on."""
        ...

    @property
    def least_parent_size(self) -> int:
        """Rollouts of a parent in a step, at least."""
        ...

    @property
    def reserved_size(self) -> int:
        """Rollouts that are kept for what follows the search."""
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
        steps: steps begun when no reply can be used, so that nothing is tried.
    """

    if_accepted: int
    if_refused: int
    steps: int

    def limited(self, proposals: int) -> Affordable:
        """Return the same with so many proposals at most."""
        return attrs.evolve(
            self,
            if_accepted=min(self.if_accepted, proposals),
            if_refused=min(self.if_refused, proposals),
        )


def auto_budget(auto: Auto, sizes: Sizes) -> int:
    """Return the rollouts that pay for ``ACCEPTED[auto]`` accepted proposals.

    Fewer are accepted in practice, and what that saves pays for more proposals.
    """
    return rollouts_for(ACCEPTED[auto], sizes)


def rollouts_for(proposals: int, sizes: Sizes) -> int:
    """Return the fewest rollouts that pay for so many accepted proposals, whatever is merged.

    There is nothing to merge before the second, and what follows the last is not paid for.
    """
    pareto = sizes.pareto_set_size
    merges = min(sizes.merges, max(0, proposals - 2))
    steps = proposals * (sizes.trial_size + pareto)
    return pareto + steps + merges * pareto + sizes.reserved_size


def affordable(rollouts: int, sizes: Sizes) -> Affordable:
    """Return what ``rollouts`` pay for, by the rules of the loop.

    The baseline takes D_pareto once; confirming a winner and trying it on held-out examples take
    what is reserved for them. A step is begun
    only while the budget pays for all of it: a minibatch for the parent, one for the child, both
    again for every repeat, and D_pareto for an accepted child. A refused child leaves the last
    of these unused, a reply that gives no child all but the first.
    """
    batch, pareto = sizes.batch_size, sizes.pareto_set_size
    step = sizes.trial_size + pareto
    left = rollouts - pareto - sizes.reserved_size
    if left < step:
        return Affordable(if_accepted=0, if_refused=0, steps=0)
    accepted = 0
    while rollouts_for(accepted + 1, sizes) <= rollouts:
        accepted += 1
    return Affordable(
        if_accepted=accepted,
        if_refused=(left - step) // (sizes.least_parent_size + batch) + 1,
        steps=(left - step) // sizes.least_parent_size + 1,
    )
