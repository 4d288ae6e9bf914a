"""What a proposal of a step does between its beginning and its commit.

It reads what was fixed when it began and what it is answered itself, and changes nothing that
others see: so proposals may overlap in any way.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import attrs

from promptgraft.algorithms.gepa.comparing import Compared, Comparer
from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.desk import Desk
from promptgraft.algorithms.gepa.events import GepaMutationProposed, GepaMutationRejected
from promptgraft.algorithms.gepa.history import Remembered
from promptgraft.algorithms.gepa.proposing import Proposer
from promptgraft.algorithms.gepa.selection import Turn
from promptgraft.algorithms.gepa.steps import Proposed, Step
from promptgraft.algorithms.gepa.teaching import Lesson, blame_of, blamed
from promptgraft.algorithms.gepa.telling import Rejections
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.objectives import Scorer
from promptgraft.targets.base import Target
from promptgraft.targets.modules import Module, is_example, owner_of
from promptgraft.targets.types import Candidate, RolloutRecord

_FEW_LINES = 10


@attrs.frozen(kw_only=True)
class Rules:
    """What every proposal goes by, and none changes.

    Attributes:
        config: the settings.
        target: what is improved.
        scorer: gives rollouts their scores.
        guard: refuses answers of training examples.
    """

    config: GepaConfig
    target: Target
    scorer: Scorer
    guard: AnswerGuard


@attrs.frozen(kw_only=True)
class Known:
    """What a proposal knows of the run when its step begins.

    Attributes:
        lesson: parent and minibatch.
        turn: whose turn it is.
        remembered: earlier answers to the minibatch.
        tried: digests of every candidate tried.
    """

    lesson: Lesson
    turn: Turn
    remembered: Remembered
    tried: Container[object]


@attrs.define(kw_only=True)
class Work:
    """The work of one proposal of a step, and what came of it.

    Attributes:
        step: counts the steps from 1.
        number: counts the proposals of all steps from 1.
        place: where in the run; the keys of its answers begin with it.
        rules: what every proposal goes by.
        known: what is known when it begins.
        desk: what it works with.
        rejections: refused proposals.
        records: the parent's rollouts.
        taught: whether something could be learned from them.
        blame: how often they blame modules, by name.
        steps: what it has settled on, module by module; nothing when there was nothing to change.
        changes: the usable proposals.
        child: the parent with every change; the parent itself without any.
        compared: how the child did against its parent; None without a child.
    """

    step: int
    number: int
    place: str
    rules: Rules
    known: Known
    desk: Desk
    rejections: Rejections = attrs.field(init=False)
    records: tuple[RolloutRecord, ...] = ()
    taught: bool = False
    blame: Mapping[str, int] = attrs.field(factory=dict)
    steps: tuple[Step, ...] = ()
    changes: tuple[Proposed, ...] = ()
    child: Candidate = attrs.field(init=False)
    compared: Compared | None = None

    @child.default
    def _parent(self) -> Candidate:
        return self.known.lesson.candidate

    @rejections.default
    def _no_rejections(self) -> Rejections:
        return Rejections(self.desk.emit)

    @property
    def largest(self) -> int:
        """Rollouts that it can use."""
        return self.rules.config.trial_size - len(self.known.lesson.known)

    @property
    def accepted(self) -> bool:
        """Whether there is a child that is better than its parent."""
        return self.compared is not None and self.compared.refusal is None

    @property
    def gain(self) -> float:
        """How far the child is above the parent on the minibatch; 0 without scores."""
        compared = self.compared
        if compared is None or compared.before is None or compared.after is None:
            return 0.0
        return compared.after - compared.before

    def run(self) -> None:
        """Do the work.

        Raises:
            RunStoppedError, LimitReachedError, PermanentProviderError: the run cannot go on.
            FeedbackError: the caller's fault.
        """
        self.records = self.known.lesson.records(f"{self.place}/parent", self.desk.trials)
        self.steps = tuple(self._settle())
        self.changes = self._proposer().propose([(step, self._parts(step)) for step in self.steps])
        if self.changes:
            modules = tuple(one.step.module for one in self.changes)
            self.child = attrs.evolve(self.changes[-1].candidate, modules=modules)
            self.compared = self._compare()

    def name_parent(self, position: int) -> None:
        """Name the parent by the position that it got in the pool after the step had begun."""
        told = self.desk.told
        told[:] = [
            attrs.evolve(event, parent=position)
            if isinstance(event, (GepaMutationProposed, GepaMutationRejected))
            else event
            for event in told
        ]
        refused = self.rejections.all
        refused[:] = [attrs.evolve(one, parent=position) for one in refused]
        self.changes = tuple(
            attrs.evolve(one, step=attrs.evolve(one.step, parent=position)) for one in self.changes
        )

    def _settle(self) -> Iterator[Step]:
        """Choose what to change; nothing when there is nothing to learn or nothing to change."""
        imperfect = [record for record in self.records if self._is_imperfect(record)]
        self.taught = bool(imperfect)
        if not imperfect:
            return
        rules = self.rules
        perfect = [record for record in self.records if self._is_perfect(record)]
        self.blame = blame_of(rules.config.module_choice, rules.target.modules, imperfect, perfect)
        for turn, module in enumerate(self.known.turn.modules(self._is_worth, self.blame)):
            yield self._step(turn, module)

    def _step(self, turn: int, module: Module) -> Step:
        lesson, rules = self.known.lesson, self.rules
        return Step(
            number=self.step,
            place=self.place,
            turn=turn,
            parent=lesson.parent,
            candidate=lesson.candidate,
            module=module,
            description=rules.target.describe(module, lesson.candidate),
            minibatch=lesson.minibatch,
            records=self.records,
        )

    def _is_imperfect(self, record: RolloutRecord) -> bool:
        score = self.rules.scorer.score(record)
        return score is not None and score < self.rules.config.perfect_score

    def _is_perfect(self, record: RolloutRecord) -> bool:
        return self.rules.scorer.score(record) is not None and not self._is_imperfect(record)

    def _is_worth(self, module: Module) -> bool:
        """Tell whether the model was shown a module, and whether there is room for more of it."""
        part = owner_of(module)
        shown = part is None or any(part not in record.hidden for record in self.records)
        return shown and self.rules.target.has_room(module, self.known.lesson.candidate)

    def _proposer(self) -> Proposer:
        return Proposer(
            self.rules.target,
            reflector=self.desk.reflector,
            guard=self.rules.guard,
            remembered=self.known.remembered,
            tried=self.known.tried,
            rejections=self.rejections,
            emit=self.desk.emit,
        )

    def _parts(self, step: Step) -> tuple[Step, ...]:
        """Return the parts that a step is reflected on in: in every other one there may be several.

        A module that is blamed is reflected on with the failures that blame it.
        """
        if is_example(step.module):
            return (step,)
        is_blamed = step.module.name in self.blame
        shares = self.number % 2 and len(step.description.text.splitlines()) <= _FEW_LINES
        reflections = self.rules.config.reflections_per_module if shares else 1
        if reflections == 1 and not is_blamed:
            return (step,)
        failures = [record for record in self.records if self._is_imperfect(record)]
        if is_blamed:
            failures = [record for record in failures if blamed([step.module], [record])]
        return step.shared(failures, reflections)

    def _compare(self) -> Compared:
        rules, lesson = self.rules, self.known.lesson
        comparer = Comparer(rules.config, trials=self.desk.trials, scorer=rules.scorer)
        compared = comparer.compare(
            self.place, (lesson.candidate, self.child), lesson.minibatch, self.records
        )
        if compared.refusal is not None:
            reason, detail = compared.refusal
            self.rejections.add_all(self.changes, reason, detail, tried=compared)
        return compared
