"""Sizes of runs: what a number of rollouts pays for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

Size = Literal["light", "medium", "heavy"]
"""The size of a run, for those who do not want to count rollouts."""

PROPOSALS: Mapping[Size, int] = {"light": 6, "medium": 15, "heavy": 40}
"""Proposals that the budget of a size can accept, if it accepts every one that is evaluated."""


@attrs.frozen(kw_only=True)
class Affordable:
    """What a number of rollouts pays for.

    Attributes:
        if_accepted: proposals evaluated when every one is accepted, and merged where that is on.
        if_refused: proposals evaluated when none is.
        steps: steps begun when no reply can be used, so that nothing is evaluated.
    """

    if_accepted: int
    if_refused: int
    steps: int

    @property
    def expected(self) -> int:
        """Proposals evaluated when every other one is accepted, and costs what such a one does."""
        accepted, refused = self.if_accepted, self.if_refused
        return round(2 * accepted * refused / (accepted + refused)) if accepted else refused // 2

    def limited(self, proposals: int) -> Affordable:
        """Return the same with so many proposals at most."""
        return attrs.evolve(
            self,
            if_accepted=min(self.if_accepted, proposals),
            if_refused=min(self.if_refused, proposals),
        )
