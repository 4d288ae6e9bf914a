"""What the steps of a search share: read when a step begins, changed when it is committed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.optimizers.gepa.comparing import Compared
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.copying import AnswerGuard
from promptgraft.optimizers.gepa.desk import Desk, Desks, Place
from promptgraft.optimizers.gepa.events import GepaRolloutCompleted
from promptgraft.optimizers.gepa.history import History
from promptgraft.optimizers.gepa.members import Members
from promptgraft.optimizers.gepa.merging import Merger
from promptgraft.optimizers.gepa.objectives import Scorer
from promptgraft.optimizers.gepa.patience import Patience
from promptgraft.optimizers.gepa.policies import Full
from promptgraft.optimizers.gepa.racing import RacingValidator
from promptgraft.optimizers.gepa.selection import Choices
from promptgraft.optimizers.gepa.teaching import Lessons
from promptgraft.optimizers.gepa.telling import Newcomers, Rejections, tell_accepted
from promptgraft.optimizers.gepa.tried import Tried
from promptgraft.optimizers.gepa.validation import FullValidator, Validator, placed
from promptgraft.optimizers.gepa.work import Known, Rules, Work
from promptgraft.optimizers.target import RejectionReason, Target
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord


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
        self._patience = Patience(config)
        self.scorer = Scorer(config.weights, also=config.pick)
        self._history = History(config.history_top_k, self.scorer)
        self._lessons = Lessons(config, feedback, choices=self._choices, scorer=self.scorer)
        self._rules = Rules(
            config=config,
            target=target,
            pareto=pareto,
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
            overlapping=config.proposals_per_step > 1,
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

    def begin(self, place: Place) -> Work:
        """Return the work of a step, with all that it may know."""
        self._desks.answers.accept_faults()
        lesson = self._lessons.begin(self.members.pool)
        return Work(
            number=place.number,
            rules=self._rules,
            known=Known(
                lesson=lesson,
                turn=self._choices.turn(len(place.earlier)),
                entry=self.validator.begin(),
                remembered=self._history.of(lesson.minibatch),
                tried=self._tried.so_far(),
            ),
            desk=self._desks.step(place),
        )

    def commit(self, work: Work, error: BaseException | None) -> None:
        """Take account of a step whose work has ended; to be called in the order of steps.

        Raises:
            RunStoppedError, LimitReachedError, PermanentProviderError: the run ends.
            FeedbackError: the caller's fault.
        """
        self.steps = work.number
        self.rejections.take_over(work.rejections)
        self._settle(work.desk)
        work.known.entry.settle(step=work.number)
        if error is not None:
            raise error
        self._lessons.learn(work.known.lesson, work.records)
        if not work.taught:
            # The best candidate may be perfect on everything.
            self.validator.deepen(work.number)
            self._patience.idle("in the last minibatches every answer with a score was perfect")
            return
        modules = [step.module for step in work.steps]
        self._choices.took(work.known.turn, modules, blaming=bool(work.blame))
        if not work.steps:
            self._patience.idle("no part that may change was shown to the model")
        elif work.compared is None:
            last = work.rejections.all[-1]
            self._patience.refused(last.reason, last.detail)
        else:
            self._try(work, work.child, work.compared)

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

    def _try(self, work: Work, child: Candidate, compared: Compared) -> None:
        """Take in a child that was tried, unless it is no better."""
        self.proposals += 1
        for records in compared.batches:
            self._history.add(records)
        if child.digest in self._tried:
            self._refuse_twin(work, compared)
            return
        self._patience.renew()
        self._tried.add(child.digest)
        if work.accepted:
            self._accept(work, child, compared)
            if self._config.enable_merge:
                self.merger.attempt(self.members.pool, work.number)

    def _refuse_twin(self, work: Work, compared: Compared) -> None:
        """Refuse a child that a step has tried which was committed since this one began."""
        detail = "an overlapping step has tried the same text"
        if compared.refusal is None:
            reason = RejectionReason.DUPLICATE
            self.rejections.add_all(work.changes, reason, detail, tried=compared)
        self._patience.refused(RejectionReason.DUPLICATE, detail)

    def _accept(self, work: Work, child: Candidate, compared: Compared) -> None:
        step = work.changes[-1].step
        self._lessons.remember(child, compared.records)
        position = work.known.entry.admit(child, step=step.number)
        tell_accepted(
            self._emit, step, child, position=position, compared=compared, pool=self.members.pool
        )

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
