"""The search by textual gradients.

A round evaluates the current candidate on training cases (``judging.py``), traces failures back to
the parts that led to them (``tracing.py``), asks for new texts of these (``patching.py``), and
accepts them only if the validation set confirms the improvement.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Container, Iterable, Sequence

import attrs
from msgspec.structs import replace

from promptgraft.algorithms.gradient.inquiries import Inquiries
from promptgraft.algorithms.gradient.judging import Judge, RoundAttempt
from promptgraft.algorithms.gradient.patching import Base, Patcher
from promptgraft.algorithms.gradient.settings import GradientSettings
from promptgraft.algorithms.gradient.tracing import Failure, Tracer
from promptgraft.ground.strict.checks import reaches
from promptgraft.ground.text import counted, score
from promptgraft.search.acceptance import Rejections
from promptgraft.search.algorithm import BaseSearch, Kit
from promptgraft.search.asks import Asking, Checkpoint, Records, Rollouts, Standing
from promptgraft.search.events import MutationAccepted, RoundStarted
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.population import Seen
from promptgraft.search.result import RunResult
from promptgraft.search.round_events import (
    Decided,
    GradientsMerged,
    PatchWritten,
    QuestionUnanswered,
    RoundEnded,
    RoundEvent,
    RoundTrained,
    StepBlamed,
)
from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.search.stops import Patience
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import GepaExample, names_of

KNOWN_SHARE = 0.75
"""Share of a round's cases that may be known failures, whose answers are already paid for."""


@attrs.frozen(kw_only=True)
class Round:
    """One round of a search, stage by stage.

    Attributes:
        trained: the current candidate, the training cases, their scores and losses.
        blamed: the blame that models assigned, for each question.
        merged: what is to be fixed, for each blamed part.
        patches: the new texts, with their reasons and the failures that led to them.
        unanswered: questions without a usable reply.
        ended: the decision, with scores and gain; None if the run ended within the round.
    """

    trained: RoundTrained
    blamed: tuple[StepBlamed, ...] = ()
    merged: tuple[GradientsMerged, ...] = ()
    patches: tuple[PatchWritten, ...] = ()
    unanswered: tuple[QuestionUnanswered, ...] = ()
    ended: RoundEnded | None = None

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return self.trained.step

    @classmethod
    def of(cls, events: Iterable[RoundEvent]) -> Round:
        """Return a round from its events."""
        trained, *events = events
        assert isinstance(trained, RoundTrained)  # noqa: S101 - the first event of a round
        return cls(
            trained=trained,
            blamed=tuple(event for event in events if isinstance(event, StepBlamed)),
            merged=tuple(event for event in events if isinstance(event, GradientsMerged)),
            patches=tuple(event for event in events if isinstance(event, PatchWritten)),
            unanswered=tuple(event for event in events if isinstance(event, QuestionUnanswered)),
            ended=next((event for event in events if isinstance(event, RoundEnded)), None),
        )


@attrs.frozen(kw_only=True, repr=False)
class GradientResult(RunResult):
    """The outcome of a gradient search.

    Attributes:
        rounds: what happened in each round.
    """

    rounds: tuple[Round, ...] = ()


