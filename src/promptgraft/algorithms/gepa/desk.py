"""What the proposals of a run work with: each with its own, so that none disturbs another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.reflection import Reflector
from promptgraft.algorithms.gepa.trials import Emit, Trials
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.watch import Watch
from promptgraft.search.answers import Answers, Working
from promptgraft.search.context import OptimizationContext
from promptgraft.search.ledger import Ledger
from promptgraft.search.overlap import Overlap
from promptgraft.search.rollouts import RolloutRunner
from promptgraft.serde import HexDigest
from promptgraft.targets.base import Target
from promptgraft.targets.types import MetaPrompt


@attrs.frozen(kw_only=True)
class Desk:
    """What one proposal works with.

    Attributes:
        answers: the journal, and the faults that the proposal holds back.
        ledger: what the proposal has used.
        trials: makes its rollouts.
        reflector: makes its proposals.
        emit: is told of its events.
        told: its events, where they are kept back until it is committed.
    """

    answers: Answers
    ledger: Ledger
    trials: Trials
    reflector: Reflector
    emit: Emit
    told: list[object]


@attrs.frozen(kw_only=True)
class Place:
    """Where a proposal stands among others.

    Attributes:
        number: its number among those of all steps, from 1.
        key: where in the run; the keys of its answers begin with it.
        earlier: the desks of the proposals before it that are under way when it begins, in order.
        allow: is asked before each of its reflections, with how many of its own wait before it.
        settled: waits until the work of the proposals before it has ended.
    """

    number: int
    key: str
    earlier: Sequence[Desk]
    allow: Callable[[int], None]
    settled: Callable[[], None]


@attrs.frozen(kw_only=True)
class Desks:
    """Makes desks.

    Attributes:
        context: the surroundings of the run.
        config: its settings.
        target: what is improved.
        meta_prompts: what reflections are asked with.
        answers: what is recorded already, and where new answers go.
        whole: what the run has used at the moment.
        deadline: when to stop.
        example_digests: SHA-256 of each example, by id.
        watch: budget and notices of the run.
        working: is told what is waited for.
        overlap: where proposals wait.
        asking: asks several reflections of a proposal side by side; None asks in turn.
        emit: is told of every event.
        ledger: what the steps that are committed have used, and what is no step's.
        trials: make the rollouts of the run that are no step's: the baseline's, merges', finals.
    """

    context: OptimizationContext
    config: GepaConfig
    target: Target
    meta_prompts: Mapping[MetaPrompt, Prompt[object]]
    answers: Answers
    whole: Ledger
    deadline: Deadline | None
    example_digests: Mapping[str, HexDigest]
    watch: Watch
    working: Working
    overlap: Overlap
    asking: Executor | None
    emit: Emit
    ledger: Ledger = attrs.field(init=False)
    trials: Trials = attrs.field(init=False)

    @ledger.default
    def _ledger_of_run(self) -> Ledger:
        return self.whole.part()

    @trials.default
    def _trials_of_run(self) -> Trials:
        return Trials(
            self._runner(self.answers, self.ledger),
            ledger=self.ledger,
            emit=self.emit,
            max_unscored_share=self.config.max_unscored_share,
            reserve=self.config.reserved_size,
        )

    @property
    def reflection_adapter(self) -> ProviderAdapter:
        """What answers reflections."""
        return self.context.reflection_adapter or self.context.adapter

    def step(self, place: Place) -> Desk:
        """Return the desk of a proposal that begins now."""
        told: list[object] = []
        emit = told.append if self.config.overlaps else self.emit
        answers, ledger = self.answers.step(), self.whole.part()
        return Desk(
            answers=answers,
            ledger=ledger,
            trials=self.trials.step(
                self._runner(answers, ledger),
                ledger=ledger,
                emit=emit,
                earlier=[desk.trials.batches for desk in place.earlier],
                settled=place.settled,
            ),
            reflector=self._reflector(answers, ledger, place.allow),
            emit=emit,
            told=told,
        )

    def _runner(self, answers: Answers, ledger: Ledger) -> RolloutRunner:
        return RolloutRunner(
            self.target.rollout,
            answers=answers,
            ledger=ledger,
            executor=self.context.executor,
            deadline=self.deadline,
            example_digests=self.example_digests,
            working=self.working,
            overlap=self.overlap,
        )

    def _reflector(
        self, answers: Answers, ledger: Ledger, allow: Callable[[int], None]
    ) -> Reflector:
        return Reflector(
            self.reflection_adapter,
            prompts=self.meta_prompts,
            answers=answers,
            ledger=ledger,
            deadline=self.deadline,
            watch=self.watch,
            working=self.working,
            overlap=self.overlap,
            allow=allow,
            executor=self.asking,
        )
