"""What a job is: what is asked of it, the states that it goes through, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum

import attrs

from promptgraft.errors import (
    ConfigError,
    OverrideConflictError,
    RevisionNotFoundError,
    StoreError,
)
from promptgraft.parts.validation import check_tag
from promptgraft.serde import Json
from promptgraft.strict.checks import (
    COUNT,
    FINITE,
    FLAG,
    OBJECT,
    SECONDS,
    SHARE,
    STRING,
    Kind,
    integer,
    money,
)
from promptgraft.strict.kinds import checked, record_of

_ITERATIONS, _PATIENCE, _PRIORITY = integer(1, 100), integer(1, 50), integer(-100, 100)
_MONEY = money(texts=True)
_MOST_NOTE_CHARS = 1_000


class JobState(StrEnum):
    """Where a job is."""

    QUEUED = "queued"
    """It waits for a worker, or for its time."""
    RUNNING = "running"
    """A worker has its lease."""
    PAUSED = "paused"
    """It was asked to pause, or something has to be mended; resuming continues it."""
    COMPLETED = "completed"
    """It went to its end."""
    FAILED = "failed"
    """The caller's fault ended it, or attempts without a new answer."""
    CANCELLED = "cancelled"
    """It was asked to end; what was in flight was dropped."""


ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
"""States that a job does not leave."""


def _as_state(given: JobState | str | None) -> JobState | None:
    try:
        return None if given is None else JobState(given)
    except ValueError:
        known = ", ".join(JobState)
        raise ConfigError(f"state: expected one of {known}, found {given!r}") from None


@attrs.frozen(kw_only=True)
class JobFilter:
    """Which jobs are listed: those to which everything applies that is not None.

    Attributes:
        state: the state that they are in.
        project: their project.
        prompt: their prompt.
        tag: their tag.
        since: created then or later, in seconds since 1970.
        text: part of id, project, prompt or tag.

    Raises:
        ConfigError: there is no such state.
    """

    state: JobState | None = attrs.field(default=None, converter=_as_state)
    project: str | None = None
    prompt: str | None = None
    tag: str | None = None
    since: float | None = None
    text: str | None = None


ALL_JOBS = JobFilter()


class Wish(StrEnum):
    """What was asked of a running job, and is not done yet."""

    NONE = ""
    PAUSE = "pause"
    CANCEL = "cancel"


class JobNotFoundError(StoreError, LookupError):
    """There is no such job."""


class JobConflictError(StoreError):
    """A job is in a state that does not allow this, or a key stands for another job."""


class JobsFullError(JobConflictError):
    """As many jobs wait for workers as may."""


PROBLEM_TYPES: Mapping[str, type[StoreError]] = {
    "urn:promptgraft:jobs-full": JobsFullError,
    "urn:promptgraft:override-conflict": OverrideConflictError,
    "urn:promptgraft:revision-not-found": RevisionNotFoundError,
}
"""Errors by the types of their problem documents, where the status could mean others."""


def _as_dollars(amount: object) -> Decimal | None:
    """Return an amount of money, also one that is a text."""
    if amount is None:
        return None
    _MONEY.hold("max_cost", amount)
    return _MONEY.fits(amount)


def _check_note(note: str) -> None:
    if len(note) > _MOST_NOTE_CHARS:
        raise ConfigError(
            f"note: expected at most {_MOST_NOTE_CHARS:,} characters, found {len(note):,}"
        )