class GradientSearch(BaseSearch):
    """One search, with its settings and its kit."""

    def __init__(self, config: GradientSettings, kit: Kit) -> None:
        super().__init__(kit)
        self._config = config
        self._current = 0
        self._validated: Records = ()
        self._seen = Seen()
        self._without_gain = 0
        self._clean = 0
        self._share = 1.0
        self._given_up: RunStoppedError | None = None
        self._events: list[RoundEvent] = []
        self._initial = config.initial_candidate(kit.target)
        self._batches = Batches(kit.training, config.train_size, config.seed)
        self._patience = Patience(
            max_idle_steps=config.limits.max_idle_steps,
            max_failed_reflections=config.limits.max_failed_reflections,
        )
        inquiries, by_trace = Inquiries(kit.questions), config.attribution == "trace"
        self._tracer = Tracer(
            target=kit.target,
            inquiries=inquiries,
            emit=self._emit,
            by_trace=by_trace,
            backward=config.backward,
        )
        metrics = metrics_of(config.feedback_fn)
        guard = AnswerGuard(kit.training, config.copied_words or None, metrics)
        self._patcher = Patcher(
            target=kit.target,
            inquiries=inquiries,
            guard=guard,
            most=config.max_gradients,
            emit=self._emit,
            aggregate=config.aggregate,
            rewrite=config.rewrite,
        )
        self._judge = Judge(config, kit)

    def run(self) -> Asking[None]:
        """Make rounds until there is a reason to stop, and raise it."""
        yield from self._begin()
        stop = yield from self._reason_to_stop()
        while stop is None:
            ended = yield from self._round(self._open_round())
            stop = yield from self._reason_to_stop()
            self._emit(ended if stop is None else replace(ended, stop=stop.detail))
        raise stop

    def result(self, core: RunResult) -> GradientResult:
        """Return the result with the rounds, including one in which the run ended."""
        by_round = itertools.groupby(self._events, key=lambda event: event.step)
        rounds = tuple(Round.of(events) for _, events in by_round)
        return GradientResult(**attrs.asdict(core, recurse=False), rounds=rounds)

    def _begin(self) -> Asking[None]:
        """Evaluate baseline and initial candidate on the validation set."""
        kit = self.kit
        required = self._config.objectives_asked_for
        self._validated = yield from self.evaluate_baseline(required=required)
        self._seen.add(kit.target.baseline().digest)
        if self._initial is not None:
            self._validated = yield from Rollouts(
                position="initial", candidate=self._initial, examples=kit.validation
            )
            records = dict(enumerate(self._validated))
            self._current = self.population.join(self._initial, records, step=0)
            self._seen.add(self._initial.digest)

    def _reason_to_stop(self) -> Asking[RunStoppedError | None]:
        """Return why no further round begins; reasons of this search precede those of any run."""
        config, pool = self._config, self.population.pool
        mean, target = pool.estimate(self._current), config.target_score
        outlook = yield from Checkpoint(Standing(pool, self.steps, len(self.accepted)))
        if target is not None and mean is not None and reaches(mean, target):
            detail = f"the current candidate has {score(mean)}, {target:g} was wanted"
            return RunStoppedError(StopReason.TARGET_SCORE, detail)
        if self._without_gain >= config.patience:
            detail = (
                f"no new text was accepted in {counted(self._without_gain, 'round')} (patience)"
            )
            return RunStoppedError(StopReason.NO_IMPROVEMENT, detail)
        if self.steps >= config.max_rounds:
            detail = f"{counted(self.steps, 'round')} made, as many as max_rounds allows"
            return RunStoppedError(StopReason.DONE, detail)
        if self._clean >= self._batches.count:
            detail = "the current candidate fails on no training case"
            return RunStoppedError(StopReason.NO_PROGRESS, detail)
        return self._given_up or outlook.stop

    def _open_round(self) -> Base:
        number, candidate = self.steps + 1, self.population.pool.candidates[self._current]
        by_example = self._judge.known(candidate)
        failing = {name for name, record in by_example.items() if self._judge.losses(record)}
        examples = self._batches.next(failing)
        new = sum(example.id not in by_example for example in examples)
        # Before the round is counted, because it may not begin.
        self.kit.budget.require(new + self._config.judging_size, f"round {number}")
        self.steps = number
        self.kit.emit(RoundStarted(step=number, current=self._current))
        return Base(
            number=number,
            position=self._current,
            candidate=candidate,
            examples=examples,
            seen=self._seen,
            rejections=Rejections(number, self._current, self.kit.emit, self.rejections),
        )

    def _round(self, base: Base) -> Asking[RoundEnded]:
        """Make a round: from failures to a candidate, and to the decision on it."""
        failures = yield from self._train(base)
        if not failures:
            self._clean += 1
            return _ended(base, Decided.NOTHING, "no case failed")
        self._clean = 0
        # Counts every round with failures, however it ends; an accepted one resets it.
        self._without_gain += 1
        gradients = yield from self._tracer.trace(base.number, base.candidate, failures)
        # Fewer parts change after a refusal, as if the step size of a gradient were reduced.
        merged = yield from self._patcher.merge(base, gradients, share=self._share)
        if not merged:
            return self._idle(base, "no text is blamed for what failed")
        written = yield from self._patcher.write(base, merged)
        patches, child = self._patcher.together(base, written)
        if not patches:
            refused = self.rejections[-1]
            return self._idle(base, f"no usable text: {refused.detail}", refused.reason)
        if child.digest in self._seen:
            return self._idle(base, "these texts have been tried together before")
        self._patience.renew()
        self._seen.add(child.digest)
        # A trial saves a validation only if it refuses, so there is none before the first refusal.
        tries = self._config.first_try and self._share < 1
        attempt = yield from self._judge.judge(
            base, RoundAttempt(patches=patches, child=child), self._validated, tries=tries
        )
        if attempt.compared.refusal is not None:
            return self._refuse(base, attempt, *attempt.compared.refusal)
        return self._accept(base, attempt)

    def _train(self, base: Base) -> Asking[list[Failure]]:
        """Evaluate the current candidate on the cases of a round; return those that failed."""
        position = f"round/{base.number}/train"
        records = yield from self._judge.train(base.candidate, base.examples, position)
        scorer = self.kit.scorer
        trained = [(record, self._judge.losses(record)) for record in records]
        failures = [(record, losses) for record, losses in trained if losses]
        self._emit(
            RoundTrained(
                step=base.number,
                current=base.position,
                cases=tuple(example.id for example in base.examples),
                scores=tuple(scorer.score(record) for record in records),
                losses=tuple(loss for _, losses in failures for loss in losses),
            )
        )
        return failures

    def _refuse(
        self, base: Base, attempt: RoundAttempt, reason: RejectionReason, detail: str
    ) -> RoundEnded:
        comparison, changes = attempt.compared, [patch.change for patch in attempt.patches]
        base.rejections.add_all(changes, reason, detail, compared=comparison)
        self._patcher.remember(attempt.patches, comparison.before, comparison.after)
        self._judge.forget(attempt.child)
        self._share /= 2
        return replace(_ended(base, Decided.REFUSED, detail), **attempt.means)

    def _accept(self, base: Base, attempt: RoundAttempt) -> RoundEnded:
        pool, child, judged = self.population.pool, attempt.child, attempt.compared
        self._validated = judged.batches[1]
        records = dict(enumerate(self._validated))
        self._current = self.population.join(child, records, step=base.number)
        self._judge.forget(base.candidate)
        self._patcher.forget(attempt.patches)
        self._without_gain = 0
        self._share = min(1.0, 2 * self._share)
        self.accepted.append(child.modules)
        first = attempt.tried or judged
        self.kit.emit(
            MutationAccepted(
                step=base.number,
                candidate=self._current,
                parent=base.position,
                module=names_of(child.modules),
                parent_score=first.before,
                child_score=first.after,
                pareto_mean=pool.means[self._current],
                best_pareto_mean=pool.means[pool.best],
            )
        )
        ended = _ended(base, Decided.ACCEPTED, "better on the validation set")
        return replace(ended, candidate=self._current, **attempt.means)

    def _idle(
        self, base: Base, why: str, reason: RejectionReason = RejectionReason.UNCHANGED
    ) -> RoundEnded:
        """End a round without a candidate; too many of these end the run."""
        try:
            self._patience.refused(reason, why)
        except RunStoppedError as stop:
            # Raised only once the end of this round has been published.
            self._given_up = stop
        return _ended(base, Decided.NOTHING, why)

    def _emit(self, event: object) -> None:
        if isinstance(event, RoundEvent):
            self._events.append(event)
        self.kit.emit(event)


