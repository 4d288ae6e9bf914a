"""A question to the reflection model with its repair, until it has led to a usable text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from promptgraft.algorithms.gepa.attempt import Attempt, Changes
from promptgraft.algorithms.gepa.prompts import PUBLISHED
from promptgraft.search.acceptance import Change
from promptgraft.search.asks import Question, Reply
from promptgraft.search.reflection import NOT_REFUSED, MetaPrompts, Refusal, question_on
from promptgraft.search.scores import Scorer
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.replies import JSON_TAG, TEXT_TAG, parse_reply
from promptgraft.targets.text_lines import SEARCH, edited
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

Part: TypeAlias = tuple[Module, ModuleDescription]
"""A module, with its description in the parent."""


def questions_of(questions: MetaPrompts, *, as_published: bool) -> MetaPrompts:
    """Return the questions by kind of part; on sections, the published one if that is asked for."""
    if not as_published:
        return questions
    return {**questions, MetaPrompt.SECTION: questions[PUBLISHED.key]}


class Grafting(Protocol):
    """What a draft needs to turn a reply into changes."""

    def graft(
        self,
        attempt: Attempt,
        onto: Candidate,
        part: Part,
        text: str,
        *,
        may_be_old: bool = False,
    ) -> Change:
        """Return the change of a part.

        Raises:
            InvalidProposalError: the text cannot be used.
        """
        ...

    def check_new(self, attempt: Attempt, child: Candidate) -> None:
        """Check that a candidate had not been tried when the attempt began.

        Raises:
            InvalidProposalError: it had.
        """
        ...


@attrs.define(kw_only=True)
class Draft:
    """The question on one part, and what has come of it.

    Attributes:
        attempt: the attempt that it belongs to.
        parts: the parts that may be changed: one, or several if the model is to choose.
        records: the rollouts that it shows.
        earlier: better answers to the same examples, by example id.
        objectives: what the weighted scores are made of, by example id.
        number: distinguishes the questions of an attempt.
        changes: the changes with usable texts, each grafted onto the one before it.
        refusals: the refused replies, with the reasons.
        has_failed: whether there is no reply that could be repaired.
        is_partial: whether the last reply had edits that are still to be repaired.
    """

    attempt: Attempt
    parts: tuple[Part, ...]
    records: Sequence[RolloutRecord]
    earlier: Mapping[str, Sequence[RolloutRecord]] = attrs.field(factory=dict)
    objectives: Mapping[str, str] = attrs.field(factory=dict)
    number: int = 0
    changes: Changes = ()
    refusals: list[tuple[InvalidProposalError, str]] = attrs.field(factory=list)
    has_failed: bool = False
    is_partial: bool = False

    @property
    def name(self) -> str:
        """The names of all parts."""
        return names_of(module for module, _ in self.parts)

    @property
    def before(self) -> str:
        """The current text of the only part; empty for several parts."""
        return self.parts[0][1].text if len(self.parts) == 1 else ""

    @property
    def is_waiting(self) -> bool:
        """Whether the next question is to be asked."""
        return (self.is_partial or not self.changes) and not self.has_failed

    @property
    def refused(self) -> Refusal:
        """Why the last reply could not be used, and that reply."""
        if not self.refusals:
            return NOT_REFUSED
        error, text = self.refusals[-1]
        return error.detail, text

    def question(self, position: str, meta_prompts: MetaPrompts) -> Question:
        """Return the next question."""
        [(_, description)] = self.parts
        return question_on(
            position,
            description,
            self.records,
            meta_prompts=meta_prompts,
            earlier=self.earlier,
            objectives=self.objectives,
            refused=self.refused,
        )

    def read(self, reply: Reply, reflector: Grafting) -> None:
        """Make a child from a reply, or record why that is not possible."""
        try:
            reply.check()
            self.take(reply, reflector)
        except InvalidProposalError as error:
            self.refusals.append((error, reply.text))
            self.has_failed = bool(reply.fault) or self.needs_no_repair(error)

    def take(self, reply: Reply, reflector: Grafting) -> None:
        """Set the changes that a reply makes.

        Raises:
            InvalidProposalError: the reply cannot be used.
        """
        [(module, description)] = self.parts
        tag = JSON_TAG if description.as_json else TEXT_TAG
        text = parse_reply(reply.text, tag=tag, finish_reason=reply.finish_reason)
        if text.startswith(SEARCH):
            text = edited(description.text, text)
        part, parent = (module, description), self.attempt.candidate
        self.changes = (reflector.graft(self.attempt, parent, part, text),)

    def needs_no_repair(self, error: InvalidProposalError) -> bool:
        """Return whether a repair would only repeat the refused reply."""
        del error
        return False


def better_answers(
    earlier: Mapping[str, Sequence[tuple[float, RolloutRecord]]],
    records: Sequence[RolloutRecord],
    scorer: Scorer,
) -> Mapping[str, tuple[RolloutRecord, ...]]:
    """Return, for each record, the earlier answers with a higher score."""
    better = {}
    for record in records if earlier else ():
        own_score = scorer.score(record)
        better[record.example_id] = tuple(
            answer
            for score, answer in earlier.get(record.example_id, ())
            if own_score is not None and score > own_score
        )
    return better
