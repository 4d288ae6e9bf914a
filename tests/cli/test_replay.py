"""``promptgraft replay``, and runs that are passed on as one file."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.console import Console
from cli.jobs import write_jobs
from jobs.job_world import work_off
from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.service.jobs import JobManager

Project = Callable[..., Path]
CASES = {"classify": 80, "graph": 80, "agent_python": 80, "agent_command": 20}
BUDGET = {"classify": "110", "graph": "110", "agent_python": "110", "agent_command": "42"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for copies of projects that have a run."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def made(console: Console, finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Makes a project of a template in a new folder, which is the current one, with a run.

    A run knows where its project is, so the same project is always in the same folder.
    """
    places: list[Path] = []

    def make(template: str, *more: str) -> Path:
        copy = finished / "-".join((template, *more))
        folder = copy.with_name(f"{copy.name}-in-use") / template
        places.append(folder.parent)
        if copy.exists():
            shutil.copytree(copy, folder)
        else:
            optimized(template, *more, folder=folder)
            shutil.copytree(folder, copy)
        monkeypatch.chdir(folder)
        return folder

    def optimized(template: str, *more: str, folder: Path) -> None:
        assert console("init", "--template", template, str(folder)).code == 0
        monkeypatch.chdir(folder)
        cases = folder / "data" / "reports.jsonl"
        lines = cases.read_text("utf-8").splitlines(keepends=True)
        cases.write_text("".join(lines[: CASES[template]]), "utf-8")
        if template == "agent_command":  # a shell is faster: it answers with the end of the query
            project = folder / "promptgraft.yaml"
            script = '\'[ -e "$1" ] && echo "${2##* }"\''
            settings = project.read_text("utf-8")
            assert "python3, agent.py" in settings
            settings = settings.replace("python3, agent.py", f"sh, -c, {script}, agent")
            project.write_text(settings, "utf-8")
        ended = console("optimize", "--budget", BUDGET[template], "--quiet", *more)
        assert ended.code in (0, 1, 3), ended.err

    before = {*sys.modules}
    yield make
    for place in places:
        shutil.rmtree(place)
    # Code of one project must not be taken for that of the next one.
    for name in {*sys.modules} - before:
        if name in ("agent", "judging", "triage") or name.startswith("_source_"):
            del sys.modules[name]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a replay opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def run_of(folder: Path) -> Path:
    [run] = (folder / "runs").iterdir()
    return run


def contents(run: Path) -> dict[str, bytes]:
    return {
        file.relative_to(run).as_posix(): file.read_bytes()
        for file in run.rglob("*")
        if file.is_file() and file.suffix != ".lock"
    }


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("template", ["classify", "agent_python", "agent_command"])
def test_a_replay_ends_in_the_same_result_without_the_project(
    console: Console, made: Project, template: str
) -> None:
    folder = made(template)
    run = run_of(folder)
    before = contents(run)
    for path in folder.iterdir():
        if path.name != "runs":
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    ended = console("replay", str(run))

    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{run.name}: the same result, ")
    assert ended.out.count("\n") == 1
    assert contents(run) == before


@pytest.mark.usefixtures("no_network")
def test_a_run_that_has_kept_no_files_is_packed_with_all_that_its_project_imports(
    console: Console, made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_of(made("agent_python")) / "sources.zip").unlink()  # as runs of earlier versions
    for name in {*sys.modules}:
        if name in ("agent", "judging", "triage") or name.startswith("_source_"):
            monkeypatch.delitem(sys.modules, name)
    assert console("export", "--run", "latest", "run.zip").code == 0
    ended = console("replay", "run.zip")
    assert ended.code == 0, ended.err


def test_a_prompt_in_python_needs_its_code(console: Console, made: Project) -> None:
    folder = made("graph")
    plain = json.loads(console("replay", "--json").out)
    assert (plain["same"], plain["used_code"], plain["difference"]) == (True, True, None)
    assert console("export", "--run", "latest", "run.zip").code == 0
    ended = console("replay", "run.zip")
    assert ended.code == 2
    assert "cannot be replayed from its file alone: promptgraft.yaml:9: graphs.reports" in ended.err
    assert ended.err.count("\n") == 1
    assert console("replay", "run.zip", "--project", str(folder)).code == 0


