"""GEPA as a search (Agrawal et al. 2025, arXiv:2507.19457, algorithms 1 to 4).

A step makes proposals from one parent (:mod:`promptgraft.algorithms.gepa.proposal`); what is
accepted of them is put together, and tried on the validation set. As published there is one
proposal in a step, and one step at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

import attrs

from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.gathering import Gathering
from promptgraft.algorithms.gepa.history import History
from promptgraft.algorithms.gepa.merging import Merger
from promptgraft.algorithms.gepa.proposal import Known, Proposal, Rules, named_with
from promptgraft.algorithms.gepa.reporting import tell_accepted
from promptgraft.algorithms.gepa.sampling import Lessons
from promptgraft.algorithms.gepa.selection import Choices
from promptgraft.algorithms.gepa.under_way import Started, Step, UnderWay
from promptgraft.errors import BudgetExhaustedError, PromptgraftError
from promptgraft.prompt.template import Prompt
from promptgraft.search.asks import Asking, Checkpoint, Join, Rollouts, Standing
from promptgraft.search.budget import RolloutBudget
from promptgraft.search.comparison import Compared, Comparer
from promptgraft.search.events import Emit, GepaMutationRejected
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.objectives import Scorer
from promptgraft.search.patience import Patience
from promptgraft.search.population import Population
from promptgraft.search.racing import RacingValidator
from promptgraft.search.seen import Seen
from promptgraft.search.stopping import RunStoppedError, StopReason, is_orderly
from promptgraft.search.validation import Full, FullValidator, Validator, placed
from promptgraft.serde import HexDigest
from promptgraft.targets.base import RejectionReason, Target
from promptgraft.targets.modules import Module
from promptgraft.targets.types import Candidate, GepaExample, MetaPrompt, RolloutRecord

T = TypeVar("T")

Stop = RunStoppedError | BudgetExhaustedError
"""Why no further step is begun, while those under way are finished."""

_TWIN = "a proposal of the same time has tried the same text"
_CONFLICT = "what others have changed does not go together with it, or has it already"


@attrs.frozen(kw_only=True)
class Surroundings:
    """What a search is given besides its settings.

    Attributes:
        target: what is improved.
        validation: the validation set (D_pareto).
        training: the training set (D_feedback).
        scorer: gives rollouts their scores.
        population: takes in candidates.
        budget: what may be spent.
        meta_prompts: the questions to the reflection model.
        emit: takes events.
    """

    target: Target
    validation: Sequence[GepaExample]
    training: Sequence[GepaExample]
    scorer: Scorer
    population: Population
    budget: RolloutBudget
    meta_prompts: Mapping[MetaPrompt, Prompt[object]]
    emit: Emit


@attrs.frozen
class Racer:
    """What a step has come to, before it is tried on the validation set.

    Attributes:
        step: the step.
        candidate: what its children make together.
        proposals: those whose children are in it.
    """

    step: Step
    candidate: Candidate
    proposals: tuple[Proposal, ...]


class GepaSearch:
    """One search.

    Args:
        config: the settings.
        around: what it works with.

    Attributes:
        population: the candidates; the first is the baseline.
        steps: steps that were committed, the one included that the search ended in.
        accepted: what each accepted proposal has changed.
        rejections: every rejected proposal.
    """

    def __init__(self, config: GepaConfig, around: Surroundings) -> None:
        self._config = config
        self._around = around
        self.population = around.population
        self.steps = 0
        self.accepted: list[tuple[Module, ...]] = []
        self.rejections: list[GepaMutationRejected] = []
        modules, rate = around.target.modules, config.example_mutation_rate
        self._choices = Choices(config.seed, modules, example_rate=rate)
        self._seen = Seen()
        self._patience = Patience(
            max_idle_steps=config.max_idle_steps,
            max_failed_reflections=config.max_failed_reflections,
        )
        self._history = History(config.history_top_k, around.scorer)
        self._lessons = Lessons(
            config, around.training, choices=self._choices, scorer=around.scorer
        )
        self._rules = Rules(
            config=config,
            target=around.target,
            scorer=around.scorer,
            comparer=Comparer(
                policy=config.acceptance,
                scorer=around.scorer,
                max_rollout_cost=config.max_rollout_cost,
            ),
            guard=AnswerGuard(around.training, config.max_copied_words),
            meta_prompts=around.meta_prompts,
            emit=around.emit,
        )
        self._validator = self._make_validator()
        self._merger = Merger(
            config,
            around.target,
            pareto=around.validation,
            budget=around.budget,
            choices=self._choices,
            seen=self._seen,
            population=self.population,
            validator=self._validator,
            emit=around.emit,
        )
        self._under_way = UnderWay(
            config, around.budget, self, open_step=self._open_step, propose=self._proposal
        )
        self._proposals = 0
        self._broken = False
        self._racer: Racer | None = None
        self._positions: dict[HexDigest, int] = {}

    def _make_validator(self) -> Validator:
        config, around = self._config, self._around
        order = self._choices.order(len(around.validation))
        if isinstance(config.validation, Full):
            return FullValidator(around.validation, population=self.population)
        return RacingValidator(
            config.validation,
            around.validation,
            order=order,
            budget=around.budget,
            population=self.population,
            race_order=self._choices.race_order,
        )

    @property
    def best(self) -> int:
        """Position of the candidate that wins, if it is confirmed."""
        pick = self._config.pick
        return self.population.pick(pick) if pick else self.population.pool.best

    def run(self) -> Asking[None]:
        """Algorithm 1: make steps until there is a reason to stop, and raise it."""
        yield from self._evaluate_baseline()
        stop: Stop | None = yield from self._reason_to_stop()
        while True:
            if stop is None:
                yield from self._under_way.fill()
            proposal = yield from self._under_way.next()
            if proposal is None:
                raise stop or self._out_of_budget()
            ended = yield from self._unless_stopped(self._commit(proposal))
            stop = stop or ended
            if proposal.is_last:
                if stop is None:
                    yield from self._under_way.go_on_beside()
                ended = yield from self._unless_stopped(self._race())
                stop = stop or ended or (yield from self._reason_to_stop())

    def finish(self) -> Asking[None]:
        """Settle which candidate is the best."""
        yield from self._validator.finish(self.steps)

    def _evaluate_baseline(self) -> Asking[None]:
        """Evaluate the baseline on the validation set, or on some of it, and take it in."""
        around = self._around
        baseline = around.target.baseline()
        self._seen.add(baseline.digest)
        places = self._validator.baseline
        records: Sequence[RolloutRecord | None] = ()
        try:
            examples = [around.validation[place] for place in places]
            made = yield from Rollouts(position="baseline", candidate=baseline, examples=examples)
            around.scorer.learn(made)
            around.scorer.require(self._config.objectives_asked_for, made)
            records = placed(made, places, of=len(around.validation))
        finally:
            # A run that stops this early still has a best candidate.
            self.population.join(baseline, records, step=0)

    def _open_step(self, number: int, alone: bool) -> Step:
        """Begin a step, ``alone`` or while others are under way: settle on its parent."""
        pool = self.population.pool
        parent = self._lessons.parent(pool)
        leads, racer = parent == pool.best, self._racer
        candidate = pool.candidate(parent)
        if leads and racer is not None and racer.step.leads:
            # Most of what is accepted wins its race.
            candidate = racer.candidate
        return Step(
            number=number,
            parent=parent,
            candidate=candidate,
            leads=leads,
            entry=self._validator.begin(alone=alone and racer is None),
        )

    def _proposal(self, step: Step, number: int, position: str, ahead: int) -> Proposal:
        """Return a proposal of a step, with all that it may know."""
        lesson = self._lessons.begin(step.parent, step.candidate)
        return Proposal(
            step=step.number,
            number=number,
            position=position,
            rules=self._rules,
            known=Known(
                lesson=lesson,
                turn=self._choices.turn(ahead),
                remembered=self._history.of(lesson.minibatch),
                seen=self._seen.so_far(),
            ),
        )

    def needs(self, steps: Sequence[Step]) -> tuple[int, list[int]]:
        """Return the rollouts that ways into the population can use: the next race's, and steps'.

        Args:
            steps: those under way, in order.
        """
        entries = [one.entry for one in steps]
        if self._racer is None:
            return 0, self._validator.needs(entries)
        race, *others = self._validator.needs([self._racer.step.entry, *entries])
        return race, others

    @property
    def merge_needs(self) -> int:
        """Rollouts that the next merge can use."""
        return self._merger.largest

    def _unless_stopped(self, part: Asking[None]) -> Asking[Stop | None]:
        """Return why the search ends if a part of it ends it in good order.

        Raises:
            RunStoppedError, LimitReachedError, PermanentProviderError: it ends at once.
        """
        try:
            yield from part
        except (RunStoppedError, BudgetExhaustedError) as error:
            if not is_orderly(error):
                raise
            return error
        return None

    def _commit(self, started: Started) -> Asking[None]:
        """Take account of a proposal whose work has ended; to be called in their order."""
        step, proposal = started.step, started.proposal
        self.steps = step.number
        # A parent that raced when the step began has a position by now.
        step.parent = self._positions.get(step.candidate.digest, step.parent)
        proposal.rejections.name_parent(step.parent)
        self.rejections += proposal.rejections.all
        try:
            yield from Join(started.branch, partial(named_with, step.parent))
        except PromptgraftError:
            # What comes of a step is not known when a part of it is not.
            self._broken = True
            raise
        self._lessons.learn(proposal.known.lesson, proposal.records)
        if proposal.taught:
            blaming = bool(proposal.blame)
            self._choices.took(proposal.known.turn, proposal.modules, blaming=blaming)
        if proposal.compared is not None:
            self._try(step, proposal, proposal.compared)
        if started.is_last and not self._broken:
            yield from self._close(step)

    def _try(self, step: Step, proposal: Proposal, compared: Compared) -> None:
        """Take account of a child that was tried (algorithm 1, line 15)."""
        self._proposals += 1
        for records in compared.batches:
            self._history.add(records)
        if proposal.child.digest in self._seen:
            self._refuse(proposal, RejectionReason.DUPLICATE, _TWIN)
            return
        step.tried = True
        self._seen.add(proposal.child.digest)
        if proposal.accepted:
            self._lessons.remember(proposal.child, compared.records)
            step.accepted.append(proposal)

    def _refuse(self, proposal: Proposal, reason: RejectionReason, detail: str) -> None:
        """Refuse a child that was better than its parent."""
        if proposal.accepted:
            self.rejections += proposal.refuse(reason, detail)

    def _close(self, step: Step) -> Asking[None]:
        """Take account of a step as a whole: what was accepted is put together, and may race."""
        if not step.taught:
            # The best candidate may be perfect on everything.
            yield from self._deepen()
            self._patience.idle("in the last minibatches every answer with a score was perfect")
        elif not step.tried:
            self._count_idle(step.taught[-1])
        else:
            self._patience.renew()
            if step.accepted:
                self._gather(step)

    def _count_idle(self, last: Proposal) -> None:
        if not last.modules:
            self._patience.idle("no part that may change was shown to the model")
        elif last.compared is None:
            refusal = last.rejections.all[-1]
            self._patience.refused(refusal.reason, refusal.detail)
        else:
            self._patience.refused(RejectionReason.DUPLICATE, _TWIN)

    def _gather(self, step: Step) -> None:
        """Put together what a step has accepted."""
        accepted = sorted(step.accepted, key=lambda proposal: -proposal.gain)
        candidate, brought = self._gathered(step, [proposal.child for proposal in accepted])
        kept = [one for one, brings in zip(accepted, brought, strict=True) if brings]
        for proposal in accepted:
            if proposal not in kept:
                self._refuse(proposal, RejectionReason.CONFLICT, _CONFLICT)
        if kept:
            self._racer = Racer(step, candidate, tuple(kept))

    def _gathered(self, step: Step, children: Sequence[Candidate]) -> tuple[Candidate, list[bool]]:
        """Return the candidate that children of a step make, and which of them are in it.

        They are put onto the best candidate, when their parent was to be that and is not.
        """
        pool = self.population.pool
        parent = pool.best if step.leads else step.parent
        own = pool.candidate(parent).digest == step.candidate.digest
        onto = attrs.evolve(children[0], parents=(parent,)) if own else pool.candidate(parent)
        others = children[1:] if own else children
        gathering = Gathering(self._around.target, step.candidate, self._around.validation)
        modules = onto.modules if own else ()
        found, brought = gathering.together(onto, others, parents=(parent,), modules=modules)
        # One of the children may have all that the others have; it was on no race yet.
        fresh = found.digest not in self._seen or found.digest in {one.digest for one in others}
        if found is not onto and not fresh:
            found, brought = onto, [False] * len(others)
        self._seen.add(found.digest)
        return found, [True, *brought] if own else brought

    def _race(self) -> Asking[None]:
        """Try what the latest step has come to on the validation set, and take it in."""
        racer = self._racer
        if racer is None:
            return
        step = racer.step
        position = yield from self._validator.take_in(
            f"step/{step.number}/pareto",
            racer.candidate,
            placed((), (), of=len(self._around.validation)),
            step=step.number,
            entry=step.entry,
            proposals=len(racer.proposals),
        )
        self._racer = None
        self._positions[racer.candidate.digest] = position
        self.accepted += [proposal.child.modules for proposal in racer.proposals]
        pool = self.population.pool
        tell_accepted(
            self._around.emit,
            step,
            racer.proposals,
            candidate=racer.candidate,
            position=position,
            pool=pool,
        )
        if self._config.enable_merge:
            yield from self._or_broken(self._merger.attempt(pool, step.number))

    def _deepen(self) -> Asking[bool]:
        """Have the best candidate evaluated on more; return whether that was done at once."""
        return (yield from self._or_broken(self._validator.deepen(self.steps)))

    def _or_broken(self, part: Asking[T]) -> Asking[T]:
        """Do what a larger budget would do here, or come to no further end of a step."""
        try:
            return (yield from part)
        except RunStoppedError:
            self._broken = True
            raise

    def _reason_to_stop(self) -> Asking[Stop | None]:
        """Return why no step is begun any more; None while the search continues.

        Where an estimate would be a reason, it is made sure of as far as that is possible at once.
        """
        while True:
            standing = Standing(
                pool=self.population.pool,
                steps=self.steps,
                proposals=self._proposals,
                estimated=self._validator.estimates_best,
            )
            outlook = yield from Checkpoint(standing)
            if outlook.stop is not None or not outlook.is_close:
                return outlook.stop
            try:
                if not (yield from self._deepen()):
                    return None
            except RunStoppedError as stop:
                return stop

    def _out_of_budget(self) -> RunStoppedError:
        budget, kept = self._around.budget, self._config.reserved_size
        whole = self._config.rollout_budget
        return RunStoppedError(
            StopReason.BUDGET,
            f"{whole - budget.used} of {whole} rollouts are left"
            f"{f', {kept} of them kept for what follows the search' if kept else ''}; "
            f"one more step may take {self._under_way.next_needs}",
        )
