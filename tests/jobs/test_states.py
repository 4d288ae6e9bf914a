"""Jobs under any order of asking, claiming, losing and ending, against a table of their states."""

from __future__ import annotations

import functools
import json
import os

import attrs
import pytest
import sqlalchemy
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from database.database_servers import KINDS
from jobs.job_world import write_project
from journal.test_contract import ASKED, RUN
from promptgraft.errors import LeaseLostError
from promptgraft.service.database import Database, SqlJournal
from promptgraft.service.jobs import (
    Job,
    JobConflictError,
    JobManager,
    JobNotFoundError,
    JobState,
    Worker,
)
from promptgraft.service.jobs.preparing import submitted_digest
from promptgraft.service.jobs.rows import Claim, JobRows

EXAMPLES = int(os.environ.get("PROMPTGRAFT_STATES", "10"))
EVERYWHERE = KINDS if "PROMPTGRAFT_STATES" in os.environ else ("sqlite",)
MOST_BARREN = 5
MOST_JOBS = 3

# What a state allows, and where that leads; None: only a wish. What is not here is a conflict.
TABLE: dict[str, dict[str, str | None]] = {
    "queued": {"resume": None, "cancel": "cancelled", "change": None},
    "running": {"pause": None, "resume": None, "cancel": None, "change": None},
    "paused": {
        "pause": None,
        "resume": "queued",
        "cancel": "cancelled",
        "change": None,
        "fork": None,
    },
    "completed": {"fork": None, "delete": "gone"},
    "failed": {"fork": None, "delete": "gone"},
    "cancelled": {"cancel": None, "fork": None, "delete": "gone"},
}
LOST = {"": "queued", "pause": "paused", "cancel": "cancelled"}
TOLD = {"queued": "recovered"}


@attrs.define(eq=False)
class Model:
    """What a job must be."""

    id: str
    number: int
    priority: int = 0
    due: bool = True
    state: str = "queued"
    wish: str = ""
    attempts: int = 0
    answers: int = 0
    begun_with: int = 0
    barren: int = 0
    is_expired: bool = False
    claim: Claim | None = None
    told: list[str] = attrs.field(factory=lambda: ["queued"])

    @property
    def may_be_claimed(self) -> bool:
        return self.is_expired or self.state == "queued"

    def settle(self, state: str) -> None:
        self.barren = 0 if self.answers > self.begun_with else self.barren + 1
        if state == "queued" and self.barren >= MOST_BARREN:
            state = "failed"
        self.state, self.wish, self.claim, self.is_expired = state, "", None, False
        self.told.append(TOLD.get(state, state))


