"""From a step to a child that may be tried: reflections, strict reading, one repair each."""

from __future__ import annotations

from collections.abc import Container, Sequence

import attrs

from promptgraft.algorithms.gepa.events import GepaMutationProposed
from promptgraft.algorithms.gepa.history import Remembered
from promptgraft.algorithms.gepa.mutation import parse_reply
from promptgraft.algorithms.gepa.prompts import reply_tag
from promptgraft.algorithms.gepa.reflection import Question, Reflector
from promptgraft.algorithms.gepa.steps import ATTEMPTS, Proposed, Step
from promptgraft.algorithms.gepa.telling import Rejections
from promptgraft.algorithms.gepa.three_way import woven
from promptgraft.algorithms.gepa.trials import Emit
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.targets.base import InvalidProposalError, RejectionReason, Target
from promptgraft.targets.types import Candidate


class Proposer:
    """Asks for a new text of a step's module until there is one that can be used, or none.

    Args:
        target: what is improved.
        reflector: writes texts.
        guard: refuses answers of training examples.
        remembered: earlier answers that the reflector is shown.
        tried: digests of every candidate tried.
        rejections: takes refused replies.
        emit: is told of every proposal.
    """

    def __init__(
        self,
        target: Target,
        *,
        reflector: Reflector,
        guard: AnswerGuard,
        remembered: Remembered,
        tried: Container[object],
        rejections: Rejections,
        emit: Emit,
    ) -> None:
        self._target = target
        self._reflector = reflector
        self._guard = guard
        self._remembered = remembered
        self._tried = tried
        self._rejections = rejections
        self._emit = emit

    def propose(self, asked: Sequence[tuple[Step, Sequence[Step]]]) -> tuple[Proposed, ...]:
        """Return usable changes, each made onto the one before it.

        The reflections do not know of each other: all are asked at once, then all repairs.

        Args:
            asked: each module that is changed, with the parts that it is reflected on in; the
                step itself when there are none.

        Raises:
            PermanentProviderError, LimitReachedError: the run cannot go on.
        """
        drafts = [[_Draft(part) for part in parts] for _, parts in asked]
        self._fill([draft for those in drafts for draft in those])
        changes: tuple[Proposed, ...] = ()
        for (step, _), those in zip(asked, drafts, strict=True):
            found = [draft.found for draft in those if draft.found is not None]
            if found:
                changes += self._change(step, self._together(step, found), changes)
        return changes

    def _fill(self, drafts: Sequence[_Draft]) -> None:
        """Ask until each has a text, or there is nothing more to ask."""
        ended = False
        try:
            for attempt in range(ATTEMPTS):
                if waiting := [draft for draft in drafts if draft.is_open]:
                    self._attempt(attempt, waiting)
            ended = all(draft.found is None for draft in drafts)
        finally:
            self._refuse([one for draft in drafts for one in draft.refusals], ended=ended)

    def _attempt(self, attempt: int, drafts: Sequence[_Draft]) -> None:
        """Ask for the texts that are missing, and read them."""
        replies = self._reflector.reflect([self._question(attempt, one) for one in drafts])
        for draft, reply in zip(drafts, replies, strict=True):
            part = draft.part
            try:
                reply.check()
                tag = reply_tag(part.description.meta_prompt)
                text = parse_reply(reply.text, tag=tag, finish_reason=reply.finish_reason)
                draft.found = self._graft(part, part.candidate, text)
            except InvalidProposalError as error:
                draft.refusals.append(_Refusal(part, error, reply.text))

    def _question(self, attempt: int, draft: _Draft) -> Question:
        part = draft.part
        return Question(
            position=f"{part.place}/reflect/{ATTEMPTS * part.turn + attempt}",
            description=part.description,
            records=part.records,
            earlier=self._remembered.better_than(part.records),
            refused=draft.refused,
        )

    def _change(
        self, step: Step, proposed: Proposed, before: Sequence[Proposed]
    ) -> tuple[Proposed, ...]:
        """Return the change of a module onto those before it; nothing where it does not fit."""
        chosen = attrs.evolve(proposed, step=step)
        if before:
            try:
                chosen = self._graft(step, before[-1].candidate, chosen.text)
            except InvalidProposalError as error:
                self._refuse([_Refusal(step, error, chosen.text)], ended=False)
                return ()
        self._emit(
            GepaMutationProposed(
                step=step.number,
                parent=step.parent,
                module=step.module.name,
                before=step.description.text,
                after=chosen.text,
            )
        )
        return (chosen,)

    def _together(self, step: Step, found: Sequence[Proposed]) -> Proposed:
        """Return the child with all that was proposed, or with as much as goes together."""
        chosen, *others = found
        before = step.description.text
        for other in others:
            # As the target shows them: a reply may say the same in other words.
            sides = (self._target.text(step.module, one.candidate) for one in (chosen, other))
            text = woven(before, *sides)
            if text is None:
                continue
            try:
                chosen = self._graft(step, step.candidate, text)
            except InvalidProposalError:
                continue
        return chosen

    def _graft(self, step: Step, onto: Candidate, text: str) -> Proposed:
        child = self._target.graft(
            onto,
            step.module,
            text,
            parents=(step.parent,),
            examples=step.minibatch,
        )
        # After the target has looked at it: by then the text has a bounded length.
        self._guard.check(step.module, step.description, text)
        if child.digest in self._tried:
            raise InvalidProposalError(
                RejectionReason.DUPLICATE, "this text has been tried before; propose another"
            )
        return Proposed(step, child, text)

    def _refuse(self, refusals: Sequence[_Refusal], *, ended: bool) -> None:
        """Keep refusals; the last one is final when the proposal has ended with it."""
        for refusal in refusals:
            self._rejections.add(
                refusal.step,
                refusal.error.reason,
                refusal.error.detail,
                text=refusal.text,
                final=ended and refusal is refusals[-1],
            )


@attrs.frozen
class _Refusal:
    step: Step
    error: InvalidProposalError
    text: str


@attrs.define
class _Draft:
    """A part of a step on its way to a text."""

    part: Step
    found: Proposed | None = None
    refusals: list[_Refusal] = attrs.field(factory=list)

    @property
    def is_open(self) -> bool:
        """Whether there is no text, and a reply to be mended or none at all."""
        failed = RejectionReason.REFLECTION_FAILED
        return self.found is None and not any(one.error.reason is failed for one in self.refusals)

    @property
    def refused(self) -> tuple[str, str] | None:
        """Why the last reply could not be used, and that reply."""
        return (self.refusals[-1].error.detail, self.refusals[-1].text) if self.refusals else None
