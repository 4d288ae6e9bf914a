"""The loop of GEPA (Agrawal et al. 2025, arXiv:2507.19457, algorithms 1 and 2).

It holds no state that cannot be computed again from the answers: run on a journal, it takes
the same path to the same place, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from promptgraft.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    PermanentProviderError,
)
from promptgraft.optimizers.answers import Answers
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.events import (
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
    GepaRolloutCompleted,
)
from promptgraft.optimizers.gepa.mutation import parse_reply
from promptgraft.optimizers.gepa.pool import Pool, Score, mean_score
from promptgraft.optimizers.gepa.reflection import Reflector
from promptgraft.optimizers.gepa.selection import Choices
from promptgraft.optimizers.ledger import Ledger, Role
from promptgraft.optimizers.rollouts import RolloutRunner
from promptgraft.optimizers.stopping import RunStoppedError, StopReason
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason, Target
from promptgraft.optimizers.types import (
    Candidate,
    GepaExample,
    Module,
    ModuleDescription,
    RolloutRecord,
)
from promptgraft.runtime.deadline import Deadline

Emit = Callable[[object], None]

_ATTEMPTS = 2
_STOPPED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}


@attrs.frozen(kw_only=True)
class _Step:
    """What a step has settled on before anything is proposed."""

    number: int
    parent: int
    module: Module
    description: ModuleDescription
    minibatch: tuple[GepaExample, ...]
    records: tuple[RolloutRecord, ...]


class GepaLoop:
    """Improves a target step by step until there is a reason to stop.

    Args:
        config: the settings.
        target: what is improved.
        pareto: D_pareto, what candidates are compared on.
        feedback: D_feedback, what mutations learn from.
        answers: what is recorded already, and where new answers go.
        ledger: counts rollouts and reflections.
        runner: makes rollouts.
        reflector: makes proposals.
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
        ledger: Ledger,
        runner: RolloutRunner,
        reflector: Reflector,
        deadline: Deadline | None,
        emit: Emit,
    ) -> None:
        self._config = config
        self._target = target
        self._pareto = pareto
        self._feedback = feedback
        self._answers = answers
        self._ledger = ledger
        self._runner = runner
        self._reflector = reflector
        self._deadline = deadline
        self._emit = emit
        self._choices = Choices(config.seed, target.modules)
        self._tried: set[str] = set()
        self._idle_steps = 0
        self._failed_reflections = 0
        self.pool = Pool(len(pareto))
        self.rejections: list[GepaMutationRejected] = []
        self.steps = 0
        self.unscored = 0

    def run(self) -> tuple[StopReason, str]:
        """Run until there is a reason to stop, and return it, with the same in words.

        Raises:
            FeedbackError, BindingError: the caller's fault, at once.
            JournalError: the journal cannot be used.
        """
        try:
            self._evaluate_baseline()
            while True:
                self._check_limits()
                self.steps += 1
                self._step()
                self._answers.sync()
        except RunStoppedError as stop:
            if stop.reason not in _STOPPED_BY_FAULTS:
                self._answers.accept_faults()
            return stop.reason, stop.detail
        except PermanentProviderError as error:
            return StopReason.PROVIDER_FAILED, str(error)
        except DeadlineExceededError as error:
            return StopReason.DEADLINE, str(error)
        except BudgetExhaustedError as error:
            return StopReason.BUDGET, str(error)
        finally:
            self._answers.sync()

    def _evaluate_baseline(self) -> None:
        baseline = self._target.baseline()
        self._tried.add(baseline.digest)
        scores: list[Score] = [None] * len(self._pareto)
        try:
            records = self._rollouts("baseline", baseline, self._pareto)
            scores = [record.score for record in records]
        finally:
            # A run that stops this early still has a best candidate.
            self.pool.add(baseline, scores)

    def _check_limits(self) -> None:
        if self._is_perfect():
            raise RunStoppedError(
                StopReason.PERFECT, "the best candidate is perfect on every validation example"
            )
        if self._deadline is not None:
            self._deadline.check()
        config = self._config
        if not self._ledger.affords(config.step_size):
            left = config.rollout_budget - self._ledger.totals(Role.TASK).calls
            raise RunStoppedError(
                StopReason.BUDGET,
                f"{left} of {config.rollout_budget} rollouts are left; "
                f"one more step may take {config.step_size}",
            )

    def _is_perfect(self) -> bool:
        scores = self.pool.scores_of(self.pool.best)
        return all(score is not None and score >= self._config.perfect_score for score in scores)

    def _step(self) -> None:
        step = self._prepare()
        if not any(_imperfect(record, self._config.perfect_score) for record in step.records):
            self._idle("in the last minibatches every answer with a score was perfect")
            return
        child = self._propose(step)
        if child is None:
            return
        self._idle_steps = 0
        self._failed_reflections = 0
        self._tried.add(child.digest)
        self._try(step, child)

    def _prepare(self) -> _Step:
        parent = self._choices.parent(self.pool.frontier())
        module = self._choices.module()
        minibatch = self._choices.minibatch(self._feedback, self._config.batch_size)
        candidate = self.pool.candidate(parent)
        records = self._rollouts(f"step/{self.steps}/parent", candidate, minibatch)
        return _Step(
            number=self.steps,
            parent=parent,
            module=module,
            description=self._target.describe(module, candidate),
            minibatch=minibatch,
            records=records,
        )

    def _propose(self, step: _Step) -> Candidate | None:
        """Return a usable child, after one repair if need be; None when there is none."""
        refused: tuple[str, str] | None = None
        for attempt in range(_ATTEMPTS):
            text = ""
            try:
                reply = self._reflector.reflect(
                    f"step/{step.number}/reflect/{attempt}",
                    step.description,
                    step.records,
                    refused=refused,
                )
                text = reply.text
                return self._graft(step, parse_reply(text, finish_reason=reply.finish_reason))
            except InvalidProposalError as error:
                failed = error.reason is RejectionReason.REFLECTION_FAILED
                final = failed or attempt == _ATTEMPTS - 1
                self._reject(step, error.reason, error.detail, text=text, final=final)
                if final:
                    break
                refused = (error.detail, text)
        self._failed_reflections += 1
        if self._failed_reflections >= self._config.max_failed_reflections:
            last = self.rejections[-1]
            raise RunStoppedError(
                StopReason.REFLECTION_FAILED,
                f"{self._failed_reflections} steps in a row gave no usable proposal; "
                f"the last: {last.detail}",
            )
        return None

    def _graft(self, step: _Step, text: str) -> Candidate:
        child = self._target.graft(
            self.pool.candidate(step.parent),
            step.module,
            text,
            parents=(step.parent,),
            examples=step.minibatch,
        )
        if child.digest in self._tried:
            raise InvalidProposalError(
                RejectionReason.DUPLICATE, "this text has been tried before; propose another"
            )
        self._emit(
            GepaMutationProposed(
                step=step.number,
                parent=step.parent,
                module=step.module.name,
                before=step.description.text,
                after=self._target.describe(step.module, child).text,
            )
        )
        return child

    def _try(self, step: _Step, child: Candidate) -> None:
        records = self._rollouts(f"step/{step.number}/child", child, step.minibatch)
        pairs = [
            (before.score, after.score)
            for before, after in zip(step.records, records, strict=True)
            if before.score is not None and after.score is not None
        ]
        text = self._target.describe(step.module, child).text
        if not pairs:
            detail = "no example of the minibatch was scored for both parent and child"
            self._reject(step, RejectionReason.UNSCORED, detail, text=text)
            return
        parent_score = sum(before for before, _ in pairs) / len(pairs)
        child_score = sum(after for _, after in pairs) / len(pairs)
        if child_score <= parent_score:
            detail = f"{child_score:.3f} on the minibatch, the parent had {parent_score:.3f}"
            self._reject(step, RejectionReason.NOT_BETTER, detail, text=text)
            return
        self._accept(step, child, parent_score, child_score)

    def _accept(
        self, step: _Step, child: Candidate, parent_score: float, child_score: float
    ) -> None:
        records = self._rollouts(f"step/{step.number}/pareto", child, self._pareto)
        scores = [record.score for record in records]
        position = self.pool.add(child, scores)
        self._emit(
            GepaMutationAccepted(
                step=step.number,
                candidate=position,
                parent=step.parent,
                module=step.module.name,
                parent_score=parent_score,
                child_score=child_score,
                pareto_mean=mean_score(scores),
                best_pareto_mean=self.pool.mean(self.pool.best),
            )
        )

    def _reject(
        self,
        step: _Step,
        reason: RejectionReason,
        detail: str,
        *,
        text: str,
        final: bool = True,
    ) -> None:
        rejection = GepaMutationRejected(
            step=step.number,
            parent=step.parent,
            module=step.module.name,
            reason=reason,
            detail=detail,
            text=text,
            final=final,
        )
        self.rejections.append(rejection)
        self._emit(rejection)

    def _idle(self, why: str) -> None:
        self._idle_steps += 1
        if self._idle_steps >= self._config.max_idle_steps:
            raise RunStoppedError(
                StopReason.NO_PROGRESS, f"{self._idle_steps} steps in a row tried nothing: {why}"
            )

    def _rollouts(
        self, position: str, candidate: Candidate, examples: Sequence[GepaExample]
    ) -> tuple[RolloutRecord, ...]:
        records = self._runner.run(position, candidate, examples)
        used = self._ledger.totals(Role.TASK).calls - len(records)
        for index, record in enumerate(records):
            self._emit(
                GepaRolloutCompleted(
                    position=f"{position}/{index}",
                    record=record,
                    total_rollouts=used + index + 1,
                )
            )
        faults = [record for record in records if record.feedback is None]
        self.unscored += len(faults)
        if len(faults) > self._config.max_unscored_share * len(records):
            raise RunStoppedError(
                StopReason.PROVIDER_FAILED,
                f"{len(faults)} of {len(records)} rollouts stayed unscored; "
                f"the last: {faults[-1].fault}",
            )
        return records


def _imperfect(record: RolloutRecord, perfect_score: float) -> bool:
    return record.score is not None and record.score < perfect_score