def _ended(base: Base, decided: Decided, detail: str) -> RoundEnded:
    return RoundEnded(step=base.number, current=base.position, decided=decided, detail=detail)


class Batches:
    """Selects the training cases of each round.

    Most of them are known failures of the current candidate, if there are any, because their
    answers are already paid for. Each of the others is used once before any is used again.

    Attributes:
        count: rounds after which each case has been used once.
    """

    def __init__(self, training: Sequence[GepaExample], size: int, seed: int) -> None:
        self._training = training
        self._size = min(size, len(training))
        self._seed = seed
        self._epoch = 0
        self._waiting: list[int] = []
        self.count: int = -(-len(training) // self._size)

    def next(self, failing: Container[str]) -> tuple[GepaExample, ...]:
        """Return the cases of the next round, in the order of the training set.

        Args:
            failing: ids of those that the current candidate is known to fail.
        """
        if self.count == 1:
            return tuple(self._training)
        places = [at for at, example in enumerate(self._training) if example.id in failing]
        self._epoch += 1
        # A generator for each round: its draw does not depend on how much earlier rounds drew.
        chance = random.Random(f"{self._seed}/round/{self._epoch}")
        chosen = set(chance.sample(places, min(len(places), int(KNOWN_SHARE * self._size))))
        while len(chosen) < self._size:
            if not self._waiting:
                self._waiting = chance.sample(range(len(self._training)), len(self._training))
            chosen.add(self._waiting.pop())
        return tuple(self._training[place] for place in sorted(chosen))
