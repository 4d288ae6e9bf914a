"""From a step to a child that may be tried: reflection, strict reading, one repair."""

from __future__ import annotations

from collections.abc import Container

from promptgraft.optimizers.gepa.copying import AnswerGuard
from promptgraft.optimizers.gepa.events import GepaMutationProposed
from promptgraft.optimizers.gepa.history import Remembered
from promptgraft.optimizers.gepa.mutation import parse_reply
from promptgraft.optimizers.gepa.prompts import reply_tag
from promptgraft.optimizers.gepa.reflection import Reflector
from promptgraft.optimizers.gepa.steps import ATTEMPTS, Proposed, Step
from promptgraft.optimizers.gepa.telling import Rejections
from promptgraft.optimizers.gepa.trials import Emit
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

    def propose(self, step: Step, onto: Candidate, *, ends: bool) -> Proposed | None:
        """Return a usable child, after one repair if need be; None when there is none.

        Args:
            step: what is changed, and why.
            onto: the parent, with what the step has changed before.
            ends: whether the step ends when there is none.

        Raises:
            PermanentProviderError, LimitReachedError: the run cannot go on.
        """
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
        self._emit(
            GepaMutationProposed(
                step=step.number,
                parent=step.parent,
                module=step.module.name,
                before=step.description.text,
                after=text,
            )
        )
        return Proposed(step, child, text)
