"""Progress of runs and evaluations: lines on standard error, or events as JSON."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self, TextIO
from urllib.parse import unquote

import click

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.output import echo
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.serde import Json
from promptgraft.ground.text import (
    change,
    counted,
    difference,
    dollars,
    duration,
    score,
    visible_line,
)
from promptgraft.runs import RunHistory
from promptgraft.runs.event_file import EventLines, encoded, encoded_json
from promptgraft.search import events
from promptgraft.search.events import CallWaits, Event, RunPlanned, RunProgress, StopFileRemoved
from promptgraft.search.place import DOING, QUESTIONS, ROUNDS, Phase
from promptgraft.search.stopping import stop_sentence

SECONDS = 10.0
"""The silence after which a command says what it waits for; then after twice as long, and so on."""


class Silence:
    """A context manager that breaks the silence of a slow model, agent or server.

    Args:
        say: prints a line; called from a thread.
        what: returns what the command waits for now; empty if it waits for nothing.
        seconds: the length of the first silence.
    """

    def __init__(
        self, say: Callable[[str], None], what: Callable[[], str], *, seconds: float = SECONDS
    ) -> None:
        self._say = say
        self._what = what
        self._seconds = seconds
        self._stirred = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def stir(self) -> None:
        """Record that something happened."""
        self._stirred.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._stirred.set()
        self._thread.join()

    def _watch(self) -> None:
        silent, limit = 0.0, self._seconds
        while not self._has_ended:
            if self._stirred.wait(limit):
                self._stirred.clear()
                silent, limit = 0.0, self._seconds
                continue
            silent += limit
            limit = silent
            if what := self._what():
                self._say(f"still waiting for {what} ({duration(silent)})")


_ROLLOUTS_PER_LINE = 250
_LONGEST_SILENCE = timedelta(seconds=60)


class Progress:
    """Base of the ways to show progress, a context manager; by itself it shows nothing.

    Events may arrive from several threads. ``run`` is the history of the run so far.
    """

    def __init__(self, clock: Clock | None = None, *, every: float = 1.0) -> None:
        self._clock = clock or SystemClock()
        self._lines = EventLines(self._clock, every=every)
        # Reentrant: `on_event` holds it when it calls `on_line`.
        self._lock = threading.RLock()
        self.run: RunHistory = RunHistory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def on_event(self, event: object) -> None:
        """Show an event of a run in this process."""
        with self._lock:
            for line in self._lines.of(event):
                self.on_line(line)

    def on_line(self, line: Event) -> None:
        """Show a line of ``events.jsonl``, of a run in any process."""

    def say(self, what: str) -> None:
        """Show a message that is no event of the run."""


class PlainProgress(Progress):
    """Writes one line per important event; for pipes, logs and plain terminals.

    Consecutive steps that do not change the best candidate are summarized in one line.
    """

    def __init__(self, title: str, clock: Clock | None = None, *, silence: float = SECONDS) -> None:
        super().__init__(clock)
        self._title = title
        self._best = ""
        self._quiet: list[tuple[StepEvent, str]] = []
        self._shown = 0
        self._shown_at: datetime | None = None
        self._broken = False
        self._explained = False
        self._silence = Silence(self.say, self._awaited, seconds=silence)

    def __enter__(self) -> Self:
        self.say(self._title)
        self._silence.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._silence.__exit__(*error)

    def on_line(self, line: Event) -> None:
        self._silence.stir()
        with self._lock:
            self.run.add(line)
            now = line.time if isinstance(line.time, datetime) else None
            line_text = self._lines_now(line) or self._position_line(line, now)
            if line_text:
                self._shown, self._shown_at = self.run.rollouts, now
            for text in (*line_text, *warnings(line)):
                self.say(text)
            if not self._explained and any(ESTIMATED[0] in text for text in line_text):
                self._explained = True
                self.say(ESTIMATED)

    def say(self, what: str) -> None:
        if self._broken:
            return
        try:
            echo(visible_line(what), error=True)
        except OSError:
            # The reader has closed the pipe; the run itself continues.
            self._broken = True

    def _lines_now(self, line: Event) -> list[str]:
        """Return the lines to write now: those held back so far, and that of the event."""
        text = sentence(line, self.run)
        if isinstance(line, StepEvent):
            is_news = isinstance(line, events.MutationAccepted | events.MergeAccepted)
            if not is_news or best(self.run) == self._best:
                self._quiet.append((line, text))
                return []
        return [*self._held_back(), text] if text else []

    def _awaited(self) -> str:
        """Return what the run waits for, in words; empty once it has ended."""
        with self._lock:
            run = self.run
            # Work that began right after other work has no line yet.
            for line in self._lines.rest():
                run.add(line)
            if run.ended is not None:
                return ""
            calls = counted(run.in_flight, "answer") if run.in_flight else "an answer"
            return f"{calls}, {doing(run)}"

    def _held_back(self) -> list[str]:
        self._best, quiet, self._quiet = best(self.run), self._quiet, []
        texts = [line_text for _, line_text in quiet if line_text]
        if len(texts) < 2:
            return texts
        first, last = quiet[0][0].step, quiet[-1][0].step
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        kinds = Counter(type(line) for line, _ in quiet)
        rewrites = events.Rewrites(
            kept=sum(
                line.rewrites for line, _ in quiet if isinstance(line, events.MutationAccepted)
            ),
            combined=kinds[events.MergeAccepted],
            dropped={"": kinds[events.MutationRejected]},
        )
        failed = kinds[events.MergeRejected]
        rest = f", {failed:,} not combined" if failed else ""
        none_beats = "; none beats the best" if rewrites.kept or rewrites.combined else ""
        return [f"{steps}: rewrites: {rewrites.short}{rest}{none_beats}"]

    def _position_line(self, line: Event, now: datetime | None) -> list[str]:
        run = self.run
        if not isinstance(line, RunProgress):
            return []
        silent = bool(now and self._shown_at and now - self._shown_at >= _LONGEST_SILENCE)
        if not silent and run.rollouts - self._shown < _ROLLOUTS_PER_LINE:
            return []
        # "Best" only once all cases are tried: before, other texts had other cases.
        head = "ahead with" if any(run.estimated) else "best so far"
        return [*self._held_back(), f"step {run.steps}: {head} {best(run)}, {used(run)}"]


class EventStream(Progress):
    """Writes events to a stream as lines of JSON, as they happen."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        # Kept, because `sys.stdout` is redirected while the code of a job runs.
        self._stream: TextIO | None = stream

    def on_line(self, line: Event) -> None:
        if self._stream is not None:
            try:
                click.echo(encoded(line), file=self._stream)
            except OSError:
                # The reader has closed the pipe; the run itself continues.
                self._stream = None

    def end(self, result: dict[str, Json]) -> None:
        """Write the last line, the result of the run."""
        click.echo(encoded_json(result), file=self._stream)


