"""Faults of the place of a worker: they fail no job, and that worker leaves it to others."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy

from further import thorough
from jobs.job_world import FILE, until, work_off, write_priced, write_project
from programs import Programs, Started
from promptgraft import __version__
from promptgraft.cli.main import run
from promptgraft.service.jobs import JobClient, JobManager, JobState, Worker
from promptgraft.service.jobs.presence import Presence, WorkerRow, dry_runs_of
from promptgraft.service.server import TokenStore
from server.serving import served

KEYED = "{provider: openai, model: m, base_url: 'http://127.0.0.1:9', api_key: '${PLACE_KEY}'}"
UNKEYED = "{provider: openai, model: m, base_url: 'http://127.0.0.1:9'}"
CODED = "{python: own.py:MODEL}"
OWN = """
%s
from promptgraft.adapters.offline import OfflineAdapter
MODEL = OfflineAdapter()
"""


def project_with(folder: Path, model: str, code: str = "") -> Path:
    path = write_project(folder, file=FILE.replace("task: {provider: offline}", f"task: {model}"))
    (folder / "own.py").write_text(OWN % code)
    return path


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLACE_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def managed(tmp_path: Path, **projects: Path) -> Iterator[JobManager]:
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)) as manager:
        yield manager


LACKING = {
    "a key that the file names": (KEYED, "", "PLACE_KEY is not set"),
    "a key that the provider's variable has": (UNKEYED, "", "there is no API key"),
    "a file": (
        CODED,
        "from pathlib import Path\nPath(__file__).with_name('words.txt').read_text()",
        "words.txt",
    ),
}


def package_in(folder: Path) -> str:
    """Make the package in a folder, and return the folder."""
    folder.mkdir()
    (folder / "a_package_of_another_place.py").touch()
    return str(folder)


@pytest.mark.parametrize(
    "case",
    ["a key that the file names", "a file", *thorough(["a key that the provider's variable has"])],
)
def test_what_the_place_lacks_puts_the_job_back_and_keeps_other_projects_going(
    tmp_path: Path, case: str
) -> None:
    model, code, message = LACKING[case]
    path = project_with(tmp_path / "lame", model, code)
    # The place where the jobs are submitted has everything.
    words = path.with_name("words.txt")
    words.touch()
    projects = {"lame": path, "sound": write_project(tmp_path / "sound")}
    with managed(tmp_path, **projects) as manager, managed(tmp_path, **projects) as place:
        lame = [manager.create("lame", "triage", {"budget": 60}) for _ in range(3)]
        words.unlink()
        sound = manager.create("sound", "triage", {"budget": 60, "priority": -1})
        assert work_off(place) == 2
        tried, *others = [manager.get(job.id) for job in lame]
        assert (tried.state, tried.attempts) == (JobState.QUEUED, 1)
        assert tried.reason.startswith("worker here cannot run it: ")
        assert message in tried.reason
        assert {(job.state, job.attempts) for job in others} == {(JobState.QUEUED, 0)}
        assert manager.get(sound.id).state is JobState.COMPLETED


def test_a_place_that_lacks_something_leaves_what_the_job_has_reached(tmp_path: Path) -> None:
    path = write_priced(tmp_path / "lame", more="max_cost_per_day: 0.01\n")
    own, words = path.with_name("own.py"), path.with_name("words.txt")
    own.write_text(LACKING["a file"][1] + own.read_text())
    words.touch()
    with managed(tmp_path, lame=path) as manager:
        job = manager.create("lame", "triage", {"store": False})
        assert work_off(manager) == 1
        paused = manager.get(job.id)
        assert paused.status.rollouts > 0
        path.write_text(path.read_text().replace("max_cost_per_day: 0.01", ""))
        words.unlink()
        manager.resume(job.id)
        with managed(tmp_path, lame=path) as place:
            assert work_off(place) == 1
        lacking = manager.get(job.id)
        assert (lacking.state, lacking.attempts) == (JobState.QUEUED, 2)
        assert lacking.status == paused.status


def test_any_number_of_places_that_lack_something_fail_no_job(tmp_path: Path) -> None:
    path = project_with(tmp_path / "lame", KEYED)
    with managed(tmp_path, lame=path) as manager:
        job = manager.create("lame", "triage")
        for number in range(6):
            with managed(tmp_path, lame=path) as place:
                worker = Worker(place, name=f"w{number}")
                claim = worker.claim()
                assert claim is not None
                worker.run_here(claim)
                assert worker.claim() is None  # it leaves the project to others
        assert (manager.get(job.id).state, manager.get(job.id).attempts) == (JobState.QUEUED, 6)
        assert "PLACE_KEY" in manager.get(job.id).reason
        assert manager.cancel(job.id).reason == ""  # it was why the job waited


@pytest.mark.usefixtures("forked_jobs")
def test_another_place_carries_the_job_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project_with(tmp_path / "lame", CODED, "import a_package_of_another_place")
    folder = package_in(tmp_path / "packages")
    monkeypatch.syspath_prepend(folder)
    with managed(tmp_path, lame=path) as manager:
        job = manager.create("lame", "triage", {"budget": 60})
        Worker(manager, name="here").run(until_idle=True)
        waiting = manager.get(job.id)
        assert waiting.state is JobState.QUEUED
        assert "a_package_of_another_place" in waiting.reason
        monkeypatch.setenv("PYTHONPATH", folder)
        Worker(manager, name="there").run(until_idle=True)
        assert manager.get(job.id).state is JobState.COMPLETED


def test_a_job_that_no_place_could_run_still_fails(tmp_path: Path) -> None:
    with managed(tmp_path, support=write_project(tmp_path / "support")) as manager:
        job = manager.create("support", "triage", {"budget": 60})
        jobs = manager.database.tables.jobs
        request = json.dumps({"budget": 60, "model": "none"}).encode()
        change = sqlalchemy.update(jobs).values(request=request)
        manager.database.write(lambda connection: connection.execute(change))
        work_off(manager)
        ended = manager.get(job.id)
        assert ended.state is JobState.FAILED
        assert "the project has no model `none`" in ended.reason


# Rows of workers


@contextmanager
def running_worker(
    programs: Programs, tmp_path: Path, *projects: str, name: str = "w"
) -> Iterator[Started]:
    named = [part for project in projects for part in ("--project", project)]
    command = ("-m", "promptgraft", "worker", "--name", name, "--log", "json", *named)
    jobs = {"PROMPTGRAFT_JOBS": f"sqlite:///{tmp_path}/jobs.db"}
    with programs.started(*command, environment=jobs) as process:
        yield process


def told(process: Started, event: str) -> dict[str, object]:
    """Return the next line of a worker's log with an event."""
    for line in process.stderr:
        if line.startswith("{"):
            entry: dict[str, object] = json.loads(line)
            if entry["event"] == event:
                return entry
    raise AssertionError("the worker has ended")


