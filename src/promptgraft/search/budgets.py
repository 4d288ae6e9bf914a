"""How many rollouts the steps of a run take, and what a number of rollouts can pay for."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from typing import Protocol

import attrs


class Auto(StrEnum):
    """A size for those who do not want to count rollouts; see :func:`auto_budget`."""

    LIGHT = "light"
    MEDIUM = "medium"
    HEAVY = "heavy"

    @property
    def proposals(self) -> int:
        """Proposals that the budget can accept, if it accepts every one that it tries."""
        return {Auto.LIGHT: 6, Auto.MEDIUM: 15, Auto.HEAVY: 40}[self]


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
    def proposals_per_step(self) -> int:
        """Proposals that a step makes."""
        ...

    @property
    def reserved_size(self) -> int:
        """Rollouts that are kept for what follows the search."""
        ...

    @property
    def following_size(self) -> int:
        """Those of them that are kept for confirming and for held-out examples."""
        ...

    @property
    def pareto_set_size(self) -> int:
        """Examples that candidates are compared on."""
        ...

    @property
    def baseline_size(self) -> int:
        """Those of them that the baseline is tried on before the first step."""
        ...

    def entry_size(self, candidates: int, *, merges: int = 0) -> int:
        """Return the rollouts on them that so many candidates and merges can use."""
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
    """Return the rollouts that pay for ``auto.proposals`` proposals tried on all of D_pareto.

    Fewer are accepted in practice, and what that saves pays for more proposals; a race saves
    more. So a size costs the same whatever the strategy.
    """
    proposals, pareto = auto.proposals, sizes.pareto_set_size
    tried = 1 + proposals + _merges(proposals, sizes)
    return tried * pareto + proposals * sizes.trial_size + sizes.following_size


def rollouts_for(proposals: int, sizes: Sizes) -> int:
    """Return the fewest rollouts that pay for so many accepted proposals, whatever is merged.

    There is nothing to merge before the second, and what follows the last is not paid for.
    """
    entries = sizes.entry_size(
        -(-proposals // sizes.proposals_per_step), merges=_merges(proposals, sizes)
    )
    return sizes.baseline_size + proposals * sizes.trial_size + entries + sizes.reserved_size


def _merges(proposals: int, sizes: Sizes) -> int:
    return min(sizes.merges, max(0, proposals - 2))


def affordable(rollouts: int, sizes: Sizes) -> Affordable:
    """Return what ``rollouts`` pay for, by the rules of the loop.

    The baseline is tried first; what ends a search takes what is reserved for it. A step is begun
    only while the budget pays for all of it: for each proposal a minibatch for the parent, one for
    the child, both again for every repeat, and what is tried of D_pareto. A refused child leaves
    the last of these unused, a reply that gives no child all but the first.
    """
    each = sizes.proposals_per_step
    step = each * sizes.trial_size + sizes.entry_size(1)
    left = rollouts - sizes.baseline_size - sizes.reserved_size
    if left < step:
        return Affordable(if_accepted=0, if_refused=0, steps=0)
    accepted = bisect_right(
        range(1, rollouts + 1), rollouts, key=lambda count: rollouts_for(each * count, sizes)
    )
    refused = (left - step) // (each * (sizes.least_parent_size + sizes.batch_size)) + 1
    return Affordable(
        if_accepted=each * accepted,
        if_refused=each * refused,
        steps=(left - step) // (each * sizes.least_parent_size) + 1,
    )
