"""What jobs promise, over every kind of database."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from jobs.job_world import FILE, kept_lines, outcome, work_off, write_project
from promptgraft.database import Database
from promptgraft.errors import ConfigError, DataFormatError, DeadlineExceededError
from promptgraft.jobs import (
    Job,
    JobChanges,
    JobConflictError,
    JobManager,
    JobNotFoundError,
    JobState,
    Wish,
    Worker,
)
from promptgraft.jobs.rows import Claim
from promptgraft.project import load_project
from promptgraft.project.python_source import beside


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def manager(database: Database, project: Path) -> JobManager:
    return JobManager(database, projects={"support": project})


def submit(manager: JobManager, **changes: object) -> Job:
    return manager.create("support", "triage", {"store": False, **changes})


def claimed(manager: JobManager) -> Claim:
    claim = Worker(manager, name="w").claim()
    assert claim is not None
    return claim


# Submitting


def test_a_job_is_queued_with_what_was_asked(manager: JobManager) -> None:
    job = submit(manager, budget=90, max_cost="1.50", tuning={"minibatch_size": 2}, note="why")
    assert manager.get(job.id) == job
    assert (job.state, job.wish, job.project, job.prompt, job.tag, job.progress) == (
        JobState.QUEUED,
        Wish.NONE,
        "support",
        "triage",
        "latest",
        0.0,
    )
    assert job.changes == JobChanges(
        budget=90,
        max_cost=Decimal("1.50"),
        tuning={"minibatch_size": 2},
        note="why",
        store=False,
    )
    assert job.created > 1.7e9
    assert job.started is job.ended is None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"budget": 0}, "budget: expected an integer of at least 1, found 0"),
        ({"budgt": 5}, "budgt: unknown key (did you mean `budget`?)"),
        ({"max_iterations": 101}, "max_iterations: expected an integer from 1 to 100, found 101"),
        ({"target_score": 1.5}, "target_score: expected a number from 0 to 1, found 1.5"),
        ({"patience": 51}, "patience: expected an integer from 1 to 50, found 51"),
        ({"max_cost": "much"}, "max_cost: expected US dollars above 0, such as 2.50, found 'much'"),
        ({"seed": -1}, "seed: expected an integer of at least 0, found -1"),
        ({"tag": "No!"}, "tag: expected 1 to 64 lower-case letters"),
        ({"note": "x" * 1_001}, "note: expected at most 1,000 characters, found 1,001"),
        ({"priority": 101}, "priority: expected an integer from -100 to 100, found 101"),
        ({"dry_run": "yes"}, "dry_run: expected true or false, found 'yes'"),
        ({"model": "gpt"}, "model: the project has no model `gpt`; there: task, strict"),
        ({"algorithm": "x"}, "algorithm: there is none called `x`; there are"),
        ({"tuning": {"minibatch": 3}}, "minibatch: unknown key (did you mean `minibatch_size`?)"),
        ({"tuning": {"seed": "x"}}, "seed: expected an integer of at least 0, found 'x'"),
        ({"budget": 3}, "rollout_budget"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_queued(
    project: Path, changes: dict[str, object], line: str
) -> None:
    manager = JobManager("sqlite://", projects={"support": project})
    with pytest.raises((ConfigError, DataFormatError)) as refused:
        manager.create("support", "triage", changes)
    assert line in str(refused.value)
    assert manager.list() == []


def test_unknown_names_say_what_there_is(project: Path) -> None:
    manager = JobManager("sqlite://", projects={"support": project})
    with pytest.raises(ConfigError, match=r"there is no project `suport` .did you mean `support`"):
        manager.create("suport")
    with pytest.raises(ConfigError, match="has several prompts; name one of `triage`, `other`"):
        manager.create("support")
    with pytest.raises(ConfigError, match="has no prompt `x`"):
        manager.create("support", "x")


def test_the_same_key_gives_the_same_job(manager: JobManager) -> None:
    first = manager.submit("support", "triage", {"budget": 90}, key="night-7")
    again = manager.submit("support", "triage", {"budget": 90}, key="night-7")
    assert (first.is_new, again.is_new, again.job) == (True, False, first.job)
    with pytest.raises(JobConflictError, match=f"the key stands for job {first.job.id}, which"):
        manager.submit("support", "triage", {"budget": 91}, key="night-7")
    with pytest.raises(JobConflictError):
        manager.submit("support", "other", {"budget": 90}, key="night-7")
    assert len(manager.list()) == 1


def test_a_key_that_is_none_is_refused(manager: JobManager) -> None:
    for key in ("", "ü", "x" * 201):
        with pytest.raises(ConfigError, match="key: expected 1 to 200 ASCII characters"):
            manager.submit("support", "triage", key=key)


# Looking


def test_jobs_are_found_by_the_beginning_of_their_id(manager: JobManager) -> None:
    job = submit(manager)
    assert manager.get(job.id[:8]) == job
    for wrong in ("", "abc", "zzzz", "%%%%", job.id[:3]):
        with pytest.raises(JobNotFoundError, match=r"no job|several jobs"):
            manager.get(wrong)


def test_lists_filter_and_page(manager: JobManager) -> None:
    jobs = [
        manager.create("support", ("triage", "other")[n % 2], {"tag": f"t{n}"}) for n in range(5)
    ]
    manager.cancel(jobs[0].id)
    assert [job.number for job in manager.list()] == [job.number for job in reversed(jobs)]
    assert [job.id for job in manager.list(state="cancelled")] == [jobs[0].id]
    assert [job.id for job in manager.list(prompt="other")] == [jobs[3].id, jobs[1].id]
    assert [job.id for job in manager.list(tag="t2")] == [jobs[2].id]
    assert [job.id for job in manager.list(text="t3")] == [jobs[3].id]
    assert manager.list(text="100%") == []
    assert manager.list(since=jobs[4].created + 3_600) == []
    page = manager.list(limit=2)
    assert [job.id for job in manager.list(limit=2, before=page[-1].number)] == [
        jobs[2].id,
        jobs[1].id,
    ]
    for limit in (0, 101):
        with pytest.raises(ConfigError, match="limit: expected an integer from 1 to 100"):
            manager.list(limit=limit)
    with pytest.raises(ConfigError, match="state: expected one of queued, running"):
        manager.list(state="asleep")


# Running


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
    assert ended.reason.startswith(f"{result.stop_reason}: ")


def test_events_are_numbered_and_tell_the_whole_story(manager: JobManager) -> None:
    job = submit(manager, budget=90)
    work_off(manager)
    events = manager.events(job.id)
    assert [number for number, _, _ in events] == sorted({number for number, _, _ in events})
    kinds = [json.loads(line)["event"] for _, _, line in events]
    assert kinds[:2] == ["job_queued", "job_started"]
    assert kinds[-1] == "job_completed"
    assert "RunStarted" in str([type(event) for _, event, _ in events])
    last = events[3][0]
    assert [number for number, _, _ in manager.events(job.id, after=last)] == [
        number for number, _, _ in events[4:]
    ]


def test_a_winner_goes_under_the_tag_of_the_job(database: Database, tmp_path: Path) -> None:
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    path = write_project(tmp_path / "own", file=file)
    manager = JobManager(database, projects={"support": path})
    job = manager.create("support", "triage", {"tag": "night"})
    work_off(manager)
    ended = manager.get(job.id)
    store = load_project(path).store()
    current = store.current(ns="support", prompt_key="triage", tag="night")
    assert current is not None
    assert ended.status.revision == current.id
    assert (current.provenance.run_id or "") in str(manager.result(job.id))


def test_a_dry_run_stores_nothing(database: Database, tmp_path: Path) -> None:
    path = write_project(tmp_path / "own")
    manager = JobManager(database, projects={"support": path})
    job = manager.create("support", "triage", {"dry_run": True, "budget": 90})
    work_off(manager)
    assert manager.get(job.id).state is JobState.COMPLETED
    assert load_project(path).store().addresses() == ()


def test_higher_priorities_go_first_then_older_ones(manager: JobManager) -> None:
    jobs = [submit(manager, priority=priority) for priority in (0, 5, 0, -1, 5)]
    worker = Worker(manager, name="w")
    order = [claim.job.id for _ in jobs if (claim := worker.claim())]
    assert order == [jobs[place].id for place in (1, 4, 0, 2, 3)]
    assert worker.claim() is None


def test_a_job_waits_for_its_time(manager: JobManager) -> None:
    job = submit(manager, not_before=4e9)
    assert Worker(manager).claim() is None
    manager.change(job.id, {"not_before": 1.0})
    claim = Worker(manager).claim()
    assert claim is not None
    assert claim.job.id == job.id


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
    assert manager.get(job.id).state is JobState.QUEUED
    path.write_text(FILE)
    assert Worker(JobManager(database, projects={"support": path})).claim() is not None


# States


def test_pausing_waits_for_the_end_of_the_step(manager: JobManager) -> None:
    job = submit(manager)
    claim = claimed(manager)
    assert manager.pause(job.id).wish is Wish.PAUSE
    assert manager.pause(job.id).wish is Wish.PAUSE  # repeatable
    Worker(manager).run_here(claim)
    paused = manager.get(job.id)
    assert (paused.state, paused.reason) == (JobState.PAUSED, "asked to pause")
    assert manager.pause(job.id) == paused
    assert paused.progress < 100


def test_what_is_resumed_ends_as_if_it_had_not_paused(manager: JobManager) -> None:
    straight = submit(manager)
    work_off(manager)
    job = submit(manager)
    claim = claimed(manager)
    manager.pause(job.id)
    Worker(manager).run_here(claim)
    assert manager.resume(job.id).state is JobState.QUEUED
    assert manager.resume(job.id).state is JobState.QUEUED
    work_off(manager)
    assert manager.get(job.id).state is JobState.COMPLETED
    assert outcome(manager, job) == outcome(manager, straight)
    assert manager.get(job.id).attempts == 2


def test_a_wish_to_pause_can_be_taken_back(manager: JobManager) -> None:
    job = submit(manager)
    claim = claimed(manager)
    manager.pause(job.id)
    assert manager.resume(job.id).wish is Wish.NONE
    Worker(manager).run_here(claim)
    assert manager.get(job.id).state is JobState.COMPLETED


def test_a_queued_or_paused_job_is_cancelled_at_once(manager: JobManager) -> None:
    job = submit(manager)
    cancelled = manager.cancel(job.id)
    assert (cancelled.state, cancelled.has_ended) == (JobState.CANCELLED, True)
    assert cancelled.ended is not None
    assert manager.cancel(job.id) == cancelled
    assert Worker(manager).claim() is None


def test_a_running_job_is_cancelled_by_its_worker(manager: JobManager) -> None:
    job = submit(manager)
    claim = claimed(manager)
    assert manager.cancel(job.id).state is JobState.RUNNING
    Worker(manager).run_here(claim)
    assert manager.get(job.id).state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        ("queued", "cancel, change"),
        ("running", "pause, cancel, change"),
        ("completed", "fork, delete"),
        ("cancelled", "fork, delete"),
    ],
)
def test_what_a_state_does_not_allow_is_named(project: Path, state: str, allowed: str) -> None:
    manager = JobManager("sqlite://", projects={"support": project})
    job = submit(manager, budget=60)
    if state == "running":
        claimed(manager)
    elif state == "completed":
        work_off(manager)
    elif state == "cancelled":
        manager.cancel(job.id)
    asks: dict[str, Callable[[str], object]] = {
        "pause": manager.pause,
        "resume": manager.resume,
        "fork": manager.fork,
        "delete": manager.delete,
        "cancel": manager.cancel,
        "change": lambda id_: manager.change(id_, {"note": "x"}),
    }
    silent = {"queued": {"resume"}, "running": {"resume"}, "cancelled": {"cancel"}}
    for what in asks.keys() - {*allowed.split(", ")} - silent.get(state, set()):
        with pytest.raises(JobConflictError) as refused:
            asks[what](job.id)
        assert str(refused.value) == f"job {job.id} is {state}, which allows {allowed}; not {what}"


def test_limits_may_change_and_what_decides_the_path_may_not(manager: JobManager) -> None:
    job = submit(manager, budget=60)
    assert manager.change(job.id, {"budget": 90, "note": "more"}).changes.budget == 90
    for changes in ({"seed": 5}, {"tuning": {"minibatch_size": 2}}, {"tag": "x"}):
        with pytest.raises(ConfigError, match="decides the path of the search, which is bound to"):
            manager.change(job.id, changes)
    assert manager.get(job.id).changes.note == "more"


def test_a_larger_budget_continues_a_paused_job(manager: JobManager) -> None:
    small, large = submit(manager, budget=90), submit(manager, budget=140)
    work_off(manager)
    job = submit(manager, budget=90)
    claim = claimed(manager)
    manager.pause(job.id)
    Worker(manager).run_here(claim)
    manager.change(job.id, {"budget": 140})
    manager.resume(job.id)
    work_off(manager)
    assert outcome(manager, job) == outcome(manager, large)
    assert outcome(manager, job) != outcome(manager, small)


def test_a_fork_pays_for_no_answer_again(manager: JobManager) -> None:
    first = submit(manager, budget=90)
    work_off(manager)
    fork = manager.fork(first.id, {"budget": 140})
    assert (fork.origin, fork.changes.budget) == (first.id, 140)
    work_off(manager)
    straight = submit(manager, budget=140)
    work_off(manager)
    assert outcome(manager, fork) == outcome(manager, straight)
    assert manager.attempts(fork.id)[0].answers == len(kept_lines(manager.database, first))
    assert manager.get(first.id).status.rollouts <= 90


def test_only_what_has_ended_is_deleted_with_all_it_has(manager: JobManager) -> None:
    job = submit(manager, budget=60)
    work_off(manager)
    manager.delete(job.id)
    with pytest.raises(JobNotFoundError):
        manager.get(job.id)
    assert manager.list() == []


def test_waiting_ends_with_the_job_or_in_time(manager: JobManager) -> None:
    job = submit(manager, budget=60)
    with pytest.raises(DeadlineExceededError, match="has not ended in 0"):
        manager.wait(job.id, timeout=0)
    work_off(manager)
    assert manager.wait(job.id).state is JobState.COMPLETED


# Faults


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


def test_a_limit_of_tokens_pauses_and_a_higher_one_continues(
    database: Database, tmp_path: Path
) -> None:
    file = FILE.replace("{provider: offline}\n  judges", "{python: own.py:MODEL}\n  judges")
    path = write_project(tmp_path / "own", file=file)
    (path.parent / "own.py").write_text(
        """