def only_row(manager: JobManager) -> WorkerRow:
    (row,) = manager.workers()
    return row


def test_a_worker_says_that_it_is_there_what_it_has_and_what_it_leaves(
    tmp_path: Path, programs: Programs
) -> None:
    lame, sound = project_with(tmp_path / "lame", KEYED), write_project(tmp_path / "sound")
    with managed(tmp_path, lame=lame, sound=sound) as manager:
        assert manager.workers() == []
        job = manager.create("lame", "triage")
        with running_worker(programs, tmp_path, f"lame={lame}", f"sound={sound}") as process:
            assert told(process, "job_taken")["job"] == job.id
            left = told(process, "project_left")
            assert (left["job"], "PLACE_KEY" in str(left["message"])) == (job.id, True)
            manager.create("sound", "triage", {"budget": 60})
            told(process, "job_completed")
            # It says itself why it waits.
            assert manager.get(job.id).reason.startswith("worker w cannot run it: ")
            assert manager.no_worker(job.id) == ""
            row = only_row(manager)
            assert row.avoids_dry == {}
            assert (row.name, row.version, row.processes) == ("w", __version__, 1)
            assert (row.projects, list(row.avoids), row.is_alive) == (
                ["lame", "sound"],
                ["lame"],
                True,
            )
            assert manager.workers(projects=["other"]) == []
            (limited,) = manager.workers(projects=["sound"])
            assert (limited.projects, limited.avoids) == (["sound"], {})
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        assert manager.workers() == []


def test_the_page_and_the_interface_show_workers_and_what_they_leave(
    tmp_path: Path,
) -> None:
    lame = project_with(tmp_path / "lame", KEYED)
    with managed(tmp_path, lame=lame) as manager, served(manager, tmp_path / "mirrors") as client:
        assert "No worker is running" in client.ask("GET", "/workers").text
        presence = Presence(manager.database, name="<w>", processes=2)
        why_not = {"lame": "no <key>", "hidden": "no hidden key", dry_runs_of("hidden"): "no file"}
        presence.show(["lame", "hidden"], why_not)
        page = client.ask("GET", "/workers").text
        assert "<h2>&lt;w&gt;</h2>" in page
        assert "until it is restarted, but not dry runs: no &lt;key&gt;" in page
        (row,) = client.get("/workers").rows("workers")
        assert (row["name"], row["is_alive"], row["processes"]) == ("<w>", True, 2)
        token = TokenStore(manager.database).create("team", ["read"], ["lame"])
        for path in ("/workers", "/api/v1/workers"):
            text = client.ask("GET", path, token=token).text
            assert "no " in text
            assert "hidden" not in text
        job = manager.create("lame", "triage")
        why = "worker <w> takes no jobs of this project: no <key>; then restart it"
        assert manager.no_worker(job.id) == why
        assert (
            "takes no jobs of this project: no &lt;key&gt;"
            in client.ask("GET", f"/jobs/{job.id}").text
        )
        Presence(manager.database, name="other", processes=1).show(["lame"], {})
        assert manager.no_worker(job.id) == ""


