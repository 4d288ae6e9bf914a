"""The page of a round of a search by rounds: what failed, what was blamed, what was written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from promptgraft.runs.pages import page, plain_line, table, table_row, text_change
from promptgraft.search.round_events import (
    GradientsMerged,
    PatchWritten,
    QuestionUnanswered,
    RoundEnded,
    RoundEvent,
    RoundTrained,
    StepBlamed,
)
from promptgraft.search.scores import Score, mean_score
from promptgraft.text import clip, score

_LONGEST = 300


def round_page(events: Sequence[RoundEvent]) -> str:
    """Return the page of a round, of what it has told so far."""
    ended = next((one for one in events if isinstance(one, RoundEnded)), None)
    became = ended.decided if ended is not None else "the run ended within it"
    facts = [fact for event in events for fact in _facts(event)]
    return page(f"Round {events[0].step}: {became}", facts, _blocks(events))


def _facts(event: RoundEvent) -> Iterator[tuple[str, str]]:
    match event:
        case RoundTrained():
            failed = len({loss.case for loss in event.losses})
            yield "current candidate", str(event.current)
            yield "training cases", f"{len(event.cases)}, {failed} failed"
            yield "mean on them", score(mean_score(event.scores))
        case RoundEnded():
            yield from _means("on the failures", event.tried)
            yield from _means("on the validation set", event.validated)
            yield "decision", f"{event.decided}: {event.detail}"
            if event.candidate is not None:
                yield "new candidate", str(event.candidate)
            if event.stop:
                yield "the run ended", event.stop


def _means(where: str, means: tuple[Score, Score] | None) -> Iterator[tuple[str, str]]:
    if means is not None:
        yield where, f"{score(means[0])} -> {score(means[1])}"


def _blocks(events: Sequence[RoundEvent]) -> Iterator[str]:
    trained = [one for one in events if isinstance(one, RoundTrained)]
    losses = [loss for one in trained for loss in one.losses]
    yield from _listing(
        "What failed",
        ("case", "metric", "severity", "reason"),
        [(loss.case, loss.metric, loss.severity, loss.reason) for loss in losses],
    )
    yield from _listing(
        "What was blamed",
        ("case", "step", "blames", "severity", "problem"),
        [
            (one.case, f"{one.at} {one.node}".strip(), blame.to, blame.severity, blame.text)
            for one in events
            if isinstance(one, StepBlamed)
            for blame in (*one.blamed, *one.handed_on)
        ],
    )
    for event in events:
        match event:
            case GradientsMerged():
                yield f"## To mend in {plain_line(event.module)}"
                yield f"Blamed by {', '.join(map(plain_line, event.cases))}."
                said = (f"- {one.severity}: {_short(one.text)}" for one in event.problems)
                yield "\n".join(said)
            case PatchWritten():
                yield f"## New text of {plain_line(event.module)}"
                yield f"{_short(event.why)}"
                yield from text_change("", event.module, event.before, event.text)
    unanswered = [one for one in events if isinstance(one, QuestionUnanswered)]
    yield from _listing(
        "Questions without an answer",
        ("question", "why"),
        [(one.position, one.detail) for one in unanswered],
    )


def _listing(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"## {title}"
        yield "\n".join(table(head, (table_row([_short(one) for one in row]) for row in rows)))


def _short(text: str) -> str:
    return plain_line(clip(" ".join(text.split()), _LONGEST, around=" "))