StepEvent = (
    events.MutationAccepted | events.MutationRejected | events.MergeAccepted | events.MergeRejected
)
"""The outcome of a step."""

ESTIMATED = "~ is an estimate, from some of the cases"
"""Explains the mark; shown once, where the mark first appears."""

_LONGEST_DETAIL = 160


def sentence(event: Event, run: RunHistory) -> str:
    """Describe an event in one line; empty for minor ones. ``run`` already includes the event."""
    match event:
        case RunPlanned():
            return event.line
        case events.CandidateAdded() if event.candidate == 0:
            return f"your prompt: {baseline_score(event)}{_paid(run)}"
        case events.MutationAccepted():
            return f"step {event.step}: {_kept_text(event, run)}{_lead(event, run)}{_paid(run)}"
        case events.MutationRejected() if event.final:
            return f"step {event.step}: new text for {event.module} dropped: {_why(event)}"
        case events.MergeAccepted():
            return (
                f"step {event.step}: texts {_parents(event)} combined: {_scored(event, run)}"
                f"{_lead(event, run)}{_paid(run)}"
            )
        case events.MergeRejected():
            return f"step {event.step}: texts {_parents(event)} not combined: {_why(event)}"
        case CallWaits():
            return waiting(event.model, event.seconds, event.reason)
        case StopFileRemoved():
            return f"removed the stop file {event.path} of an earlier run"
        case events.RunEnded():
            return _ended(event)
    return ""


