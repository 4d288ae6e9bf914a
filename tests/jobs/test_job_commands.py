"""``promptgraft jobs`` and ``worker``, as a user types them."""

from __future__ import annotations

import json
import signal
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import FILE, work_off, write_project
from programs import Programs
from promptgraft.cli.main import run
from promptgraft.service.jobs import ApprovalNeededError, JobManager
from server.serving import served


@pytest.fixture(autouse=True)
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(tmp_path / "support")
    monkeypatch.chdir(tmp_path / "support")
    monkeypatch.setenv("PROMPTGRAFT_JOBS", "sqlite:///jobs.db")
    return tmp_path / "support"


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(arguments) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def submitted(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    job = json.loads(said(capsys, "jobs", "submit", "triage", "--json", *arguments))
    return str(job["id"])


def worked_off() -> None:
    with JobManager("sqlite:///jobs.db", projects={"support": Path("promptgraft.yaml")}) as jobs:
        assert work_off(jobs) == 1


def test_from_submitting_to_a_run_directory(
    capsys: pytest.CaptureFixture[str], programs: Programs
) -> None:
    job = submitted(capsys, "--budget", "60", "--set", "patience=5", "--note", "nightly")
    assert "queued" in said(capsys, "jobs", "list")
    done = programs.promptgraft("worker", "--until-idle")
    assert (done.returncode, done.stderr.splitlines()[:1]) == (0, ["worker for support"])
    told = json.loads(said(capsys, "jobs", "show", job[:6], "--json"))
    assert told["state"] == "completed"
    assert told["changes"] == {"budget": 60, "patience": 5, "note": "nightly"}
    assert len(told["tries"]) == 1
    shown = said(capsys, "jobs", "show", job)
    assert "support/triage, tag latest" in shown
    assert "budget=60, patience=5, note=nightly" in shown
    code = run(["jobs", "wait", job])
    capsys.readouterr()
    assert code == (0 if json.loads(said(capsys, "jobs", "result", job))["improved"] else 1)
    assert json.loads(said(capsys, "jobs", "result", job))["prompt"] == "support/triage"
    folder = said(capsys, "jobs", "export", job).strip()
    assert folder.startswith("runs/")
    assert job[:8] in folder
    assert "support/triage" in said(capsys, "show", Path(folder).name)
    kinds = [json.loads(line)["event"] for line in said(capsys, "jobs", "events", job).splitlines()]
    assert (kinds[0], kinds[-1]) == ("job_queued", "job_completed")
    forked = json.loads(said(capsys, "jobs", "fork", job, "--budget", "70", "--json"))
    assert (forked["origin"], forked["state"]) == (job, "queued")
    assert said(capsys, "jobs", "cancel", forked["id"]).endswith(
        f"is cancelled, forked from {job}\n"
    )
    assert said(capsys, "jobs", "prune", job, forked["id"]).count("removed job") == 2
    assert said(capsys, "jobs", "list").startswith("0 jobs")


def test_parts_that_may_change_are_named_by_their_ids(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = json.loads(said(capsys, "describe", "triage", "--json"))["nodes"]
    ids = [part["id"] for part in nodes[0]["parts"] if part["may_change"]]
    job = submitted(capsys, *(word for id_ in ids for word in ("--part", id_)))
    told = json.loads(said(capsys, "jobs", "show", job, "--json"))
    assert told["changes"] == {"tuning": {"targets": {"parts": ids}}}
    refused = said(capsys, "jobs", "submit", "triage", "--part", "section rule", code=2)
    assert "no prompt has `section rule`, or it may not change (did you mean `section" in refused
    both = ("--part", ids[0], "--set", 'tuning={"targets": {"sections": ["rules"]}}')
    assert "leave one out" in said(capsys, "jobs", "submit", "triage", *both, code=2)


def test_a_winner_is_promoted_from_the_shell(
    in_a_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    (in_a_project / "promptgraft.yaml").write_text(kept)
    job = submitted(capsys, "--tag", "night")
    worked_off()
    assert f"promptgraft jobs apply {job[:8]}" in said(capsys, "jobs", "show", job)
    told = said(capsys, "jobs", "apply", job, "--json")
    (revision,) = json.loads(told)["revisions"].values()
    history = ("history", "support/triage", "--store", "sqlite:///jobs.db#support")
    assert revision[:8] in said(capsys, *history, "--tag", "night")
    refused = said(capsys, "jobs", "apply", job, code=2)
    assert f"expected revision none, found {revision[:12]}" in refused
    assert "tag canary of support/triage points at" in said(
        capsys, "jobs", "apply", job, "--to", "canary"
    )
    promote = ("jobs", "promote", "triage", "night", "--to", "prod")
    told = said(capsys, *promote, "--expected", "support/triage=77b0", code=2)
    assert "tag `prod` of `support/triage`: expected revision 77b0, found none" in told
    told = said(capsys, *promote, "--expected", "77b0", code=2)
    assert told == "promptgraft: --expected: expected NS/KEY=REV, found '77b0'\n"
    told = said(capsys, *promote, "--expected", "support/triage=", "--json")
    (revision,) = json.loads(told)["revisions"].values()
    assert f"points at {revision[:12]}" in said(capsys, *promote)
    assert revision[:8] in said(capsys, *history, "--tag", "prod")


def test_commands_on_the_store_of_the_jobs_move_no_protected_tag(
    capsys: pytest.CaptureFixture[str], in_a_project: Path
) -> None:
    url = "sqlite:///jobs.db#support"
    file = in_a_project / "promptgraft.yaml"
    file.write_text(f"{FILE}store: {{url: '{url}'}}\n")
    with closing(JobManager("sqlite:///jobs.db", projects={"support": file})) as manager:
        store = manager.projects["support"].store()
        prompt = manager.projects["support"].prompt("triage").prompt
        for tag in ("night", "production"):
            store.set_section_override(prompt, path=("rules",), body=f"By {tag}.", tag=tag)
        assert said(capsys, "jobs", "approvals", "protect", "production") == (
            "tag production is protected\n"
        )
        for command in (
            ["tag", "triage", "production", "--of", "night"],
            ["rollback", "triage", "--tag", "production"],
        ):
            assert "tag `production` of project `support` is protected" in said(
                capsys, *command, code=2
            )
        with pytest.raises(ApprovalNeededError) as needed:
            manager.acting_for("ana").promote("support", "triage", "night", to="production")
        assert manager.acting_for("ben").approve(needed.value.request).state == "done"
    assert said(capsys, "jobs", "approvals", "unprotect", "production") == (
        "tag production is no longer protected\n"
    )
    said(capsys, "rollback", "triage", "--tag", "production")


def test_a_budget_of_a_job_replaces_one_that_is_too_small(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = Path("promptgraft.yaml")
    file.write_text(FILE.replace("rollout_budget: 150", "rollout_budget: 1"))
    refused = said(capsys, "jobs", "submit", "triage", code=2)
    assert "promptgraft.yaml:9: optimizer.rollout_budget: expected at least" in refused
    assert "rollout_budget: expected" in said(
        capsys, "jobs", "submit", "triage", "--budget", "2", code=2
    )
    job = submitted(capsys, "--budget", "60")
    worked_off()
    told = json.loads(said(capsys, "jobs", "show", job, "--json"))
    assert (told["state"], told["changes"]) == ("completed", {"budget": 60})


def test_values_that_are_nothing_are_values(capsys: pytest.CaptureFixture[str]) -> None:
    job = submitted(capsys, "--seed", "0", "--priority", "0", "--set", "store=false")
    told = json.loads(said(capsys, "jobs", "show", job, "--json"))
    assert told["changes"] == {"seed": 0, "store": False}
    changed = said(capsys, "jobs", "change", job, "--priority", "7", "--note", "n", "--json")
    assert json.loads(changed)["changes"] == {"seed": 0, "store": False, "priority": 7, "note": "n"}
    changed = said(capsys, "jobs", "change", job, "--priority", "0", "--note", "", "--json")
    assert json.loads(changed)["changes"] == {"seed": 0, "store": False}


def test_a_long_list_is_made_of_pages(
    in_a_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = in_a_project / "promptgraft.yaml"
    with JobManager("sqlite:///jobs.db", projects={"support": path}) as jobs:
        first = jobs.create("support", "triage")
        columns = jobs.database.tables.jobs

        def copy(connection: sqlalchemy.Connection) -> None:
            names = [one.name for one in columns.c if one.name not in ("number", "id")]
            (row,) = connection.execute(sqlalchemy.select(*(columns.c[name] for name in names)))
            rows = [{**row._mapping, "id": f"{number:032d}"} for number in range(149)]
            connection.execute(sqlalchemy.insert(columns), rows)

        jobs.database.write(copy)
    found = json.loads(said(capsys, "jobs", "list", "--limit", "120", "--json"))["jobs"]
    assert [job["id"] for job in found] == [f"{number:032d}" for number in range(148, 28, -1)]
    found = json.loads(said(capsys, "jobs", "list", "--limit", "1000", "--json"))["jobs"]
    assert (len(found), found[-1]["id"]) == (150, first.id)


def test_the_same_commands_ask_a_server(
    in_a_project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = in_a_project / "promptgraft.yaml"
    with (
        JobManager("sqlite:///jobs.db", projects={"support": path}) as manager,
        served(manager, in_a_project / "mirrors") as server,
    ):
        monkeypatch.delenv("PROMPTGRAFT_JOBS")
        told = said(capsys, "jobs", "list", "--server", server.url, code=2)
        assert "put a token of the server into the variable PROMPTGRAFT_TOKEN" in told
        monkeypatch.setenv("PROMPTGRAFT_TOKEN", server.token)
        both = said(capsys, "jobs", "list", "--server", server.url, "--jobs", "sqlite://", code=2)
        assert both == (
            "promptgraft: --jobs and --server: both say where the jobs are; leave one out\n"
        )
        monkeypatch.setenv("PROMPTGRAFT_SERVER", server.url)
        job = submitted(capsys, "--budget", "60", "--project", "support", "--key", "k")
        assert "there already" in said(
            capsys, "jobs", "submit", "triage", "--budget", "60", "--key", "k"
        )
        assert "no project `other`" in said(
            capsys, "jobs", "submit", "triage", "--project", "other", code=2
        )
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir(in_a_project.parent)
            told = said(capsys, "jobs", "datasets", "list", code=2)
            assert f"promptgraft: --project: name a project of {server.url}; there is no" in told
        assert said(capsys, "jobs", "change", job, "--priority", "2").endswith("is queued\n")
        assert work_off(manager) == 1
        assert "completed" in said(capsys, "jobs", "show", job[:6])
        assert run(["jobs", "wait", job]) in (0, 1)
        folder = Path(said(capsys, "jobs", "export", job, "--runs", "copied").strip())
        assert folder.parent == Path("copied")
        assert "support/triage" in said(capsys, "show", folder.name, "--runs", "copied")
        assert said(capsys, "jobs", "events", job).count("\n") == len(manager.events(job))
        older = ("jobs", "prune", "--older-than", "1")
        assert said(capsys, *older) == "no ended job is so old\n"
        assert said(capsys, *older, "--state", "failed") == "no failed job is so old\n"
        assert "removed job" in said(capsys, "jobs", "prune", job)
        assert said(capsys, "jobs", "list").startswith("0 jobs")


def test_data_sets_are_saved_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "data set hard@" in said(capsys, "jobs", "datasets", "save", "hard", "tickets.csv")
    digest = json.loads(said(capsys, "jobs", "datasets", "list", "--json"))["datasets"][0]["digest"]
    Path("cases.jsonl").write_text(said(capsys, "jobs", "datasets", "show", "hard"))
    # What was printed is what is there.
    saved = said(capsys, "jobs", "datasets", "save", "hard", "cases.jsonl")
    assert saved == f"data set hard@{digest}: revision 1, 30 cases\n"
    lines = Path("cases.jsonl").read_text().splitlines()
    Path("cases.jsonl").write_text("\n".join(lines[:20]))
    assert "revision 2, 20 cases" in said(capsys, "jobs", "datasets", "save", "hard", "cases.jsonl")
    assert said(capsys, "jobs", "datasets", "list", "hard").count("hard") == 2
    job = submitted(capsys, "--budget", "60", "--set", f"dataset=hard@{digest[:8]}")
    worked_off()
    told = json.loads(said(capsys, "jobs", "show", job, "--json"))
    assert told["changes"]["dataset"] == f"hard@{digest}"
    assert told["state"] == "completed"
    assert "no data set `soft`; there: hard" in said(
        capsys, "jobs", "submit", "triage", "--set", "dataset=soft", code=2
    )
    why = said(capsys, "jobs", "datasets", "save", "hard", "none.csv", code=2)
    assert why.startswith("promptgraft: none.csv: ")
    assert "promptgraft" in said(capsys, "jobs", "datasets", "save", "hard", "agent.py", code=2)


def test_a_job_with_a_data_set_is_replayed_and_resumed_from_its_run_directory(
    in_a_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "jobs", "datasets", "save", "hard", "tickets.csv")
    kept = said(capsys, "jobs", "datasets", "show", "hard")
    job = submitted(capsys, "--budget", "60", "--set", "dataset=hard")
    worked_off()
    # The project has other cases by now, and the data set another revision.
    tickets = (in_a_project / "tickets.csv").read_text("utf-8").splitlines(keepends=True)
    (in_a_project / "tickets.csv").write_text("".join(tickets[:25]), "utf-8")
    said(capsys, "jobs", "datasets", "save", "hard", "tickets.csv")
    folder = Path(said(capsys, "jobs", "export", job).strip())
    assert (folder / "cases.jsonl").read_text("utf-8") == kept
    assert "the same result" in said(capsys, "replay", folder.name)
    assert run(["resume", folder.name, "--budget", "70"]) in (0, 1)
    assert "the same result" in said(capsys, "replay", folder.name)
    for options, is_there in (((), True), (("--without-inputs",), False)):
        path = in_a_project / f"{len(options)}.zip"
        said(capsys, "export", "--run", folder.name, str(path), *options)
        with zipfile.ZipFile(path) as archive:
            assert ("run/cases.jsonl" in archive.namelist()) is is_there
    said(capsys, "import", str(in_a_project / "0.zip"))
    unpacked = in_a_project / "0/runs" / folder.name
    assert "the same result" in said(capsys, "replay", folder.name, "--runs", str(unpacked.parent))
    (folder / "cases.jsonl").write_bytes(b"\xff")
    assert "expected UTF-8" in said(capsys, "replay", folder.name, code=2)


def test_options_name_the_settings_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--max-iterations", "5", "--patience", "3", "--target-score", "0.9")
    job = submitted(capsys, *given, "--model", "task")
    changes = json.loads(said(capsys, "jobs", "show", job, "--json"))["changes"]
    assert changes == {"max_iterations": 5, "patience": 3, "target_score": 0.9, "model": "task"}
    said(capsys, "jobs", "change", job, "--max-iterations", "7")
    changed = json.loads(said(capsys, "jobs", "show", job, "--json"))["changes"]
    assert changed == changes | {"max_iterations": 7}
    for option, fault in (
        ("--max-iterations 101", "expected an integer from 1 to 100, found '101'"),
        ("--patience 0", "expected an integer from 1 to 50, found '0'"),
        ("--target-score 1.1", "expected a number from 0 to 1, found '1.1'"),
        ("--model gpt", "the project has no model `gpt`"),
        ("--dataset hard", "has no data set `hard`"),
    ):
        assert fault in said(capsys, "jobs", "submit", "triage", *option.split(), code=2)


def test_a_job_may_take_another_algorithm_than_the_project(
    in_a_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ("--set", "algorithm=gradient", "--set")
    # The file has `minibatch_size`, and may have a budget that is too small for the other one.
    file = in_a_project / "promptgraft.yaml"
    file.write_text(file.read_text().replace("rollout_budget: 150", "rollout_budget: 45"))
    small = said(capsys, "jobs", "submit", "triage", *other, 'tuning={"max_rounds":2}', code=2)
    assert "rollout_budget: expected at least" in small
    rounds = said(capsys, "jobs", "submit", "triage", *other[2:], 'tuning={"max_rounds":2}', code=2)
    assert "max_rounds: is a setting of the algorithm `gradient`, not of `gepa`" in rounds
    for tuning, fault in (
        ({"minibatch_size": 3}, "minibatch_size: is a setting of the algorithm `gepa`, not"),
        ({"initial": {"section rule": "x"}}, "initial: no part `section rule` may change"),
    ):
        changes = (*other, f"tuning={json.dumps(tuning)}", "--budget", "300")
        assert fault in said(capsys, "jobs", "submit", "triage", *changes, code=2)
    job = submitted(capsys, *other, 'tuning={"max_rounds":2}', "--budget", "300")
    worked_off()
    assert json.loads(said(capsys, "jobs", "show", job, "--json"))["state"] == "completed"
    kinds = [json.loads(line)["event"] for line in said(capsys, "jobs", "events", job).splitlines()]
    assert "trained" in kinds


def test_the_list_tells_dry_runs_from_others(capsys: pytest.CaptureFixture[str]) -> None:
    dry, other = submitted(capsys, "--dry-run")[:8], submitted(capsys)[:8]
    listed = said(capsys, "jobs", "list")
    assert f"{dry}  support/triage, tag latest, dry run\n" in listed
    assert f"{other}  support/triage, tag latest\n" in listed


def test_the_list_tells_why_a_job_failed(capsys: pytest.CaptureFixture[str]) -> None:
    job = submitted(capsys)
    with JobManager("sqlite:///jobs.db", projects={"support": Path("promptgraft.yaml")}) as manager:
        jobs = manager.database.tables.jobs
        failed = sqlalchemy.update(jobs).values(state="failed", reason=b"no table")
        manager.database.write(lambda connection: connection.execute(failed))
    assert f"{job[:8]}  support/triage, tag latest: no table\n" in said(capsys, "jobs", "list")


def test_a_key_gives_the_same_job(capsys: pytest.CaptureFixture[str]) -> None:
    first = said(capsys, "jobs", "submit", "triage", "--key", "k")
    again = said(capsys, "jobs", "submit", "triage", "--key", "k")
    assert first.endswith("is queued\n")
    assert again == first.replace("is queued", "is there already, queued")


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "jobs", "submit", "triage")
    for arguments, line in (
        ("list --jobs nowhere", "url: expected sqlite:///FILE, postgresql://"),
        ("show abcd", "no job has an id that begins with `abcd`; `promptgraft jobs list`"),
        ("submit x", "promptgraft.yaml has no prompt `x`"),
        ("submit triage --set budgt=5", "budgt: unknown key (did you mean `budget`?)"),
        ("submit triage --set budget", "--set: expected NAME=VALUE, found 'budget'"),
        ("submit triage --seed 0 --set seed=1", "--set: seed is given twice; leave one out"),
        ("submit triage --set note=a --set note=b", "--set: note is given twice; leave one out"),
        ("submit triage --budget 2", "rollout_budget"),
        ("submit triage --project a=x.yaml", "x.yaml"),
        ("list --state asleep", "state: expected one of queued, running"),
        ("prune", "prune: name jobs, or give --older-than; not both"),
    ):
        told = said(capsys, "jobs", *arguments.split(), code=2)
        assert line in told
        assert told.count("\n") == 1


def test_without_a_database_the_option_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPTGRAFT_JOBS")
    told = said(capsys, "jobs", "list", code=2)
    assert told == "promptgraft: --jobs: name the database, such as sqlite:///jobs.db\n"


def test_a_change_is_refused_with_the_line_of_a_submission(
    in_a_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submitted(capsys)
    refused = said(capsys, "jobs", "submit", "triage", "--budget", "1", code=2)
    assert said(capsys, "jobs", "change", job, "--budget", "1", code=2) == refused
    here = ("--project", "support=promptgraft.yaml")
    assert said(capsys, "jobs", "change", job, "--budget", "1", *here, code=2) == refused
    assert json.loads(said(capsys, "jobs", "show", job, "--json"))["changes"] == {}
    # A note changes even where the project is at fault.
    (in_a_project / "promptgraft.yaml").write_text(FILE.replace("rollout_budget: 150", "x: 1"))
    assert "is queued" in said(capsys, "jobs", "change", job, "--note", "nightly")


def test_names_that_no_job_has_are_told_from_empty_lists(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said(capsys, "jobs", "submit", "triage")
    for option, typo, name in (("prompt", "triag", "triage"), ("project", "suport", "support")):
        mend = f"(did you mean `{name}`?); {option}s: `{name}`"
        line = f"no job has the {option} `{typo}` {mend}"
        assert said(capsys, "jobs", "list", f"--{option}", typo).splitlines() == ["0 jobs", line]
        assert json.loads(said(capsys, "jobs", "list", f"--{option}", typo, "--json")) == {
            "jobs": []
        }
        assert said(capsys, "jobs", "list", f"--{option}", name).startswith("1 job\n")
        paused = ("jobs", "list", f"--{option}", name, "--state", "paused")
        assert said(capsys, *paused) == "0 jobs\n"


def test_a_token_for_an_unknown_project_is_made_with_a_warning(
    in_a_project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warning(name: str, project: str) -> str:
        capsys.readouterr()
        assert run(["tokens", "create", name, "--scope", "read", "--for", project]) == 0
        told = capsys.readouterr()
        assert told.out.strip()
        return told.err.removeprefix("new database sqlite:///jobs.db\n")

    mend = "(did you mean `support`?); there: `support`"
    line = f"warning: --for: no project `suport` yet {mend}\n"
    assert warning("a", "suport") == line
    assert warning("b", "support") == ""
    said(capsys, "jobs", "submit", "triage")
    (in_a_project / "promptgraft.yaml").unlink()
    assert warning("c", "suport") == line  # known by its job
    monkeypatch.setenv("PROMPTGRAFT_JOBS", "sqlite:///others.db")
    assert "warning" not in warning("d", "suport")  # no project is known


WRITING = (["submit", "triage"], ["datasets", "save", "hard", "hard.jsonl"])
READING = (
    ["list"],
    ["show", "3f2a"],
    ["wait", "3f2a"],
    ["cancel", "3f2a"],
    ["fork", "3f2a"],
    ["apply", "3f2a"],
    ["prune", "3f2a"],
    ["datasets", "list"],
    ["vacuum"],
    ["migrate"],
)


def test_a_mistyped_database_is_not_created(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "jobs", "submit", "triage")
    missing = f"there is no file {Path('job.db').absolute()} (did you mean `jobs.db`?); "
    for arguments in READING:
        told = said(capsys, "jobs", *arguments, "--jobs", "sqlite:///job.db", code=2)
        assert f"database sqlite:///job.db: {missing}" in told, arguments
        assert "`promptgraft jobs submit`, `worker` and `serve` make one" in told
        assert not Path("job.db").exists(), arguments


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_new_database_is_said_to_be_new(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    Path("hard.jsonl").write_text(
        '{"input": {"subject": "late"}, "expected": "billing"}\n', "utf-8"
    )
    for line in ("new database sqlite:///jobs.db\n", ""):
        capsys.readouterr()
        assert run(["jobs", *arguments]) == 0
        assert capsys.readouterr().err == line


def test_a_file_without_jobs_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.db").touch()
    told = said(capsys, "jobs", "list", "--jobs", "sqlite:///other.db", code=2)

    assert "database sqlite:///other.db: there is no table `promptgraft_schema`" in told
    engine = sqlalchemy.create_engine("sqlite:///other.db")
    assert sqlalchemy.inspect(engine).get_table_names() == []
    engine.dispose()


def test_without_the_extra_it_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("promptgraft.service.database")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    told = said(capsys, "jobs", "list", code=2)
    assert 'jobs need sqlalchemy; run `pip install "promptgraft[server]"`' in told


def test_a_worker_ends_when_it_is_asked(programs: Programs) -> None:
    with programs.started("-m", "promptgraft", "worker") as process:
        assert process.stderr.readline() == "worker for support\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()


def test_the_sql_of_the_tables_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "jobs", "schema")
    assert told.count("CREATE TABLE IF NOT EXISTS promptgraft_") == 18
    assert told.rstrip().endswith("VALUES (5, '');")
