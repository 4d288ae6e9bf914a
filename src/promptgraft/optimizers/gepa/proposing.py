"""From a step to a child that may be tried: reflection, strict reading, one repair."""

from __future__ import annotations

from collections.abc import Container, Sequence

import attrs

from promptgraft.optimizers.gepa.copying import AnswerGuard
from promptgraft.optimizers.gepa.events import GepaMutationProposed
from promptgraft.optimizers.gepa.history import Remembered
from promptgraft.optimizers.gepa.mutation import parse_reply
from promptgraft.optimizers.gepa.prompts import reply_tag
from promptgraft.optimizers.gepa.reflection import Reflector
from promptgraft.optimizers.gepa.steps import ATTEMPTS, Proposed, Step
from promptgraft.optimizers.gepa.telling import Rejections
from promptgraft.optimizers.gepa.trials import Emit
from promptgraft.optimizers.gepa.weaving import woven
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason, Target
from promptgraft.optimizers.types import Candidate


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

    def propose(
        self, step: Step, onto: Candidate, *, parts: Sequence[Step], ends: bool
    ) -> Proposed | None:
        """Return a usable child, after one repair if need be; None when there is none.

        Args:
            step: what is changed, and why.
            onto: the parent, with what the step has changed before.
            parts: the same in parts that are reflected on apart; the step itself when there are
                none.
            ends: whether the step ends when there is none.

        Raises:
            PermanentProviderError, LimitReachedError: the run cannot go on.
        """
        found: list[Proposed] = []
        for part in parts:
            last = part is parts[-1] and not found
            proposed = self._propose(part, onto, ends=ends and last)
            if proposed is not None:
                found.append(proposed)
        if not found:
            return None
        chosen = attrs.evolve(self._together(step, onto, found), step=step)
        self._emit(
            GepaMutationProposed(
                step=step.number,
                parent=step.parent,
                module=step.module.name,
                before=step.description.text,
                after=chosen.text,
            )
        )
        return chosen

    def _together(self, step: Step, onto: Candidate, found: Sequence[Proposed]) -> Proposed:
        """Return the child with all that was proposed, or with as much as goes together."""
        chosen, *others = found
        before = step.description.text
        for other in others:
            # As the target shows them: a reply may say the same in other words.
            sides = (self._target.describe(step.module, one.candidate) for one in (chosen, other))
            text = woven(before, *(side.text for side in sides))
            if text is None:
                continue
            try:
                chosen = self._graft(step, onto, text)
            except InvalidProposalError:
                continue
        return chosen

    def _propose(self, step: Step, onto: Candidate, *, ends: bool) -> Proposed | None:
        refused: tuple[str, str] | None = None
        for attempt in range(ATTEMPTS):
            text = ""
            try:
                reply = self._reflector.reflect(
                    f"step/{step.number}/reflect/{ATTEMPTS * step.turn + attempt}",
                    step.description,
                    step.records,
                    earlier=self._remembered.better_than(step.records),
                    refused=refused,
                )
                text = reply.text
                tag = reply_tag(step.description.meta_prompt)
                parsed = parse_reply(text, tag=tag, finish_reason=reply.finish_reason)
                return self._graft(step, onto, parsed)
            except InvalidProposalError as error:
                failed = error.reason is RejectionReason.REFLECTION_FAILED
                last = failed or attempt == ATTEMPTS - 1
                self._rejections.add(
                    step, error.reason, error.detail, text=text, final=last and ends
                )
                if last:
                    break
                refused = (error.detail, text)
        return None

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
