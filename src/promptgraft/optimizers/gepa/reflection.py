"""One reflection: a model is shown a module and its rollouts, and proposes a new text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import (
    CandidateError,
    JournalCorruptError,
    PermanentProviderError,
    PromptgraftError,
    ProviderError,
)
from promptgraft.optimizers.answers import Answers, Working, untold
from promptgraft.optimizers.gepa.prompts import reflection_params
from promptgraft.optimizers.ledger import (
    Ledger,
    Role,
    Spending,
    spent_from_json,
    spent_on,
    spent_to_json,
)
from promptgraft.optimizers.overlap import Overlap
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.optimizers.text import joined
from promptgraft.optimizers.types import MetaPrompt, ModuleDescription, RolloutRecord
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session
from promptgraft.runtime.watch import Watch
from promptgraft.serde import HexDigest, Json, digest_text


@attrs.frozen(kw_only=True)
class Reply:
    """What the reflection model replied.

    Attributes:
        text: its reply.
        finish_reason: why it stopped, in its provider's word.
        fault: why there is no reply; empty when there is one.
    """

    text: str
    finish_reason: str
    fault: str = ""


class Reflector:
    """Asks the reflection model, once for each position in the run.

    Args:
        adapter: answers.
        prompts: the meta-prompts.
        answers: what is recorded already, and where new answers go.
        ledger: counts every reflection.
        deadline: handed to the adapter.
        watch: budget and notices of the run.
        working: is told when a reply is waited for, and when it is there.
        overlap: lets others work while a reply is waited for.
        allow: is asked before each reflection; raises when it is one too many.
    """

    def __init__(
        self,
        adapter: ProviderAdapter,
        *,
        prompts: Mapping[MetaPrompt, Prompt[object]],
        answers: Answers,
        ledger: Ledger,
        deadline: Deadline | None,
        watch: Watch,
        working: Working = untold,
        overlap: Overlap,
        allow: Callable[[], None],
    ) -> None:
        self._adapter = adapter
        self._prompts = prompts
        self._answers = answers
        self._ledger = ledger
        self._deadline = deadline
        self._watch = watch
        self._working = working
        self._overlap = overlap
        self._allow = allow

    def reflect(
        self,
        position: str,
        description: ModuleDescription,
        records: Sequence[RolloutRecord],
        *,
        earlier: Mapping[str, Sequence[RolloutRecord]],
        refused: tuple[str, str] | None = None,
    ) -> Reply:
        """Return the model's reply.

        Args:
            position: where in the run; the key of the answer.
            description: the module.
            records: its rollouts; unscored ones are left out.
            earlier: better answers to the same examples, by example.
            refused: why the previous reply could not be used, and that reply.

        Raises:
            InvalidProposalError: the provider failed; the step goes on without a proposal.
            PermanentProviderError, LimitReachedError: the run cannot go on.
        """
        self._overlap.check()
        self._answers.accept_faults()
        self._allow()
        problem, previous = refused or ("", "")
        shown = [record for record in records if record.feedback is not None]
        params = reflection_params(
            description, shown, earlier=earlier, problem=problem, previous=previous
        )
        prompt = self._prompts[description.meta_prompt].bind(params)
        question = digest_text(prompt.render().text)
        for spent in self._answers.spent(position, question):
            self._ledger.replay(spent_from_json(spent, position))
        answer = self._answers.recall(position, question)
        if answer is None:
            self._working(position, 0, 1)
            reply = self._ask(position, question, prompt)
        else:
            reply, spent_then = _read(answer, position)
            self._ledger.replay(spent_then)
        self._ledger.count_reflection()
        if reply.fault:
            raise InvalidProposalError(
                RejectionReason.REFLECTION_FAILED, f"the reflection model failed: {reply.fault}"
            )
        return reply

    def _ask(self, position: str, question: HexDigest, prompt: Prompt[object]) -> Reply:
        session = self._watch.session(tags={"scope": "reflection"})
        try:
            with self._overlap.resting():
                response = self._adapter.evaluate(prompt, session=session, deadline=self._deadline)
        except PermanentProviderError:
            self._spend(position, question, session)
            raise
        except (ProviderError, CandidateError) as error:
            self._spend(position, question, session)
            reply = Reply(text="", finish_reason="", fault=joined(str(error)) or "no reason given")
            self._answers.hold(position, question, _answer(reply, ()))
            return reply
        except PromptgraftError:
            self._spend(position, question, session)
            raise
        reply = Reply(text=joined(response.text), finish_reason=response.finish_reason)
        spent = self._spent(session)
        self._answers.record(position, question, "reflection", _answer(reply, spent))
        self._ledger.count(spent)
        return reply

    def _spend(self, position: str, question: HexDigest, session: Session) -> None:
        """Count calls that no reply came of."""
        if spent := self._spent(session):
            self._answers.spend(position, question, spent_to_json(spent))
            self._ledger.count(spent)

    def _spent(self, session: Session) -> tuple[Spending, ...]:
        return spent_on(Role.REFLECTION, session.select_all(object), self._adapter.identity)


def _read(answer: Json, position: str) -> tuple[Reply, tuple[Spending, ...]]:
    match answer:
        case {
            "text": str(text),
            "finish_reason": str(finish_reason),
            "fault": str(fault),
            "spent": list(spent),
        }:
            reply = Reply(text=text, finish_reason=finish_reason, fault=fault)
            return reply, spent_from_json(spent, position)
    raise JournalCorruptError(
        f"the journal's record `{position}` is no reflection; restore the journal"
    )


def _answer(reply: Reply, spent: tuple[Spending, ...]) -> dict[str, Json]:
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "fault": reply.fault,
        "spent": spent_to_json(spent),
    }
