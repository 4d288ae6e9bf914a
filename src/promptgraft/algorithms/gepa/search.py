"""GEPA as a search (Agrawal et al. 2025, arXiv:2507.19457, algorithms 1 to 4).

A step makes proposals from one parent (``proposal.py``: reflect, mutate, compare); the accepted
children are combined and evaluated on the validation set. As published, a step makes one proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from promptgraft.algorithms.gepa.attribution import added_lines
from promptgraft.algorithms.gepa.combining import TWIN, Combined, Step, count_idle, emit_accepted
from promptgraft.algorithms.gepa.proposal import Proposal, named_with
from promptgraft.algorithms.gepa.relocating import Strays
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.algorithms.gepa.strategies import strategies_of
from promptgraft.algorithms.gepa.under_way import Started, UnderWay
from promptgraft.errors import BudgetExhaustedError, PromptgraftError
from promptgraft.search.algorithm import BaseSearch, Kit
from promptgraft.search.asks import Asking, Checkpoint, Join, Records, Standing
from promptgraft.search.stopping import RunStoppedError, is_orderly
from promptgraft.targets.base import RejectionReason

T = TypeVar("T")

Stop = RunStoppedError | BudgetExhaustedError
"""Why no further step begins; steps under way are still completed."""

_SURELY_UNUSABLE = 20
"""Answers of the baseline after which a run ends if none of them can be used."""

_CONFLICT = "it conflicts with another change accepted in this step, or that has it already"


class GepaSearch(BaseSearch):
    """One GEPA search.

    Attributes:
        racer: the result of the latest step while it is waiting for, or in, its race.
    """

    def __init__(self, config: GepaSettings, kit: Kit) -> None:
        super().__init__(kit)
        self._config = config
        self._by = strategies_of(config, kit)
        self._under_way = UnderWay(config, kit.budget, self._by, self)
        self.racer: Combined | None = None
        self._proposals = 0
        self._is_broken = False
        self._positions: dict[str, int] = {}

    @property
    def best(self) -> int:
        """Position of the candidate that wins."""
        pick = self._config.objectives.pick
        return self.population.pick(pick) if pick else self.population.pool.best

    def run(self) -> Asking[None]:
        """Algorithm 1: make steps until there is a reason to stop, then raise it."""
        self._by.seen.add(self.kit.target.baseline().digest)
        # Lines 3 to 6.
        required = self._config.objectives_asked_for
        yield from self.evaluate_baseline(self._by.validator.baseline, required=required)
        stop: Stop | None = yield from self._reason_to_stop()
        while True:
            if stop is None:
                yield from self._under_way.fill()
                if self._by.shortener.is_early and self._under_way.ends_soon(self.steps):
                    yield from self._by.shortener.begin(self.steps)
            proposal = yield from self._under_way.next()
            if proposal is None:
                if stop is None and self._by.shortener.gives_back():
                    continue
                yield from self._by.shortener.end()
                raise stop or self._under_way.out_of_budget()
            ended = yield from self._unless_stopped(self._commit(proposal))
            stop = stop or ended
            if proposal.is_last:
                if stop is None and self._config.strategy.steps_at_once > 1:
                    yield from self._under_way.fill_beside_race()
                ended = yield from self._unless_stopped(self._race())
                stop = stop or ended or (yield from self._reason_to_stop())

    def evaluate_more_of_baseline(self) -> Asking[None]:
        yield from self._by.validator.evaluate_more_of_baseline(_SURELY_UNUSABLE)

    def finish(self) -> Asking[None]:
        """Run the finals, and shorten the best candidate."""
        self._by.shortener.give_up()
        yield from self._by.shortener.begin(self.steps)
        yield from self._by.validator.finish(self.steps)
        yield from self._by.shortener.finish(self.steps)
        yield from self._by.validator.complete_best(self.steps)

    def open_step(self, number: int, *, alone: bool) -> Step:
        """Line 7, algorithm 2: select the parent of a step, ``alone`` or beside others."""
        pool, racer = self.population.pool, self.racer
        parent = self._by.lessons.parent(pool)
        leads, candidate = parent == pool.best, pool.candidates[parent]
        if leads and racer is not None and racer.step.leads:
            # Most accepted candidates win their race, so the next step builds on this one.
            candidate = racer.candidate
        return Step(
            number=number,
            parent=parent,
            candidate=candidate,
            leads=leads,
            entry=self._by.validator.begin(alone=alone and racer is None),
        )

    def _commit(self, started: Started) -> Asking[None]:
        """Record a finished proposal. Called in the order in which proposals were begun."""
        step, proposal = started.step, started.proposal
        self.steps = step.number
        # A parent that was still racing when the step began has a position by now.
        step.parent = self._positions.get(step.candidate.digest, step.parent)
        if moved := proposal.rejections.parent != step.parent:
            proposal.rejections.name_parent(step.parent)
        self.rejections += proposal.rejections.all
        # If one proposal of a step failed, the result of the step is unknown.
        amend = partial(named_with, step.parent) if moved else None
        yield from self._or_broken(Join(started.branch, amend))
        lesson = proposal.known.lesson
        self._by.lessons.learn(lesson.candidate, proposal.records, known=lesson.known)
        strays = proposal.known.strays
        if strays and self._by.strays is not None:
            step.taught, step.tried = proposal, True
            self._by.strays.moved(gained=proposal.accepted)
        if proposal.taught:
            step.taught = proposal
            self._by.choices.took(
                proposal.known.turn,
                proposal.modules,
                blamed=bool(proposal.blame),
                on_all=bool(proposal.changes) if proposal.on_all else None,
            )
        if (compared := proposal.compared) is not None:
            self._proposals += not strays
            if self._by.strays is not None:
                self._follow_lines(self._by.strays, proposal, compared.batches)
            if self._by.shortener.margin is not None:
                self._by.shortener.learn(proposal)
            if self._by.history is not None:
                self._by.history.add([one for records in compared.batches for one in records])
            # Line 15: the child is kept when it is better.
            if proposal.child.digest in self._by.seen:
                self.rejections += proposal.refuse(RejectionReason.DUPLICATE, TWIN)
            else:
                step.tried = True
                self._by.seen.add(proposal.child.digest)
                if compared.refusal is None:
                    self._by.lessons.learn(proposal.child, compared.batches[-1])
                    step.accepted.append((compared, proposal))
        if started.is_last and not self._is_broken:
            yield from self._close(step)

    def _follow_lines(self, strays: Strays, proposal: Proposal, batches: Sequence[Records]) -> None:
        """Learn from a child which lines to carry on, to drop, and to try in other parts."""
        before, after, known = batches[0], batches[-1], proposal.known
        self._by.complaints.learn([*before, *after])
        found = tuple(
            added_lines(
                self.kit,
                proposal.changes,
                before,
                after,
                perfect=self._config.objectives.perfect_score,
                generic=self._by.complaints.generic,
            )
        )
        if self._by.lines is not None:
            generic = self._by.complaints.generic
            self._by.lines.note(known.lines, found)
            made = [one for one in before if one.example_id not in known.lesson.known]
            self._by.lines.learn(known.lesson.candidate, made, generic)
            self._by.lines.learn(proposal.child, after, generic)
        if not known.strays:
            own = {rider.place for rider in known.lines.riders}
            new = [line for line in found if (line.module, line.key) not in own]
            strays.note(new, before, known.lesson.minibatch)

    def _close(self, step: Step) -> Asking[None]:
        """Record a complete step: its accepted children are combined, ready to race."""
        if step.taught is None:
            # The best candidate may be perfect everywhere: find out.
            yield from self._deepen()
            self._by.patience.idle("in the last minibatches every answer with a score was perfect")
        elif not step.tried:
            count_idle(step.taught, self._by.patience)
        else:
            self._by.patience.renew()
        if step.accepted:
            combined = self._by.combiner.combine(step, self.population.pool)
            for proposal in combined.left_out:
                self.rejections += proposal.refuse(RejectionReason.CONFLICT, _CONFLICT)
            self.racer = combined if combined.proposals else None

    def _race(self) -> Asking[None]:
        """Lines 16 to 18: evaluate the result of a step, add it to the pool, perhaps merge."""
        if (racer := self.racer) is None:
            return
        step = racer.step
        position = yield from self._by.validator.take_in(
            f"step/{step.number}/pareto",
            racer.candidate,
            {},
            step=step.number,
            entry=step.entry,
            proposals=len(racer.proposals),
            gained=racer.gained,
        )
        self.racer = None
        self._positions[racer.candidate.digest] = position
        self.accepted += [proposal.child.modules for proposal in racer.proposals]
        emit_accepted(self.kit, racer, position)
        if self._config.enable_merge:
            yield from self._or_broken(self._by.merger.attempt(self.population.pool, step.number))

    def _deepen(self) -> Asking[bool]:
        """Evaluate the best candidate on more examples; return whether that was possible now."""
        return (yield from self._or_broken(self._by.validator.deepen(self.steps)))

    def _or_broken(self, part: Asking[T] | Join[T]) -> Asking[T]:
        """Run a part of a step; if it fails, no further step is completed.

        A larger budget would have completed it, and a resumed run must take the same path.
        """
        try:
            return (yield from part)
        except PromptgraftError:
            self._is_broken = True
            raise

    def _unless_stopped(self, part: Asking[None]) -> Asking[Stop | None]:
        """Run a part of the search, and return the stop if it ends the search in good order."""
        try:
            yield from part
        except (RunStoppedError, BudgetExhaustedError) as error:
            if not is_orderly(error):
                raise
            return error
        return None

    def _reason_to_stop(self) -> Asking[Stop | None]:
        """Return why no further step begins; a stop that rests on estimates is verified first."""
        while True:
            pool, estimated = self.population.pool, self._by.validator.estimates_best
            standing = Standing(pool, self.steps, self._proposals, estimated=estimated)
            outlook = yield from Checkpoint(standing)
            if outlook.stop is not None or not outlook.is_close:
                return outlook.stop
            try:
                if not (yield from self._deepen()):
                    return None
            except RunStoppedError as stop:
                return stop
