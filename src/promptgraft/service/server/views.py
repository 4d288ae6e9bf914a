"""Views of jobs for the dashboard, which are updated by new events only."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.gains import Gain, Outcome, Statement, least_cases
from promptgraft.ground.serde import Json
from promptgraft.ground.text import counted
from promptgraft.runs.event_file import DAMAGED, decoded_or_damaged
from promptgraft.runs.history import RunHistory
from promptgraft.runs.report.data import ReportData, ReportSteps, RunUse
from promptgraft.runs.report.page import VERDICTS
from promptgraft.search.events import CandidateAdded, Event, Unknown
from promptgraft.service.jobs import Job, JobManager, JobState
from promptgraft.service.jobs.reporting import run_lines

_MOST_JOBS = 64
_MOST_LINES = 60
_MOST_COMMENTS = 200
_PAGE = 500

_WHAT = {
    "job_queued": "queued",
    "job_started": "started",
    "job_resumed": "taken up again",
    "job_paused": "paused",
    "job_recovered": "put back",
    "job_began_anew": "began anew",
    "job_completed": "completed",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
    "job_commented": "commented",
    "pause": "asked to pause",
    "resume": "resumed",
    "cancel": "asked to cancel",
    "change": "changed",
    "fork": "forked as",
    "apply": "applied to",
    "promote": "promoted to",
    "rollback": "rolled back",
}


def _time(event: Mapping[str, Json]) -> str:
    return str(event.get("time", ""))[:19].replace("T", " ")


@attrs.frozen(kw_only=True)
class Act:
    """An entry in the history of a job: an action of a user, or a change of state.

    Attributes:
        time: the time of its event.
        what: what happened, in a few words.
        by: name of a token or a worker; empty if there is none.
        asked: the action, or the name of the event.
    """

    time: str
    what: str
    by: str
    asked: str

    @classmethod
    def of(cls, said: Mapping[str, Json]) -> Act:
        """Return the entry of an event."""
        event = str(said["event"])
        name = str(said.get("what", event))
        by = str(said.get("by") or said.get("worker") or "")
        what = "submitted" if event == "job_queued" and "by" in said else _WHAT.get(name, name)
        place, reason = said.get("tag") or said.get("to"), said.get("reason")
        detail = f" {place}" if place else f": {reason}" if reason else ""
        return cls(time=_time(said), what=f"{what}{detail}", by=by, asked=name)


@attrs.frozen(kw_only=True)
class Comment:
    """What a user has said.

    Attributes:
        time: when.
        by: the name of the token.
        text: the comment.
        about: what it is about: empty for the job, `candidate 3`, or `case` and an id.
    """

    time: str
    by: str
    text: str
    about: str

    @classmethod
    def of(cls, said: Mapping[str, Json]) -> Comment:
        """Return the comment of an event."""
        names = ("by", "text", "about")
        return cls(time=_time(said), **{name: str(said.get(name) or "") for name in names})


_STATES: Mapping[JobState, tuple[str, str]] = {
    JobState.QUEUED: ("plain", "Waits for a worker."),
    JobState.RUNNING: ("running", "The verdict comes at the end, from cases that are kept unseen."),
    JobState.PAUSED: ("mark", "Paused; what it has paid for is kept."),
    JobState.COMPLETED: ("plain", "Its run has ended."),
    JobState.FAILED: ("bad", "It ended with an error."),
    JobState.CANCELLED: ("plain", "It was ended before it had a result."),
}


_NEXT_STEPS: Mapping[JobState, str] = {
    JobState.PAUSED: "Remove the cause, or raise the limit that stopped it below; then resume it.",
    JobState.FAILED: "Mend the cause, and fork it below, or submit a new job.",
    JobState.CANCELLED: "To go on from the answers that it has, fork it below.",
}
"""What a team does next, by state; nothing where a worker has the next step."""


@attrs.frozen(kw_only=True)
class Headline:
    """What a job has to say first: the verdict, or its state while there is none.

    Attributes:
        kind: the style; `good` only for a gain that is proven on held-out cases.
        word: the verdict or the state.
        sentence: the same in a sentence.
        gained: the gain on held-out cases with its interval; empty if it is not known.
        next_step: what to do about it, in a sentence; empty for nothing.
    """

    kind: str
    word: str
    sentence: str
    gained: str
    next_step: str

    @classmethod
    def of(cls, job: Job) -> Headline:
        """Return the headline of a job."""
        kind, sentence = _STATES[job.state]
        word, next_step = str(job.state), _NEXT_STEPS.get(job.state, "")
        verdict = VERDICTS.get(job.status.verdict)
        if job.state is JobState.COMPLETED and verdict is not None:
            kind, word, sentence = verdict.kind, verdict.word, verdict.sentence
            next_step = verdict.next_step
        elif job.state is JobState.CANCELLED and not job.attempts:
            sentence = "It was cancelled before it began, and cost nothing."
            next_step = "To run it after all, fork it below."
        gained = job.status.gained
        return cls(kind=kind, word=word, sentence=sentence, gained=gained, next_step=next_step)


def surety(gain: Gain) -> str:
    """Return on how many cases a winner is better, and whether that can be chance, in words."""
    if gain.verdict is not Outcome.NOT_SHOWN:
        # Beside an interval that includes 0.
        how = "" if Statement.MEAN in gain.shown_by else ", counted by cases"
        return f"{gain.counts}; more than chance explains ({gain.level * 100:g} % sure{how})"
    least = least_cases(gain.level)
    if gain.cases < least:
        more = f"{counted(gain.cases, 'case')} cannot tell, use {least} or more, better 50"
    elif gain.cases_to_show is None:
        more = ""
    else:
        more = f"about {gain.cases_to_show:,} cases would tell if there is a gain of this size"
    return "; ".join(filter(None, (gain.counts, "that may be chance", more)))


@attrs.frozen(kw_only=True)
class JobView:
    """A job according to its events.

    Attributes:
        last: number of the latest event.
        data: data of charts and tables.
        lines: the latest events with their numbers, the newest first.
        acts: the latest entries of its history, the newest first.
        comments: what users have said, the oldest first.
        damage: the first fault of its events; empty if they can all be read.
    """

    last: int
    data: ReportData
    lines: tuple[tuple[int, bytes], ...]
    acts: tuple[Act, ...]
    comments: tuple[Comment, ...] = ()
    damage: str = ""

    @property
    def candidates(self) -> tuple[CandidateAdded, ...]:
        """The candidates, the baseline first."""
        return self.data.candidates


class JobViews:
    """Cache of views; safe to share between threads.

    A view that is in the cache costs only the events that are new since its last use.

    Args:
        most: size of the cache; the least recently used views are dropped.
    """

    def __init__(self, most: int = _MOST_JOBS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Following] = OrderedDict()

    def of(self, manager: JobManager, job: Job) -> JobView:
        """Return the up-to-date view of a job, without what its damaged events would have said."""
        with self._lock:
            following = self._kept.setdefault(job.id, _Following())
            self._kept.move_to_end(job.id)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return following.view(manager, job)


class _Following:
    """Incremental reader of one job's events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = self._told = 0
        self._history = RunHistory()
        self._acts: deque[Act] = deque(maxlen=_MOST_LINES)
        self._lines: deque[tuple[int, bytes]] = deque(maxlen=_MOST_LINES)
        self._comments: deque[Comment] = deque(maxlen=_MOST_COMMENTS)
        self._view: JobView | None = None
        self._damage = ""

    def view(self, manager: JobManager, job: Job) -> JobView:
        with self._lock:
            while page := manager.events(job.id, after=self._last, limit=_PAGE):
                for number, event, line in page:
                    # After a rewind the history already holds the events up to `_told`.
                    if number > self._told or isinstance(event, Unknown):
                        self._add(manager, job, event, line)
                    self._lines.append((number, line))
                    self._last = number
                if len(page) < _PAGE:
                    break
            if self._view is None or self._view.last != self._last:
                self._view = JobView(
                    last=self._last,
                    data=self._data(job),
                    lines=tuple(reversed(self._lines)),
                    acts=tuple(reversed(self._acts)),
                    comments=tuple(self._comments),
                    damage=self._damage,
                )
            return self._view

    def _add(self, manager: JobManager, job: Job, event: Event, line: bytes) -> None:
        if not isinstance(event, Unknown):
            self._tell(event)
            return
        line_json = json.loads(line)
        name = str(line_json["event"])
        if name == DAMAGED:
            self._damage = self._damage or str(line_json["fault"])
        elif name.startswith("job_"):
            self._acts.append(Act.of(line_json))
            if name == "job_commented":
                self._comments.append(Comment.of(line_json))
        elif name == "rewound":
            # Events were retracted, and a history cannot be rewound: read it again.
            self._history = RunHistory()
            for number, earlier in run_lines(manager.database, job.number):
                self._tell(decoded_or_damaged(earlier, f"event {number}")[0])
                self._told = number

    def _tell(self, event: Event) -> None:
        try:
            self._history.add(event)
        except DataFormatError as error:
            # It follows from an event that is damaged, such as a candidate that is not there.
            self._damage = self._damage or f"event {event.number}: {error}"

    def _data(self, job: Job) -> ReportData:
        history = self._history
        data = ReportData(
            run_id=job.id,
            prompt=job.prompt,
            case_ids=history.pareto_ids,
            candidates=tuple(history.candidates),
            winner=history.best,
            steps=ReportSteps(
                rounds=tuple(history.rounds.values()),
                rewrites=str(history.rewrites),
                rejections=tuple(history.rejections),
            ),
            used=RunUse(
                rollouts=history.rollouts, budget=history.budget, reflections=history.reflections
            ),
        )
        ended = history.ended
        if ended is None:
            return data
        end = attrs.evolve(
            data.end,
            held_out=ended.held_out or data.end.held_out,
            verdict=ended.verdict,
            passing=ended.passing,
        )
        return attrs.evolve(data, end=end)


def limit_in_words(reason: str) -> str:
    """Return why a job was stopped, without the name of the setting of a limit that it reached."""
    for name, words in (("cost: max_cost", "cost"), ("tokens: max_tokens", "token")):
        reason = reason.replace(f"{name}: ", f"the {words} limit is reached: ", 1)
    return reason
