"""The loop of GEPA (Agrawal et al. 2025, arXiv:2507.19457, algorithms 1 and 2).

It holds no state that cannot be computed again from the answers: run on a journal, it takes
the same path to the same place, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.errors import (
    LimitReachedError,
    PermanentProviderError,
)
from promptgraft.optimizers.answers import Answers
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.events import (
    GepaExampleGenerated,
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
)
from promptgraft.optimizers.gepa.merging import Merger
from promptgraft.optimizers.gepa.mutation import parse_reply
from promptgraft.optimizers.gepa.pool import Pool, Score, mean_score
from promptgraft.optimizers.gepa.prompts import reply_tag
from promptgraft.optimizers.gepa.reflection import Reflector
from promptgraft.optimizers.gepa.selection import Choices
from promptgraft.optimizers.gepa.trials import Emit, Trials
from promptgraft.optimizers.modules import GenerationModule, Module, owner_of
from promptgraft.optimizers.stopping import RunStoppedError, StopReason, reason_of
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason, Target
from promptgraft.optimizers.types import (
    Candidate,
    GepaExample,
    ModuleDescription,
    RolloutRecord,
)
from promptgraft.runtime.deadline import Deadline

_ATTEMPTS = 2
_NOTHING_NEW = {RejectionReason.UNCHANGED, RejectionReason.DUPLICATE}
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


@attrs.frozen
class _Proposed:
    """A child that may be tried, and the text that it was made from."""

    candidate: Candidate
    text: str


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
        deadline: Deadline | None,
        emit: Emit,
    ) -> None:
        self._config = config
        self._target = target
        self._pareto = pareto
        self._feedback = feedback
        self._answers = answers
        self._trials = trials
        self._reflector = reflector
        self._deadline = deadline
        self._emit = emit
        self._choices = Choices(
            config.seed, target.modules, example_rate=config.example_mutation_rate
        )
        self._tried: set[str] = set()
        self._merger = Merger(
            config,
            target,
            pareto=pareto,
            trials=trials,
            choices=self._choices,
            tried=self._tried,
            emit=emit,
        )
        self._idle_steps = 0
        self._failed_reflections = 0
        self.pool = Pool(len(pareto))
        self.rejections: list[GepaMutationRejected] = []
        self.steps = 0

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
        except LimitReachedError as error:
            return reason_of(error), str(error)
        finally:
            self._answers.sync()

    def _evaluate_baseline(self) -> None:
        baseline = self._target.baseline()
        self._tried.add(baseline.digest)
        scores: list[Score] = [None] * len(self._pareto)
        try:
            records = self._trials.make("baseline", baseline, self._pareto)
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
        self._trials.check()
        config = self._config
        if not self._trials.afford(config.step_size):
            left = config.rollout_budget - self._trials.used
            raise RunStoppedError(
                StopReason.BUDGET,
                f"{left} of {config.rollout_budget} rollouts are left; "
                f"one more step may take {config.step_size}",
            )

    def _is_perfect(self) -> bool:
        scores = self.pool.scores_of(self.pool.best)
        return all(score is not None and score >= self._config.perfect_score for score in scores)

    def _step(self) -> None:
        parent = self._choices.parent(self.pool.frontier())
        candidate = self.pool.candidate(parent)
        minibatch = self._choices.minibatch(self._feedback, self._config.batch_size)
        records = self._trials.make(f"step/{self.steps}/parent", candidate, minibatch)
        if not any(_imperfect(record, self._config.perfect_score) for record in records):
            self._idle("in the last minibatches every answer with a score was perfect")
            return
        module = self._choices.module(lambda module: self._is_worth(module, candidate, records))
        if module is None:
            self._idle("no part that may change was shown to the model")
            return
        step = _Step(
            number=self.steps,
            parent=parent,
            module=module,
            description=self._target.describe(module, candidate),
            minibatch=minibatch,
            records=records,
        )
        proposed = self._propose(step)
        if proposed is None:
            return
        self._idle_steps = 0
        self._failed_reflections = 0
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

    def _propose(self, step: _Step) -> _Proposed | None:
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
                tag = reply_tag(step.description.meta_prompt)
                return self._graft(
                    step, parse_reply(text, tag=tag, finish_reason=reply.finish_reason)
                )
            except InvalidProposalError as error:
                failed = error.reason is RejectionReason.REFLECTION_FAILED
                final = failed or attempt == _ATTEMPTS - 1
                self._reject(step, error.reason, error.detail, text=text, final=final)
                if final:
                    break
                refused = (error.detail, text)
        self._count_refused(self.rejections[-1])
        return None

    def _count_refused(self, last: GepaMutationRejected) -> None:
        if last.reason in _NOTHING_NEW:
            self._idle(f"the last proposal was no new text: {last.detail}")
            return
        self._failed_reflections += 1
        if self._failed_reflections >= self._config.max_failed_reflections:
            raise RunStoppedError(
                StopReason.REFLECTION_FAILED,
                f"{self._failed_reflections} steps gave no usable proposal; "
                f"the last: {last.detail}",
            )

    def _graft(self, step: _Step, text: str) -> _Proposed:
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
                after=text,
            )
        )
        return _Proposed(candidate=child, text=text)

    def _try(self, step: _Step, proposed: _Proposed) -> bool:
        """Try a child against its parent; return whether it joined the pool."""
        child, text = proposed.candidate, proposed.text
        records = self._trials.make(f"step/{step.number}/child", child, step.minibatch)
        pairs = [
            (before.score, after.score)
            for before, after in zip(step.records, records, strict=True)
            if before.score is not None and after.score is not None
        ]
        if not pairs:
            detail = "no example of the minibatch was scored for both parent and child"
            self._reject(step, RejectionReason.UNSCORED, detail, text=text)
            return False
        parent_score = sum(before for before, _ in pairs) / len(pairs)
        child_score = sum(after for _, after in pairs) / len(pairs)
        if child_score <= parent_score:
            detail = f"{child_score:.3f} on the minibatch, the parent had {parent_score:.3f}"
            self._reject(step, RejectionReason.NOT_BETTER, detail, text=text)
            return False
        self._accept(step, child, parent_score, child_score)
        return True

    def _accept(
        self, step: _Step, child: Candidate, parent_score: float, child_score: float
    ) -> None:
        records = self._trials.make(f"step/{step.number}/pareto", child, self._pareto)
        scores = [record.score for record in records]
        position = self.pool.add(child, scores)
        if isinstance(step.module, GenerationModule):
            self._tell_generated(step, child, position)
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

    def _tell_generated(self, step: _Step, child: Candidate, position: int) -> None:
        before = self.pool.candidate(step.parent).override.added_task_examples
        for path, added in child.override.added_task_examples.items():
            if path not in before:
                self._emit(
                    GepaExampleGenerated(
                        step=step.number,
                        candidate=position,
                        container_path=added.container_path,
                        key=added.example_key,
                        objective=added.objective,
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


def _imperfect(record: RolloutRecord, perfect_score: float) -> bool:
    return record.score is not None and record.score < perfect_score