def test_each_worker_says_what_it_lacks(tmp_path: Path, programs: Programs) -> None:
    lame = project_with(tmp_path / "lame", KEYED)
    with managed(tmp_path, lame=lame) as manager, ExitStack() as stack:
        processes = [
            stack.enter_context(running_worker(programs, tmp_path, f"lame={lame}", name=name))
            for name in "abc"
        ]
        until(lambda: len(manager.workers()) == len(processes))
        manager.create("lame", "triage")
        until(lambda: all("lame" in row.avoids for row in manager.workers()))
        for row in manager.workers():
            assert "PLACE_KEY is not set" in row.avoids["lame"]
        for process in processes:
            entry = told(process, "job_queued")
            assert "PLACE_KEY is not set" in str(entry["message"])


def test_a_worker_that_was_killed_is_lost_and_later_forgotten(
    tmp_path: Path, programs: Programs
) -> None:
    sound = write_project(tmp_path / "sound")
    with managed(tmp_path, sound=sound) as manager:
        with running_worker(programs, tmp_path, f"sound={sound}"):
            until(lambda: bool(manager.workers()))
        assert only_row(manager).is_alive
        workers = manager.database.tables.workers
        for seconds, alive in ((60.0, False), (90_000.0, False)):
            change = sqlalchemy.update(workers).values(seen=workers.c.seen - seconds)
            manager.database.write(lambda connection: connection.execute(change))  # noqa: B023
            assert only_row(manager).is_alive is alive
        Presence(manager.database, name="new", processes=1).show(["sound"], {})
        assert only_row(manager).name == "new"


@pytest.mark.parametrize("model", [KEYED, UNKEYED])
def test_a_dry_run_needs_no_key(tmp_path: Path, model: str) -> None:
    path = project_with(tmp_path / "own", model)
    with managed(tmp_path, own=path) as manager:
        tuning = {"minibatch_size": 4}
        job = manager.create("own", "triage", {"dry_run": True, "budget": 90, "tuning": tuning})
        work_off(manager)
        assert manager.get(job.id).state is JobState.COMPLETED, manager.get(job.id).reason


@pytest.mark.parametrize(
    ("case", "runs"),
    [
        ("a key that the file names", True),
        ("a file", False),
        *thorough([("a key that the provider's variable has", True)]),
    ],
)
def test_a_worker_that_left_a_project_takes_dry_runs_that_need_less(
    tmp_path: Path, case: str, runs: bool
) -> None:
    model, code, _ = LACKING[case]
    path = project_with(tmp_path / "lame", model, code)
    words = path.with_name("words.txt")
    words.touch()
    dry = {"dry_run": True, "budget": 60}
    with managed(tmp_path, lame=path) as manager, managed(tmp_path, lame=path) as place:
        paid, *tries = [manager.create("lame", "triage", change) for change in ({}, dry, dry)]
        words.unlink()
        assert work_off(place) == (3 if runs else 2)
        assert (manager.get(paid.id).state, manager.get(paid.id).attempts) == ("queued", 1)
        ends = [(manager.get(job.id).state, manager.get(job.id).attempts) for job in tries]
        assert ends == ([("completed", 1)] * 2 if runs else [("queued", 1), ("queued", 0)])


def test_every_job_that_nobody_takes_says_why(tmp_path: Path, programs: Programs) -> None:
    lame = project_with(tmp_path / "lame", CODED, LACKING["a file"][1])
    words = lame.with_name("words.txt")
    words.touch()
    with managed(tmp_path, lame=lame) as manager:
        dry = {"dry_run": True, "budget": 60}
        first, second, paid = [
            manager.create("lame", "triage", change) for change in (dry, dry, {})
        ]
        words.unlink()
        with running_worker(programs, tmp_path, f"lame={lame}") as process:
            told(process, "project_left")
            until(lambda: bool(only_row(manager).avoids_dry))
            for job, what in ((second, "dry runs"), (paid, "jobs")):
                why = manager.no_worker(job.id)
                assert why.startswith(f"worker w takes no {what} of this project: "), why
                assert "words.txt" in why
            reasons = [manager.get(first.id).reason, manager.no_worker(second.id)]
            assert [str(tmp_path) in reason for reason in reasons] == [False, False], reasons
            # It says itself why it waits.
            assert manager.no_worker(first.id) == ""


