"""The published proposal: a reflection on one module and its rollouts, read strictly.

A proposal reads only what was fixed when its attempt began and the answers to its own questions,
and changes nothing that others see. So attempts may overlap in any way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import attrs

from promptgraft.algorithms.gepa.attempt import Attempt, Changes
from promptgraft.algorithms.gepa.prompts import PUBLISHED
from promptgraft.algorithms.gepa.select import ModuleChoice, Turn, Turns
from promptgraft.ground.serde import Json
from promptgraft.search.acceptance import Change
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Question, Records, Reply, Together
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.population import Seen
from promptgraft.search.reflection import NOT_REFUSED, MetaPrompts, Refusal, question_on
from promptgraft.search.scores import Scorer
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.evidence import Evidence
from promptgraft.targets.part import passing
from promptgraft.targets.replies import JSON_TAG, TEXT_TAG, new_text
from promptgraft.targets.types import (
    Candidate,
    MetaPrompt,
    Module,
    ModuleDescription,
    RolloutRecord,
    names_of,
)

ATTEMPTS = 2
"""Most questions for one text: the first, and one repair."""

MOST_MODULES_CHANGED = 4
"""Most modules that one proposal changes."""

REFLECTION: Mapping[str, Json] = MappingProxyType({"reflection_version": 2})
"""The version of the question on one part, as a fingerprint has it."""

TRIED = "this text has been tried before; propose another"
_NO_FAILURES: Mapping[str, Records] = MappingProxyType({})

Part: TypeAlias = tuple[Module, ModuleDescription]
"""A module, with its description in the parent."""


def questions_of(questions: MetaPrompts, *, as_published: bool) -> MetaPrompts:
    """Return the questions by kind of part; on sections, the published one if that is asked for."""
    if not as_published:
        return questions
    return {**questions, MetaPrompt.SECTION: questions[PUBLISHED.key]}


@attrs.define(kw_only=True)
class Draft:
    """The question on one part, and what has come of it.

    Attributes:
        reflector: asks it, and grafts the reply.
        attempt: the attempt that it belongs to.
        parts: the parts that may be changed: one, or several if the model is to choose.
        records: the rollouts that it shows.
        evidence: what else it shows; what is known of the rollouts is added.
        shows_all: whether it shows all that is known, so that to ask again would change nothing.
        number: distinguishes the questions of an attempt.
        changes: the changes with usable texts, each grafted onto the one before it.
        refusals: the refused replies, with the reasons.
        has_failed: whether there is no reply that could be repaired.
        is_partial: whether the last reply had edits that are still to be repaired.
    """

    reflector: Reflector
    attempt: Attempt
    parts: tuple[Part, ...]
    records: Sequence[RolloutRecord]
    evidence: Evidence = attrs.field(factory=Evidence)
    shows_all: bool = False
    number: int = 0
    changes: Changes = ()
    refusals: list[tuple[InvalidProposalError, str]] = attrs.field(factory=list)
    has_failed: bool = False
    is_partial: bool = False

    def __attrs_post_init__(self) -> None:
        scorer = self.reflector.kit.scorer
        # Steps do not name a part that is still to be added.
        self.records = passing(self.records, [part for part, _ in self.parts]) or self.records
        hidden = [frozenset(record.hidden) for record in self.records]
        earlier, guard = self.attempt.earlier, self.reflector.guard
        has_examples = any(module.is_example for module, _ in self.parts)
        self.evidence = attrs.evolve(
            self.evidence,
            earlier=better_answers(earlier, self.records, scorer) if earlier else {},
            objectives=scorer.told(self.records),
            unseen=frozenset.intersection(*hidden) if hidden else (),
            copying=guard.rule if guard and not has_examples else "",
        )

    @property
    def name(self) -> str:
        """The names of all parts."""
        return names_of(module for module, _ in self.parts)

    @property
    def before(self) -> str:
        """The current text of the only part; empty for several parts."""
        return self.parts[0][1].text if len(self.parts) == 1 else ""

    @property
    def refused(self) -> Refusal:
        """Why the last reply could not be used, and that reply."""
        if not self.refusals:
            return NOT_REFUSED
        error, text = self.refusals[-1]
        return error.detail, text

    def question(self, position: str) -> Question:
        """Return the next question."""
        [(_, description)] = self.parts
        return question_on(
            position,
            description,
            self.records,
            meta_prompts=self.reflector.meta_prompts,
            evidence=self.evidence,
            refused=self.refused,
        )

    def read(self, reply: Reply) -> None:
        """Make a child from a reply, or record why that is not possible."""
        try:
            reply.check()
            self.take(reply)
        except InvalidProposalError as error:
            self.refusals.append((error, reply.text))
            # A model that was shown everything and changes nothing would only repeat that.
            is_unchanged = error.reason is RejectionReason.UNCHANGED
            self.has_failed = bool(reply.fault) or (is_unchanged and self.shows_all)

    def take(self, reply: Reply) -> None:
        """Set the changes that a reply makes.

        Raises:
            InvalidProposalError: the reply cannot be used.
        """
        [(module, description)] = self.parts
        edit = new_text(
            reply.text,
            description.text,
            tag=JSON_TAG if description.as_json else TEXT_TAG,
            finish_reason=reply.finish_reason,
            part=description.name,
            others=[name for name, _ in description.neighbours],
        )
        part, parent = (module, description), self.attempt.candidate
        self.changes = (self.reflector.graft(self.attempt, parent, part, edit.text),)


@attrs.frozen(kw_only=True)
class Reflector:
    """Asks the reflection model for new texts of modules.

    Attributes:
        kit: what the search works with.
        meta_prompts: the questions by key.
        turns: whose turn it is to be changed.
        module_choice: how many of them have their turn at once.
        most_together: most modules of one proposal.
        guard: refuses copied answers of training examples; None to refuse nothing.
        seen: the candidates tried so far.
    """

    kit: Kit
    meta_prompts: MetaPrompts
    turns: Turns
    module_choice: ModuleChoice
    most_together: int
    guard: AnswerGuard | None
    seen: Seen

    def propose(self, attempt: Attempt) -> Asking[Changes]:
        """Reflect on the module whose turn it is, as published, or on those of another choice."""
        turn = self.turn(attempt)
        most = self.most_together if self.module_choice == "all" else 1
        modules = turn.drawn if self.module_choice == "random" else turn.all[:most]
        return (yield from self.reflect_on(attempt, modules))

    def turn(self, attempt: Attempt) -> Turn:
        """Return the turn of the modules that have room for more.

        Those that the model was not shown in any of the parent's rollouts are left out, and in a
        graph those whose prompts no failure passed.
        """
        unseen = set.intersection(*[set(record.hidden) for record in attempt.records] or [set()])
        turn, target = attempt.turn, self.kit.target
        failures = self.kit.scorer.split(attempt.records).failures or attempt.records
        may_grow = [
            module
            for module in turn.all
            if module.owner not in unseen
            and (module.is_new or passing(failures, [module]))
            and target.has_room(module, attempt.candidate)
        ]
        first = tuple(module for module in turn.first if module in may_grow)
        return Turn(first, tuple(module for module in turn.second if module in may_grow), turn.draw)

    def reflect_on(
        self,
        attempt: Attempt,
        modules: Sequence[Module],
        failures: Mapping[str, Records] = _NO_FAILURES,
    ) -> Asking[Changes]:
        """Return the usable changes of modules, each grafted onto the one before it.

        Args:
            attempt: the attempt.
            modules: the modules; one question about each, all of them independent.
            failures: the rollouts that a question shows, by module; all of them by default.
        """
        attempt.modules = tuple(modules)
        drafts = []
        for number, module in enumerate(modules):
            part = module, self.kit.target.describe(module, attempt.candidate)
            blamed = () if module.is_example else passing(failures.get(module.name, ()), [module])
            records = blamed or attempt.records
            draft = Draft(
                reflector=self, attempt=attempt, parts=(part,), records=records, number=number
            )
            drafts.append(draft)
        yield from self.ask(attempt, drafts)
        changes: Changes = ()
        for change in (change for draft in drafts for change in draft.changes):
            part = change.module, change.before
            try:
                # The questions are independent, so each reply was grafted onto the parent alone.
                onto = changes[-1].candidate if changes else None
                anew = change if onto is None else self.graft(attempt, onto, part, change.text)
                changes = (*changes, anew)
            except InvalidProposalError as error:
                name, before = change.module.name, change.before.text
                attempt.rejections.add(name, before, error, text=change.text, final=False)
        return changes

    def ask(self, attempt: Attempt, drafts: Sequence[Draft]) -> Asking[None]:
        """Ask questions, then the repairs of refused replies."""
        ended = False
        try:
            for repair in range(ATTEMPTS):
                waiting = [
                    draft
                    for draft in drafts
                    if (draft.is_partial or not draft.changes) and not draft.has_failed
                ]
                questions = [
                    draft.question(f"{attempt.position}/reflect/{ATTEMPTS * draft.number + repair}")
                    for draft in waiting
                ]
                replies: Sequence[Reply] = (yield from Together(questions)) if waiting else ()
                for draft, reply in zip(waiting, replies, strict=True):
                    draft.read(reply)
            ended = not any(draft.changes for draft in drafts)
        finally:  # a limit may cut off the repairs; the refused replies are paid for
            refused = [(draft, *refusal) for draft in drafts for refusal in draft.refusals]
            for number, (draft, error, text) in enumerate(refused, start=1):
                final = ended and number == len(refused)
                attempt.rejections.add(draft.name, draft.before, error, text=text, final=final)

    def graft(
        self, attempt: Attempt, onto: Candidate, part: Part, text: str, *, may_be_old: bool = False
    ) -> Change:
        """Return the change of a part; unless it may be old, the child must be a new candidate.

        Raises:
            InvalidProposalError: the text cannot be used.
        """
        module, description = part
        child = self.kit.target.graft(
            onto, module, text, parents=(attempt.step.parent,), examples=attempt.minibatch
        )
        # After the target's own checks, which bound the length of the text.
        if self.guard is not None:
            self.guard.check(module, description, text)
        if not may_be_old and self.was_tried(attempt, child):
            raise InvalidProposalError(RejectionReason.DUPLICATE, TRIED)
        return Change(module, description, text, child)

    def was_tried(self, attempt: Attempt, child: Candidate) -> bool:
        """Return whether a candidate had been tried when the attempt began."""
        # Later candidates do not count: which there are depends on how steps overlap.
        return self.seen.get(child.digest, attempt.step.tried) < attempt.step.tried


def better_answers(
    earlier: Mapping[str, Sequence[tuple[float, RolloutRecord]]],
    records: Sequence[RolloutRecord],
    scorer: Scorer,
) -> Mapping[str, tuple[RolloutRecord, ...]]:
    """Return, for each record, the earlier answers with a higher score."""
    better = {}
    for record in records:
        own_score = scorer.score(record)
        better[record.example_id] = tuple(
            answer
            for score, answer in earlier.get(record.example_id, ())
            if own_score is not None and score > own_score
        )
    return better