def test_a_replay_survives_the_winner_in_the_source(console: Console, made: Project) -> None:
    folder = made("classify", "--seed", "3")
    prompt = folder / "prompts" / "triage.md"
    prompt.write_text(prompt.read_text("utf-8") + "\nBe quick.\n", "utf-8")
    (folder / "data" / "reports.jsonl").write_text("", "utf-8")
    assert console("replay").code == 0


def test_runs_by_gradients_are_replayed(console: Console, made: Project) -> None:
    folder = made("classify")
    shutil.rmtree(folder / "runs")
    file = folder / "promptgraft.yaml"
    lines = [line for line in file.read_text("utf-8").splitlines() if "minibatch_size" not in line]
    text = "\n".join(lines).replace(
        "\noptimizer:", "\noptimizer:\n  algorithm: gradient\n  max_rounds: 2"
    )
    file.write_text(text, "utf-8")
    assert console("optimize", "--budget", "200", "--quiet").code in (0, 1)
    events = run_of(folder) / "events.jsonl"
    text = events.read_text("utf-8")
    worded = re.sub(r'"stop":"[^"]+"', '"stop":"patience: worded otherwise"', text)
    # Totals of earlier versions lacked what was paid before a kill.
    worded = re.sub(r'"tokens":(\d+)', r'"tokens":1\1', worded)
    assert worded.count("worded") == 1
    events.write_text(worded, "utf-8")
    assert console("replay").code == 0


def test_a_replay_of_code_does_not_ask_which_version_of_the_models_answered(
    console: Console, made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("graph")
    defaults = OfflineAdapter.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "identity", "offline/999")
    assert console("replay").code == 0


def test_a_run_that_was_stopped_is_replayed_to_its_stop(console: Console, made: Project) -> None:
    made("classify", "--max-tokens", "1")
    assert console("replay").code == 0


