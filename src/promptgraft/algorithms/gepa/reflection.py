"""Reflections: a model is shown a module and its rollouts, and proposes a new text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter
from promptgraft.algorithms.gepa.prompts import reflection_params
from promptgraft.errors import (
    BudgetExhaustedError,
    CandidateError,
    JournalCorruptError,
    PermanentProviderError,
    PromptgraftError,
    ProviderError,
)
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session
from promptgraft.runtime.watch import Watch
from promptgraft.search.answers import Answers, Working, untold
from promptgraft.search.ledger import Ledger
from promptgraft.search.overlap import Overlap
from promptgraft.serde import HexDigest, Json, digest
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.spending import Role, Spending, spent_from_json, spent_on, spent_to_json
from promptgraft.targets.text import joined
from promptgraft.targets.types import MetaPrompt, ModuleDescription, RolloutRecord


@attrs.frozen(kw_only=True)
class Question:
    """What the reflection model is asked.

    Attributes:
        position: where in the run; the key of the answer.
        description: the module.
        records: its rollouts; unscored ones are left out.
        earlier: better answers to the same examples, by example.
        refused: why the previous reply could not be used, and that reply.
    """

    position: str
    description: ModuleDescription
    records: Sequence[RolloutRecord]
    earlier: Mapping[str, Sequence[RolloutRecord]]
    refused: tuple[str, str] | None = None


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

    def check(self) -> None:
        """Do nothing when there is a reply.

        Raises:
            InvalidProposalError: there is none.
        """
        if self.fault:
            raise InvalidProposalError(
                RejectionReason.REFLECTION_FAILED, f"the reflection model failed: {self.fault}"
            )


@attrs.define(kw_only=True)
class _Asked:
    """A question with what comes of it."""

    position: str
    prompt: Prompt[object]
    digest: HexDigest
    session: Session
    reply: Reply | None = None


class Reflector:
    """Asks the reflection model, once for each position in the run.

    Args:
        adapter: answers.
        prompts: the meta-prompts.
        answers: what is recorded already, and where new answers go.
        ledger: counts every reflection.
        deadline: handed to the adapter.
        watch: budget and notices of the run.
        working: is told when a reply is waited for.
        overlap: lets others work while replies are waited for.
        allow: is asked before each reflection with how many of the same step wait to be asked
            before it; raises when it is one too many.
        executor: asks side by side; None asks in turn.
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
        allow: Callable[[int], None],
        executor: Executor | None = None,
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
        self._executor = executor

    def reflect(self, questions: Sequence[Question]) -> list[Reply]:
        """Return the model's replies, in the order of the questions.

        Those that can be asked are, side by side. What ends the run is raised when all of them
        have ended.

        Raises:
            PermanentProviderError, LimitReachedError: the run cannot go on.
        """
        self._overlap.check()
        self._answers.accept_faults()
        asked: list[_Asked] = []
        limit: BudgetExhaustedError | None = None
        for question in questions:
            try:
                self._allow(sum(one.reply is None for one in asked))
            except BudgetExhaustedError as error:
                # One too many does not keep those before it from being asked.
                limit = error
                break
            asked.append(self._recalled(question))
        self._ask([one for one in asked if one.reply is None])
        if limit is not None:
            raise limit
        return [one.reply for one in asked if one.reply is not None]

    def _recalled(self, question: Question) -> _Asked:
        """Return a question with the reply that is recorded for it, if there is one."""
        description = question.description
        problem, previous = question.refused or ("", "")
        params = reflection_params(
            description,
            [record for record in question.records if record.feedback is not None],
            earlier=question.earlier,
            problem=problem,
            previous=previous,
        )
        prompt = self._prompts[description.meta_prompt].bind(params)
        # The meta-prompts are in the fingerprint, so nothing has to be rendered for a replay.
        asked = _Asked(
            position=question.position,
            prompt=prompt,
            digest=digest([description.meta_prompt, params]),
            session=self._watch.session(tags={"scope": "reflection"}),
        )
        position = asked.position
        for spent in self._answers.spent(position, asked.digest):
            self._ledger.replay(spent_from_json(spent, position))
        answer = self._answers.recall(position, asked.digest)
        if answer is not None:
            asked.reply, spent_then = _read(answer, position)
            self._ledger.replay(spent_then)
            self._ledger.count_reflection()
        return asked

    def _ask(self, asked: Sequence[_Asked]) -> None:
        for one in asked:
            self._working(one.position, 0, 1)
        if self._executor is not None and len(asked) > 1:
            self._ask_side_by_side(self._executor, asked)
            return
        for one in asked:
            self._take(one, partial(self._evaluate, one))

    def _evaluate(self, asked: _Asked) -> PromptResponse[object]:
        with self._overlap.resting():
            return self._adapter.evaluate(
                asked.prompt, session=asked.session, deadline=self._deadline
            )

    def _ask_side_by_side(self, executor: Executor, asked: Sequence[_Asked]) -> None:
        futures = {
            executor.submit(
                self._adapter.evaluate, one.prompt, session=one.session, deadline=self._deadline
            ): order
            for order, one in enumerate(asked)
        }
        failures: dict[int, PromptgraftError] = {}
        try:
            for future in self._overlap.as_ended(futures, self._deadline):
                if future.cancelled():
                    continue
                try:
                    self._take(asked[futures[future]], future.result)
                except PromptgraftError as error:
                    failures[futures[future]] = error
        finally:
            for future in futures:
                future.cancel()
        if failures:
            raise failures[min(failures)]
        if any(one.reply is None for one in asked):
            self._overlap.check()
            if self._deadline is not None:
                self._deadline.check()

    def _take(self, asked: _Asked, respond: Callable[[], PromptResponse[object]]) -> None:
        """Keep the reply to a question, or the fault that there is instead."""
        try:
            response = respond()
        except (ProviderError, CandidateError) as error:
            self._spend(asked)
            if isinstance(error, PermanentProviderError):
                raise
            reply = Reply(text="", finish_reason="", fault=joined(str(error)) or "no reason given")
            self._answers.hold(asked.position, asked.digest, _answer(reply, ()))
        except PromptgraftError:
            self._spend(asked)
            raise
        else:
            reply = Reply(text=joined(response.text), finish_reason=response.finish_reason)
            spent = self._spent(asked.session)
            self._answers.record(asked.position, asked.digest, "reflection", _answer(reply, spent))
            self._ledger.count(spent)
        asked.reply = reply
        self._ledger.count_reflection()

    def _spend(self, asked: _Asked) -> None:
        """Count calls that no reply came of."""
        if spent := self._spent(asked.session):
            self._answers.spend(asked.position, asked.digest, spent_to_json(spent))
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