class JobStates(RuleBasedStateMachine):
    jobs: Bundle[Model] = Bundle("jobs")
    claims: Bundle[tuple[Model, Claim]] = Bundle("claims")

    manager: JobManager
    worker: Worker

    def __init__(self) -> None:
        super().__init__()
        self.rows = JobRows(self.manager.database)
        self.models: list[Model] = []
        tables = self.manager.database.tables
        self.manager.database.write(
            lambda connection: [
                connection.execute(sqlalchemy.delete(table))
                for table in (tables.events, tables.answers, tables.attempts, tables.jobs)
            ]
        )

    @property
    def there(self) -> int:
        return sum(one.state != "gone" for one in self.models)

    def added(self, job: Job, model: Model) -> Model:
        assert job.state is JobState.QUEUED
        self.models.append(model)
        return model

    @precondition(lambda self: self.there < MOST_JOBS)
    @rule(
        target=jobs, priority=st.sampled_from([0, 0, 5]), due=st.sampled_from([True, True, False])
    )
    def create(self, priority: int, due: bool) -> Model:
        changes = {"store": False, "priority": priority, "not_before": 0.0 if due else 4e9}
        job = self.manager.create("support", "triage", changes)
        return self.added(job, Model(job.id, job.number, priority=priority, due=due))

    @rule(job=jobs, what=st.sampled_from(["pause", "resume", "cancel"]))
    def wish(self, job: Model, what: str) -> None:
        self.ask(job, what)

    @rule(job=jobs, what=st.sampled_from(["pause", "resume", "cancel", "change", "delete"]))
    def ask(self, job: Model, what: str) -> None:
        asked = {
            "pause": self.manager.pause,
            "resume": self.manager.resume,
            "cancel": self.manager.cancel,
            "change": lambda id_: self.manager.change(id_, {"priority": 5}),
            "delete": self.manager.delete,
        }[what]
        if job.state == "gone":
            with pytest.raises(JobNotFoundError):
                asked(job.id)
            return
        is_final = job.wish == "cancel" and what == "resume"
        if what not in TABLE[job.state] or is_final:
            with pytest.raises(JobConflictError, match=f"is {job.state}, which allows"):
                asked(job.id)
            return
        asked(job.id)
        if (state := TABLE[job.state][what]) is not None:
            job.barren = 0
            job.told += [state] * (state != "gone")
            job.state = state
        elif what == "change":
            job.priority = 5
        elif job.state == "running" and job.wish != "cancel":
            job.wish = {"resume": ""}.get(what, what)

    @precondition(lambda self: self.there < MOST_JOBS)
    @rule(target=jobs, job=jobs)
    def fork(self, job: Model) -> Model | MultipleResults[Model]:
        if job.state == "gone" or "fork" not in TABLE[job.state]:
            with pytest.raises((JobConflictError, JobNotFoundError)):
                self.manager.fork(job.id)
            return multiple()
        made = self.manager.fork(job.id)
        assert made.origin == job.id
        model = Model(made.id, made.number, priority=job.priority, due=job.due)
        model.answers = job.answers
        return self.added(made, model)

    @precondition(lambda self: any(one.may_be_claimed for one in self.models))
    @rule(target=claims)
    def claim(self) -> tuple[Model, Claim] | MultipleResults[tuple[Model, Claim]]:
        for one in self.models:
            if one.is_expired:
                one.settle(LOST[one.wish])
        waiting = [one for one in self.models if one.state == "queued" and one.due]
        found = self.worker.claim()
        if not waiting:
            assert found is None
            return multiple()
        assert found is not None
        model = min(waiting, key=lambda one: (-one.priority, one.number))
        assert found.job.id == model.id
        model.state, model.claim, model.begun_with = "running", found, model.answers
        model.attempts += 1
        model.told.append("started" if model.attempts == 1 else "resumed")
        return model, found

    @rule(job=jobs)
    def expire(self, job: Model) -> None:
        if job.state == "running":
            self.manager.database.write(lambda c: self.rows.put(c, job.number, lease=1.0))
            job.is_expired = True

    @rule(of=claims)
    def renew(self, of: tuple[Model, Claim]) -> None:
        job, claim = of
        if job.claim is claim:
            assert self.manager.database.write(lambda c: self.rows.renew(c, claim)) == job.wish
            job.is_expired = False
        else:
            with pytest.raises(LeaseLostError):
                self.manager.database.write(lambda c: self.rows.renew(c, claim))

    @rule(of=claims)
    def answer(self, of: tuple[Model, Claim]) -> None:
        job, claim = of
        journal = SqlJournal(self.manager.database, job.number, fence=claim.fence)
        if job.claim is claim:
            with journal:
                journal.begin(RUN)
                journal.append(f"rollout/{job.answers}", ASKED, "rollout", {})
            job.answers += 1 if job.answers else 2  # with its header
        else:
            with pytest.raises(LeaseLostError):
                journal.sync()

    @rule(
        of=claims, state=st.sampled_from(["completed", "failed", "paused", "cancelled", "queued"])
    )
    def settle(self, of: tuple[Model, Claim], state: str) -> None:
        job, claim = of

        def settle(connection: sqlalchemy.Connection) -> None:
            self.rows.check(connection, claim)
            self.rows.settle(connection, claim.job, JobState(state), reason="why", error="what")

        if job.claim is claim:
            self.manager.database.write(settle)
            job.settle(state)
        else:
            with pytest.raises(LeaseLostError):
                self.manager.database.write(settle)

    @invariant()
    def jobs_are_what_the_model_says(self) -> None:
        there = [one for one in self.models if one.state != "gone"]
        found = self.manager.list(limit=100)
        assert [one.id for one in found] == [one.id for one in reversed(there)]
        for job, model in zip(found, reversed(there), strict=True):
            assert (job.state, job.wish, job.attempts) == (model.state, model.wish, model.attempts)
            assert job.has_ended == (job.ended is not None) == ("delete" in TABLE[model.state])
            assert bool(job.worker) == (model.state == "running")

    def teardown(self) -> None:
        for model in self.models:
            if model.state == "gone":
                continue
            events = self.manager.events(model.id)
            numbers = [number for number, _, _ in events]
            assert numbers == sorted(set(numbers))
            kinds = [json.loads(line)["event"].removeprefix("job_") for _, _, line in events]
            assert [one for one in kinds if one != "asked"] == model.told
            attempts = self.manager.attempts(model.id)
            assert [one.number for one in attempts] == list(range(1, model.attempts + 1))
            running = [one for one in attempts if one.ended is None]
            assert len(running) == (model.state == "running")


@pytest.mark.parametrize("kept_database", EVERYWHERE, indirect=True, scope="module")
def test_jobs_go_where_the_table_of_states_says(
    kept_database: Database,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Every job is the same one: it is not planned again.
    monkeypatch.setattr("promptgraft.service.jobs.preparing.planned", lambda *_: None)
    digest = functools.cache(submitted_digest)
    monkeypatch.setattr("promptgraft.service.jobs.preparing.submitted_digest", digest)
    project = write_project(tmp_path_factory.mktemp("project"))
    is_file = kept_database.dialect == "sqlite"
    database = Database("sqlite://") if is_file else kept_database

    class Here(JobStates):
        manager = JobManager(database, projects={"support": project})
        worker = Worker(manager, name="w")

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            # An explanation looks at every line that runs, which takes minutes.
            phases=set(Phase) - {Phase.explain},
        ),
    )
    database.close()
