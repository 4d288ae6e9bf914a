"""Jobs: the changes they make to a project, their states, and their status."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum

import attrs

from promptgraft import errors
from promptgraft.ground.serde import Json
from promptgraft.ground.strict import checks, structure
from promptgraft.ground.strict.kinds import checked, record_of
from promptgraft.ground.text import counted
from promptgraft.overrides.parts.validation import check_tag
from promptgraft.search.config import ROLLOUTS
from promptgraft.search.verdict import RunVerdict

CANDIDATE_PREFIX = "candidate."
"""Prefix of the tags that hold winners of jobs."""

_ID_DIGITS = 12
_ITERATIONS, _PATIENCE, _PRIORITY = (
    checks.integer(1, 100),
    checks.integer(1, 50),
    checks.integer(-100, 100),
)
_MONEY = checks.money(texts=True)
_MOST_NOTE_CHARS = 1_000


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    """It waits for a worker, or for its start time."""
    RUNNING = "running"
    """A worker holds its lease."""
    PAUSED = "paused"
    """A user paused it, or something has to be repaired first; resuming continues it."""
    COMPLETED = "completed"
    """Its run is finished."""
    FAILED = "failed"
    """It ended with an error of the caller, or after too many attempts without a new answer."""
    CANCELLED = "cancelled"
    """A user ended it; calls in flight were dropped."""


ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
"""Final states."""


def _as_state(given: JobState | str | None) -> JobState | None:
    try:
        return None if given is None else JobState(given)
    except ValueError:
        names = ", ".join(JobState)
        raise errors.ConfigError(f"state: expected one of {names}, found {given!r}") from None


@attrs.frozen(kw_only=True)
class JobFilter:
    """Filter for lists of jobs; a job must match every field that is not None.

    Attributes:
        state: the state.
        project: the project.
        prompt: the prompt.
        tag: the tag.
        since: earliest time of creation, in seconds since 1970.
        ended_by: latest time of its end, in whole seconds since 1970.
        text: a substring of id, project, prompt or tag.

    Raises:
        ConfigError: there is no such state.
    """

    state: JobState | None = attrs.field(default=None, converter=_as_state)
    project: str | None = None
    prompt: str | None = None
    tag: str | None = None
    since: float | None = None
    ended_by: int | None = None
    text: str | None = None


ALL_JOBS = JobFilter()


class Wish(StrEnum):
    """A user's request to a running job that is still open."""

    NONE = ""
    PAUSE = "pause"
    CANCEL = "cancel"


class JobNotFoundError(errors.StoreError, LookupError):
    """No job has this id, or several jobs match it."""


class JobConflictError(errors.StoreError):
    """The state of a job does not allow this, or an idempotency key belongs to another job."""


class JobsFullError(JobConflictError):
    """The queue is full."""


PROBLEM_TYPES: Mapping[str, type[errors.StoreError]] = {
    "urn:promptgraft:jobs-full": JobsFullError,
    "urn:promptgraft:override-conflict": errors.OverrideConflictError,
    "urn:promptgraft:revision-not-found": errors.RevisionNotFoundError,
}
"""Errors by the type of their problem document, for statuses that have several causes."""


def _as_dollars(amount: object) -> Decimal | None:
    """Return an amount of money, which may be given as text."""
    if amount is None:
        return None
    _MONEY.hold("max_cost", amount)
    return _MONEY.fits(amount)


def _check_note(note: str) -> None:
    if len(note) > _MOST_NOTE_CHARS:
        raise errors.ConfigError(
            f"note: expected at most {_MOST_NOTE_CHARS:,} characters, found {len(note):,}"
        )