def test_a_worker_without_a_key_takes_dry_runs_and_its_page_says_so(tmp_path: Path) -> None:
    lame = project_with(tmp_path / "lame", KEYED)
    with managed(tmp_path, lame=lame) as manager, served(manager, tmp_path / "mirrors") as client:
        presence = Presence(manager.database, name="w", processes=1)
        presence.show(["lame"], {"lame": "no key"})
        assert (
            "until it is restarted, but not dry runs: no key" in client.ask("GET", "/workers").text
        )
        dry = manager.create("lame", "triage", {"dry_run": True})
        assert manager.no_worker(dry.id) == ""
        presence.show(["lame"], {"lame": "no key", dry_runs_of("lame"): "no file"})
        why = "worker w takes no dry runs of this project: no file; then restart it"
        assert manager.no_worker(dry.id) == why
        (row,) = client.get("/workers").rows("workers")
        assert (row["avoids"], row["avoids_dry"]) == ({"lame": "no key"}, {"lame": "no file"})


def test_a_dry_run_asks_no_judge(tmp_path: Path) -> None:
    judged = """
metrics:
  - {name: reference, kind: llm_final_response, judges: [strict], required: false}
  - {name: rubrics, kind: llm_rubric_response, judges: [strict, strict], rubrics: [short, kind],
     voting: weighted, weights: [1, 2]}
"""
    file = FILE.replace("metrics: [{name: exact}]\n", judged)
    file = file.replace("strict: {provider: offline}", f"strict: {KEYED}")
    path = write_project(tmp_path / "own", file=file)
    with managed(tmp_path, own=path) as manager:
        job = manager.create("own", "triage", {"dry_run": True, "budget": 90})
        work_off(manager)
        assert manager.get(job.id).state is JobState.COMPLETED, manager.get(job.id).reason
        result = manager.result(job.id) or {}
    ledger, scores = result["ledger"], result["scores"]
    assert isinstance(ledger, list)
    assert isinstance(scores, dict)
    assert {(row["role"], row["model"]) for row in ledger if isinstance(row, dict)} == {
        (role, "offline/5") for role in ("task", "judge", "reflection")
    }
    pareto = scores["pareto"]
    assert isinstance(pareto, dict)
    assert 0 < float(str(pareto["best"])) < 1


def test_a_job_with_settings_of_the_search_is_planned_without_a_key(tmp_path: Path) -> None:
    path = project_with(tmp_path / "own", KEYED)
    with managed(tmp_path, own=path) as manager:
        job = manager.create("own", "triage", {"tuning": {"minibatch_size": 4}})
        assert job.state is JobState.QUEUED


def test_a_dry_run_of_the_command_needs_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project_with(tmp_path / "own", KEYED)
    monkeypatch.chdir(path.parent)
    command = ["optimize", "triage", "--dry-run", "-q", "--budget", "90"]
    assert run([*command, "--part", "section rules"]) in (0, 1), capsys.readouterr().err
    assert run(command[:2]) == 2
    assert "PLACE_KEY is not set" in capsys.readouterr().err


def test_a_queued_job_says_that_no_worker_has_its_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    project = write_project(tmp_path / "sound")
    with managed(tmp_path, sound=project) as manager, served(manager, tmp_path / "m") as client:
        job = manager.create("sound", "triage").id

        def shown() -> list[str]:
            assert run(["jobs", "show", job, "--jobs", url]) == 0
            with (
                JobClient(client.url, token=client.token) as far,
                closing(client.browser()) as page,
            ):
                return [
                    capsys.readouterr().out,
                    page.get(f"/jobs/{job}").text,
                    str(client.get(f"/jobs/{job}").at("no_worker")),
                    far.no_worker(job),
                ]

        start = "promptgraft worker --project sound=FILE"
        words = f"o worker takes jobs of this project; start one: {start}"
        assert [words in text for text in shown()] == [True] * 4
        presence = Presence(manager.database, name="w", processes=1)
        presence.show(["other"], {})
        assert [words in text for text in shown()] == [True] * 4
        presence.show(["sound", "other"], {"other": "it lacks a key"})
        assert [words in text for text in shown()] == [False] * 4
        workers = manager.database.tables.workers
        manager.database.write(
            lambda connection: connection.execute(sqlalchemy.update(workers).values(seen=1.0))
        )
        assert [words in text for text in shown()] == [True] * 4
        jobs = manager.database.tables.jobs
        reason = sqlalchemy.update(jobs).values(reason=b"its worker w was lost")
        manager.database.write(lambda connection: connection.execute(reason))
        page = shown()[1]
        assert page.count('class="note"') == 1
        assert f"Its worker w was lost. N{words}." in page
        manager.cancel(job)
        assert [words in text for text in shown()] == [False] * 4
