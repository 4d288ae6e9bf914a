"""One proposal of a step: from a parent and a minibatch to a child and its acceptance test.

A proposal reads only what was fixed when its step began and the answers to its own asks, and
changes nothing that others see. So proposals may overlap in any way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import attrs
from msgspec.structs import replace

from promptgraft.algorithms.gepa.carrying import KnownLines
from promptgraft.algorithms.gepa.line_edits import SEARCH, edited
from promptgraft.algorithms.gepa.policies import ATTEMPTS, MOST_AT_ONCE, parts_of
from promptgraft.algorithms.gepa.questions import NOT_REFUSED, Draft, MetaPrompts, Part, question_on
from promptgraft.algorithms.gepa.relocating import Relocation, Stray
from promptgraft.algorithms.gepa.sampling import Lesson, Names, Remembered, better_answers, blamed
from promptgraft.algorithms.gepa.selection import Turn
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.algorithms.gepa.three_way import woven
from promptgraft.algorithms.gepa.whole import add_edits, most_shown, question_on_all
from promptgraft.search.acceptance import Change, Compared, Comparer, Rejections
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Question, Reply, Rollouts, Together
from promptgraft.search.events import MutationProposed, MutationRejected
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.population import Seen
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.replies import JSON_TAG, TEXT_TAG, parse_reply
from promptgraft.targets.types import Candidate, Module, RolloutRecord

_FEW_LINES = 10
_SUCCESSES = 2
_TRIED = "this text has been tried before; propose another"


@attrs.frozen(kw_only=True)
class Rules:
    """What all proposals of a search share.

    Attributes:
        config: the settings.
        trial_size: rollouts of parent and child on a minibatch, with all repeats.
        kit: what the search works with.
        comparer: the acceptance test of a child against its parent.
        guard: refuses copied answers of training examples; None to refuse nothing.
        meta_prompts: the meta-prompts by key.
        names: patterns for the names that feedback may use for modules.
        seen: the candidates tried so far.
    """

    config: GepaSettings
    trial_size: int
    kit: Kit
    comparer: Comparer
    guard: AnswerGuard | None
    meta_prompts: MetaPrompts
    names: Names
    seen: Seen


@attrs.frozen(kw_only=True)
class Known:
    """What a proposal knows about the run, fixed when its step begins.

    Attributes:
        lesson: parent and minibatch.
        turn: which modules it may change.
        remembered: earlier answers to the minibatch, if a history is kept.
        tried: how many candidates of ``Rules.seen`` had been tried.
        strays: lines to try in other parts, instead of a reflection.
        lines: what the child does with lines that were tried before.
        generic: words of feedback that identify no complaint.
    """

    lesson: Lesson
    turn: Turn
    remembered: Remembered
    tried: int
    strays: tuple[Stray, ...] = ()
    lines: KnownLines = attrs.field(factory=KnownLines)
    generic: frozenset[str] = frozenset()


@attrs.define(kw_only=True)
class Proposal:
    """One proposal and its outcome.

    Attributes:
        step: counts the steps from 1.
        number: counts the proposals of all steps from 1.
        position: position in the run, a prefix of the keys of its answers.
        largest: most rollouts that it can use.
        rules: what all proposals share.
        known: what is known when its step begins.
        rejections: refused texts.
        child: the parent with all changes; the parent itself if there are none.
        records: the parent's rollouts on the minibatch.
        taught: whether there was anything to learn from them.
        blame: how many of them blame each module, by name.
        modules: the modules it has chosen to change; empty if there is nothing to change.
        on_all: whether one question is about all of these, so that the reply decides which change.
        changes: the usable changes.
        compared: the acceptance test; None without a child.
    """

    step: int
    number: int
    position: str
    largest: int
    rules: Rules
    known: Known
    rejections: Rejections
    child: Candidate
    records: tuple[RolloutRecord, ...] = ()
    taught: bool = False
    blame: Mapping[str, int] = attrs.field(factory=dict)
    modules: tuple[Module, ...] = ()
    on_all: bool = False
    changes: tuple[Change, ...] = ()
    compared: Compared | None = None

    def run(self) -> Asking[None]:
        """Algorithm 1, lines 8 to 14: evaluate the parent, reflect, mutate, evaluate the child."""
        lesson, minibatch = self.known.lesson, self.known.lesson.minibatch
        made = yield from Rollouts(
            position=f"{self.position}/parent",
            candidate=lesson.candidate,
            examples=[one for one in lesson.minibatch if one.id not in lesson.known],
        )
        known = {**lesson.known, **{record.example_id: record for record in made}}
        self.records = tuple(known[example.id] for example in minibatch)
        if self.known.strays:
            self.changes, about = yield from self._relocate(known)
            minibatch = tuple(one for one in minibatch if one.id in about)
        else:
            self.modules = self._choose_modules()
            self.changes = yield from self._propose()
        if self.changes and (self.known.lines.riders or self.known.lines.idle):
            of = self.rules.kit.target, lesson.candidate
            self.changes = self.known.lines.applied(self.changes, lesson=of, graft=self._graft)
        for change in self.changes:
            self.rules.kit.emit(
                MutationProposed(
                    step=self.step,
                    parent=lesson.parent,
                    module=change.module.name,
                    before=change.before.text,
                    after=change.text,
                    reason=change.reason,
                )
            )
        if self.changes:
            modules = tuple(change.module for change in self.changes)
            self.child = attrs.evolve(self.changes[-1].candidate, modules=modules)
            pair = (lesson.candidate, self.child)
            self.compared = yield from self.rules.comparer.compare(
                self.position, pair, minibatch, tuple(known[one.id] for one in minibatch)
            )
            if self.compared.refusal is not None:
                reason, detail = self.compared.refusal
                self.rejections.add_all(self.changes, reason, detail, compared=self.compared)

    @property
    def accepted(self) -> bool:
        """Whether there is a child that passed the acceptance test."""
        return self.compared is not None and self.compared.refusal is None

    def refuse(self, reason: RejectionReason, detail: str) -> list[MutationRejected]:
        """Refuse a child that passed the acceptance test; return the rejections."""
        if self.compared is None or not self.accepted:
            return []
        return self.rejections.add_all(self.changes, reason, detail, compared=self.compared)

    def _relocate(
        self, known: Mapping[str, RolloutRecord]
    ) -> Asking[tuple[tuple[Change, ...], list[str]]]:
        """Return the changes that move lines to other parts, and the ids of their examples."""
        relocation = Relocation(self.rules.kit, self.known.lesson, self.known.generic)
        changes, about = yield from relocation.run(self.position, self.known.strays, known)
        is_new = changes and not self._was_tried(changes[-1].candidate)
        return (changes, about) if is_new else ((), [])

    def _choose_modules(self) -> tuple[Module, ...]:
        """Choose the modules to change; none if there is nothing to learn or to change."""
        rules = self.rules
        imperfect, perfect = rules.kit.scorer.parted(
            self.records, at=rules.config.objectives.perfect_score
        )
        strategy, turn = rules.config.strategy, self.known.turn
        self.taught = bool(imperfect or (perfect and strategy.learn_from_perfect))
        if not self.taught:
            return ()
        if turn.on_all and imperfect:
            parent, text = self.known.lesson.candidate, rules.kit.target.text
            every = most_shown(turn.instructions(self._is_worth), lambda one: text(one, parent))
            if len(every) > 1:
                self.on_all = True
                return every
        if strategy.module_choice == "all":
            return turn.all(self._is_worth)[: rules.config.most_together]
        if strategy.module_choice == "random":
            return turn.drawn(self._is_worth)
        if strategy.module_choice == "blamed":
            self.blame = blamed(rules.names, imperfect, perfect)
        return turn.modules(self._is_worth, self.blame)

    def _is_worth(self, module: Module) -> bool:
        """Return whether a module was shown to the model and has room for more."""
        shown = module.owner is None or any(module.owner not in one.hidden for one in self.records)
        return shown and self.rules.kit.target.has_room(module, self.known.lesson.candidate)

    def _propose(self) -> Asking[tuple[Change, ...]]:
        """Return the usable changes, each grafted onto the one before it.

        The questions are independent: all are asked at once, then all repairs.
        """
        if self.on_all:
            draft = self._draft_on_all()
            yield from self._fill([draft])
            # The edits that were kept beside a bad one may have been tried without it.
            was_tried = draft.found and self._was_tried(draft.found[-1].candidate)
            return () if was_tried else draft.found
        drafts = [self._drafts(turn, module) for turn, module in enumerate(self.modules)]
        yield from self._fill([draft for those in drafts for draft in those])
        changes: tuple[Change, ...] = ()
        for those in drafts:
            if not (found := [change for draft in those for change in draft.found]):
                continue
            change = found[0] if len(found) == 1 else self._together(found)
            module, before, text = change.module, change.before, change.text
            try:
                if changes:
                    change = self._graft(changes[-1].candidate, (module, before), text)
            except InvalidProposalError as error:
                self.rejections.add(module.name, before.text, error, text=text, final=False)
                continue
            changes = (*changes, change)
        return changes

    def _draft_on_all(self) -> Draft:
        """Return the question about all parts, with the failures and a few successes."""
        rules, parent = self.rules, self.known.lesson.candidate
        failures, successes = rules.kit.scorer.parted(
            self.records, at=rules.config.objectives.perfect_score
        )
        parts = tuple((one, rules.kit.target.describe(one, parent)) for one in self.modules)
        return Draft(parts, (*failures, *successes[:_SUCCESSES]), 0)

    def _drafts(self, turn: int, module: Module) -> list[Draft]:
        """Return the questions about a module.

        In every other proposal the failures may be divided among several questions. A question
        about a module that is blamed shows only the failures that blame it.
        """
        description = self.rules.kit.target.describe(module, self.known.lesson.candidate)
        is_blamed = module.name in self.blame
        shares = self.number % 2 and len(description.text.splitlines()) <= _FEW_LINES
        questions = self.rules.config.strategy.reflections_per_module if shares else 1
        if module.is_example or (questions == 1 and not is_blamed):
            return [Draft(((module, description),), self.records, turn)]
        rules = self.rules
        failures, _ = rules.kit.scorer.parted(
            self.records, at=rules.config.objectives.perfect_score
        )
        if is_blamed:
            names = {module.name: rules.names[module.name]}
            failures = [record for record in failures if blamed(names, [record])]
        shown = failures or self.records
        parts, apart = parts_of(len(shown), questions), max(MOST_AT_ONCE, len(self.modules))
        return [
            Draft(((module, description),), shown[part::parts], turn + apart * part)
            for part in range(parts)
        ]

    def _fill(self, drafts: Sequence[Draft]) -> Asking[None]:
        """Ask the questions, then the repairs of refused replies."""
        ended = False
        try:
            for attempt in range(ATTEMPTS):
                unfinished = [draft for draft in drafts if draft.is_partial or not draft.found]
                waiting = [draft for draft in unfinished if not draft.failed]
                asked = [
                    self._question(
                        draft, f"{self.position}/reflect/{ATTEMPTS * draft.number + attempt}"
                    )
                    for draft in waiting
                ]
                replies: Sequence[Reply] = (yield from Together(asked)) if waiting else ()
                for draft, reply in zip(waiting, replies, strict=True):
                    self._read(draft, reply)
            ended = not any(draft.found for draft in drafts)
        finally:
            refused = [(draft, *one) for draft in drafts for one in draft.refusals]
            for left, (draft, error, text) in zip(range(len(refused))[::-1], refused, strict=True):
                final = ended and not left
                self.rejections.add(draft.name, draft.before, error, text=text, final=final)

    def _question(self, draft: Draft, position: str) -> Question:
        descriptions = [description for _, description in draft.parts]
        refused, scorer = NOT_REFUSED, self.rules.kit.scorer
        if draft.refusals:
            error, text = draft.refusals[-1]
            refused = error.detail, text
        ask = partial(question_on_all, position, descriptions)
        if not self.on_all:
            ask = partial(question_on, position, descriptions[0])
        return ask(
            draft.records,
            meta_prompts=self.rules.meta_prompts,
            earlier=self._earlier_answers(draft) if self.known.remembered else {},
            objectives=scorer.told(draft.records) if scorer.is_weighted else {},
            refused=refused,
        )

    def _earlier_answers(self, draft: Draft) -> Mapping[str, Sequence[RolloutRecord]]:
        return better_answers(self.known.remembered, draft.records, self.rules.kit.scorer)

    def _read(self, draft: Draft, reply: Reply) -> None:
        """Make a child from a reply, or record why that is not possible."""
        try:
            reply.check()
            if self.on_all:
                self._edit_all(draft, reply)
            else:
                [(module, description)] = draft.parts
                tag = JSON_TAG if description.as_json else TEXT_TAG
                text = parse_reply(reply.text, tag=tag, finish_reason=reply.finish_reason)
                if text.startswith(SEARCH):
                    text = edited(description.text, text)
                parent = self.known.lesson.candidate
                draft.found = (self._graft(parent, (module, description), text),)
        except InvalidProposalError as error:
            draft.refusals.append((error, reply.text))
            # A model that finds no part at fault would only repeat that in a repair.
            blames_none = self.on_all and error.reason is RejectionReason.UNCHANGED
            draft.failed = bool(reply.fault) or blames_none

    def _edit_all(self, draft: Draft, reply: Reply) -> None:
        """Add the changes of a reply to a draft; all together must make a new candidate."""
        add_edits(draft, reply, self._edit)
        if not draft.is_partial and self._was_tried(draft.found[-1].candidate):
            draft.found = ()
            raise InvalidProposalError(RejectionReason.DUPLICATE, _TRIED)

    def _edit(self, onto: Sequence[Change], part: Part, text: str) -> Change:
        """Return the change of a part by a reply that may edit several."""
        parent = onto[-1].candidate if onto else self.known.lesson.candidate
        return self._graft(parent, part, text, is_last=False)

    def _together(self, found: Sequence[Change]) -> Change:
        """Return one change that merges what several replies proposed for a module."""
        chosen, *others = found
        target, parent = self.rules.kit.target, self.known.lesson.candidate
        for other in others:
            # The texts as the target shows them, since replies may differ in form only.
            sides = (target.text(chosen.module, one.candidate) for one in (chosen, other))
            text = woven(chosen.before.text, *sides)
            if text is None:
                continue
            try:
                chosen = self._graft(parent, (chosen.module, chosen.before), text)
            except InvalidProposalError:
                continue
        return chosen

    def _graft(self, onto: Candidate, part: Part, text: str, *, is_last: bool = True) -> Change:
        """Return the change of a part; the last one of a reply must make a new candidate."""
        rules, lesson = self.rules, self.known.lesson
        module, description = part
        child = rules.kit.target.graft(
            onto, module, text, parents=(lesson.parent,), examples=lesson.minibatch
        )
        # After the target's own checks, which bound the length of the text.
        if rules.guard is not None:
            rules.guard.check(module, description, text)
        if is_last and self._was_tried(child):
            raise InvalidProposalError(RejectionReason.DUPLICATE, _TRIED)
        return Change(module, description, text, child)

    def _was_tried(self, child: Candidate) -> bool:
        """Return whether a candidate had been tried when the step began."""
        return self.rules.seen.get(child.digest, self.known.tried) < self.known.tried


def named_with(parent: int, event: object) -> object:
    """Return an event of a proposal with the position that its parent has since been given."""
    if isinstance(event, (MutationProposed, MutationRejected)):
        return replace(event, parent=parent)
    return event
