"""One reflection: a model is shown a module and its rollouts, and proposes a new text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter, Usage
from promptgraft.errors import (
    CandidateError,
    JournalCorruptError,
    PermanentProviderError,
    ProviderError,
)
from promptgraft.optimizers.answers import Answers
from promptgraft.optimizers.gepa.prompts import reflection_params
from promptgraft.optimizers.ledger import Ledger, Role
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.optimizers.text import joined
from promptgraft.optimizers.types import MetaPrompt, ModuleDescription, RolloutRecord
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session
from promptgraft.serde import Json, digest_text


@attrs.frozen(kw_only=True)
class Reply:
    """What the reflection model replied."""

    text: str
    finish_reason: str


class Reflector:
    """Asks the reflection model, once for each position in the run.

    Args:
        adapter: answers.
        prompts: the meta-prompts.
        answers: what is recorded already, and where new answers go.
        ledger: counts every reflection.
        deadline: handed to the adapter.
    """

    def __init__(
        self,
        adapter: ProviderAdapter,
        *,
        prompts: Mapping[MetaPrompt, Prompt[object]],
        answers: Answers,
        ledger: Ledger,
        deadline: Deadline | None,
    ) -> None:
        self._adapter = adapter
        self._prompts = prompts
        self._answers = answers
        self._ledger = ledger
        self._deadline = deadline

    def reflect(
        self,
        position: str,
        description: ModuleDescription,
        records: Sequence[RolloutRecord],
        *,
        refused: tuple[str, str] | None = None,
    ) -> Reply:
        """Return the model's reply.

        Args:
            position: where in the run; the key of the answer.
            description: the module.
            records: its rollouts; unscored ones are left out.
            refused: why the previous reply could not be used, and that reply.

        Raises:
            InvalidProposalError: the provider failed; the step goes on without a proposal.
            PermanentProviderError, DeadlineExceededError: the run cannot go on.
        """
        self._answers.accept_faults()
        problem, previous = refused or ("", "")
        shown = [record for record in records if record.feedback is not None]
        params = reflection_params(description, shown, problem=problem, previous=previous)
        prompt = self._prompts[description.meta_prompt].bind(params)
        question = digest_text(prompt.render().text)
        answer = self._answers.recall(position, question)
        if answer is None:
            answer = self._ask(prompt)
            if answer.get("fault"):
                self._answers.hold(position, question, answer)
            else:
                self._answers.record(position, question, "reflection", answer)
        return self._read(answer, position)

    def _ask(self, prompt: Prompt[object]) -> dict[str, Json]:
        session = Session(tags={"scope": "reflection"})
        try:
            response = self._adapter.evaluate(prompt, session=session, deadline=self._deadline)
        except PermanentProviderError:
            raise
        except (ProviderError, CandidateError) as error:
            return _answer(PromptResponse(text=""), fault=str(error) or type(error).__name__)
        return _answer(response)

    def _read(self, answer: Json, position: str) -> Reply:
        match answer:
            case {
                "text": str(text),
                "finish_reason": str(finish_reason),
                "fault": str(fault),
                "usage": [int(sent), int(received), int(cached)],
            }:
                usage = Usage(input_tokens=sent, output_tokens=received, cached_tokens=cached)
                self._ledger.count(Role.REFLECTION, usage)
            case _:
                raise JournalCorruptError(
                    f"the journal's record `{position}` is no reflection; restore the journal"
                )
        if fault:
            raise InvalidProposalError(
                RejectionReason.REFLECTION_FAILED, f"the reflection model failed: {fault}"
            )
        return Reply(text=text, finish_reason=finish_reason)


def _answer(response: PromptResponse[object], *, fault: str = "") -> dict[str, Json]:
    usage = response.usage
    return {
        "text": joined(response.text),
        "finish_reason": response.finish_reason,
        "fault": joined(fault),
        "usage": [usage.input_tokens, usage.output_tokens, usage.cached_tokens],
    }
