"""Asking questions in parallel, each with one repair, and reading the replies strictly."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from promptgraft.algorithms.gradient.prompts import Params, QuestionKey
from promptgraft.evals.spending import Role
from promptgraft.ground.serde import HexDigest, Json, digest
from promptgraft.ground.text import clip, fenced, listed
from promptgraft.search.algorithm import Questions
from promptgraft.search.asks import Asking, Question, Reply, Together
from promptgraft.search.round_events import Blame, Problem, Severity
from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.search.stops import UNSCORED_ALLOWANCE, FaultyStretch
from promptgraft.targets.base import InvalidProposalError, RejectionReason, unreadable
from promptgraft.targets.formatting import in_one_line
from promptgraft.targets.json_reply import fields_in, read_value, text_in, unfit
from promptgraft.targets.replies import JSON_TAG, Edit, new_text
from promptgraft.targets.types import ModuleDescription

MOST_PROBLEMS = 20
"""Maximum number of entries in a list of a reply."""
MAX_PROBLEM_CHARS = 2_000
"""Maximum characters of a problem, and of the reason for a refusal."""
_HANDLE_CHARS = 80
_AROUND = " []*`"
"""What models write around a handle or a severity."""


Blames = tuple[tuple[Blame, ...], tuple[Blame, ...]]
"""The blame in a reply: of parts by name, and of earlier steps by id."""


def read_blame(
    reply: Reply, *, parts: Mapping[str, str], before: Mapping[str, str] | None
) -> Blames:
    """Return the blame in a reply.

    Args:
        reply: the reply.
        parts: names of the parts that may be blamed, by handle.
        before: ids of the steps to which problems may be passed back, by handle; None if the
            question did not ask for that.

    Raises:
        InvalidProposalError: naming the entry, what was expected and what was found.
    """
    # Where there is nothing to list, models leave the list out.
    expected_fields = ("blame",) if before is None else ("blame", "hand_on")
    fields = fields_in(_object(reply), (), optional=expected_fields)
    if not fields:
        raise unreadable(f"expected {listed(expected_fields)}, found an empty object")
    return (
        tuple(_blames(fields.get("blame", []), "blame", "text", parts)),
        tuple(_blames(fields.get("hand_on", []), "hand_on", "step", before or {})),
    )


def read_problems(reply: Reply) -> tuple[Problem, ...]:
    """Return the problems of a reply, the most severe first; there is at least one.

    Raises:
        InvalidProposalError: naming the entry, what was expected and what was found.
    """
    entries = _entries(fields_in(_object(reply), ("problems",))["problems"], "problems")
    if not entries:
        raise unreadable("problems: expected at least one, found none")
    problems = []
    for where, entry in entries:
        fields = fields_in(entry, ("severity", "problem"), where=f"{where}: ")
        severity, text = _severity(fields, where), _problem(fields, where)
        problems.append(Problem(severity=severity, text=text))
    return tuple(sorted(problems, key=lambda one: one.severity))


def read_patch(reply: Reply, part: ModuleDescription, *, tag: str) -> Edit:
    """Return the new text of a part in a reply, and the reason for it.

    Both may be in one object of JSON, as journals of earlier versions have them.

    Raises:
        InvalidProposalError: there is no text, more than one, or an edit does not fit.
    """
    with contextlib.suppress(InvalidProposalError):
        fields = fields_in(_object(reply), ("text", "why"))
        value, why = fields["text"], text_in(fields["why"], "why")
        value = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
        _check_length(why, "why")
        if (text := text_in(value, "text").strip("\n")).strip():
            return Edit(text, why.strip())
    reply.check()
    return new_text(
        reply.text,
        part.text,
        tag=tag,
        finish_reason=reply.finish_reason,
        part=part.name,
        others=[name for name, _ in part.neighbours],
    )


def _object(reply: Reply) -> Json:
    reply.check()
    return read_value(new_text(reply.text, tag=JSON_TAG, finish_reason=reply.finish_reason).text)


def _blames(value: Json, name: str, handle: str, parts: Mapping[str, str]) -> Iterator[Blame]:
    for where, entry in _entries(value, name):
        fields = fields_in(entry, (handle, "severity", "problem"), where=f"{where}: ")
        handle_text = text_in(fields[handle], f"{where}: {handle}")
        bare_handle = handle_text.strip(_AROUND).upper()
        if bare_handle not in parts:
            there = f"there are {listed(parts)}" if parts else "there is none"
            shown_handle = clip(json.dumps(handle_text), _HANDLE_CHARS, around=" ")
            raise unreadable(f"{where}: {handle}: no handle {shown_handle}; {there}")
        severity, text = _severity(fields, where), _problem(fields, where)
        yield Blame(to=parts[bare_handle], severity=severity, text=text)


def _entries(value: Json, name: str) -> Sequence[tuple[str, Json]]:
    """Return the entries of a list, each with its name in messages."""
    if not isinstance(value, list):
        raise unfit(f"{name}: expected a list of objects", value)
    if len(value) > MOST_PROBLEMS:
        raise unreadable(f"{name}: expected at most {MOST_PROBLEMS} entries, found {len(value)}")
    return [(f"{name} {number}", entry) for number, entry in enumerate(value, start=1)]


def _severity(fields: Mapping[str, Json], where: str) -> Severity:
    severity_text = fields["severity"]
    try:
        return Severity(text_in(severity_text, f"{where}: severity").strip(_AROUND).upper())
    except ValueError:
        expected = f"{where}: severity: expected one of {listed(Severity)}"
        raise unfit(expected, severity_text) from None


def _problem(fields: Mapping[str, Json], where: str) -> str:
    text = text_in(fields["problem"], f"{where}: problem").strip()
    if not text:
        raise unreadable(f"{where}: problem: expected a text, found none")
    _check_length(text, f"{where}: problem")
    return text


def _check_length(text: str, where: str) -> None:
    if len(text) > MAX_PROBLEM_CHARS:
        raise InvalidProposalError(
            RejectionReason.TOO_LONG,
            f"{where}: {len(text)} characters; at most {MAX_PROBLEM_CHARS} are allowed",
        )


T = TypeVar("T")

FAILING_SHARE = 0.3
"""Share of the latest questions that may fail, plus a few, before the run ends."""

_MAX_PREVIOUS_CHARS = 8_000
# A readable reply whose text is refused for other reasons is not a failed question.
_UNREADABLE = {
    RejectionReason.UNPARSABLE,
    RejectionReason.EMPTY,
    RejectionReason.UNUSABLE_TEXT,
    RejectionReason.TOO_LONG,
    RejectionReason.REFLECTION_FAILED,
}


@attrs.frozen(kw_only=True)
class Inquiry(Generic[T]):
    """One question with its repair, and the reader of its reply.

    Attributes:
        positions: the positions of the question and of its repair.
        key: the key of the question.
        params: its parameters.
        role: its purpose.
        read: converts a reply, or raises InvalidProposalError.
        digested: the parameters as journals have digested them; None for those that are shown.
        former: the parameters as journals of earlier versions have digested them.
    """

    positions: tuple[str, str]
    key: QuestionKey
    params: Params
    role: Role
    read: Callable[[Reply], T]
    digested: Params | None = None
    former: Params | None = None

    def question(self, attempt: int, questions: Questions, refused: Refusal | None) -> Question:
        refusal: dict[str, str] = {}
        if refused is not None:
            refusal["problem"] = in_one_line(refused.error.detail, MAX_PROBLEM_CHARS)
            clipped = clip(refused.text, _MAX_PREVIOUS_CHARS)
            refusal["previous"] = fenced(clipped) if refused.text else ""
        former = None
        if self.former is not None:
            former = digest([self.key, attrs.evolve(self.former, **refusal)])
        return Question(
            position=self.positions[attempt],
            prompt=questions[self.key].bind(attrs.evolve(self.params, **refusal)),
            digest=digest([self.key, attrs.evolve(self.digested or self.params, **refusal)]),
            former=former,
            role=self.role,
        )


@attrs.frozen
class Refusal:
    """Why a reply was refused, and the reply."""

    error: InvalidProposalError
    text: str


@attrs.define(kw_only=True)
class InquiryOutcome(Generic[T]):
    """The outcome of an inquiry.

    Attributes:
        found: the converted reply; None if there is no usable one.
        refusals: the refused replies.
    """

    found: T | None = None
    refusals: list[Refusal] = attrs.field(factory=list)

    @property
    def may_be_asked(self) -> bool:
        """Whether there is no usable reply yet, and the provider has not failed."""
        # A repair cannot help a provider that failed in spite of its retries.
        silent = RejectionReason.REFLECTION_FAILED
        return self.found is None and all(
            refusal.error.reason is not silent for refusal in self.refusals
        )

    @property
    def failed(self) -> bool:
        """Whether there is no readable reply."""
        return self.found is None and self.refusals[-1].error.reason in _UNREADABLE


class Inquiries:
    """Asks questions; a question that was answered in an earlier round is not asked again.

    Args:
        questions: the questions, with the user's overrides.
    """

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._answered: dict[HexDigest, Reply] = {}
        self._stretch = FaultyStretch(FAILING_SHARE)

    def ask(self, inquiries: Sequence[Inquiry[T]]) -> Asking[list[InquiryOutcome[T]]]:
        """Return the outcome of each inquiry, in order.

        Raises:
            RunStoppedError: too many of the latest questions have failed.
        """
        outcomes: list[InquiryOutcome[T]] = [InquiryOutcome() for _ in inquiries]
        pairs = list(zip(inquiries, outcomes, strict=True))
        # All questions first, then all repairs, because those of an attempt are asked in parallel.
        for attempt in (0, 1):
            waiting = [pair for pair in pairs if pair[1].may_be_asked]
            questions = [
                inquiry.question(
                    attempt, self._questions, outcome.refusals[-1] if attempt else None
                )
                for inquiry, outcome in waiting
            ]
            replies = yield from self._replies(questions)
            for (inquiry, outcome), question in zip(waiting, questions, strict=True):
                reply = replies[question.position]
                try:
                    outcome.found = inquiry.read(reply)
                except InvalidProposalError as error:
                    outcome.refusals.append(Refusal(error, reply.text))
                else:
                    # Usable replies only: a later round asks again where one was refused.
                    self._answered[question.digest] = reply
        self._watch(outcomes)
        return outcomes

    def _replies(self, questions: Sequence[Question]) -> Asking[dict[str, Reply]]:
        cached = {
            question.position: self._answered[question.digest]
            for question in questions
            if question.digest in self._answered
        }
        new = [question for question in questions if question.position not in cached]
        replies: Sequence[Reply] = (yield from Together(new)) if new else ()
        return cached | {
            question.position: reply for question, reply in zip(new, replies, strict=True)
        }

    def _watch(self, outcomes: Sequence[InquiryOutcome[T]]) -> None:
        self._stretch.add([[outcome.failed for outcome in outcomes]])
        if self._stretch.is_too_faulty:
            latest = next(outcome for outcome in reversed(outcomes) if outcome.failed)
            raise RunStoppedError(
                StopReason.REFLECTION_FAILED,
                f"{self._stretch.unscored} of the latest {self._stretch.rollouts} questions have "
                f"no usable reply, more than {FAILING_SHARE:.0%} and {UNSCORED_ALLOWANCE}; the "
                f"last: {latest.refusals[-1].error.detail}",
            )