from decimal import Decimal
from promptgraft.adapters.base import ModelCalled, PromptResponse, Usage
from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.runtime.budget import Charge

class Counting:
    identity = "counting"
    def __init__(self):
        self._inner = OfflineAdapter()
    def evaluate(self, prompt, *, session, deadline=None):
        response = self._inner.evaluate(prompt, session=session, deadline=deadline)
        usage, cost = Usage(input_tokens=10, output_tokens=1), Decimal("0.001")
        session.budget.pay(Charge(cost=cost, tokens=11))
        session.dispatch(
            ModelCalled(model="m", requests=1, usage=usage, cost=cost, seconds=0.0)
        )
        return response

MODEL = Counting()
"""
    )
    manager = JobManager(database, projects={"support": path})
    job = submit(manager, max_tokens=100)
    work_off(manager)
    paused = manager.get(job.id)
    assert (paused.state, paused.reason.split(":")[0]) == (JobState.PAUSED, "tokens")
    manager.change(job.id, {"max_tokens": 1_000_000})
    manager.resume(job.id)
    work_off(manager)
    assert manager.get(job.id).state is JobState.COMPLETED


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


def test_what_was_wished_is_granted_when_the_worker_is_lost(manager: JobManager) -> None:
    paused, cancelled = submit(manager), submit(manager)
    worker, database = Worker(manager), manager.database
    assert worker.claim()
    assert worker.claim()
    manager.pause(paused.id)
    manager.cancel(cancelled.id)
    jobs = database.tables.jobs
    database.write(lambda connection: connection.execute(jobs.update().values(lease=1.0)))
    assert worker.claim() is None
    assert manager.get(paused.id).state is JobState.PAUSED
    assert manager.get(cancelled.id).state is JobState.CANCELLED


def test_a_worker_that_lost_its_lease_settles_nothing(manager: JobManager) -> None:
    job = submit(manager, budget=60)
    first = claimed(manager)
    database = manager.database
    jobs = database.tables.jobs
    database.write(lambda connection: connection.execute(jobs.update().values(lease=1.0)))
    second = claimed(manager)
    assert second.fence > first.fence
    Worker(manager).run_here(first)  # which has been taken over, and says nothing
    running = manager.get(job.id)
    assert (running.state, running.status.rollouts) == (JobState.RUNNING, 0)
    Worker(manager).run_here(second)
    assert manager.get(job.id).state is JobState.COMPLETED


def test_a_damaged_journal_pauses_a_job(manager: JobManager) -> None:
    job = submit(manager)
    claim = claimed(manager)
    manager.pause(job.id)
    Worker(manager).run_here(claim)
    answers = manager.database.tables.answers
    manager.database.write(
        lambda connection: connection.execute(
            answers.update().where(answers.c.position == 3).values(line=b"{}\n")
        )
    )
    manager.resume(job.id)
    work_off(manager)
    paused = manager.get(job.id)
    assert paused.state is JobState.PAUSED
    assert "JournalCorruptError: the journal of job" in paused.reason


def test_a_mirror_is_a_run_directory(manager: JobManager, tmp_path: Path) -> None:
    from promptgraft.runs import find_run, read_run

    job = submit(manager)
    claim = claimed(manager)
    with pytest.raises(DataFormatError, match="was never begun; there is nothing to write yet"):
        manager.mirror(job.id, tmp_path)
    manager.pause(job.id)
    Worker(manager).run_here(claim)
    folder = manager.mirror(job.id, tmp_path)
    journal = (folder / "journal.jsonl").read_bytes()
    manager.resume(job.id)
    work_off(manager)
    assert manager.mirror(job.id, tmp_path) == folder
    assert (folder / "journal.jsonl").read_bytes().startswith(journal)
    run = read_run(find_run(tmp_path))
    ended = manager.get(job.id)
    assert run.means == (ended.status.baseline, ended.status.best)
    assert {"report.html", "summary.md", "result.json"} <= {one.name for one in folder.iterdir()}
    document = json.loads((folder / "result.json").read_text())
    assert document["means"] == outcome(manager, job)["means"]
