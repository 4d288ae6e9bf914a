"""What the steps of a search share: read when a step begins, changed when it is committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from promptgraft.algorithms.gepa.comparing import Compared
from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.desk import Desk, Desks, Place
from promptgraft.algorithms.gepa.events import GepaRolloutCompleted
from promptgraft.algorithms.gepa.gathering import Gathering
from promptgraft.algorithms.gepa.history import History
from promptgraft.algorithms.gepa.members import Members
from promptgraft.algorithms.gepa.merging import Merger
from promptgraft.algorithms.gepa.pipeline import Ended
from promptgraft.algorithms.gepa.policies import Full
from promptgraft.algorithms.gepa.racing import RacingValidator
from promptgraft.algorithms.gepa.rounds import Racer, Round, tell_accepted
from promptgraft.algorithms.gepa.selection import Choices
from promptgraft.algorithms.gepa.teaching import Lessons
from promptgraft.algorithms.gepa.telling import Newcomers, Rejections
from promptgraft.algorithms.gepa.validation import FullValidator, Validator, placed
from promptgraft.algorithms.gepa.work import Known, Rules, Work
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.objectives import Scorer
from promptgraft.search.patience import Patience
from promptgraft.search.seen import Tried
from promptgraft.search.stopping import RunStoppedError
from promptgraft.serde import HexDigest
from promptgraft.targets.base import RejectionReason, Target
from promptgraft.targets.modules import Module
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

_TWIN = "a proposal of the same time has tried the same text"
_CONFLICT = "what others have changed does not go together with it, or has it already"


class Search:
    """The state of a search.

    Args:
        config: the settings.
        target: what is improved.
        pareto: D_pareto.
        feedback: D_feedback.
        desks: what steps work with.
    """

    def __init__(
        self,
        config: GepaConfig,
        target: Target,
        *,
        pareto: Sequence[GepaExample],
        feedback: Sequence[GepaExample],
        desks: Desks,
    ) -> None:
        self._config = config
        self._target = target
        self._pareto = pareto
        self._desks = desks
        self._emit = desks.emit
        self._choices = Choices(
            config.seed, target.modules, example_rate=config.example_mutation_rate
        )
        self._tried = Tried()
        self._patience = Patience(
            max_idle_steps=config.max_idle_steps,
            max_failed_reflections=config.max_failed_reflections,
        )
        self.scorer = Scorer(config.weights, also=config.pick)
        self._history = History(config.history_top_k, self.scorer)
        self._lessons = Lessons(config, feedback, choices=self._choices, scorer=self.scorer)
        self._rules = Rules(
            config=config,
            target=target,
            scorer=self.scorer,
            guard=AnswerGuard(feedback, config.max_copied_words),
        )
        telling = Newcomers(target, ledger=desks.ledger, emit=desks.emit)
        self.members = Members(config, pareto, self.scorer, telling=telling)
        self.validator = self._make_validator()
        self.merger = self._make_merger()
        self.rejections = Rejections(desks.emit)
        self.steps = 0
        self.proposals = 0
        self.accepted: list[tuple[Module, ...]] = []
        self._broken = False
        self._racer: Racer | None = None
        self._positions: dict[HexDigest, int] = {}

    def _make_validator(self) -> Validator:
        config, trials = self._config, self._desks.trials
        order = self._choices.order(len(self._pareto))
        if isinstance(config.validation, Full):
            return FullValidator(self._pareto, trials=trials, members=self.members)
        return RacingValidator(
            config.validation,
            self._pareto,
            order=order,
            trials=trials,
            members=self.members,
            race_order=self._choices.race_order,
        )

    def _make_merger(self) -> Merger:
        return Merger(
            self._config,
            self._target,
            pareto=self._pareto,
            trials=self._desks.trials,
            choices=self._choices,
            tried=self._tried,
            members=self.members,
            validator=self.validator,
            emit=self._emit,
        )

    def open_step(self, number: int, *, alone: bool) -> Round:
        """Begin a step, ``alone`` or while others are under way: settle on its parent."""
        self._desks.answers.accept_faults()
        pool = self.members.pool
        parent = self._lessons.parent(pool)
        leads, racer = parent == pool.best, self._racer
        candidate = pool.candidate(parent)
        if leads and racer is not None and racer.step.leads:
            # Most that is accepted wins its race.
            candidate = racer.candidate
        return Round(
            number=number,
            parent=parent,
            candidate=candidate,
            leads=leads,
            entry=self.validator.begin(alone=alone and racer is None),
        )

    def needs(self, steps: Sequence[Round]) -> tuple[int, list[int]]:
        """Return the rollouts that ways into the pool can use: the next race's, and those of steps.

        Args:
            steps: those under way, in order.
        """
        entries = [one.entry for one in steps]
        if self._racer is None:
            return 0, self.validator.needs(entries)
        race, *others = self.validator.needs([self._racer.step.entry, *entries])
        return race, others

    def begin(self, step: Round, place: Place) -> Work:
        """Return the work of a proposal, with all that it may know."""
        lesson = self._lessons.begin(step.parent, step.candidate)
        return Work(
            step=step.number,
            number=place.number,
            place=place.key,
            rules=self._rules,
            known=Known(
                lesson=lesson,
                turn=self._choices.turn(len(place.earlier)),
                remembered=self._history.of(lesson.minibatch),
                tried=self._tried.so_far(),
            ),
            desk=self._desks.step(place),
        )

    def commit(self, proposal: Ended) -> None:
        """Take account of a proposal whose work has ended; to be called in their order.

        Raises:
            RunStoppedError, LimitReachedError, PermanentProviderError: the run ends.
            FeedbackError: the caller's fault.
        """
        step, work = proposal.round, proposal.work
        self.steps = step.number
        # A parent that raced when the step began has a position by now.
        step.parent = self._positions.get(step.candidate.digest, step.parent)
        if work.known.lesson.parent != step.parent:
            work.name_parent(step.parent)
        self.rejections.take_over(work.rejections)
        self._settle(work.desk)
        if proposal.error is not None:
            # What comes of a step is not known when a part of it is not.
            self._broken = True
            raise proposal.error
        self._lessons.learn(work.known.lesson, work.records)
        if work.taught:
            modules = [one.module for one in work.steps]
            self._choices.took(work.known.turn, modules, blaming=bool(work.blame))
        if work.compared is not None:
            self._try(step, work, work.compared)
        if proposal.last and not self._broken:
            self._close(step)

    def _settle(self, desk: Desk) -> None:
        """Take account of what a step has used, and tell what it has told."""
        before = self._desks.trials.used
        self._desks.ledger.take(desk.ledger)
        self._desks.answers.take_over(desk.answers)
        for event in desk.told:
            if isinstance(event, GepaRolloutCompleted):
                used = event.total_rollouts - desk.trials.before + before
                self._emit(attrs.evolve(event, total_rollouts=used))
            else:
                self._emit(event)
        self._desks.trials.take_over(desk.trials)

    def _try(self, step: Round, work: Work, compared: Compared) -> None:
        """Take account of a child that was tried."""
        self.proposals += 1
        for records in compared.batches:
            self._history.add(records)
        if work.child.digest in self._tried:
            self._refuse(work, RejectionReason.DUPLICATE, _TWIN)
            return
        step.tried = True
        self._tried.add(work.child.digest)
        if work.accepted:
            self._lessons.remember(work.child, compared.records)
            step.accepted.append(work)

    def _refuse(self, work: Work, reason: RejectionReason, detail: str) -> None:
        """Refuse a child that was better than its parent."""
        if work.accepted and work.compared is not None:
            self.rejections.add_all(work.changes, reason, detail, tried=work.compared)

    def _close(self, step: Round) -> None:
        """Take account of a step as a whole: what was accepted is put together, and may race."""
        if not step.taught:
            # The best candidate may be perfect on everything.
            self.deepen()
            self._patience.idle("in the last minibatches every answer with a score was perfect")
            return
        if not step.tried:
            self._count_idle(step.taught[-1])
            return
        self._patience.renew()
        if step.accepted:
            self._gather(step)

    def _count_idle(self, last: Work) -> None:
        if not last.steps:
            self._patience.idle("no part that may change was shown to the model")
        elif last.compared is None:
            refusal = last.rejections.all[-1]
            self._patience.refused(refusal.reason, refusal.detail)
        else:
            self._patience.refused(RejectionReason.DUPLICATE, _TWIN)

    def _gather(self, step: Round) -> None:
        """Put together what a step has accepted."""
        works = sorted(step.accepted, key=lambda work: -work.gain)
        candidate, brought = self._gathered(step, [work.child for work in works])
        kept = [work for work, brings in zip(works, brought, strict=True) if brings]
        for work in works:
            if work not in kept:
                self._refuse(work, RejectionReason.CONFLICT, _CONFLICT)
        if kept:
            self._racer = Racer(step, candidate, tuple(kept))

    def _gathered(self, step: Round, children: Sequence[Candidate]) -> tuple[Candidate, list[bool]]:
        """Return the candidate that children of a step make, and which of them are in it.

        They are put onto the best candidate, when their parent was to be that and is not.
        """
        pool = self.members.pool
        parent = pool.best if step.leads else step.parent
        own = pool.candidate(parent).digest == step.candidate.digest
        onto = attrs.evolve(children[0], parents=(parent,)) if own else pool.candidate(parent)
        others = children[1:] if own else children
        gathering = Gathering(self._target, step.candidate, self._pareto)
        modules = onto.modules if own else ()
        found, brought = gathering.together(onto, others, parents=(parent,), modules=modules)
        # One of the children may have all that the others have; it was on no race yet.
        fresh = found.digest not in self._tried or found.digest in {one.digest for one in others}
        if found is not onto and not fresh:
            found, brought = onto, [False] * len(others)
        self._tried.add(found.digest)
        return found, [True, *brought] if own else brought

    def race(self) -> None:
        """Try what the latest step has come to on D_pareto, and take it into the pool.

        Raises:
            RunStoppedError, LimitReachedError, PermanentProviderError: the run ends.
            FeedbackError: the caller's fault.
        """
        racer = self._racer
        if racer is None:
            return
        step = racer.step
        nothing = placed((), (), of=len(self._pareto))
        position = self.validator.take_in(
            f"step/{step.number}/pareto",
            racer.candidate,
            nothing,
            step=step.number,
            entry=step.entry,
            proposals=len(racer.works),
        )
        self._racer = None
        self._positions[racer.candidate.digest] = position
        self.accepted += [work.child.modules for work in racer.works]
        tell_accepted(self._emit, racer, position=position, pool=self.members.pool)
        if self._config.enable_merge:
            with self._or_broken():
                self.merger.attempt(self.members.pool, step.number)

    def deepen(self) -> bool:
        """Have the best candidate tried on more; return whether that was done at once.

        Raises:
            RunStoppedError: the budget does not pay for it.
        """
        with self._or_broken():
            return self.validator.deepen(self.steps)

    @contextmanager
    def _or_broken(self) -> Iterator[None]:
        """Do what a larger budget would do here, or come to no further end of a step."""
        try:
            yield
        except RunStoppedError:
            self._broken = True
            raise

    def evaluate_baseline(self) -> None:
        """Try the baseline on D_pareto, or on some of it, and take it into the pool."""
        baseline = self._target.baseline()
        self._tried.add(baseline.digest)
        places = self.validator.baseline
        records: Sequence[RolloutRecord | None] = ()
        try:
            examples = [self._pareto[place] for place in places]
            made = self._desks.trials.make("baseline", baseline, examples)
            self.scorer.learn(made)
            self.scorer.require(self._config.objectives_asked_for, made)
            records = placed(made, places, of=len(self._pareto))
        finally:
            # A run that stops this early still has a best candidate.
            self.members.join(baseline, records, step=0)

    @property
    def is_perfect(self) -> bool:
        """Whether the best candidate is perfect on all of D_pareto."""
        pool = self.members.pool
        scores = pool.scores_of(pool.best)
        return all(score is not None and score >= self._config.perfect_score for score in scores)
