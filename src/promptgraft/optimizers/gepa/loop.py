"""The loop of GEPA (Agrawal et al. 2025, arXiv:2507.19457, algorithms 1 and 2).

It holds no state that cannot be computed again from the answers: run on a journal, it takes
the same path to the same place, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptgraft.errors import (
    LimitReachedError,
    PermanentProviderError,
)
from promptgraft.optimizers.answers import Answers
from promptgraft.optimizers.gepa.comparing import Compared, Comparer
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.confirming import Confirmation, confirm
from promptgraft.optimizers.gepa.copying import AnswerGuard
from promptgraft.optimizers.gepa.held_out import HeldOut, measure
from promptgraft.optimizers.gepa.history import History
from promptgraft.optimizers.gepa.members import Members
from promptgraft.optimizers.gepa.merging import Merger
from promptgraft.optimizers.gepa.objectives import Scorer
from promptgraft.optimizers.gepa.patience import Patience
from promptgraft.optimizers.gepa.pool import Pool
from promptgraft.optimizers.gepa.proposing import Proposer
from promptgraft.optimizers.gepa.reflection import Reflector
from promptgraft.optimizers.gepa.scores import beats
from promptgraft.optimizers.gepa.selection import Choices
from promptgraft.optimizers.gepa.steps import Proposed, Step
from promptgraft.optimizers.gepa.stops import Stops
from promptgraft.optimizers.gepa.teaching import Lessons
from promptgraft.optimizers.gepa.telling import Newcomers, Rejections, tell_accepted
from promptgraft.optimizers.gepa.trials import Emit, Trials
from promptgraft.optimizers.gepa.validation import blank, validator_of
from promptgraft.optimizers.ledger import Ledger
from promptgraft.optimizers.modules import Module, owner_of
from promptgraft.optimizers.stopping import RunStoppedError, StopReason, reason_of
from promptgraft.optimizers.target import Target
from promptgraft.optimizers.types import (
    Candidate,
    GepaExample,
    RolloutRecord,
)
from promptgraft.runtime.deadline import Deadline

_ENDS = set(StopReason) - {
    StopReason.PROVIDER_FAILED,
    StopReason.DEADLINE,
    StopReason.CANCELLED,
    StopReason.STOP_FILE,
    StopReason.COST,
    StopReason.TOKENS,
}
"""Reasons that leave the means to confirm a winner, and to try it on held-out examples."""

_STOPPED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}


class GepaLoop:
    """Improves a target step by step until there is a reason to stop.

    Args:
        config: the settings.
        target: what is improved.
        pareto: D_pareto, what candidates are compared on.
        feedback: D_feedback, what mutations learn from.
        answers: what is recorded already, and where new answers go.
        trials: makes rollouts.
        reflector: makes proposals.
        ledger: what the run has used.
        stops: the user's reasons to stop.
        deadline: when to stop.
        emit: is told of every event.
    """

    def __init__(
        self,
        config: GepaConfig,
        target: Target,
        *,
        pareto: Sequence[GepaExample],
        feedback: Sequence[GepaExample],
        answers: Answers,
        trials: Trials,
        reflector: Reflector,
        ledger: Ledger,
        stops: Stops,
        deadline: Deadline | None,
        emit: Emit,
    ) -> None:
        self._config = config
        self._target = target
        self._pareto = pareto
        self._answers = answers
        self._trials = trials
        self._stops = stops
        self._deadline = deadline
        self._emit = emit
        self._choices = Choices(
            config.seed, target.modules, example_rate=config.example_mutation_rate
        )
        self._tried: set[str] = set()
        self._patience = Patience(config)
        self._scorer = Scorer(config.weights, also=config.pick)
        self._history = History(config.history_top_k, self._scorer)
        self.rejections = Rejections(emit)
        self._members = Members(
            config, pareto, self._scorer, telling=Newcomers(target, ledger=ledger, emit=emit)
        )
        self._validator = validator_of(
            config.validation,
            pareto,
            order=self._choices.order(len(pareto)),
            trials=trials,
            members=self._members,
        )
        self._lessons = Lessons(
            config, feedback, choices=self._choices, trials=trials, scorer=self._scorer
        )
        self._comparer = Comparer(config, trials=trials, scorer=self._scorer, history=self._history)
        self._proposer = self._make_proposer(reflector, feedback)
        self._merger = self._make_merger()
        self.confirmation: Confirmation | None = None
        self.held_out = self._not_measured("the run was stopped before that")
        self.steps = 0
        self._proposals = 0

    def _make_proposer(self, reflector: Reflector, feedback: Sequence[GepaExample]) -> Proposer:
        return Proposer(
            self._target,
            reflector=reflector,
            guard=AnswerGuard(feedback, self._config.max_copied_words),
            history=self._history,
            tried=self._tried,
            patience=self._patience,
            rejections=self.rejections,
            emit=self._emit,
        )

    def _make_merger(self) -> Merger:
        return Merger(
            self._config,
            self._target,
            pareto=self._pareto,
            trials=self._trials,
            choices=self._choices,
            tried=self._tried,
            members=self._members,
            validator=self._validator,
            emit=self._emit,
        )

    @property
    def pool(self) -> Pool:
        """The candidates so far."""
        return self._members.pool

    @property
    def best(self) -> int:
        """Position of the candidate that wins, if it is confirmed."""
        if self._config.pick:
            return self._members.pick(self._config.pick)
        return self.pool.best

    @property
    def is_confirmed(self) -> bool:
        """Whether the best candidate may be called a winner, as far as the policy asks."""
        if not self._config.acceptance.confirmations:
            return True
        return self.confirmation is not None and self.confirmation.confirmed

    @property
    def winner(self) -> int:
        """Position of the candidate that the run ends with; 0 is the baseline."""
        best = self.best if self.is_confirmed else 0
        if self._config.validation.ranks:
            return best
        # A search that was stopped has not compared its best one with the baseline.
        return best if beats(self.pool.scores_of(best), self.pool.scores_of(0)) else 0

    @property
    def unscored(self) -> int:
        """Rollouts that the provider failed so far."""
        return self._trials.unscored

    def run(self) -> tuple[StopReason, str]:
        """Run until there is a reason to stop, and return it, with the same in words.

        Raises:
            FeedbackError, BindingError: the caller's fault, at once.
            JournalError: the journal cannot be used.
        """
        ended = self._ended(self._search)
        if ended[0] in _ENDS:
            ended = self._ended(lambda: self._validator.finish(self.steps), otherwise=ended)
        if ended[0] in _ENDS and self.pool.best and self._config.acceptance.confirmations:
            ended = self._ended(self._confirm, otherwise=ended)
        if ended[0] in _ENDS and self._config.held_out_examples:
            ended = self._ended(self._measure, otherwise=ended)
        return ended

    def _search(self) -> None:
        self._evaluate_baseline()
        while True:
            self._check_limits()
            self.steps += 1
            self._step()
            self._answers.sync()

    def _confirm(self) -> None:
        self.confirmation = confirm(
            self.pool,
            self._pareto,
            policy=self._config.acceptance,
            trials=self._trials,
            scorer=self._scorer,
        )

    def _measure(self) -> None:
        if not self.winner:
            self.held_out = self._not_measured("nothing beat the baseline")
            return
        self.held_out = measure(
            self.pool,
            self.winner,
            self._config.held_out_examples,
            trials=self._trials,
            scorer=self._scorer,
        )

    def _not_measured(self, why: str) -> HeldOut | None:
        ids = tuple(example.id for example in self._config.held_out_examples)
        return HeldOut(ids=ids, why_not=why) if ids else None

    def _ended(
        self, work: Callable[[], None], otherwise: tuple[StopReason, str] | None = None
    ) -> tuple[StopReason, str]:
        """Return why ``work`` ended; ``otherwise`` when it came to its own end."""
        try:
            work()
        except RunStoppedError as stop:
            if stop.reason not in _STOPPED_BY_FAULTS:
                self._answers.accept_faults()
            return stop.reason, stop.detail
        except PermanentProviderError as error:
            return StopReason.PROVIDER_FAILED, str(error)
        except LimitReachedError as error:
            return reason_of(error), str(error)
        finally:
            self._answers.sync()
        assert otherwise is not None  # noqa: S101 - a search ends by raising
        return otherwise

    def _evaluate_baseline(self) -> None:
        baseline = self._target.baseline()
        self._tried.add(baseline.digest)
        records: Sequence[RolloutRecord] = ()
        try:
            made = self._trials.make("baseline", baseline, self._pareto)
            self._scorer.learn(made)
            self._scorer.require(self._config.objectives_asked_for, made)
            records = made
        finally:
            # A run that stops this early still has a best candidate.
            self._members.join(baseline, records, step=0)

    def _check_limits(self) -> None:
        if self._is_perfect():
            raise RunStoppedError(
                StopReason.PERFECT, "the best candidate is perfect on every validation example"
            )
        self._stops.check(self.pool, steps=self.steps, proposals=self._proposals)
        if self._deadline is not None:
            self._deadline.check()
        self._trials.check()
        config = self._config
        needed = config.trial_size + self._validator.largest
        if not self._trials.afford(needed):
            left = config.rollout_budget - self._trials.used
            kept = config.reserved_size
            raise RunStoppedError(
                StopReason.BUDGET,
                f"{left} of {config.rollout_budget} rollouts are left"
                f"{f', {kept} of them kept for what follows the search' if kept else ''}; "
                f"one more step may take {needed}",
            )

    def _is_imperfect(self, record: RolloutRecord) -> bool:
        score = self._scorer.score(record)
        return score is not None and score < self._config.perfect_score

    def _is_perfect(self) -> bool:
        scores = self.pool.scores_of(self.pool.best)
        return all(score is not None and score >= self._config.perfect_score for score in scores)

    def _step(self) -> None:
        parent = self._lessons.parent(self.pool)
        candidate = self.pool.candidate(parent)
        minibatch = self._lessons.minibatch(candidate)
        records = self._lessons.records(f"step/{self.steps}/parent", candidate, minibatch)
        imperfect = list(filter(self._is_imperfect, records))
        if not imperfect:
            self._validator.idle(self.steps)
            self._patience.idle("in the last minibatches every answer with a score was perfect")
            return
        module = self._choices.module(
            lambda module: self._is_worth(module, candidate, records),
            self._lessons.blamed(self._target.modules, imperfect),
        )
        if module is None:
            self._patience.idle("no part that may change was shown to the model")
            return
        step = Step(
            number=self.steps,
            parent=parent,
            candidate=candidate,
            module=module,
            description=self._target.describe(module, candidate),
            minibatch=minibatch,
            records=records,
        )
        proposed = self._proposer.propose(step)
        if proposed is None:
            return
        self._patience.renew()
        self._proposals += 1
        self._tried.add(proposed.candidate.digest)
        if self._try(step, proposed) and self._config.enable_merge:
            self._merger.attempt(self.pool, self.steps)

    def _is_worth(
        self, module: Module, candidate: Candidate, records: Sequence[RolloutRecord]
    ) -> bool:
        """Tell whether the model was shown a module, and whether there is room for more of it."""
        part = owner_of(module)
        shown = part is None or any(part not in record.hidden for record in records)
        return shown and self._target.has_room(module, candidate)

    def _try(self, step: Step, proposed: Proposed) -> bool:
        """Try a child against its parent; return whether it joined the pool."""
        child = proposed.candidate
        compared = self._comparer.compare(
            f"step/{step.number}",
            (step.candidate, child),
            step.minibatch,
            step.records,
        )
        if compared.refusal is not None:
            reason, detail = compared.refusal
            self.rejections.add(step, reason, detail, text=proposed.text, tried=compared)
            return False
        self._accept(step, child, compared)
        return True

    def _accept(self, step: Step, child: Candidate, compared: Compared) -> None:
        self._lessons.remember(child, compared.records)
        position = self._validator.take_in(
            f"step/{step.number}/pareto", child, blank(self._pareto), step=step.number
        )
        tell_accepted(self._emit, step, child, position=position, compared=compared, pool=self.pool)
