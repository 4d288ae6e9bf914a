"""Steps under way: begun in order, worked on as far as the budget goes, given back in order.

What the proposals of a step know is decided by its number alone: it begins when a step before it
has come to a candidate, or when that has raced. Its work waits until the budget is sure to pay for
it. So the budget decides how many steps there are and not what they do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import attrs

from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.proposal import Proposal
from promptgraft.search.asks import AnyEnded, Asking, Branch, Release, Start
from promptgraft.search.budget import RolloutBudget
from promptgraft.search.stopping import is_orderly
from promptgraft.search.validation import Entry
from promptgraft.targets.types import Candidate


@attrs.define(kw_only=True)
class Step:
    """A step that has begun.

    Attributes:
        number: counts the steps from 1.
        parent: position of the parent of all its proposals; until it has raced, of the best one.
        candidate: the parent.
        leads: whether that was the best candidate when the step began, or raced it.
        entry: the way into the population of what comes of it.
        proposals: its proposals, in order.
        accepted: those whose children are better than the parent, of the proposals that were
            committed.
        tried: whether a child was tried that no proposal had tried before.
    """

    number: int
    parent: int
    candidate: Candidate
    leads: bool
    entry: Entry
    proposals: list[Proposal] = attrs.field(factory=list)
    accepted: list[Proposal] = attrs.field(factory=list)
    tried: bool = False

    @property
    def largest(self) -> int:
        """Rollouts that its proposals can use."""
        return sum(proposal.largest for proposal in self.proposals)

    @property
    def taught(self) -> list[Proposal]:
        """The proposals that could learn something."""
        return [proposal for proposal in self.proposals if proposal.taught]


@attrs.define(eq=False)
class Started:
    """A proposal under way.

    Attributes:
        step: its step.
        proposal: the proposal.
        branch: where it runs, once the budget pays for it.
    """

    step: Step
    proposal: Proposal
    branch: Branch[None]

    @property
    def is_last(self) -> bool:
        """Whether no proposal of its step comes after it."""
        return self.proposal is self.step.proposals[-1]

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used, or else can use at most."""
        return self.branch.rollouts if self.branch.has_ended else self.proposal.largest

    @property
    def fails(self) -> bool:
        """Whether it has ended with what ends the run, so that more work would be lost."""
        error = self.branch.error
        return error is not None and not is_orderly(error)


@attrs.define
class _Pace:
    """A step with those of its proposals that are not committed yet."""

    step: Step
    waiting: deque[Started]
    has_started: bool = False

    @property
    def rollouts(self) -> int:
        """Rollouts that its proposals can still use."""
        return sum(one.rollouts for one in self.waiting)


class Needs(Protocol):
    """Says what a search can use besides its proposals."""

    def needs(self, steps: Sequence[Step]) -> tuple[int, list[int]]:
        """Return the rollouts that the next race, and those of steps, can use."""
        ...

    @property
    def merge_needs(self) -> int:
        """Rollouts that the next merge can use."""
        ...


class UnderWay:
    """The steps of a search that are under way.

    Args:
        config: the settings.
        budget: what may be spent.
        search: says what races and merges can use.
        open_step: begins a step.
        propose: makes a proposal of a step; it is given its number among all.
    """

    def __init__(
        self,
        config: GepaConfig,
        budget: RolloutBudget,
        search: Needs,
        *,
        open_step: Callable[[int, bool], Step],
        propose: Callable[[Step, int, str, int], Proposal],
    ) -> None:
        self._config = config
        self._budget = budget
        self._search = search
        self._open_step = open_step
        self._propose = propose
        self._steps: deque[_Pace] = deque()
        self._begun = 0
        self._proposals = 0

    @property
    def next_needs(self) -> int:
        """Rollouts that the next step can use which the budget does not pay for."""
        _, entries = self._entries()
        return self._steps[0].step.largest + entries[0]

    def fill(self) -> Asking[None]:
        """Begin as many steps as may be under way; one of them may race."""
        config = self._config
        while len(self._steps) < max(1, config.steps_at_once - 1):
            self._begun += 1
            step = self._open_step(self._begun, not self._steps)
            pace = _Pace(step, deque())
            self._steps.append(pace)
            for index in range(config.proposals_per_step):
                self._proposals += 1
                several = config.proposals_per_step > 1
                position = f"step/{step.number}/{index + 1}" if several else f"step/{step.number}"
                ahead = sum(len(one.waiting) for one in self._steps)
                proposal = self._propose(step, self._proposals, position, ahead)
                step.proposals.append(proposal)
                most = config.reflections_per_proposal
                branch = yield from Start(proposal.run(), most_questions=most, held=True)
                pace.waiting.append(Started(step, proposal, branch))

    def go_on_beside(self) -> Asking[None]:
        """Begin what may begin beside a race, of a step that is no longer under way."""
        if self._config.steps_at_once > 1:
            yield from self.fill()
            yield from self._start()
            self._keep_whole()

    def next(self) -> Asking[Started | None]:
        """Return the next proposal once its work has ended; None when no step is paid for."""
        while True:
            yield from self._start()
            if not self._steps or not self._steps[0].has_started:
                return None
            first = self._steps[0]
            if first.waiting[0].branch.has_ended:
                found = first.waiting.popleft()
                if not first.waiting:
                    self._steps.popleft()
                self._keep_whole()
                return found
            yield from AnyEnded()

    def _start(self) -> Asking[None]:
        """Start the work of steps whose turn it is, as far as the budget pays for all of it."""
        race, entries = self._entries()
        kept = race and race + self._search.merge_needs
        for pace, entry in zip(tuple(self._steps), entries, strict=True):
            if not pace.has_started:
                self._budget.keep(kept)
                if self._fails() or not self._budget.affords(pace.step.largest + entry):
                    return
                yield from self._start_step(pace)
            kept += pace.rollouts + entry + self._search.merge_needs

    def _start_step(self, pace: _Pace) -> Asking[None]:
        pace.has_started = True
        for one in pace.waiting:
            if self._fails():
                return
            yield from Release(one.branch)

    def _entries(self) -> tuple[int, list[int]]:
        """Return the rollouts that the next race, and ways into the population, can use."""
        return self._search.needs([pace.step for pace in self._steps])

    def _fails(self) -> bool:
        return any(one.fails for one in self._all())

    def _all(self) -> Iterator[Started]:
        return (one for pace in self._steps for one in pace.waiting)

    def _keep_whole(self) -> None:
        """Keep all that the steps under way can use, whatever they have used by now.

        So what is done beside them, where the budget pays for it, does not depend on time.
        """
        _, entries = self._entries()
        largest = sum(pace.step.largest for pace in self._steps) + sum(entries)
        self._budget.keep(largest + len(self._steps) * self._search.merge_needs)