@attrs.frozen(kw_only=True)
class JobChanges:
    """What a job changes of its project: values only, never code, paths or secrets.

    Attributes:
        algorithm: how prompts are improved; by default as the project says, as below.
        budget: rollouts that it may use.
        max_iterations: proposals that it may try, 1 to 100.
        target_score: the mean on the validation set that ends it, 0 to 1.
        patience: steps in a row without a better candidate that end it, 1 to 50.
        max_cost: US dollars that it may use in all; reaching that pauses it.
        max_tokens: tokens that it may use in all; reaching that pauses it.
        timeout: seconds that an attempt may take; then the job is paused.
        seed: decides every random choice.
        model: what answers and reflects: `task`, `reflection` or the name of a judge.
        tuning: settings of the search by their names in the project file.
        dry_run: whether the embedded offline model does everything, and nothing is stored.
        store: whether a winner that beats the baseline is stored under the tag.
        tag: the tag that the search begins from and that gets the winner.
        priority: jobs with a higher one are begun first, -100 to 100.
        not_before: seconds since 1970 before which it is not begun.
        note: words for people, up to 1,000 characters.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: str | None = attrs.field(default=None, validator=STRING.or_none)
    budget: int | None = attrs.field(default=None, validator=COUNT.or_none)
    max_iterations: int | None = attrs.field(default=None, validator=_ITERATIONS.or_none)
    target_score: float | None = attrs.field(default=None, validator=SHARE.or_none)
    patience: int | None = attrs.field(default=None, validator=_PATIENCE.or_none)
    max_cost: Decimal | None = attrs.field(default=None, converter=_as_dollars)
    max_tokens: int | None = attrs.field(default=None, validator=COUNT.or_none)
    timeout: float | None = attrs.field(default=None, validator=SECONDS.or_none)
    seed: int | None = attrs.field(default=None, validator=integer(0).or_none)
    model: str | None = attrs.field(default=None, validator=STRING.or_none)
    tuning: Mapping[str, Json] = attrs.field(factory=dict)
    dry_run: bool = attrs.field(default=False, validator=FLAG)
    store: bool = attrs.field(default=True, validator=FLAG)
    tag: str | None = attrs.field(default=None, validator=STRING.or_none)
    priority: int = attrs.field(default=0, validator=_PRIORITY)
    not_before: float = attrs.field(default=0.0, validator=FINITE)
    note: str = attrs.field(default="", validator=STRING)

    def __attrs_post_init__(self) -> None:
        _check_note(self.note)
        if self.tag is not None:
            check_tag(self.tag)


JOB_CHANGES: Kind[JobChanges] = record_of(
    JobChanges, special={"tuning": OBJECT, "max_cost": _MONEY, "tag": checked(STRING, check_tag)}
)


@attrs.frozen(kw_only=True)
class Status:
    """How far a job is, as its worker has last said.

    Attributes:
        step: number of the latest step.
        stage: what it does: the place in the run, without numbers.
        waiting: what it waits for, in a few words; empty when it waits for nothing.
        latest: mean of the latest candidate on the validation set.
        best: mean of the best candidate on the validation set.
        baseline: mean of the baseline on the validation set.
        best_step: step that brought the best candidate.
        rollouts: rollouts used.
        reflections: questions of the search used.
        tokens: tokens used.
        cost: US dollars used, a decimal number as text; None when a price is not known.
        revision: id of the revision that holds the winner; None when none does.
        unstored: why a winner is not in the store; empty when it is, or there is none.
    """

    step: int = 0
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
    revision: str | None = None
    unstored: str = ""


@attrs.frozen(kw_only=True)
class Attempt:
    """One time that a worker had a job.

    Attributes:
        number: from 1.
        worker: which one.
        started: seconds since 1970.
        ended: the same; None while it lasts.
        answers: answers that were recorded when it began.
        error: what ended it, in one line; empty when it ended in order.
    """

    number: int
    worker: str
    started: float
    ended: float | None
    answers: int
    error: str


@attrs.frozen(kw_only=True)
class Job:
    """A job as it is now. Times are seconds since 1970, by the database's clock.

    Attributes:
        id: 32 hexadecimal digits.
        number: orders jobs by their age.
        project: the project, by its name for workers.
        prompt: the prompt, by its name in the project.
        tag: the tag that gets the winner.
        digest: SHA-256 of what was submitted: settings, prompt and data of the project.
        changes: what it changes of the project.
        state: where it is.
        wish: what was asked of it and is not done yet.
        reason: why it is in this state, in one line; empty where that says enough.
        origin: id of the job that it was forked from; None for none.
        worker: who has it; empty for nobody.
        attempts: how often a worker took it.
        created: when it was accepted.
        started: when it was first begun; None before.
        ended: when it ended; None before.
        progress: 0 to 100; never falls.
        status: how far it is.
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
    progress: float
    status: Status

    @property
    def has_ended(self) -> bool:
        """Whether it does not change any more."""
        return self.state in ENDED

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing happens before somebody asks: it has ended, or is paused."""
        return self.has_ended or self.state is JobState.PAUSED


@attrs.frozen(kw_only=True)
class Submitted:
    """A job that was asked for; ``is_new`` unless the idempotency key had made it before."""

    job: Job
    is_new: bool


ALLOWED: Mapping[JobState, tuple[str, ...]] = {
    JobState.QUEUED: ("cancel", "change"),
    JobState.RUNNING: ("pause", "cancel", "change"),
    JobState.PAUSED: ("resume", "cancel", "change", "fork"),
    JobState.COMPLETED: ("fork", "delete"),
    JobState.FAILED: ("fork", "delete"),
    JobState.CANCELLED: ("fork", "delete"),
}
"""What may be asked of a job in each state."""


def check_allowed(job: Job, what: str) -> None:
    """Refuse what the state of a job does not allow.

    Raises:
        JobConflictError: naming the state and what it allows.
    """
    if what not in ALLOWED[job.state]:
        allowed = ", ".join(ALLOWED[job.state])
        raise JobConflictError(f"job {job.id} is {job.state}, which allows {allowed}; not {what}")