def brief(event: Event, run: RunHistory) -> str:
    """Describe an event for the panel: short, and safe to cut off."""
    match event:
        case RunPlanned() | CallWaits():
            return ""
        case events.MutationAccepted():
            return f"step {event.step}: {_scored(event, run)}{_lead(event, run)}, {event.module}"
        case events.MutationRejected() if event.final:
            return f"step {event.step}: dropped, {event.reason}: {event.module}"
        case events.MergeAccepted():
            return f"step {event.step}: combined {_parents(event)}, {_scored(event, run)}"
        case events.MergeRejected():
            return f"step {event.step}: {_parents(event)} not combined, {event.reason}"
    return sentence(event, run)


def warnings(event: Event) -> tuple[str, ...]:
    """Return the warnings of a plan, one line each; nothing for other events."""
    warning_list = event.warnings if isinstance(event, RunPlanned) else ()
    return tuple(f"warning: {warning}" for warning in warning_list)


def waiting(model: str, seconds: float | None, reason: str) -> str:
    """Describe why a call waits, and for how long."""
    length = "" if seconds is None else f" {seconds:.0f} s"
    return f"waiting{length} for {model}: {reason}"


def doing(run: RunHistory) -> str:
    """Describe what the run is doing now."""
    if run.ended:
        return "ended"
    progress = f", {run.done} of {run.total}" if run.total > 1 else ""
    return f"{_phase(run)}{progress}"


def _phase(run: RunHistory) -> str:
    place = run.place
    if place is None:
        return "starting"
    what = DOING[place.phase]
    if place.phase is Phase.REFLECT and place.count % 2:
        what = "repairing the new text"
    elif place.phase in (Phase.PARENT, Phase.CHILD) and place.count:
        what = "testing both texts again"
    if not place.step:
        return what
    if place.phase in ROUNDS:
        about = f", {unquote(place.leg)}" if place.phase in QUESTIONS else ""
        return f"round {place.step}: {what}{about}"
    proposal = f", proposal {place.proposal}" if place.proposal else ""
    return f"step {place.step}{proposal}: {what}"


def baseline_score(baseline: events.CandidateAdded) -> str:
    """Return the score of the baseline in words."""
    scored = [value for value in baseline.scores if value is not None]
    first = "first " if baseline.estimated else ""
    if scored and all(value in (0, 1) for value in scored):
        return f"{sum(scored):g} of the {first}{counted(len(scored), 'case')} right"
    on = f" on the {first}{counted(len(scored), 'case')}" if scored else ""
    return f"score {score(baseline.mean)}{on}"


def best(run: RunHistory) -> str:
    """Return the score of the best candidate so far; its gain once both have every score."""
    if run.sides is None:
        return score(None)
    gained = "" if any(run.estimated) else difference(*run.means)
    return f"{mean_of(run.sides[1])} ({gained})" if gained else mean_of(run.sides[1])


def mean_of(candidate: events.CandidateAdded) -> str:
    """Return the mean of a candidate; for an estimate, with the number of cases behind it.

    If every score is 0 or 1, an estimate is shown as a count such as ``3 of 4``.
    """
    scored = [value for value in candidate.scores if value is not None]
    if not candidate.estimated or not scored:
        return score(candidate.mean, estimated=candidate.estimated)
    if all(value in (0, 1) for value in scored):
        return f"{sum(scored):g} of {len(scored)}"
    return f"{score(candidate.mean)} on {counted(len(scored), 'case')}"


def used(run: RunHistory) -> str:
    """Return the test calls used so far and their cost."""
    of = f" of {run.budget:,}" if run.budget else ""
    calls = f"{run.rollouts:,}{of} test calls"
    return f"{calls}, {spent(run)}" if run.cost else calls


def _paid(run: RunHistory) -> str:
    return f", {spent(run)}" if run.cost else ""


def spent(run: RunHistory) -> str:
    """Return the cost so far, and the expected total cost if it is known."""
    if run.cost is None or not run.expected_cost:
        return dollars(run.cost)
    return f"{dollars(run.cost)} of about {dollars(run.expected_cost)}"


