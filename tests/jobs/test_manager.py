"""What jobs promise, over every kind of database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
import sqlalchemy
from sqlalchemy import select

from further import thorough
from jobs.job_world import FILE, outcome, sqlite_first, work_off, write_priced, write_project
from promptgraft.algorithms.gepa import GepaConfig
from promptgraft.errors import CallerError, ConfigError, LeaseLostError, OverrideConflictError
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal.records import LOST, SENT, Record
from promptgraft.project import Project, load_project
from promptgraft.project.python_source import beside
from promptgraft.search.settings import groups_of
from promptgraft.service.database import Database, SqlJournal
from promptgraft.service.jobs import (
    Job,
    JobChanges,
    JobConflictError,
    JobFilter,
    JobManager,
    JobState,
    Worker,
)
from promptgraft.service.jobs.presence import Presence
from promptgraft.service.jobs.rows import Claim, JobRows
from promptgraft.service.jobs.types import Status
from promptgraft.testing.prompts import bodies


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def kept_manager(kept_database: Database, project: Path) -> JobManager:
    return JobManager(kept_database, projects={"support": project})


@pytest.fixture
def manager(database: Database, kept_manager: JobManager) -> JobManager:
    """Return the manager of a database whose tables are empty."""
    return kept_manager


MOSTS = (2**63 - 1, 2**53, 1e300)

# What is not of SQL, and what `test_contract.py` sees of every database.
anywhere = pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True, scope="module")


def submit(manager: JobManager, **changes: object) -> Job:
    return manager.create("support", "triage", {"store": False, **changes})


def claimed(manager: JobManager) -> Claim:
    claim = Worker(manager, name="w").claim()
    assert claim is not None
    return claim


@anywhere
def test_a_job_that_is_to_write_a_source_is_refused_unless_it_is_dry(
    database: Database, tmp_path: Path
) -> None:
    path = write_project(tmp_path, file=f"{FILE}apply: to-source\n")
    manager = JobManager(database, projects={"support": path})
    with pytest.raises(ConfigError, match=r"apply: `to-source` .* leave it out of the project"):
        submit(manager)
    assert submit(manager, dry_run=True).state is JobState.QUEUED


@anywhere
def test_a_job_ends_as_the_run_of_its_project_would(manager: JobManager, project: Path) -> None:
    job = submit(manager, budget=120)
    assert work_off(manager) == 1
    ended = manager.get(job.id)
    assert (ended.state, ended.progress, ended.attempts) == (JobState.COMPLETED, 100.0, 1)
    assert ended.started is not None
    assert ended.ended is not None
    found = load_project(project)
    with beside(project.parent):
        import attrs

        plain = found.job("triage")
        config = attrs.evolve(plain.config, rollout_budget=120)
        result = attrs.evolve(plain, config=config).run()
    assert ended.status.rollouts == result.total_rollouts
    assert ended.status.best == result.best_pareto_mean
    assert ended.status.baseline == result.baseline_pareto_mean
    assert outcome(manager, job)["means"] == list(result.means)
    assert (result.stop_reason, ended.reason) == (
        "perfect",
        "nothing left to improve, every validation case is right",
    )


@pytest.mark.parametrize("most", [10**9, *thorough(MOSTS)])
def test_no_number_that_a_setting_accepts_breaks_the_plan(
    project: Path, tmp_path: Path, most: float
) -> None:
    # The planner computes with them, in floats and in lengths of lists.
    groups = groups_of(GepaConfig)
    leaves: list[tuple[str, ...]] = [
        (field.name,) for field in attrs.fields(GepaConfig) if field.name not in groups
    ]
    leaves += [(name, field.name) for name, kind in groups.items() for field in attrs.fields(kind)]
    changes: list[dict[str, object]] = [{field.name: most} for field in attrs.fields(JobChanges)]
    for name, *inner in leaves:
        changes.append({"tuning": {name: {inner[0]: most} if inner else most}})
    planned = 0
    with closing(
        JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": project})
    ) as jobs:
        for change in changes:
            with suppress(CallerError):
                jobs.plan("support", "triage", change)
                planned += 1
    assert planned


RECORDED: Mapping[str, Json] = {
    "algorithm": "gepa",
    "budget": 61,
    "max_iterations": 3,
    "target_score": 0.99,
    "patience": 7,
    "max_cost": "2.5",
    "max_tokens": 1_000_000,
    "seed": 5,
    "model": "strict",
    "tuning": {"minibatch_size": 2},
    "dry_run": True,
    "tag": "beta",
}
"""Changes of a job as the options of its run records them."""

ELSEWHERE: Mapping[str, Json] = {
    "timeout": 600,  # in the plan: it is that of an attempt
    "dataset": "hard",  # in the settings
    "store": False,
    "priority": 1,
    "not_before": 1.0,
    "note": "why",
}


@anywhere
def test_every_change_of_a_job_is_one_of_its_run(manager: JobManager, tmp_path: Path) -> None:
    changes = {**RECORDED, **ELSEWHERE}
    assert set(changes) == {field.name for field in attrs.fields(JobChanges)}
    cases = Path(manager.projects["support"].folder, "tickets.csv")
    manager.save_dataset("support", "hard", cases)
    job = manager.create("support", "triage", changes)
    assert work_off(manager) == 1
    config = json.loads((manager.mirror(job.id, tmp_path) / "config.json").read_bytes())
    assert config["options"] == RECORDED
    assert config["plan"]["max_seconds"] == 600
    assert config["settings"]["dataset"] == manager.get(job.id).changes.dataset


@anywhere
def test_a_winner_is_a_candidate_until_it_is_applied(database: Database, tmp_path: Path) -> None:
    manager, project = keeping_project(database, tmp_path)
    store, where = project.store(), {"ns": "support", "prompt_key": "triage"}
    prompt = project.prompt("triage").prompt
    store.set_section_override(prompt, tag="night", path=("rules",), body="Hurry.")
    live = store.current(**where, tag="night")
    job = manager.create("support", "triage", {"tag": "night"})
    work_off(manager)
    assert store.current(**where, tag="night") == live
    ended = manager.get(job.id)
    candidate = store.current(**where, tag=ended.candidate_tag)
    assert candidate is not None
    assert live is not None
    assert ended.status.revisions == {"support/triage": candidate.id}
    assert ended.status.replaces == {"support/triage": live.id}
    assert (candidate.provenance.run_id or "") in str(manager.result(job.id))
    applied = manager.apply(job.id)
    now = store.current(**where, tag="night")
    assert now is not None
    assert applied == {"support/triage": now.id}
    assert (now.parent, now.provenance.note) == (live.id, f"applied from job {job.id}")
    assert bodies(now.override) == bodies(candidate.override)
    assert bodies(now.override) != bodies(live.override)
    manager.delete(job.id)
    assert store.current(**where, tag=ended.candidate_tag) is None
    assert store.current(**where, tag="night") == now


@anywhere
def test_a_winner_is_not_applied_over_what_others_wrote(database: Database, tmp_path: Path) -> None:
    manager, project = keeping_project(database, tmp_path)
    store, prompt = project.store(), project.prompt("triage").prompt
    jobs = [manager.create("support", "triage", {"seed": seed}) for seed in range(2)]
    work_off(manager)
    first, second = (manager.get(job.id) for job in jobs)
    assert first.status.replaces == second.status.replaces == {"support/triage": ""}
    manager.apply(first.id)
    with pytest.raises(OverrideConflictError, match="expected revision none, found"):
        manager.apply(second.id)
    current = store.current(ns="support", prompt_key="triage", tag="latest")
    assert current is not None
    assert manager.apply(second.id, to="canary").keys() == {"support/triage"}
    assert manager.apply(second.id, expected={"support/triage": current.id})
    held = store.resolve(prompt.descriptor, "latest")
    assert held is not None
    canary = store.resolve(prompt.descriptor, "canary")
    assert canary is not None
    assert bodies(held) == bodies(canary)


@anywhere
def test_a_job_without_a_winner_says_why_nothing_is_applied(
    database: Database, tmp_path: Path
) -> None:
    manager, project = keeping_project(database, tmp_path)
    job = manager.create("support", "triage", {"store": False})
    with pytest.raises(JobConflictError, match="is queued, which allows cancel, change; not apply"):
        manager.apply(job.id)
    work_off(manager)
    with pytest.raises(JobConflictError, match="no winner to apply: the job stores nothing"):
        manager.apply(job.id)
    assert project.store().addresses() == ()


@anywhere
def test_a_winner_of_an_earlier_version_is_where_that_version_stored_it(
    database: Database, tmp_path: Path
) -> None:
    manager, _ = keeping_project(database, tmp_path)
    job = manager.create("support", "triage", {"dry_run": True, "budget": 90})
    work_off(manager)
    status = b'{"step": 3, "best": 0.9, "baseline": 0.5, "revision": "3f2a"}'
    table = manager.database.tables.jobs
    manager.database.write(
        lambda connection: connection.execute(sqlalchemy.update(table).values(status=status))
    )
    kept = manager.get(job.id).status
    assert (kept.revisions, kept.gained, kept.step) == ({}, "", 3)
    with pytest.raises(JobConflictError, match="an earlier version of promptgraft stored the w"):
        manager.apply(job.id)


def keeping_project(database: Database, folder: Path) -> tuple[JobManager, Project]:
    """Return a manager of a project whose jobs keep any winner."""
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    path = write_project(folder / "own", file=file)
    manager = JobManager(database, projects={"support": path})
    return manager, manager.projects["support"]


@anywhere
def test_a_dry_run_stores_nothing(database: Database, tmp_path: Path) -> None:
    path = write_project(tmp_path / "own")
    manager = JobManager(database, projects={"support": path})
    job = manager.create("support", "triage", {"dry_run": True, "budget": 90})
    work_off(manager)
    assert manager.get(job.id).state is JobState.COMPLETED
    assert manager.projects["support"].store().addresses() == ()


@sqlite_first
def test_a_job_waits_for_a_worker_with_the_project_that_was_submitted(
    database: Database, tmp_path: Path
) -> None:
    path = write_project(tmp_path / "own")
    manager = JobManager(database, projects={"support": path})
    job = submit(manager)
    path.write_text(FILE.replace("minibatch_size: 3", "minibatch_size: 2"))
    changed = JobManager(database, projects={"support": path})
    assert Worker(changed).claim() is None
    assert Worker(JobManager(database)).claim() is None
    waiting = manager.get(job.id)
    assert waiting.state is JobState.QUEUED
    assert waiting.reason.startswith(
        "waits for a worker with project `support` as it was submitted"
    )
    path.write_text(FILE)
    claim = Worker(JobManager(database, projects={"support": path})).claim()
    assert claim is not None
    assert claim.job.reason == ""


@anywhere
def test_the_callers_fault_fails_a_job(database: Database, tmp_path: Path) -> None:
    file = FILE.replace(
        "metrics: [{name: exact}]", "metrics: [{name: own, kind: python, function: own.py:judge}]"
    )
    path = write_project(tmp_path / "own", file=file)
    (path.parent / "own.py").write_text(
        "def judge(case, answer):\n    raise KeyError('no such thing')\n"
    )
    manager = JobManager(database, projects={"support": path})
    job = submit(manager)
    work_off(manager)
    ended = manager.get(job.id)
    assert ended.state is JobState.FAILED
    assert "no such thing" in ended.reason
    (attempt,) = manager.attempts(job.id)
    assert "no such thing" in attempt.error


@anywhere
def test_a_limit_of_tokens_pauses_and_a_higher_one_continues(
    database: Database, tmp_path: Path
) -> None:
    path = write_priced(tmp_path / "own")
    manager = JobManager(database, projects={"support": path})
    job = submit(manager, max_tokens=100)
    work_off(manager)
    paused = manager.get(job.id)
    assert (paused.state, paused.reason.split(":")[0]) == (JobState.PAUSED, "tokens")
    manager.change(job.id, {"max_tokens": 1_000_000})
    manager.resume(job.id)
    work_off(manager)
    assert manager.get(job.id).state is JobState.COMPLETED


@anywhere
def test_the_money_of_a_day_is_that_of_all_jobs_of_a_project(
    database: Database, tmp_path: Path
) -> None:
    path = write_priced(tmp_path / "own", more="max_cost_per_day: 0.01\n")
    manager = JobManager(database, projects={"support": path})
    first, second = submit(manager), submit(manager, note="second")
    assert work_off(manager) == 1
    paused, queued = manager.get(first.id), manager.get(second.id)
    used = "max_cost_per_day: 0.01 US dollars of project `support` are used today (UTC)"
    assert (paused.state, paused.reason) == (
        JobState.PAUSED,
        f"{used}; resume the job tomorrow",
    )
    assert 0.01 <= float(paused.status.cost or 0) < 0.04
    assert (queued.state, queued.attempts) == (JobState.QUEUED, 0)
    assert queued.reason == f"{used}; the job begins tomorrow"
    # A replay costs nothing, and another day has money of its own.
    attempts = database.tables.attempts
    yesterday = attempts.update().values(day=attempts.c.day - 1)
    database.write(lambda connection: connection.execute(yesterday))
    manager.resume(first.id)
    assert work_off(manager) == 1
    ended = manager.get(first.id)
    cost, before = (float(job.status.cost or 0) for job in (ended, paused))
    assert ended.state is JobState.COMPLETED
    assert today(manager) == pytest.approx(cost - before)
    assert manager.get(second.id).reason == queued.reason
    # What was spent today counts, so that a job that has spent it cannot go before tomorrow.
    with pytest.raises(JobConflictError, match="max_cost_per_day of its project; delete it tom"):
        manager.delete(ended.id)
    # A project that may spend more is the same project, and a fork pays for no answer again.
    path.write_text(path.read_text().replace("max_cost_per_day: 0.01", "max_cost_per_day: 5"))
    richer = JobManager(database, projects={"support": path})
    assert work_off(richer) == 1
    assert richer.get(second.id).state is JobState.COMPLETED
    fork = richer.fork(second.id)
    assert work_off(richer) == 1
    assert float(richer.get(fork.id).status.cost or 0) == pytest.approx(cost)
    assert today(richer) == pytest.approx(2 * cost - before)


@sqlite_first
def test_a_worker_finds_the_jobs_that_it_runs_without_knowing(manager: JobManager) -> None:
    for _ in range(4):
        submit(manager)
    mine = [Worker(manager, name="w").claim() for _ in range(3)]
    Worker(manager, name="other").claim()
    numbers = [claim.job.number for claim in mine if claim is not None]
    rows = JobRows(manager.database)

    def found(*but: int) -> set[int]:
        jobs = manager.database.write(lambda connection: rows.unfinished(connection, "w", but))
        return {job.number for job in jobs}

    assert found() == {*numbers}
    assert found(numbers[0], numbers[2]) == {numbers[1]}
    assert found(*numbers) == set()


@pytest.mark.usefixtures("forked_jobs")
@anywhere
def test_a_fork_begins_anew_once_a_metric_was_mended(database: Database, tmp_path: Path) -> None:
    path = write_priced(tmp_path / "mended")
    path.write_text(path.read_text().replace("name: exact", "name: python, function: score.py:m"))
    score = path.with_name("score.py")
    score.write_text("def m(case, answer):\n    return 0.5\n")
    manager = JobManager(database, projects={"support": path})
    job = manager.create("support", "triage", {"budget": 75, "max_cost": "0.02", "store": False})
    work_off(manager)  # here: whatever runs later has a process with the metric as it is then
    paused = manager.get(job.id)
    assert (paused.state, today(manager)) == (JobState.PAUSED, float(paused.status.cost or 0))
    score.write_text("def m(case, answer):\n    return float(case.expected == answer.text)\n")
    manager.change(job.id, {"max_cost": "1"})
    manager.resume(job.id)
    Worker(manager).run(until_idle=True)
    refused = manager.get(job.id)
    assert refused.state is JobState.FAILED
    assert "`functions.metric python` (score.m) has changed since the run" in refused.reason
    assert refused.reason.endswith("or fork the job: a fork begins without these answers")
    before = today(manager)

    fork = manager.fork(job.id)
    Worker(manager).run(until_idle=True)
    ended = manager.get(fork.id)
    assert ended.state is JobState.COMPLETED
    assert today(manager) == pytest.approx(before + float(ended.status.cost or 0))
    reasons = [
        json.loads(line)["reason"]
        for _, _, line in manager.events(fork.id)
        if b"job_began_anew" in line
    ]
    assert len(reasons) == 1
    assert reasons[0].startswith(f"begins without the answers of job {job.id[:8]}: ")
    assert reasons[0].endswith("`functions.metric python` (score.m) has changed since the run")


def today(manager: JobManager) -> float:
    with manager.database.reading() as connection:
        return float(JobRows(manager.database).spent_today(connection, "support"))


@anywhere
def test_a_price_that_is_not_known_pauses_where_money_is_limited(
    database: Database, tmp_path: Path
) -> None:
    path = write_priced(tmp_path / "own", more="max_cost_per_day: 0.01\n")
    own = path.parent / "own.py"
    own.write_text(own.read_text().replace("cost=cost, seconds", "cost=None, seconds"))
    manager = JobManager(database, projects={"support": path})
    job = submit(manager)
    work_off(manager)
    paused = manager.get(job.id)
    assert paused.state is JobState.PAUSED
    assert paused.reason.startswith("max_cost_per_day cannot be kept: the price of a model")


@sqlite_first
def test_five_attempts_without_an_answer_fail_a_job(manager: JobManager) -> None:
    job = submit(manager)
    worker, database = Worker(manager, name="dies"), manager.database
    jobs = database.tables.jobs
    for attempt in range(5):
        claim = worker.claim()
        assert claim is not None, attempt
        database.write(lambda connection: connection.execute(jobs.update().values(lease=1.0)))
    assert worker.claim() is None
    failed = manager.get(job.id)
    assert failed.state is JobState.FAILED
    assert failed.reason == (
        "5 attempts in a row without a new answer; the last: its worker dies was lost"
    )
    assert [one.error for one in manager.attempts(job.id)] == ["its worker dies was lost"] * 5


@sqlite_first
@pytest.mark.parametrize(
    ("kind", "expected"), [(SENT, JobState.FAILED), (LOST, JobState.FAILED), ("call", None)]
)
def test_a_request_that_was_sent_is_no_answer(
    manager: JobManager, kind: str, expected: JobState | None
) -> None:
    job = submit(manager)
    worker, database = Worker(manager, name="dies"), manager.database
    jobs = database.tables.jobs
    for attempt in range(6):  # in the first of them the run begins
        claim = worker.claim()
        assert claim is not None, attempt
        with SqlJournal(database, claim.job.number, fence=claim.fence) as journal:
            journal.begin({})
            key = f"baseline/1/call/{attempt}"
            journal.append_all([Record(key, digest_text(key), kind, [])])
        database.write(lambda connection: connection.execute(jobs.update().values(lease=1.0)))
    again = worker.claim()
    assert (manager.get(job.id).state if again is None else None) is expected


@sqlite_first
def test_what_was_wished_is_granted_when_the_worker_is_lost(manager: JobManager) -> None:
    paused, cancelled = submit(manager), submit(manager)
    worker, database = Worker(manager), manager.database
    claims = claimed(manager), claimed(manager)
    manager.pause(paused.id)
    manager.cancel(cancelled.id)
    jobs = database.tables.jobs
    database.write(lambda connection: connection.execute(jobs.update().values(lease=1.0)))
    assert worker.claim() is None
    assert manager.get(paused.id).state is JobState.PAUSED
    assert manager.get(cancelled.id).state is JobState.CANCELLED
    before = [manager.get(one.id) for one in (paused, cancelled)]
    for claim in claims:  # whose workers were only slow
        worker.run_here(claim)
    assert [manager.get(one.id) for one in (paused, cancelled)] == before


@sqlite_first
def test_a_worker_that_lost_its_lease_settles_nothing(manager: JobManager) -> None:
    job = submit(manager, budget=60)
    first = claimed(manager)
    database = manager.database
    jobs = database.tables.jobs
    database.write(lambda connection: connection.execute(jobs.update().values(lease=1.0)))
    second = claimed(manager)
    assert second.fence > first.fence
    rows = JobRows(database)
    with database.reading() as connection, pytest.raises(LeaseLostError):
        rows.wish(connection, first)
    Worker(manager).run_here(first)  # which has been taken over, and says nothing
    running = manager.get(job.id)
    assert (running.state, running.status.rollouts) == (JobState.RUNNING, 0)
    Worker(manager).run_here(second)
    assert manager.get(job.id).state is JobState.COMPLETED


def test_a_job_never_goes_back(manager: JobManager) -> None:
    job, rows = submit(manager), JobRows(manager.database)
    claimed(manager)
    for progress in (40.0, 20.0):
        manager.database.write(
            lambda connection: rows.advance(connection, job.number, progress, Status())  # noqa: B023
        )
    assert manager.get(job.id).progress == 40.0


def test_a_worker_is_listed_from_its_first_sign_of_life_to_its_end(manager: JobManager) -> None:
    presence = Presence(manager.database, name="w", processes=2)
    for avoids in ({}, {"support": "no key"}):
        presence.show(["support"], avoids)
        (row,) = manager.workers()
        assert (row.name, row.processes, row.avoids, row.is_alive) == ("w", 2, avoids, True)
    presence.end()
    assert manager.workers() == []


def test_what_was_spent_yesterday_is_not_spent_today(manager: JobManager) -> None:
    job, rows, database = submit(manager), JobRows(manager.database), manager.database
    claimed(manager)
    attempts = database.tables.attempts
    database.write(lambda connection: rows.charge(connection, job.number, Decimal("0.5")))
    with database.reading() as connection:
        assert rows.spent_today(connection, "support") == Decimal("0.5")
        days = database.now(connection) - datetime(1970, 1, 1, tzinfo=UTC)
        assert connection.scalar(select(attempts.c.day)) == days.days
    yesterday = attempts.update().values(day=attempts.c.day - 1)
    database.write(lambda connection: connection.execute(yesterday))
    database.write(lambda connection: rows.charge(connection, job.number, Decimal("0.7")))
    with database.reading() as connection:
        assert rows.spent_today(connection, "support") == Decimal("0.2")


def test_a_text_that_no_name_has_finds_no_job(manager: JobManager) -> None:
    manager.create("support", "triage")
    for text in ("é", "漢😀", "a\0b", "%", "_", "\\"):
        filters = [JobFilter(project=text), JobFilter(prompt=text), JobFilter(tag=text)]
        for where in [*filters, JobFilter(text=text)]:
            assert manager.list(where) == []


@sqlite_first
def test_a_project_that_waits_holds_no_other(database: Database, project: Path) -> None:
    manager = JobManager(database, projects={"support": project, "sales": project})
    waiting, other = submit(manager), manager.create("sales", "triage", {"store": False})
    rows = JobRows(database)
    database.write(lambda connection: rows.explain_wait(connection, "support", "why"))
    assert [manager.get(one.id).reason for one in (waiting, other)] == ["why", ""]


@sqlite_first
def test_a_worker_of_a_job_that_was_deleted_has_no_other(manager: JobManager) -> None:
    first = submit(manager)
    claim = Worker(manager).claim()
    assert claim is not None
    rows = JobRows(manager.database)
    manager.database.write(
        lambda connection: rows.settle(connection, claim.job, JobState.CANCELLED, reason="")
    )
    manager.delete(first.id)
    second = submit(manager)
    assert Worker(manager).claim() is not None
    with pytest.raises(LeaseLostError):
        manager.database.write(lambda connection: rows.renew(connection, claim))
    assert manager.get(second.id).number > first.number


@anywhere
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("answers", "the journal of job"),
        ("events", "job 1, event"),
    ],
)
def test_what_is_damaged_pauses_a_job(manager: JobManager, kind: str, said: str) -> None:
    job = submit(manager)
    claim = claimed(manager)
    manager.pause(job.id)
    Worker(manager).run_here(claim)
    tables = manager.database.tables
    damaged = {
        "answers": tables.answers.update().where(tables.answers.c.position == 3),
        "events": tables.events.update().where(tables.events.c.kind == "numbered"),
    }[kind].values(line=b"{}\n")
    manager.database.write(lambda connection: connection.execute(damaged))
    manager.resume(job.id)
    work_off(manager)
    paused = manager.get(job.id)
    assert paused.state is JobState.PAUSED
    assert said.replace("job 1,", f"job {job.number},") in paused.reason
    assert "restore the database from a copy" in paused.reason