@attrs.frozen(kw_only=True)
class JobChanges:
    """Settings of the project that a job overrides: values only, never code, paths or secrets.

    Attributes:
        algorithm: the search algorithm; by default the project's, as for all settings below.
        budget: rollouts that the job may use.
        max_iterations: proposals that it may try, 1 to 100.
        target_score: mean on the validation set at which it ends, 0 to 1.
        patience: consecutive steps without a better candidate after which it ends, 1 to 50.
        max_cost: US dollars in total after which it is paused.
        max_tokens: tokens in total after which it is paused.
        timeout: seconds after which an attempt is paused.
        seed: seed of every random choice.
        model: the model that answers and reflects: `task`, `reflection` or the name of a judge.
        tuning: settings of the search by their names in the project file.
        dataset: a data set of the project instead of the cases in its file: `NAME` for its latest
            revision, or `NAME@DIGEST`, which is what the job records.
        dry_run: whether the embedded offline model answers everything, and nothing is stored.
        store: whether a winner that beats the baseline is stored as a candidate.
        tag: the tag that the search starts from, and that the winner may be applied to.
        priority: jobs with a higher priority start first, -100 to 100.
        not_before: earliest start, in seconds since 1970.
        note: a note for people, up to 1,000 characters.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: str | None = attrs.field(default=None, validator=checks.STRING.or_none)
    budget: int | None = attrs.field(default=None, validator=ROLLOUTS.or_none)
    max_iterations: int | None = attrs.field(default=None, validator=_ITERATIONS.or_none)
    target_score: float | None = attrs.field(default=None, validator=checks.SHARE.or_none)
    patience: int | None = attrs.field(default=None, validator=_PATIENCE.or_none)
    max_cost: Decimal | None = attrs.field(default=None, converter=_as_dollars)
    max_tokens: int | None = attrs.field(default=None, validator=checks.COUNT.or_none)
    timeout: float | None = attrs.field(default=None, validator=checks.SECONDS.or_none)
    seed: int | None = attrs.field(default=None, validator=checks.integer(0).or_none)
    model: str | None = attrs.field(default=None, validator=checks.STRING.or_none)
    tuning: Mapping[str, Json] = attrs.field(factory=dict, hash=False)
    dataset: str | None = attrs.field(default=None, validator=checks.STRING.or_none)
    dry_run: bool = attrs.field(default=False, validator=checks.FLAG)
    store: bool = attrs.field(default=True, validator=checks.FLAG)
    tag: str | None = attrs.field(default=None, validator=checks.STRING.or_none)
    priority: int = attrs.field(default=0, validator=_PRIORITY)
    not_before: float = attrs.field(default=0.0, validator=checks.FINITE)
    note: str = attrs.field(default="", validator=checks.STRING)

    def __attrs_post_init__(self) -> None:
        _check_note(self.note)
        if self.tag is not None:
            check_tag(self.tag)


JOB_CHANGES: checks.Kind[JobChanges] = record_of(
    JobChanges,
    special={"tuning": checks.OBJECT, "max_cost": _MONEY, "tag": checked(checks.STRING, check_tag)},
    elsewhere={"targets": "unknown key; write `tuning: {targets: {parts: [...]}}`"},
)


@attrs.frozen(kw_only=True)
class Status:
    """Status of a job as its worker last reported it.

    Attributes:
        step: number of the latest step; one that tries no proposal counts too, so that it may
            be above ``max_iterations``.
        max_iterations: proposals that it may try, at most; None before its plan is made.
        stage: the current phase of the run.
        waiting: what the run waits for, in a few words; empty if it does not wait.
        latest: mean of the latest candidate on the validation set.
        best: mean of the best candidate on the validation set.
        baseline: mean of the baseline on the validation set.
        best_step: step that produced the best candidate.
        rollouts: rollouts used.
        reflections: reflections used.
        tokens: tokens used.
        cost: US dollars used, a decimal number as text; None if a price is unknown.
        revisions: ids of the revisions that hold the winner, by the address of their prompt.
        replaces: the revisions that the tag of the job pointed at when the winner was stored, by
            the address of their prompt; an empty one for none.
        unstored: why a winner is not in the store; empty if it is, or there is none.
        verdict: what the run may claim about its winner; empty before its end.
        gain: mean gain on the held-out cases; None if there was no such test.
        gain_low: the lower end of its interval, and ``gain_high`` the upper end.
        held_out: number of held-out cases with a score before and after.
    """

    step: int = 0
    max_iterations: int | None = None
    stage: str = ""
    waiting: str = ""
    latest: float | None = None
    best: float | None = None
    baseline: float | None = None
    best_step: int = 0
    rollouts: int = 0
    reflections: int = 0
    tokens: int = 0
    cost: str | None = None
    revisions: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    replaces: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    unstored: str = ""
    verdict: str = ""
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    held_out: int = 0

    @classmethod
    def of(cls, plain: Json, *, tag: str, where: str) -> Status:
        """Read the status of a job from plain data; ``tag`` is the job's.

        Raises:
            DataFormatError: a line for each fault, beginning with ``where``.
        """
        revision = None
        if isinstance(plain, dict):
            # Earlier versions had one revision, and the first stored it under the tag itself.
            revision = plain.get("revision")
            plain = {name: value for name, value in plain.items() if name != "revision"}
        status = structure(plain, cls, where=where)
        if not revision or status.revisions:
            return status
        why = f"an earlier version of promptgraft stored the winner under tag `{tag}` itself"
        return attrs.evolve(status, unstored=why)

    @property
    def gained(self) -> str:
        """The gain on held-out cases with its interval; empty if there was no such test."""
        if self.gain is None or self.gain_low is None or self.gain_high is None:
            return ""
        reach = f"{self.gain_low:+.2f} to {self.gain_high:+.2f}"
        return f"{self.gain:+.3f} ({reach}) on {counted(self.held_out, 'case')}"

    @property
    def is_proven(self) -> bool:
        """Whether the winner is better on held-out cases by more than chance."""
        return self.verdict == RunVerdict.IMPROVED


@attrs.frozen(kw_only=True)
class Attempt:
    """One period in which a worker had a job.

    Attributes:
        number: number of the attempt, from 1.
        worker: name of the worker.
        started: seconds since 1970.
        ended: seconds since 1970; None while the attempt lasts.
        answers: number of answers that were recorded when it began.
        error: the error that ended it, in one line; empty if it ended in order.
    """

    number: int
    worker: str
    started: float
    ended: float | None
    answers: int
    error: str


@attrs.frozen(kw_only=True)
class Job:
    """Snapshot of a job. Times are seconds since 1970, by the database's clock.

    Attributes:
        id: 32 hexadecimal digits.
        number: a number that grows from job to job.
        project: the project, by its name for workers.
        prompt: the prompt, by its name in the project.
        tag: the tag that the search starts from, and that the winner may be applied to.
        digest: SHA-256 of what was submitted: settings, prompt and data of the project.
        changes: the settings that it overrides.
        state: the state.
        wish: the open request to a running job.
        reason: why it is in this state, in one line; empty if the state is self-explanatory.
        origin: id of the job that it was forked from; None if it was not.
        worker: name of the worker that has it; empty if none does.
        attempts: number of attempts.
        created: when it was submitted.
        started: when it first started; None before.
        ended: when it ended; None before.
        seconds: how long its attempts that have ended took, without waits and pauses.
        resumed: when the attempt under way began; None if none is.
        progress: 0 to 100; never falls.
        status: its status.
    """

    id: str
    number: int
    project: str
    prompt: str
    tag: str
    digest: str
    changes: JobChanges
    state: JobState
    wish: Wish
    reason: str
    origin: str | None
    worker: str
    attempts: int
    created: float
    started: float | None
    ended: float | None
    seconds: float = 0.0
    resumed: float | None = None
    progress: float
    status: Status

    def seconds_until(self, now: float) -> float:
        """Return how long workers have been at it until ``now``, in seconds since 1970."""
        return self.seconds + (0.0 if self.resumed is None else max(0.0, now - self.resumed))

    @property
    def candidate_tag(self) -> str:
        """The tag that its winner is stored under; no live tag moves before it is applied."""
        return f"{CANDIDATE_PREFIX}{self.id[:_ID_DIGITS]}"

    @property
    def has_ended(self) -> bool:
        """Whether its state is final."""
        return self.state in ENDED

    @property
    def is_at_rest(self) -> bool:
        """Whether it has ended or is paused, so that nothing happens until a user acts."""
        return self.has_ended or self.state is JobState.PAUSED


@attrs.frozen(kw_only=True)
class Submitted:
    """Outcome of a submission; ``is_new`` is False if the idempotency key was used before."""

    job: Job
    is_new: bool


ALLOWED: Mapping[JobState, tuple[str, ...]] = {
    JobState.QUEUED: ("cancel", "change"),
    JobState.RUNNING: ("pause", "cancel", "change"),
    JobState.PAUSED: ("resume", "cancel", "change", "fork"),
    JobState.COMPLETED: ("apply", "fork", "delete"),
    JobState.FAILED: ("fork", "delete"),
    JobState.CANCELLED: ("fork", "delete"),
}
"""Actions that each state allows."""


def check_allowed(job: Job, what: str) -> None:
    """Refuse an action that the state of a job does not allow.

    Raises:
        JobConflictError: naming the state and what it allows.
    """
    if what not in ALLOWED[job.state]:
        allowed = ", ".join(ALLOWED[job.state])
        raise JobConflictError(f"job {job.id} is {job.state}, which allows {allowed}; not {what}")


def check_applicable(job: Job) -> None:
    """Refuse to apply the winner of a job that has none.

    Raises:
        JobConflictError: saying why there is none.
    """
    check_allowed(job, "apply")
    if not job.status.revisions:
        why = job.status.unstored or "no new text was better than yours"
        raise JobConflictError(f"job {job.id} has no winner to apply: {why}")
