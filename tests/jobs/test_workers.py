"""Workers and their processes: kills, stops, take-overs, and many that claim at once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from database.database_servers import KINDS
from jobs.job_world import (
    FILE,
    KILLS,
    STOPS,
    expire,
    outcome,
    until,
    work_off,
    write_priced,
    write_project,
)
from programs import Programs, Started
from promptgraft.errors import ConfigError
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs import Job, JobManager, JobState, Worker
from promptgraft.service.jobs.paths import relative_paths
from promptgraft.service.jobs.rows import Claim, JobRows
from promptgraft.testing import FakeClock

CLAIMS = int(os.environ.get("PROMPTGRAFT_CLAIMS", "40"))
CLAIMANTS = 8 if "PROMPTGRAFT_CLAIMS" in os.environ else 3
# Processes take their time: a longer test looks at every database.
EVERYWHERE = KINDS if "PROMPTGRAFT_KILLS" in os.environ else ("sqlite",)


everywhere = pytest.mark.parametrize("kept_database", EVERYWHERE, indirect=True, scope="module")


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


def submit(manager: JobManager, **changes: object) -> Job:
    return manager.create("support", "triage", {"store": False, **changes})


def answers(manager: JobManager, job: Job) -> int:
    table = manager.database.tables.answers
    query = sqlalchemy.select(sqlalchemy.func.count()).where(table.c.job == job.number)
    with manager.database.reading() as connection:
        return connection.scalar(query) or 0


@contextlib.contextmanager
def child_of(
    programs: Programs, manager: JobManager, project: Path, claim: Claim
) -> Iterator[Started]:
    """Start the process of a job that was claimed."""
    told = {
        "url": manager.database.secret_url,
        "prefix": manager.database.prefix,
        "project": str(project),
        "job": claim.job.number,
        "fence": claim.fence,
        "calls": None,
        "log": "text",
    }
    command = ("-m", "promptgraft.service.jobs.child")
    with programs.started(*command, given=json.dumps(told)) as process:
        yield process


@pytest.mark.thorough
@everywhere
def test_jobs_run_in_processes_of_their_own(manager: JobManager) -> None:
    jobs = [submit(manager, budget=60, seed=seed) for seed in range(2)]
    Worker(manager, processes=2, name="w").run(until_idle=True)
    assert [manager.get(job.id).state for job in jobs] == [JobState.COMPLETED] * 2
    assert all(manager.attempts(job.id)[0].worker == "w" for job in jobs)


NAMING = """
import threading
from pathlib import Path
from promptgraft.adapters.offline import OfflineAdapter

class Naming:
    identity = "naming"
    def __init__(self):
        self._inner = OfflineAdapter()
    def evaluate(self, prompt, *, session, deadline=None):
        with Path(__file__).with_name("threads").open("a") as file:
            print(threading.current_thread().name, file=file)
        return self._inner.evaluate(prompt, session=session, deadline=deadline)

MODEL = Naming()
"""


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True)
def test_a_worker_has_its_share_of_calls_and_no_more(database: Database, tmp_path: Path) -> None:
    path = write_priced(tmp_path / "own")
    path.write_text(path.read_text().replace("workers: 4", "workers: 8"))
    path.with_name("own.py").write_text(NAMING)
    manager = JobManager(database, projects={"support": path})
    job = submit(manager, budget=60)
    Worker(manager, calls=3, name="w").run(until_idle=True)
    assert manager.get(job.id).state is JobState.COMPLETED
    threads = set(path.with_name("threads").read_text().split())
    assert 1 <= len({name for name in threads if name.startswith("ThreadPool")}) <= 3
    with pytest.raises(ConfigError, match="calls: expected at least 1 for each of 3 processes"):
        Worker(manager, processes=3, calls=2)


HANGING = """
from pathlib import Path
from threading import Event

class Hanging:
    identity = "hanging"
    def evaluate(self, prompt, *, session, deadline=None):
        Path(__file__).with_name("hangs").touch()
        Event().wait()

MODEL = Hanging()
"""


FORKING = """
import multiprocessing
import signal
import threading
import time

# As it starts a process, multiprocessing takes the ends of others, which their threads then miss.
ONE = threading.Lock()

def wait(ready):
    ready.set()
    while True:  # `pause` may begin after the signal
        time.sleep(0.01)

