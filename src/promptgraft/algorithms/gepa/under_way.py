"""The pipeline of steps: begun in order, run as the budget allows, committed in order.

What the proposals of a step know depends on its number alone: a step begins at a fixed point,
when an earlier step has produced a candidate or when that candidate has raced. Its work waits
until the budget is certain to cover it. So the budget decides how many steps there are, never what
they do, and a run with a larger budget continues a smaller one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from promptgraft.algorithms.gepa.carrying import KnownLines
from promptgraft.algorithms.gepa.combining import Step
from promptgraft.algorithms.gepa.proposal import Known, Proposal
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.algorithms.gepa.strategies import Strategies
from promptgraft.search.acceptance import Rejections
from promptgraft.search.asks import AnyEnded, Asking, Branch, Release, Start
from promptgraft.search.ledger import RolloutBudget
from promptgraft.search.stopping import RunStoppedError, StopReason, is_orderly

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.search import GepaSearch


@attrs.define(eq=False)
class Started:
    """A proposal under way.

    Attributes:
        step: its step.
        proposal: the proposal.
        branch: the branch it runs in, once the budget covers it.
        is_last: whether it is the last proposal of its step.
    """

    step: Step
    proposal: Proposal
    branch: Branch[None]
    is_last: bool


@attrs.define
class _Pace:
    """A step, with its proposals that are not committed yet."""

    step: Step
    waiting: deque[Started]
    has_started: bool = False


class UnderWay:
    """The steps of a search that are under way.

    Args:
        config: the settings.
        budget: the rollouts that may be spent.
        by: the strategies, which know how much races and merges can use.
        search: opens steps.
    """

    def __init__(
        self,
        config: GepaSettings,
        budget: RolloutBudget,
        by: Strategies,
        search: GepaSearch,
    ) -> None:
        self._config = config
        self._budget = budget
        self._by = by
        self._search = search
        self._steps: deque[_Pace] = deque()
        self._begun = 0
        self._most_questions = config.reflections_per_proposal

    def out_of_budget(self) -> RunStoppedError:
        """Return the stop for a next step that may need more than the budget has left."""
        _, entries = self._entries()
        needed = self._steps[0].step.largest + entries[0]
        whole, kept = self._config.budget, self._budget.kept
        for_later = f"; {kept} were kept for what follows the search" if kept else ""
        return RunStoppedError(
            StopReason.BUDGET,
            f"one more step may take {needed} rollouts, and {whole - self._budget.used - kept} of "
            f"{whole} are left for steps{for_later}",
        )

    def fill(self) -> Asking[None]:
        """Begin steps until as many are under way as may be; one more may be racing."""
        by, strategy = self._by, self._config.strategy
        count = strategy.proposals_per_step
        while len(self._steps) < max(1, strategy.steps_at_once - 1):
            self._begun += 1
            step = self._search.open_step(self._begun, alone=not self._steps)
            pace = _Pace(step, deque())
            self._steps.append(pace)
            lines = by.lines.of(step.candidate) if by.lines else KnownLines()
            for index in range(count):
                strays = by.strays.take() if by.strays is not None else ()
                about = dict.fromkeys(stray.example for stray in strays)
                lesson = by.lessons.begin(step.parent, step.candidate, about)
                proposal = Proposal(
                    step=step.number,
                    number=(step.number - 1) * count + index + 1,
                    position=f"step/{step.number}" + (f"/{index + 1}" if count > 1 else ""),
                    largest=by.rules.trial_size - len(lesson.known),
                    rules=by.rules,
                    rejections=Rejections(step.number, step.parent, by.rules.kit.emit),
                    child=step.candidate,
                    known=Known(
                        lesson=lesson,
                        turn=by.choices.turn(sum(len(one.waiting) for one in self._steps)),
                        remembered=by.history.of(lesson.minibatch) if by.history else {},
                        tried=len(by.seen),
                        strays=strays,
                        lines=lines,
                        generic=by.complaints.generic,
                    ),
                )
                step.largest += proposal.largest
                branch = yield from Start(
                    proposal.run(), most_questions=self._most_questions, held=True
                )
                pace.waiting.append(Started(step, proposal, branch, index == count - 1))

    def fill_beside_race(self) -> Asking[None]:
        """Begin the steps that may run beside the race of a finished step."""
        yield from self.fill()
        yield from self._start()
        self._keep_whole()

    def ends_soon(self, steps: int) -> bool:
        """Return whether the budget may cover no step beyond those under way.

        Args:
            steps: how many have ended; those under way are expected to use as much on average.
        """
        if not steps:
            return False
        expected = len(self._steps) * self._budget.used / steps
        _, entries = self._entries()
        one_more = self._steps[-1].step.largest + entries[-1]
        return self._budget.left + self._budget.under_way < expected + one_more

    def next(self) -> Asking[Started | None]:
        """Return the next proposal when it has ended; None if the budget covers no further step."""
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
        """Start the steps in order, as far as the budget covers each of them completely."""
        race, entries = self._entries()
        kept = race and race + self._by.merger.largest
        for pace, entry in zip(tuple(self._steps), entries, strict=True):
            if not pace.has_started:
                self._budget.under_way = kept
                if pace.step.largest + entry > self._budget.left:
                    return
                pace.has_started = True
                for one in pace.waiting:
                    errors = (other.branch.error for its in self._steps for other in its.waiting)
                    if not all(error is None or is_orderly(error) for error in errors):
                        return  # an error that ends the run: further work would be wasted
                    yield from Release(one.branch)
            kept += entry + self._by.merger.largest
            for one in pace.waiting:
                branch = one.branch
                kept += branch.rollouts if branch.has_ended else one.proposal.largest

    def _entries(self) -> tuple[int, list[int]]:
        """Return the most rollouts that the next race, and those of steps under way, can use."""
        entries, racer = [pace.step.entry for pace in self._steps], self._search.racer
        if racer is None:
            return 0, self._by.validator.needs(entries)
        race, *others = self._by.validator.needs([racer.step.entry, *entries])
        return race, others

    def _keep_whole(self) -> None:
        """Reserve everything that the steps under way can use, whatever they have used so far.

        Otherwise what the budget allows beside them would depend on timing.
        """
        _, entries = self._entries()
        largest = sum(pace.step.largest for pace in self._steps) + sum(entries)
        self._budget.under_way = largest + len(self._steps) * self._by.merger.largest
