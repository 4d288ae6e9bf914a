"""What jobs promise, in every kind of database and behind a server."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy

from database.database_servers import KINDS
from jobs.job_world import FILE, kept_lines, outcome, work_off, write_project
from promptgraft.errors import (
    ConfigError,
    DataFormatError,
    DeadlineExceededError,
    InvalidIdentifierError,
    OverrideConflictError,
    RevisionNotFoundError,
)
from promptgraft.project.python_source import beside
from promptgraft.service.database import Database
from promptgraft.service.jobs import (
    Job,
    JobChanges,
    JobClient,
    JobConflictError,
    JobFilter,
    JobManager,
    JobNotFoundError,
    Jobs,
    JobsFullError,
    JobState,
    Submitted,
    Wish,
    Worker,
)
from promptgraft.service.jobs.rows import Claim
from promptgraft.service.server import Scope, TokenStore
from server.serving import Client, served

REFUSED = (ConfigError, DataFormatError)
WAYS = {kind: (kind, "manager") for kind in KINDS} | {"client": ("sqlite", "client")}
EVERYWHERE = ("client", "postgresql", "mariadb")
_WAYS_OF: dict[Callable[..., None], tuple[str, ...]] = {}


def only(*ways: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test of what is asked in these ways only; the first of them in ``make test``."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        _WAYS_OF[test] = ways
        return test

    return mark


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # The server of a client asks the manager, so that SQLite has the whole suite with it.
    ways = _WAYS_OF.get(metafunc.function, EVERYWHERE)
    names = ("kept_database", "way")
    # `make thorough` asks the others.
    quick = ways[:2] if ways == EVERYWHERE else ways[:1]
    rows = [
        pytest.param(*WAYS[way], id=way, marks=() if way in quick else pytest.mark.thorough)
        for way in ways
    ]
    # A mark, so that the parameters of the fixture itself are left out.
    metafunc.definition.add_marker(
        pytest.mark.parametrize(names, rows, indirect=names[:1], scope="module")
    )


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    return write_project(tmp_path_factory.mktemp("project"), file=file)


@pytest.fixture(scope="module")
def kept_manager(kept_database: Database, project: Path) -> JobManager:
    return JobManager(kept_database, projects={"support": project})


@pytest.fixture
def manager(database: Database, kept_manager: JobManager) -> JobManager:
    """Return the manager of a database whose tables are empty."""
    return kept_manager


@pytest.fixture(scope="module")
def server(kept_manager: JobManager, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # Requests are far enough apart for any limit.
    now = itertools.count(0, 10).__next__
    with served(kept_manager, tmp_path_factory.mktemp("mirrors"), now=now) as found:
        yield found


@pytest.fixture
def jobs(way: str, manager: JobManager, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    if way == "manager":
        yield manager
        return
    client: Client = request.getfixturevalue("server")
    token = TokenStore(manager.database).create(
        "contract", [Scope.READ, Scope.SUBMIT, Scope.APPROVE]
    )
    with closing(JobClient(client.url, token=token)) as made:
        yield made


def submit(jobs: Jobs, **changes: object) -> Job:
    return jobs.create("support", "triage", {"store": False, "budget": 75, **changes})


def claimed(manager: JobManager) -> Claim:
    claim = Worker(manager, name="w").claim()
    assert claim is not None
    return claim


# Submitting


def test_a_job_is_queued_with_what_was_asked(jobs: Jobs) -> None:
    job = submit(jobs, budget=90, max_cost="1.50", tuning={"minibatch_size": 2}, note="why")
    assert jobs.get(job.id) == job
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


def test_the_same_key_gives_the_same_job(jobs: Jobs) -> None:
    first = jobs.submit("support", "triage", {"budget": 90}, key="night-7")
    again = jobs.submit("support", "triage", {"budget": 90}, key="night-7")
    assert (first.is_new, again.is_new, again.job) == (True, False, first.job)
    with pytest.raises(JobConflictError, match=f"the key belongs to job {first.job.id}, which"):
        jobs.submit("support", "triage", {"budget": 91}, key="night-7")
    with pytest.raises(JobConflictError):
        jobs.submit("support", "other", {"budget": 90}, key="night-7")
    assert len(jobs.list()) == 1


def test_a_key_answers_a_repeated_request_whatever_changed_meanwhile(jobs: Jobs) -> None:
    # As it was asked: a name stands for the latest data set, and a job may be changed.
    first_set = jobs.save_dataset("support", "nightly", MANY)
    asked = {"budget": 90, "dataset": "nightly", "dry_run": True}
    first = jobs.submit("support", "triage", asked, key="night-9")
    changed = jobs.change(first.job.id, {"budget": 95})
    jobs.save_dataset("support", "nightly", MANY + CASES)
    again = jobs.submit("support", "triage", asked, key="night-9")
    assert (again.is_new, again.job) == (False, changed)
    assert again.job.changes.dataset == first_set.id
    with pytest.raises(JobConflictError, match="has other content; use another key"):
        jobs.submit("support", "triage", {**asked, "budget": 95}, key="night-9")


@only("mariadb", "client", "postgresql")
def test_a_key_makes_one_job_whoever_is_first(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Barrier(6)

    def planned(*_: object) -> None:
        gate.wait(30)

    monkeypatch.setattr("promptgraft.service.jobs.preparing.planned", planned)

    def ask(_: int) -> Submitted:
        return jobs.submit("support", "triage", {"budget": 90}, key="night-8")

    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(ask, range(6)))
    assert len({one.job.id for one in made}) == 1
    assert [one.is_new for one in made].count(True) == 1


def test_so_many_jobs_may_wait_and_no_more(jobs: Jobs, manager: JobManager) -> None:
    ended = submit(jobs)
    jobs.cancel(ended.id)
    job = submit(jobs)
    table = manager.database.tables.jobs

    def fill(connection: sqlalchemy.Connection) -> None:
        query = sqlalchemy.select(table).where(table.c.id == job.id)
        row = connection.execute(query).one()._asdict()
        del row["number"]
        copies = [{**row, "id": f"{number:032x}"} for number in range(999)]
        connection.execute(sqlalchemy.insert(table), copies)

    manager.database.write(fill)
    with pytest.raises(JobsFullError, match="the queue is full: 1,000 jobs waiting; submit"):
        submit(jobs)
    with pytest.raises(JobsFullError):
        jobs.fork(ended.id)
    jobs.cancel(job.id)
    assert submit(jobs).state is JobState.QUEUED


@only("client", "sqlite")
def test_a_key_that_is_none_is_refused(jobs: Jobs) -> None:
    for key in ("", "ü", "x" * 201):
        with pytest.raises(REFUSED, match="key: expected 1 to 200 ASCII characters"):
            jobs.submit("support", "triage", key=key)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"budget": 0}, "budget: expected an integer from 1 to 1,000,000,000, found 0"),
        ({"budget": 10**9 + 1}, "budget: expected an integer from 1 to 1,000,000,000, found 10"),
        ({"max_cost": "1e400"}, "above 0 and of at most 1,000,000,000, such as 2.50, found '1e4"),
        ({"budgt": 5}, "budgt: unknown key (did you mean `budget`?)"),
        ({"targets": {}}, "targets: unknown key; write `tuning: {targets: {parts: [...]}}`"),
        ({"max_iterations": 101}, "max_iterations: expected an integer from 1 to 100, found 101"),
        ({"target_score": 1.5}, "target_score: expected a number from 0 to 1, found 1.5"),
        ({"patience": 51}, "patience: expected an integer from 1 to 50, found 51"),
        (
            {"max_cost": "much"},
            "max_cost: expected US dollars above 0 and of at most 1,000,000,000",
        ),
        ({"note": "half \ud800"}, "note: expected characters, found half of a surrogate pair"),
        ({"seed": -1}, "seed: expected an integer of at least 0, found -1"),
        ({"tag": "No!"}, "tag: expected 1 to 64 lower-case letters"),
        ({"note": "x" * 1_001}, "note: expected at most 1,000 characters, found 1,001"),
        ({"priority": 101}, "priority: expected an integer from -100 to 100, found 101"),
        ({"dry_run": "yes"}, "dry_run: expected true or false, found 'yes'"),
        ({"model": "gpt"}, "model: the project has no model `gpt`; there: task, strict"),
        ({"algorithm": "x"}, "algorithm: unknown algorithm `x`: there are"),
        ({"tuning": {"minibatch": 3}}, "minibatch: unknown key (did you mean `minibatch_size`?)"),
        ({"tuning": {"seed": "x"}}, "seed: expected an integer of at least 0, found 'x'"),
        ({"budget": 3}, "rollout_budget"),
    ],
)
@only("client", "sqlite")
def test_what_does_not_fit_is_refused_before_it_is_queued(
    jobs: Jobs, changes: dict[str, object], line: str
) -> None:
    with pytest.raises(REFUSED) as refused:
        jobs.create("support", "triage", changes)
    assert line in str(refused.value)
    assert jobs.list() == []


@only("client", "sqlite")
def test_unknown_names_say_what_there_is(jobs: Jobs) -> None:
    with pytest.raises(
        (ConfigError, DataFormatError),
        match=r"there is no project `suport` .did you mean `support`",
    ):
        jobs.create("suport")
    with pytest.raises(
        (ConfigError, DataFormatError), match="has several prompts; name one of `triage`, `other`"
    ):
        jobs.create("support")
    with pytest.raises(REFUSED, match="has no prompt `x`"):
        jobs.create("support", "x")


# Looking


def test_jobs_are_found_by_the_beginning_of_their_id(jobs: Jobs) -> None:
    job = submit(jobs)
    assert jobs.get(job.id[:8]) == job
    for wrong in ("", "abc", "zzzz", "%%%%", job.id[:3]):
        with pytest.raises(JobNotFoundError, match=r"no job|several jobs"):
            jobs.get(wrong)


def test_lists_filter_and_page(jobs: Jobs) -> None:
    made = [jobs.create("support", ("triage", "other")[n % 2], {"tag": f"t{n}"}) for n in range(5)]
    jobs.cancel(made[0].id)
    assert [job.number for job in jobs.list()] == [job.number for job in reversed(made)]
    assert [job.id for job in jobs.list(JobFilter(state="cancelled"))] == [made[0].id]
    assert [job.id for job in jobs.list(JobFilter(prompt="other"))] == [made[3].id, made[1].id]
    assert [job.id for job in jobs.list(JobFilter(tag="t2"))] == [made[2].id]
    assert [job.id for job in jobs.list(JobFilter(text="t3"))] == [made[3].id]
    assert jobs.list(JobFilter(text="100%")) == []
    assert jobs.list(JobFilter(since=made[4].created + 3_600)) == []
    page = jobs.list(limit=2)
    assert [job.id for job in jobs.list(limit=2, before=page[-1].number)] == [
        made[2].id,
        made[1].id,
    ]
    for limit in (0, 101):
        with pytest.raises(REFUSED, match="limit: expected an integer from 1 to 100"):
            jobs.list(limit=limit)
    with pytest.raises(REFUSED, match="state: expected one of queued, running"):
        jobs.list(JobFilter(state="asleep"))


# Running


@only("mariadb", "client")
def test_events_are_numbered_and_tell_the_whole_story(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs, budget=90)
    work_off(manager)
    events = jobs.events(job.id)
    assert [number for number, _, _ in events] == sorted({number for number, _, _ in events})
    kinds = [json.loads(line)["event"] for _, _, line in events]
    assert kinds[:2] == ["job_queued", "job_started"]
    assert kinds[-1] == "job_completed"
    assert "RunStarted" in str([type(event) for _, event, _ in events])
    last = events[3][0]
    assert [number for number, _, _ in jobs.events(job.id, after=last)] == [
        number for number, _, _ in events[4:]
    ]


@only("mariadb", "client", "postgresql")
def test_higher_priorities_go_first_then_older_ones(jobs: Jobs, manager: JobManager) -> None:
    made = [submit(jobs, priority=priority) for priority in (0, 5, 0, -1, 5)]
    worker = Worker(manager, name="w")
    order = [claim.job.id for _ in made if (claim := worker.claim())]
    assert order == [made[place].id for place in (1, 4, 0, 2, 3)]
    assert worker.claim() is None


def test_a_job_waits_for_its_time(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs, not_before=4e9)
    assert Worker(manager).claim() is None
    jobs.change(job.id, {"not_before": 1.0})
    claim = Worker(manager).claim()
    assert claim is not None
    assert claim.job.id == job.id


# States


def test_pausing_waits_for_the_end_of_the_step(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs)
    claim = claimed(manager)
    assert jobs.pause(job.id).wish is Wish.PAUSE
    assert jobs.pause(job.id).wish is Wish.PAUSE  # repeatable
    Worker(manager).run_here(claim)
    paused = jobs.get(job.id)
    assert (paused.state, paused.reason) == (JobState.PAUSED, "asked to pause")
    assert jobs.pause(job.id) == paused
    assert paused.progress < 100


@only("client", "mariadb")
def test_what_is_resumed_ends_as_if_it_had_not_paused(jobs: Jobs, manager: JobManager) -> None:
    straight = submit(jobs)
    work_off(manager)
    job = submit(jobs)
    claim = claimed(manager)
    jobs.pause(job.id)
    Worker(manager).run_here(claim)
    assert jobs.resume(job.id).state is JobState.QUEUED
    assert jobs.resume(job.id).state is JobState.QUEUED
    work_off(manager)
    assert jobs.get(job.id).state is JobState.COMPLETED
    assert outcome(manager, job) == outcome(manager, straight)
    assert jobs.get(job.id).attempts == 2


@only("client")
def test_a_wish_to_pause_can_be_taken_back(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs)
    claim = claimed(manager)
    jobs.pause(job.id)
    assert jobs.resume(job.id).wish is Wish.NONE
    Worker(manager).run_here(claim)
    assert jobs.get(job.id).state is JobState.COMPLETED


def test_a_queued_or_paused_job_is_cancelled_at_once(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs)
    cancelled = jobs.cancel(job.id)
    assert (cancelled.state, cancelled.has_ended) == (JobState.CANCELLED, True)
    assert cancelled.ended is not None
    assert jobs.cancel(job.id) == cancelled
    assert Worker(manager).claim() is None


@only("client")
def test_a_running_job_is_cancelled_by_its_worker(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs)
    claim = claimed(manager)
    assert jobs.cancel(job.id).state is JobState.RUNNING
    Worker(manager).run_here(claim)
    assert jobs.get(job.id).state is JobState.CANCELLED


@only("client")
def test_pausing_takes_no_wish_to_cancel_back(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs)
    claim = claimed(manager)
    jobs.cancel(job.id)
    assert jobs.pause(job.id).wish is Wish.CANCEL
    Worker(manager).run_here(claim)
    assert jobs.get(job.id).state is JobState.CANCELLED


@only("client", "sqlite")
def test_limits_may_change_and_what_decides_the_path_may_not(jobs: Jobs) -> None:
    job = submit(jobs, budget=60)
    assert jobs.change(job.id, {"budget": 90, "note": "more"}).changes.budget == 90
    for changes in ({"seed": 5}, {"tuning": {"minibatch_size": 2}}, {"tag": "x"}):
        with pytest.raises(REFUSED, match="decides the path of the search, which is bound to"):
            jobs.change(job.id, changes)
    assert jobs.get(job.id).changes.note == "more"
    # What is named counts, even if it is a default.
    assert jobs.change(job.id, {"note": "", "priority": 3}).changes.note == ""
    assert jobs.change(job.id, {"priority": 0}).changes == JobChanges(budget=90, store=False)


@pytest.mark.thorough
@only("client")
def test_a_larger_budget_continues_a_paused_job(jobs: Jobs, manager: JobManager) -> None:
    small, large = submit(jobs, budget=90), submit(jobs, budget=140)
    work_off(manager)
    job = submit(jobs, budget=90)
    claim = claimed(manager)
    jobs.pause(job.id)
    Worker(manager).run_here(claim)
    jobs.change(job.id, {"budget": 140})
    jobs.resume(job.id)
    work_off(manager)
    assert outcome(manager, job) == outcome(manager, large)
    assert outcome(manager, job) != outcome(manager, small)


@only("client", "postgresql")
def test_a_fork_pays_for_no_answer_again(jobs: Jobs, manager: JobManager) -> None:
    first = submit(jobs, budget=90)
    work_off(manager)
    fork = jobs.fork(first.id, {"budget": 140})
    assert (fork.origin, fork.changes.budget) == (first.id, 140)
    work_off(manager)
    straight = submit(jobs, budget=140)
    work_off(manager)
    assert outcome(manager, fork) == outcome(manager, straight)
    assert jobs.attempts(fork.id)[0].answers == len(kept_lines(manager.database, first))
    assert jobs.get(first.id).status.rollouts <= 90


@only("postgresql", "client")
def test_only_what_has_ended_is_deleted_with_all_it_has(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs, budget=60)
    work_off(manager)
    jobs.delete(job.id)
    with pytest.raises(JobNotFoundError):
        jobs.get(job.id)
    assert jobs.list() == []


@only("client")
def test_waiting_ends_with_the_job_or_in_time(jobs: Jobs, manager: JobManager) -> None:
    job = submit(jobs, budget=60)
    with pytest.raises(DeadlineExceededError, match="has not ended in 0"):
        jobs.wait(job.id, timeout=0)
    work_off(manager)
    assert jobs.wait(job.id).state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        ("queued", "cancel, change"),
        ("running", "pause, cancel, change"),
        ("completed", "apply, fork, delete"),
        ("cancelled", "fork, delete"),
    ],
)
@only("client")
def test_what_a_state_does_not_allow_is_named(
    jobs: Jobs, manager: JobManager, state: str, allowed: str
) -> None:
    job = submit(jobs, budget=60)
    if state == "running":
        claimed(manager)
    elif state == "completed":
        work_off(manager)
    elif state == "cancelled":
        jobs.cancel(job.id)
    asks: dict[str, Callable[[str], object]] = {
        "pause": jobs.pause,
        "resume": jobs.resume,
        "fork": jobs.fork,
        "delete": jobs.delete,
        "cancel": jobs.cancel,
        "change": lambda id_: jobs.change(id_, {"note": "x"}),
        "apply": jobs.apply,
    }
    silent = {"queued": {"resume"}, "running": {"resume"}, "cancelled": {"cancel"}}
    for what in asks.keys() - {*allowed.split(", ")} - silent.get(state, set()):
        with pytest.raises(JobConflictError) as refused:
            asks[what](job.id)
        assert str(refused.value) == f"job {job.id} is {state}, which allows {allowed}; not {what}"


# Winners


@only("client")
def test_a_winner_is_promoted_if_the_tag_is_where_it_should_be(
    jobs: Jobs, manager: JobManager
) -> None:
    night, prod = (f"t{uuid.uuid4().hex}" for _ in range(2))
    project, name = manager.projects["support"], "support/triage"
    with beside(project.folder):
        prompt, store = project.prompt("triage").prompt, project.store()
    with pytest.raises(RevisionNotFoundError, match="holds nothing"):
        jobs.promote("support", "triage", night, to=prod)
    store.set_section_override(prompt, path=("rules",), body="Be kind.", tag=night)
    with pytest.raises(OverrideConflictError, match="expected revision 0000, found none"):
        jobs.promote("support", "triage", night, to=prod, expected={name: "0000"})
    with pytest.raises(REFUSED, match=r"no prompt `support/triag`.*did you mean"):
        jobs.promote("support", "triage", night, to=prod, expected={"support/triag": ""})
    assert store.current(ns="support", prompt_key="triage", tag=prod) is None
    first = jobs.promote("support", "triage", night, to=prod, expected={name: ""})
    present = store.current(ns="support", prompt_key="triage", tag=prod)
    assert present is not None
    assert first == {name: present.id}
    store.set_section_override(prompt, path=("rules",), body="Be brief.", tag=night)
    said = f"expected revision none, found {first[name][:12]}"
    with pytest.raises(OverrideConflictError, match=said):
        jobs.promote("support", "triage", night, to=prod, expected={name: ""})
    second = jobs.promote("support", "triage", night, to=prod, expected={name: first[name][:8]})
    assert second != first
    for names in (("no", "triage"), ("support", "no"), ("support", "a/b")):
        with pytest.raises(REFUSED):
            jobs.promote(*names, night, to=prod)


@only("client")
def test_a_winner_is_applied_where_the_caller_wants_it(jobs: Jobs, manager: JobManager) -> None:
    tag, prod = (f"t{uuid.uuid4().hex}" for _ in range(2))
    job = submit(jobs, tag=tag, store=True)
    with pytest.raises(JobConflictError, match="not apply"):
        jobs.apply(job.id)
    work_off(manager)
    store = manager.projects["support"].store()
    assert store.current(ns="support", prompt_key="triage", tag=tag) is None
    with pytest.raises(OverrideConflictError, match="expected revision 0000, found none"):
        jobs.apply(job.id, expected={"support/triage": "0000"})
    for to in (None, prod):
        applied = jobs.apply(job.id, to=to)
        current = store.current(ns="support", prompt_key="triage", tag=to or tag)
        assert current is not None
        assert applied == {"support/triage": current.id}
    assert jobs.events(job.id)[-1][2].count(b'"apply"') == 1


# Faults


@only("client")
def test_a_mirror_is_a_run_directory(jobs: Jobs, manager: JobManager, tmp_path: Path) -> None:
    from promptgraft.runs import find_run, read_run

    job = submit(jobs)
    claim = claimed(manager)
    with pytest.raises(DataFormatError, match="has not started; there is nothing to write yet"):
        jobs.mirror(job.id, tmp_path)
    jobs.pause(job.id)
    Worker(manager).run_here(claim)
    folder = jobs.mirror(job.id, tmp_path)
    journal = (folder / "journal.jsonl").read_bytes()
    jobs.resume(job.id)
    work_off(manager)
    assert jobs.mirror(job.id, tmp_path) == folder
    assert (folder / "journal.jsonl").read_bytes().startswith(journal)
    run = read_run(find_run(tmp_path))
    ended = jobs.get(job.id)
    assert run.means == (ended.status.baseline, ended.status.best)
    assert {"report.html", "summary.md", "result.json"} <= {one.name for one in folder.iterdir()}
    document = json.loads((folder / "result.json").read_text())
    assert document["means"] == outcome(manager, job)["means"]


CASES = """
{"id": "a", "input": "the invoice 1 has a wrong amount", "expected": "billing"}
  {"id": "b", "input": "my password 2 is lost \u2028 here", "expected": "login"}\r

