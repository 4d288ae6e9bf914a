"""When a child is better than its parent, and when a winner is better than the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import attrs

from promptgraft.evals.statistics import paired_test
from promptgraft.search.scores import Score, paired_means
from promptgraft.strict.checks import COUNT, integer, number


class Decision(StrEnum):
    """What a policy makes of a comparison."""

    ACCEPT = "accept"
    REFUSE = "refuse"
    UNDECIDED = "undecided"


class AcceptancePolicy(Protocol):
    """Compares a child with its parent on a minibatch."""

    @property
    def max_repeats(self) -> int:
        """How often both may be tried again while a comparison is undecided."""
        ...

    @property
    def confirmations(self) -> int:
        """Fresh answers to each example that a winner is confirmed with; 0 for none."""
        ...

    @property
    def level(self) -> float:
        """How often chance alone may confirm a winner, 0 to 1."""
        ...

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        """Decide on the answers that both have a score for; there is at least one pair.

        Args:
            before: scores of the parent's answers.
            after: scores of the child's answers to the same examples, in the same order.
        """
        ...


@attrs.frozen
class Strict:
    """A child is better when its mean on the minibatch is higher; as published."""

    max_repeats = 0
    confirmations = 0
    level = 1.0

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        return Decision.ACCEPT if _gain(before, after) > 0 else Decision.REFUSE


@attrs.frozen
class MinGain:
    """A child is better when its mean on the minibatch is higher by at least ``gain``.

    Attributes:
        gain: above 0.
    """

    gain: float = attrs.field(validator=number(above=0))

    max_repeats = 0
    confirmations = 0
    level = 1.0

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        return Decision.ACCEPT if _gain(before, after) >= self.gain else Decision.REFUSE


@attrs.frozen(kw_only=True)
class Paired:
    """A child is better when a paired test over answers says so; for scores with noise.

    Parent and child are tried again on the same examples while the test cannot tell, and the
    winner of the run is confirmed against the baseline on fresh answers: the best of many
    candidates looks better than it is.

    Attributes:
        level: the test's, above 0 and below 1.
        max_repeats: how often both are tried again, at least 0.
        confirmations: fresh answers of baseline and winner to each example of D_pareto, at
            least 1.
    """

    level: float = attrs.field(default=0.05, validator=number(above=0, below=1))
    max_repeats: int = attrs.field(default=3, validator=integer(0))
    confirmations: int = attrs.field(default=1, validator=COUNT)

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        if _gain(before, after) <= 0:
            return Decision.REFUSE
        found = paired_test(before, after)
        return Decision.ACCEPT if found.p_value <= self.level else Decision.UNDECIDED


def _gain(before: Sequence[Score], after: Sequence[Score]) -> float:
    one, other = paired_means(before, after)
    return (other or 0.0) - (one or 0.0)