def _kept_text(event: events.MutationAccepted, run: RunHistory) -> str:
    """Describe an accepted text by its scores on the minibatch and on validation cases."""
    gained = ""
    if event.parent_score is not None and event.child_score is not None:
        gained = f"{event.parent_score:.2f} -> {event.child_score:.2f} on its cases, "
    return f"new text for {event.module}: {gained}{_scored(event, run)}"


def _scored(event: events.MutationAccepted | events.MergeAccepted, run: RunHistory) -> str:
    return f"{mean_of(run.candidates[event.candidate])} in validation"


def _lead(event: events.MutationAccepted | events.MergeAccepted, run: RunHistory) -> str:
    if event.candidate != run.best:
        return ""
    lead = ", ahead so far" if any(run.estimated) else ", best so far"
    if isinstance(event, events.MutationAccepted) and _is_behind_parent(event, run):
        # Gains on a minibatch count half in a race: see `Racing`.
        return f"{lead} by the gain on its cases"
    return lead


def _is_behind_parent(event: events.MutationAccepted, run: RunHistory) -> bool:
    """Whether fewer validation cases were right than with the text that was changed."""
    before, now = run.candidates[event.parent].mean, run.candidates[event.candidate].mean
    return before is not None and now is not None and now < before


def _parents(event: events.MergeAccepted | events.MergeRejected) -> str:
    return " and ".join(map(str, event.parents))


def _why(event: events.MutationRejected | events.MergeRejected) -> str:
    detail = event.detail
    if len(detail) > _LONGEST_DETAIL:
        detail = f"{detail[:_LONGEST_DETAIL]}…"
    return f"{event.reason}; {detail}" if detail else str(event.reason)


def _ended(event: events.RunEnded) -> str:
    """Describe the end of a run: its verdict, the gain, the calls, and why it stopped."""
    if event.best_mean is None:
        return f"{_stopped(event)} before the first result"
    held_out = event.held_out.gain if event.held_out is not None else None
    if held_out is not None and held_out.interval:
        means = change(held_out.mean_before, held_out.mean_after)
        figures = f"{means} on {counted(held_out.cases, 'test case')} ({held_out.interval})"
    else:
        marks = event.baseline_estimated, event.best_estimated
        figures = f"{change(event.baseline_mean, event.best_mean, estimated=marks)} in validation"
    return f"{event.verdict}: {figures}, {counted(event.rollouts, 'test call')}; {_stopped(event)}"


def _stopped(event: events.RunEnded) -> str:
    return f"stopped: {stop_sentence(event.stop_reason, event.stop_detail)}"


class EvalProgress:
    """Progress of an evaluation that reports only waits. Safe to share between threads.

    Args:
        total: the number of answers; None if that is not known.
        quiet: whether it reports nothing.
        silence: seconds without an answer after which it says what it waits for.
    """

    def __init__(
        self, total: int | None = None, *, quiet: bool = False, silence: float = SECONDS
    ) -> None:
        self._quiet = quiet
        self._expected = total
        self._asked = self._answered = 0
        self._counts = threading.Lock()
        self._silence = Silence(self._say, self._awaited, seconds=silence)

    def __enter__(self) -> Self:
        self._silence.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._silence.__exit__(*error)

    def begun(self) -> None:
        """Record that an answer was requested."""
        with self._counts:
            self._asked += 1

    def ended(self, attempt: CaseAttempt | None) -> None:
        """Record a finished attempt; None for one that raised."""
        with self._counts:
            self._answered += 1
        self._silence.stir()

    def waits(self, notice: CallWaiting) -> None:
        """Report that a call is waiting, and why."""
        self._silence.stir()
        self._say(waiting(notice.model, notice.seconds, notice.reason))

    def _awaited(self) -> str:
        in_flight = self._asked - self._answered
        of = "" if self._expected is None else f" of {self._expected:,}"
        return f"{counted(in_flight, 'answer')}, {self._answered:,}{of} are there"

    def _say(self, what: str) -> None:
        if not self._quiet:
            with contextlib.suppress(OSError):
                echo(visible_line(what), error=True)