"""
TIDY = "".join(f"{line.strip()}\n" for line in CASES.split("\n") if line.strip())
MANY = "".join(
    json.dumps({"id": f"n{n}", "input": f"my password {n} is lost", "expected": "login"}) + "\n"
    for n in range(40)
)


@only("mariadb", "client", "postgresql")
def test_a_data_set_has_a_revision_for_each_edit(jobs: Jobs, manager: JobManager) -> None:
    first = jobs.save_dataset("support", "hard", CASES)
    assert (first.number, first.cases, first.name) == (1, 2, "hard")
    assert first.digest == hashlib.sha256(TIDY.encode()).hexdigest()
    assert jobs.dataset("support", "hard").text == TIDY
    same = jobs.save_dataset("support", "hard", TIDY, expected=first.digest)
    assert (same.number, same.digest) == (1, first.digest)
    second = jobs.save_dataset("support", "hard", MANY, expected=first.digest)
    assert (second.number, second.cases) == (2, 40)
    jobs.save_dataset("support", "easy", MANY, expected="")
    listed = jobs.datasets("support")
    assert [(row.name, row.number, row.text) for row in listed] == [
        ("easy", 1, ""),
        ("hard", 2, ""),
    ]
    history = jobs.dataset_history("support", "hard")
    assert [row.digest for row in history] == [second.digest, first.digest]
    assert history[0].created >= history[1].created > 0
    assert jobs.dataset("support", f"hard@{first.digest[:9]}").text == TIDY
    again = jobs.save_dataset("support", "hard", TIDY)
    assert (again.number, again.digest) == (3, first.digest)
    assert jobs.dataset("support", f"hard@{first.digest}").number == 3


def test_an_edit_of_what_was_changed_meanwhile_is_refused(jobs: Jobs, manager: JobManager) -> None:
    first = jobs.save_dataset("support", "hard", CASES)
    for expected in ("", "0" * 64):
        with pytest.raises(OverrideConflictError, match=f"`hard` was changed.*{first.digest[:12]}"):
            jobs.save_dataset("support", "hard", MANY, expected=expected)
    assert [row.number for row in jobs.datasets("support")] == [1]
    with ThreadPoolExecutor(8) as threads:
        saves = [
            threads.submit(manager.save_dataset, "support", "both", MANY + f'{{"input": "{n}"}}')
            for n in range(8)
        ]
        numbers = sorted(save.result().number for save in saves)
    assert numbers == list(range(1, 9))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "at least one case"),
        ('{"input": "a"', "line 1"),
        ('{"input": "a"}\n[1]', "line 2: expected an object"),
        ('{"id": "a", "input": "a"}\n{"id": "a", "input": "b"}', "a"),
        ('{"input": {"type": "image", "path": "/etc/passwd"}}', "path"),
        ('{"input": [{"type": "image_url", "image_url": "https://x.example/a.png"}]}', "images"),
        ('{"input": "' + "x" * 1_000_000 + '"}', "at most 1,000,000 bytes"),
        ('{"input": ' + "[" * 40 + "]" * 40 + "}", "at most 32 deep"),
        ('{"input": "half \\ud800 of it"}', "half|surrogate|character"),
        ('{"input": "half \ud800 of it"}', "half|surrogate|character"),
    ],
)
@only("client", "sqlite")
def test_cases_that_are_none_are_refused(
    jobs: Jobs, manager: JobManager, text: str, why: str
) -> None:
    with pytest.raises((ConfigError, DataFormatError), match=why):
        jobs.save_dataset("support", "hard", text)
    assert jobs.datasets("support") == []


@only("client", "sqlite")
def test_names_of_data_sets_and_projects_are_checked(jobs: Jobs, manager: JobManager) -> None:
    for name in ("", "..", "A b", "x" * 65, "a/b", "a@b"):
        with pytest.raises(InvalidIdentifierError, match=r"name of a data set"):
            jobs.save_dataset("support", name, CASES)
    for look in (jobs.datasets, lambda project: jobs.dataset(project, "hard")):
        with pytest.raises(ConfigError, match="project `other`"):
            look("other")
    with pytest.raises(RevisionNotFoundError, match="no data set `hard`; there: none"):
        jobs.dataset("support", "hard")
    saved = jobs.save_dataset("support", "hard", CASES)
    for digest in ("", saved.digest[:3], "0" * 64):
        with pytest.raises(RevisionNotFoundError, match=f"latest is {saved.digest}"):
            jobs.dataset("support", f"hard@{digest}")


@only("client")
def test_a_job_runs_on_the_revision_that_it_chose(jobs: Jobs, manager: JobManager) -> None:
    saved = jobs.save_dataset("support", "hard", MANY)
    job = submit(jobs, dataset="hard")
    assert job.changes.dataset == f"hard@{saved.digest}"
    jobs.save_dataset("support", "hard", CASES)
    assert work_off(manager) == 1
    done = jobs.get(job.id)
    assert (done.state, done.reason) == (JobState.COMPLETED, done.reason)
    fork = jobs.fork(job.id, {"budget": 80})
    assert fork.changes.dataset == job.changes.dataset
    assert work_off(manager) == 1
    result = jobs.result(fork.id) or {}
    ids = set(json.loads(json.dumps(result["held_out"]))["ids"])
    assert ids
    assert ids <= {f"n{n}" for n in range(40)}
    with pytest.raises(RevisionNotFoundError, match="no data set `soft`; there: hard"):
        submit(jobs, dataset="soft")
    with pytest.raises(REFUSED, match=r"split|test|cases"):
        submit(jobs, dataset="hard")  # whose latest revision has two cases
    waiting = submit(jobs, dataset=f"hard@{saved.digest[:6]}")
    assert waiting.changes.dataset == job.changes.dataset
    with pytest.raises(REFUSED, match="dataset: decides the path of the search"):
        jobs.change(waiting.id, {"dataset": "hard"})