def kind(case, answer):
    if case.id.endswith("0"):  # some are enough: each fork copies the tables of a large process
        with ONE:
            end_a_process()
    return float(answer.text == case.expected)

def end_a_process():
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=wait, args=(ready,), daemon=True)
    child.start()
    ready.wait()
    child.terminate()
    child.join(20)
    assert child.exitcode == -signal.SIGTERM
"""


@pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True)
def test_a_metric_may_end_processes_of_its_own(database: Database, tmp_path: Path) -> None:
    metric = "{name: kind, kind: python, function: own.py:kind}"
    path = write_project(tmp_path / "own", file=FILE.replace("{name: exact}", metric))
    path.with_name("own.py").write_text(FORKING)
    manager = JobManager(database, projects={"support": path})
    job = submit(manager, budget=60)
    work_off(manager)
    ended = manager.get(job.id)
    assert ended.state is JobState.COMPLETED, ended.reason


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_process_that_hangs_ends_half_a_minute_after_its_job(
    database: Database, tmp_path: Path, is_taken_over: bool
) -> None:
    path = write_priced(tmp_path / "own")
    path.with_name("own.py").write_text(HANGING)
    manager, clock = JobManager(database, projects={"support": path}), FakeClock()
    job = submit(manager)
    worker = Worker(manager, clock=clock, seconds=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert until(path.with_name("hangs").exists)
        if is_taken_over:
            expire(manager)
            other = Worker(manager, name="other")
            assert until(lambda: other.claim() is not None)
        manager.cancel(job.id)
        following = submit(manager, dry_run=True, budget=60)

        def is_free() -> bool:
            clock.advance(1.0)
            return manager.get(following.id).state is JobState.COMPLETED

        assert until(is_free)
    finally:
        worker.stop()
        thread.join()
    expected = JobState.RUNNING if is_taken_over else JobState.CANCELLED
    assert manager.get(job.id).state is expected


@pytest.mark.usefixtures("forked_jobs")
@pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True)
def test_a_project_that_changes_under_a_worker_runs_no_job(
    database: Database, tmp_path: Path
) -> None:
    paths = {name: write_project(tmp_path / name) for name in ("other", "broken")}
    manager = JobManager(database, projects=paths)
    jobs = {name: manager.create(name, "triage", {"budget": 60}) for name in paths}
    worker = Worker(manager, processes=2, name="w")
    paths["other"].write_text(FILE.replace("size: 3", "size: 2"))
    paths["broken"].write_text(FILE + "workers: many\n")
    worker.run(until_idle=True)
    for name, job in jobs.items():
        waiting = manager.get(job.id)
        assert (waiting.state, waiting.attempts) == (JobState.QUEUED, 1)
        assert waiting.reason.startswith(f"waits for a worker with project `{name}` as it was")
        (attempt,) = manager.attempts(job.id)
        fault = "" if name == "other" else r": promptgraft.yaml:\d+: .*twice.*; mend it, and"
        why = f"the project has changed since its worker began{fault or ';'} start the worker again"
        assert re.fullmatch(why, attempt.error)
    assert {claim.job.project for _ in jobs if (claim := Worker(manager).claim())} == set(jobs)


@everywhere
def test_killed_jobs_end_as_if_nothing_had_happened(
    manager: JobManager, project: Path, programs: Programs
) -> None:
    straight = submit(manager)
    work_off(manager)
    total = answers(manager, straight)
    wanted, rng = outcome(manager, straight), random.Random(7)
    for _ in range(KILLS):
        job = submit(manager)
        died = 0
        for _ in range(rng.choice((1, 1, 2))):
            claim = Worker(manager, name="w").claim()
            assert claim is not None
            goal = rng.randrange(1, total)
            with child_of(programs, manager, project, claim) as process:
                until(lambda: answers(manager, job) >= goal, process)  # noqa: B023
                process.send_signal(signal.SIGKILL)
                died += process.wait() == -signal.SIGKILL
            expire(manager)
        work_off(manager)
        assert manager.get(job.id).state is JobState.COMPLETED
        assert (outcome(manager, job), answers(manager, job)) == (wanted, total)
        assert [n for n, _, _ in manager.events(job.id)] == sorted(
            {n for n, _, _ in manager.events(job.id)}
        )
        lines = [json.loads(line) for _, _, line in manager.events(job.id)]
        numbers = [line["n"] for line in lines if "n" in line]
        assert numbers == sorted(numbers)


@everywhere
def test_a_child_that_dies_puts_its_job_back_at_once(manager: JobManager, project: Path) -> None:
    job = submit(manager)
    worker = Worker(manager, name="w")
    thread = threading.Thread(target=lambda: worker.run(until_idle=True))
    thread.start()
    until(lambda: answers(manager, job) > 5)
    for pid in _children_of(os.getpid()):
        if b"promptgraft.service.jobs.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert manager.get(job.id).state is JobState.COMPLETED
    errors = [one.error for one in manager.attempts(job.id)]
    assert errors in (["its process was ended by SIGKILL", ""], [""])


@pytest.mark.usefixtures("forked_jobs")
@everywhere
@pytest.mark.parametrize("is_lost", [True, False])
def test_the_last_worker_awaits_jobs_whose_workers_may_be_lost(
    manager: JobManager, caplog: pytest.LogCaptureFixture, is_lost: bool
) -> None:
    caplog.set_level("INFO", logger="promptgraft.service.jobs")
    job = submit(manager, budget=60)
    claim = Worker(manager, name="other").claim()
    assert claim is not None
    thread = threading.Thread(target=lambda: Worker(manager).run(until_idle=True))
    thread.start()
    until(lambda: "worker other may be lost" in caplog.text)
    assert thread.is_alive()
    if is_lost:
        expire(manager)
    else:
        manager.database.write(
            lambda connection: JobRows(manager.database).renew(connection, claim)
        )
    thread.join(60)
    assert not thread.is_alive()
    state, attempts = manager.get(job.id).state, manager.get(job.id).attempts
    assert (state, attempts) == ((JobState.COMPLETED, 2) if is_lost else (JobState.RUNNING, 1))


def _children_of(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may have ended since it was listed.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, (task / "children").read_text().split())
    return children


def stop_between_writes(process: Started, manager: JobManager, job: Job) -> None:
    """Stop a process where it holds no lock, for which others would wait."""
    url, prefix = manager.database.secret_url, manager.database.prefix
    impatient = Database(url, prefix=prefix, timeout_seconds=0.2)
    rows = JobRows(impatient)
    while process.poll() is None:
        seen = answers(manager, job)
        process.send_signal(signal.SIGSTOP)
        try:
            impatient.write(lambda connection: rows.load(connection, job.number, locked=True))
        except DatabaseError:
            process.send_signal(signal.SIGCONT)
            # At once it would be stopped in the same write again.
            until(lambda: answers(manager, job) > seen, process)  # noqa: B023
        else:
            break
    impatient.close()


@everywhere
def test_a_stopped_worker_writes_nothing_after_it_was_taken_over(
    manager: JobManager, project: Path, programs: Programs
) -> None:
    straight = submit(manager)
    work_off(manager)
    total, rng = answers(manager, straight), random.Random(5)
    for _ in range(STOPS):
        job = submit(manager)
        claim = Worker(manager, name="slow").claim()
        assert claim is not None
        goal = rng.randrange(1, total // 2)
        with child_of(programs, manager, project, claim) as process:
            until(lambda: answers(manager, job) >= goal, process)  # noqa: B023
            stop_between_writes(process, manager, job)
            expire(manager)
            work_off(manager)
            after = manager.get(job.id), answers(manager, job), manager.events(job.id)
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) == 0
        assert (manager.get(job.id), answers(manager, job), manager.events(job.id)) == after
        assert outcome(manager, job) == outcome(manager, straight)


@everywhere
def test_a_worker_that_is_asked_to_end_puts_its_jobs_back(
    manager: JobManager, project: Path, programs: Programs
) -> None:
    job = submit(manager)
    claim = Worker(manager, name="w").claim()
    assert claim is not None
    with child_of(programs, manager, project, claim) as process:
        until(lambda: answers(manager, job) > 10, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    found = manager.get(job.id)
    assert found.state in (JobState.QUEUED, JobState.COMPLETED)
    if found.state is JobState.QUEUED:
        assert found.reason == "its worker was asked to end"
    work_off(manager)
    assert manager.get(job.id).state is JobState.COMPLETED


@everywhere
def test_a_job_paused_at_any_moment_ends_the_same(
    manager: JobManager, project: Path, programs: Programs
) -> None:
    straight = submit(manager)
    work_off(manager)
    total, rng = answers(manager, straight), random.Random(3)
    for _ in range(max(1, KILLS // 3)):
        job = submit(manager)
        claim = Worker(manager, name="w").claim()
        assert claim is not None
        goal = rng.randrange(1, total)
        with child_of(programs, manager, project, claim) as process:
            until(lambda: answers(manager, job) >= goal, process)  # noqa: B023
            if not manager.get(job.id).has_ended:
                manager.pause(job.id)
            assert process.wait(60) == 0
        if manager.get(job.id).state is JobState.PAUSED:
            manager.resume(job.id)
        work_off(manager)
        assert outcome(manager, job) == outcome(manager, straight)


CLAIMING = """
import os, sys
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs.rows import JobRows
children = []
for name in sys.argv[2:]:
    children.append(os.fork())
    if not children[-1]:
        database = Database(sys.argv[1])
        rows = JobRows(database)
        while claim := database.write(lambda c: rows.claim(c, [("p", "d")], name)):
            os.write(1, b"%d\\n" % claim.job.number)
        database.close()
        os._exit(0)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_many_processes_claim_each_job_once(url: str, programs: Programs) -> None:
    database = Database(url)
    jobs = database.tables.jobs
    rows = [
        {
            "id": f"{number:032x}",
            "project": "p",
            "prompt": "x",
            "digest": "d",
            "request": b"{}",
            "state": "queued",
            "created": float(number),
        }
        for number in range(CLAIMS)
    ]
    database.write(lambda connection: connection.execute(sqlalchemy.insert(jobs), rows))
    names = [f"w{number}" for number in range(CLAIMANTS)]
    ended = programs("-c", CLAIMING, database.secret_url, *names)
    assert ended.returncode == 0, ended.stderr
    claimed = Counter(map(int, ended.stdout.split()))
    assert len(claimed) == CLAIMS
    assert set(claimed.values()) == {1}
    with database.reading() as connection:
        assert JobRows(database).waiting(connection) == 0
    database.close()


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    yield
    left = [
        pid
        for pid in _children_of(os.getpid())
        if b"promptgraft.service.jobs.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True)
def test_a_job_whose_process_cannot_start_waits_for_the_next_try(
    manager: JobManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = submit(manager, budget=60)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(tmp_path / "gone"))
        Worker(manager, name="w").run(until_idle=True)
    waiting = manager.get(job.id)
    assert waiting.state is JobState.QUEUED
    [attempt] = manager.attempts(job.id)
    assert attempt.error.startswith("no process could be started: ")
    expire(manager)
    assert work_off(manager) == 1
    assert manager.get(job.id).state is JobState.COMPLETED


BROKEN = """
def mine(*args):
    raise ValueError("no field")
"""


def test_reasons_name_files_relative_to_the_project(tmp_path: Path) -> None:
    own_metric = FILE.replace("{name: exact}", "{name: mine, kind: python, function: own.py:mine}")
    path = write_project(tmp_path / "own", file=own_metric)
    path.with_name("own.py").write_text(BROKEN)
    with contextlib.closing(
        JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"own": path})
    ) as manager:
        job = manager.create("own", "triage", {"budget": 60})
        work_off(manager)
        failed = manager.get(job.id)
        assert failed.state is JobState.FAILED
        assert failed.reason.startswith("tickets.csv:")
        told = [line for _, _, line in manager.events(job.id)]
        errors = [attempt.error.encode() for attempt in manager.attempts(job.id)]
        for text in (failed.reason.encode(), *told, *errors):
            assert str(tmp_path).encode() not in text, text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("/srv/a/p/x.csv:3: bad", "x.csv:3: bad"),
        ("see /srv/a/p and /srv/a/p/own.py", "see the project and own.py"),
        ("/srv/a/p2/x and /srv/a/p-old", "/srv/a/p2/x and /srv/a/p-old"),
        ("/mnt/srv/a/p/x", "/mnt/srv/a/p/x"),
        ("in /srv/a/p.", "in the project."),
        ("/srv/a/p.old/x", "/srv/a/p.old/x"),
    ],
)
def test_only_paths_of_the_project_are_shortened(message: str, expected: str) -> None:
    assert relative_paths(message, [Path("/srv/a/p")]) == expected
