"""Asks questions side by side, each with one repair, and notices when too many fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

from promptgraft.algorithms.gradient.prompts import Asked, Params
from promptgraft.evals.spending import Role
from promptgraft.search.algorithm import Questions
from promptgraft.search.asks import Asking, Question, Reply, Together
from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.search.stops import UNSCORED_ALLOWANCE, FaultyStretch
from promptgraft.serde import HexDigest, digest
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.formatting import in_one_line
from promptgraft.text import clip, fenced

T = TypeVar("T")

FAILING_SHARE = 0.3
"""Share of the latest questions that may fail, beside a few, before the run ends."""

_MAX_PROBLEM_CHARS = 2_000
_MAX_PREVIOUS_CHARS = 8_000
# A reply that could be read, and holds a text that cannot be used, is no failed question.
_UNREADABLE = {
    RejectionReason.UNPARSABLE,
    RejectionReason.EMPTY,
    RejectionReason.UNUSABLE_TEXT,
    RejectionReason.TOO_LONG,
    RejectionReason.REFLECTION_FAILED,
}


@attrs.frozen(kw_only=True)
class Inquiry(Generic[T]):
    """One question with its repair, and how its reply is read.

    Attributes:
        positions: of the question and of its repair.
        key: which question.
        params: what it shows.
        role: what it is for.
        read: makes what is wanted of a reply, or raises InvalidProposalError.
    """

    positions: tuple[str, str]
    key: Asked
    params: Params
    role: Role
    read: Callable[[Reply], T]

    def question(self, attempt: int, questions: Questions, refused: Refusal | None) -> Question:
        params = self.params
        if refused is not None:
            params = attrs.evolve(
                params,
                problem=in_one_line(refused.error.detail, _MAX_PROBLEM_CHARS),
                previous=fenced(clip(refused.text, _MAX_PREVIOUS_CHARS)) if refused.text else "",
            )
        return Question(
            position=self.positions[attempt],
            prompt=questions[self.key].bind(params),
            digest=digest([self.key, params]),
            role=self.role,
        )


@attrs.frozen
class Refusal:
    """Why a reply was refused, and the reply."""

    error: InvalidProposalError
    text: str


@attrs.define(kw_only=True)
class Outcome(Generic[T]):
    """What came of an inquiry.

    Attributes:
        found: what was made of the reply; None without a usable one.
        refusals: the replies that were refused.
    """

    found: T | None = None
    refusals: list[Refusal] = attrs.field(factory=list)

    @property
    def may_be_asked(self) -> bool:
        """Whether there is no usable reply yet, and the provider has not failed."""
        # With its retries, a provider is not asked a third time.
        silent = RejectionReason.REFLECTION_FAILED
        return self.found is None and all(one.error.reason is not silent for one in self.refusals)

    @property
    def failed(self) -> bool:
        """Whether there is no reply that could be read."""
        return self.found is None and self.refusals[-1].error.reason in _UNREADABLE


class Inquiries:
    """Has questions answered; a question that was answered before is not asked again.

    Args:
        questions: the questions as users have them.
    """

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._answered: dict[HexDigest, Reply] = {}
        self._stretch = FaultyStretch(FAILING_SHARE)

    def ask(self, inquiries: Sequence[Inquiry[T]]) -> Asking[list[Outcome[T]]]:
        """Return what came of each inquiry, in order.

        Raises:
            RunStoppedError: too many of the latest questions have failed.
        """
        outcomes: list[Outcome[T]] = [Outcome() for _ in inquiries]
        pairs = list(zip(inquiries, outcomes, strict=True))
        for attempt in (0, 1):
            waiting = [pair for pair in pairs if pair[1].may_be_asked]
            asked = [
                one.question(attempt, self._questions, told.refusals[-1] if attempt else None)
                for one, told in waiting
            ]
            replies = yield from self._replies(asked)
            for (one, told), question in zip(waiting, asked, strict=True):
                reply = replies[question.position]
                try:
                    told.found = one.read(reply)
                except InvalidProposalError as error:
                    told.refusals.append(Refusal(error, reply.text))
                else:
                    self._answered[question.digest] = reply
        self._watch(outcomes)
        return outcomes

    def _replies(self, asked: Sequence[Question]) -> Asking[dict[str, Reply]]:
        known = {
            one.position: self._answered[one.digest]
            for one in asked
            if one.digest in self._answered
        }
        new = [one for one in asked if one.position not in known]
        replies: Sequence[Reply] = (yield from Together(new)) if new else ()
        return known | {one.position: reply for one, reply in zip(new, replies, strict=True)}

    def _watch(self, outcomes: Sequence[Outcome[T]]) -> None:
        self._stretch.add([[told.failed for told in outcomes]])
        if self._stretch.is_too_faulty:
            latest = next(told for told in reversed(outcomes) if told.failed)
            raise RunStoppedError(
                StopReason.REFLECTION_FAILED,
                f"{self._stretch.unscored} of the latest {self._stretch.rollouts} questions have "
                f"no usable reply, more than {FAILING_SHARE:.0%} and {UNSCORED_ALLOWANCE}; the "
                f"last: {latest.refusals[-1].error.detail}",
            )