def test_a_job_is_replayed_with_its_code_and_stores_nothing(
    console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jobs(project)
    for name in ("toy_jobs", "neighbour", "lateneighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert console("optimize", "toy_jobs.py:good", "--quiet").code == 0
    shutil.rmtree(project / ".promptgraft")
    ended = console("replay")
    assert ended.code == 0, ended.err
    assert not (project / ".promptgraft").exists()

    exported = console("export", "--run", "latest", "run.zip")
    assert "it was made by the job toy_jobs.py:good, whose code is not known" in exported.out
    refused = console("replay", "run.zip")
    assert refused.code == 2
    assert "was made by the job toy_jobs.py:good, whose code is not in its file" in refused.err
    assert console("import", "run.zip").code == 0
    for file in project.glob("*.py"):
        shutil.copy(file, project / "run")
    monkeypatch.chdir(project / "run")
    assert console("replay").code == 0


def test_the_first_difference_is_named(console: Console, made: Project) -> None:
    run = run_of(made("classify"))
    document = json.loads((run / "result.json").read_text("utf-8"))
    document["means"][0] = 0.25
    (run / "result.json").write_text(json.dumps(document), "utf-8")

    ended = console("replay")
    assert ended.code == 1
    assert ended.out.startswith(f"{run.name} differs at result.means[0]: 0.25 in the run, 0.")
    assert ended.out.count("\n") == 1
    plain = json.loads(console("replay", "--json").out)
    assert plain["difference"]["place"] == "result.means[0]"

    events = (run / "events.jsonl").read_text("utf-8")
    (run / "events.jsonl").write_text(events.replace('"parent":0', '"parent":1', 1), "utf-8")
    assert " differs at event " in console("replay").out


def test_a_run_of_an_earlier_version_is_no_other_run_for_its_words_and_keys(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written before `worse on a critical case` was a verdict, and before answers were counted.
    shutil.copy(Path(__file__).with_name("earlier_run.zip"), tmp_path / "run.zip")
    monkeypatch.chdir(tmp_path)
    ended = console("replay", "run.zip")
    assert (ended.code, ended.err) == (0, ""), ended.out
    assert ": the same result, worse on held-out examples, from 78 test calls" in ended.out

    assert console("import", "run.zip").code == 0
    monkeypatch.chdir(tmp_path / "run")
    result = run_of(Path()) / "result.json"
    document = json.loads(result.read_text("utf-8"))
    document["stop"]["detail"] = document["held_out"]["why_not"] = "worded otherwise"
    assert document["parts"]
    for part in document["parts"]:
        part["part"] = part["diff"] = "named otherwise"
    del document["metrics"]
    result.write_text(json.dumps(document), "utf-8")
    assert console("replay").code == 0
    result.write_text(json.dumps({**document, "verdict": "improved"}), "utf-8")
    ended = console("replay")
    assert ended.code == 1
    assert " differs at result.verdict: 'improved' in the run, 'worse on a crit" in ended.out


def test_tokens_that_no_agent_has_reported_were_0_once(console: Console, made: Project) -> None:
    result = run_of(made("agent_python")) / "result.json"
    text = result.read_text("utf-8")
    earlier = re.sub(r'"((?:in|out)put_tokens)": null', r'"\1": 0', text)
    assert earlier != text
    result.write_text(earlier, "utf-8")
    assert console("replay").code == 0


def test_a_journal_that_lacks_an_answer_names_it(console: Console, made: Project) -> None:
    run = run_of(made("classify"))
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (run / "journal.jsonl").write_bytes(b"".join(lines[:40]))
    ended = console("replay")
    assert ended.code == 2
    assert f"the journal of run {run.name} has no answer for `" in ended.err
    assert ended.err.count("\n") == 1


def test_a_run_that_has_not_ended_is_refused(console: Console, made: Project) -> None:
    run = run_of(made("classify"))
    events = (run / "events.jsonl").read_text("utf-8").splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(events[:4]), "utf-8")
    ended = console("replay")
    assert ended.code == 2
    assert f"`promptgraft resume {run.name}` completes it" in ended.err


def test_somebody_else_replays_and_resumes_an_exported_run(
    console: Console, made: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made("classify")
    exported = console("export", "--run", str(run_of(folder)), str(tmp_path / "run.zip"))
    assert exported.code == 0, exported.err
    assert exported.out.startswith("wrote ")
    shutil.rmtree(folder)
    monkeypatch.chdir(tmp_path)

    assert console("replay", "run.zip").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.zip"]
    ended = console("import", "run.zip")
    assert ended.code == 0, ended.err
    assert "promptgraft replay" in ended.out
    assert str(folder) not in (run_of(tmp_path / "run") / "config.json").read_text("utf-8")
    monkeypatch.chdir(tmp_path / "run")
    assert console("replay").code == 0
    assert console("resume", "--budget", "130", "--quiet").code in (0, 1)
    assert console("replay").code == 0
    assert console("import", "../run.zip").err.count("already exists") == 1


def test_code_of_an_exported_run_is_never_run(
    console: Console, made: Project, tmp_path: Path
) -> None:
    folder = made("agent_python")
    code = folder / "judging.py"
    code.write_text(code.read_text("utf-8") + "\nraise RuntimeError('it was run')\n", "utf-8")
    (run_of(folder) / "sources.zip").unlink()
    _repacked(folder, tmp_path / "run.zip")
    ended = console("replay", str(tmp_path / "run.zip"))
    assert ended.code == 0, ended.err
    assert "it was run" not in ended.err


def _repacked(folder: Path, path: Path) -> None:
    """Pack a run with the present files of its project."""
    run = run_of(folder)
    sources = io.BytesIO()
    with zipfile.ZipFile(sources, "w") as packed:
        for file in folder.rglob("*"):
            name = file.relative_to(folder).as_posix()
            if file.is_file() and not name.startswith(("runs/", ".", "promptgraft.schema")):
                packed.write(file, name)
    with zipfile.ZipFile(path, "w") as packed:
        manifest = {"version": 1, "run": run.name, "inputs": True}
        packed.writestr("export.json", json.dumps(manifest))
        packed.writestr("run/sources.zip", sources.getvalue())
        for name in ("config.json", "journal.jsonl", "events.jsonl", "result.json"):
            packed.write(run / name, f"run/{name}")


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as packed:
        whole = {name: packed.read(name) for name in packed.namelist()}
    if "run/sources.zip" in whole:
        with zipfile.ZipFile(io.BytesIO(whole.pop("run/sources.zip"))) as packed:
            whole |= {f"sources/{name}": packed.read(name) for name in packed.namelist()}
    return whole


def test_an_export_without_inputs_has_no_case_and_no_answer(
    console: Console, made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made("classify")
    cases = [
        json.loads(line)["input"]
        for line in (folder / "data" / "reports.jsonl").read_text("utf-8").splitlines()
    ]
    texts = [case if isinstance(case, str) else next(iter(case.values())) for case in cases]
    ended = console("export", "--run", "latest", "--without-inputs", "run.zip")
    assert ended.code == 0, ended.err
    assert "it can be shown and compared" in ended.out
    everything = b"".join(members(folder / "run.zip").values())
    assert [text for text in texts if json.dumps(text)[1:-1].encode() in everything] == []
    assert b"scores.jsonl" in (folder / "run.zip").read_bytes()

    refused = console("replay", "run.zip")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "exported without inputs" in refused.err
    assert console("import", "run.zip").code == 0
    monkeypatch.chdir(folder / "run")
    assert console("show", "latest").code == 0
    assert console("report", "latest").code == 0
    assert console("compare", "latest", "latest").code == 0
    assert console("replay").code == 2


def test_an_export_without_inputs_has_no_judgement_of_a_case(
    console: Console, made: Project
) -> None:
    folder = made("classify")
    shutil.rmtree(folder / "runs")
    file, cases = folder / "promptgraft.yaml", folder / "data" / "reports.jsonl"
    text = "".join(
        line for line in file.read_text("utf-8").splitlines(True) if "minibatch_size" not in line
    )
    text = text.replace("\noptimizer:", "\noptimizer:\n  algorithm: gradient\n  max_rounds: 2")
    file.write_text(f"{text}teacher: prompts/triage.md\n", "utf-8")
    rows = [json.loads(line) for line in cases.read_text("utf-8").splitlines()]
    for row in rows[::2]:
        del row["expected"]
    cases.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert console("optimize", "--budget", "200", "--quiet").code in (0, 1)

    quotes = set(_quotes((run_of(folder) / "events.jsonl").read_bytes()))
    assert {event for event, _ in quotes} >= {"taught", "trained", "blamed", "merged"}
    assert all(quote for _, quote in quotes)
    assert console("export", "--run", "latest", "--without-inputs", "run.zip").code == 0
    packed = members(folder / "run.zip")["run/events.jsonl"]
    assert {quote for _, quote in _quotes(packed)} == {""}


def _quotes(events: bytes) -> Iterator[tuple[str, str]]:
    """Yield the texts about single cases in the events of a run."""
    for event in map(json.loads, events.splitlines()):
        match event["event"]:
            case "taught":
                yield "taught", event["expected"]
            case "trained":
                yield from (("trained", loss["reason"]) for loss in event["losses"])
            case "blamed":
                yield from (("blamed", blame["text"]) for blame in event["blamed"])
            case "merged":
                yield from (("merged", problem["text"]) for problem in event["problems"])
            case "unanswered":
                yield "unanswered", event["detail"]


def test_options_that_a_path_leaves_without_effect_are_refused(
    console: Console, made: Project
) -> None:
    path = str(run_of(made("classify")).relative_to(Path.cwd()))
    refused = console("replay", path, "--runs", "elsewhere")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert console("replay", path).code == 0
    refused = console("export", "--run", path, "--project", ".", "run.zip")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert not Path("run.zip").exists()
    assert console("export", "--run", path, "run.zip").code == 0
    assert console("replay", "run.zip", "--runs", "elsewhere").code == 2


def test_secrets_are_never_packed(
    console: Console, made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made("agent_python")
    assert console("check").code == 0  # imports its code
    monkeypatch.setenv("OPENAI_API_KEY", "a-value-that-is-secret")
    code = folder / "judging.py"
    code.write_text(code.read_text("utf-8") + "\nKEY = 'a-value-that-is-secret'\n", "utf-8")
    (run_of(folder) / "sources.zip").unlink()
    ended = console("export", "--run", "latest", "run.zip")
    assert ended.code == 0
    assert "judging.py holds something that looks like a key" in ended.out
    assert b"a-value-that-is-secret" not in b"".join(members(folder / "run.zip").values())

    run = run_of(folder)
    events = (run / "result.json").read_text("utf-8")
    (run / "result.json").write_text(events.replace("{", '{"x": "a-value-that-is-secret",', 1))
    refused = console("export", "--run", "latest", "second.zip")
    assert refused.code == 2
    assert "result.json holds the value of an environment variable" in refused.err
    assert not (folder / "second.zip").exists()


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("run/../../out", b"x", "expected a relative path"),
        ("run/baseline_prompts/x.md", b"x", "expected a file of a run"),
        ("elsewhere", b"x", ""),
    ],
)
def test_a_hostile_file_is_one_line_and_leaves_nothing(
    console: Console, made: Project, name: str, content: bytes, fault: str
) -> None:
    folder = made("classify")
    assert console("export", "--run", "latest", "run.zip").code == 0
    with zipfile.ZipFile(folder / "run.zip", "a") as packed:
        packed.writestr(name, content)
    ended = console("import", "run.zip")
    if not fault:
        assert ended.code == 0
        assert not (folder / "run" / name).exists()
        return
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert fault in ended.err
    assert not (folder / "run").exists()
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("name", [".git/config", "a/.hidden", ".promptgraft/overrides/x.py"])
def test_hidden_files_of_a_stranger_are_refused(console: Console, made: Project, name: str) -> None:
    folder = made("classify")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    run = run_of(folder)
    sources = io.BytesIO()
    with zipfile.ZipFile(sources, "w") as packed:
        packed.writestr(name, "x")
    (run / "sources.zip").write_bytes(sources.getvalue())
    ended = console("replay")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "expected no hidden file" in ended.err
    assert not list(folder.parent.glob("**/x.py"))


def test_files_elsewhere_are_not_read_for_a_stranger(console: Console, made: Project) -> None:
    folder = made("classify")
    run = run_of(folder)
    (folder.parent / "private.jsonl").write_text('{"input": "private"}\n', "utf-8")
    with zipfile.ZipFile(run / "sources.zip") as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    settings = files["promptgraft.yaml"].decode()
    files["promptgraft.yaml"] = settings.replace("data/reports.jsonl", "../private.jsonl").encode()
    with zipfile.ZipFile(run / "sources.zip", "w") as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    ended = console("replay")
    assert ended.code == 2
    assert "expected the names of files in it, found '../private.jsonl'" in ended.err


OF_JOBS: tuple[tuple[str, ...], ...] = (
    (
        *("--set", "patience=2", "--set", 'tag="other"', "--set", 'tuning={"minibatch_size": 2}'),
        *("--set", "max_iterations=2", "--set", "target_score=0.5", "--set", 'model="task"'),
    ),
    ("--dry-run", "--set", "store=false", "--seed", "7"),
)


@pytest.mark.thorough
def test_jobs_of_a_queue_are_replayed_from_their_mirrors(console: Console, made: Project) -> None:
    folder = made("classify")
    shutil.rmtree(folder / "runs")
    queue = ("--jobs", f"sqlite:///{folder}/jobs.db")
    jobs = []
    for changes in OF_JOBS:
        submitted = console("jobs", "submit", "triage", "--budget", "110", *changes, *queue)
        assert submitted.code == 0, submitted.err
        jobs.append(submitted.out.split()[1])
    with JobManager(queue[1], projects={folder.name: folder / "promptgraft.yaml"}) as manager:
        assert work_off(manager) == len(jobs)
    for job, changes in zip(jobs, OF_JOBS, strict=True):
        assert console("jobs", "export", job, *queue).code == 0
        ended = console("replay")
        assert ended.code == 0, (changes, ended.err)
        assert console("export", "--run", "latest", "run.zip").code == 0
        ended = console("replay", "run.zip")
        assert ended.code == 0, (changes, ended.err)
        shutil.rmtree(folder / "runs")
        Path("run.zip").unlink()
