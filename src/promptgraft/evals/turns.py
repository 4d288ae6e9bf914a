"""Conversations: each turn is judged as a case of its own, and the verdicts become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import attrs

from promptgraft.evals.types import Answer, Case, Message, Speaker, Turn, Verdict
from promptgraft.text import clip

_LONGEST_REASON = 400


def turn_cases(case: Case) -> Iterator[Case]:
    """Yield each turn as a case, with the expected answers of the turns before it as context."""
    context = case.context
    for turn in case.turns:
        yield _as_case(case, turn, context)
        context = (*context, *_said(turn.user, turn.expected or ""))


def judged_turns(case: Case, answer: Answer) -> list[tuple[int, Case, Answer]]:
    """Return what is judged of a conversation: numbers of turns, turns as cases, answers.

    A conversation with a simulated user is judged where it ends, with what was said before.
    """
    found = []
    context = case.context
    for number, played in enumerate(answer.turns, 1):
        turn = case.turns[number - 1] if number <= len(case.turns) else Turn(user=played.query)
        if case.turns or number == len(answer.turns):
            found.append((number, _as_case(case, turn, context), played.answer))
        context = (*context, *_said(played.query, played.answer.text))
    return found


def over_turns(verdicts: Sequence[tuple[int, Verdict]], *, threshold: float) -> Verdict:
    """Return the verdict on a conversation: the mean over its turns, unscored if one of them is."""
    first = verdicts[0][1]
    if len(verdicts) == 1:
        return first
    scores = [verdict.score for _, verdict in verdicts if verdict.score is not None]
    score = fmean(scores) if len(scores) == len(verdicts) else None
    amounts = [verdict.amount for _, verdict in verdicts if verdict.amount is not None]
    passed = sum(verdict.passed is True for _, verdict in verdicts)
    lines = [f"{passed} of {len(verdicts)} turns pass", *(_line(*one) for one in verdicts)]
    return attrs.evolve(
        first,
        score=score,
        passed=None if score is None else score >= threshold,
        reason="\n".join(lines),
        amount=sum(amounts) if amounts else None,
    )


def _line(number: int, verdict: Verdict) -> str:
    word = {True: "passed", False: "failed", None: "unscored"}[verdict.passed]
    score = "" if verdict.score is None else f" {verdict.score:.4g}"
    reason = clip(" ".join(verdict.reason.split()), _LONGEST_REASON, around=" ")
    return f"turn {number} {word}{score}: {reason}"


def _as_case(case: Case, turn: Turn, context: tuple[Message, ...]) -> Case:
    return attrs.evolve(
        case,
        input=turn.user,
        expected=turn.expected,
        tools=turn.tools,
        turns=(),
        context=context,
    )


def _said(query: str, answer: str) -> tuple[Message, Message]:
    return Message(Speaker.USER, query), Message(Speaker.ASSISTANT, answer)
