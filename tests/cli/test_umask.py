"""Every file and folder has the permissions that the umask leaves, from `init` to `apply`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from programs import Programs

MASK = 0o024
"""Takes away what nobody writes down: fixed permissions show, as does a mask that is ignored."""
HEAD = f"""
import os
from pathlib import Path
from promptgraft.cli.main import run
os.umask({MASK})
def cut():
    cases = Path("data/reports.jsonl")
    cases.write_text("".join(cases.read_text().splitlines(keepends=True)[:80]))
"""
OF_RUNS = f"""{HEAD}
assert run(["init", "demo"]) == 0
os.chdir("demo")
cut()
assert run(["optimize", "-q", "--budget", "100"]) in (0, 1)
for target in ([], ["--to-source"]):
    assert run(["apply", "--candidate", "1", "--keep-anyway", *target]) == 0
assert run(["eval", "-q", "--save-baseline", "baseline.json", "--junit", "gate.xml"]) == 0
assert run(["report", "latest", "--out", "out/report.html"]) == 0
assert run(["meta", "write", "meta"]) == 0
"""
OF_JOBS = f"""{HEAD}
assert run(["init", "demo"]) == 0
os.chdir("demo")
cut()
project = Path("promptgraft.yaml")
settings = project.read_text()
assert "store: {{tag: latest}}" in settings
project.write_text(settings.replace("{{tag: latest", "{{url: 'sqlite:///winners.db', tag: latest"))
assert run(["jobs", "submit", "triage", "--jobs", "sqlite:///jobs.db", "--budget", "100"]) == 0
assert run(["worker", "--until-idle", "--jobs", "sqlite:///jobs.db"]) == 0
assert run(["tokens", "create", "reader", "--scope", "read", "--jobs", "sqlite:///jobs.db"]) == 0
from promptgraft.service.jobs import JobManager
[job] = JobManager("sqlite:///jobs.db", projects={{}}).list()
assert run(["jobs", "export", job.id, "--jobs", "sqlite:///jobs.db"]) == 0
"""
OF_AGENTS = f"""{HEAD}
assert run(["init", "demo", "--agent", "command"]) == 0
os.chdir("demo")
cut()
project = Path("promptgraft.yaml")
settings = project.read_text()
assert "[python3, agent.py, " in settings
# A shell is faster: it answers with the end of the query.
script = "'[ -e \\"$1\\" ] && echo \\"${{2##* }}\\"'"
project.write_text(settings.replace("python3, agent.py", f"sh, -c, {{script}}, agent"))
assert run(["check", "--probe"]) == 0
assert run(["optimize", "-q", "--budget", "100"]) in (0, 1, 3)
"""
# A file that a run leaves, by program: it must be among those that are looked at.
EXPECTED = {
    OF_RUNS: {".promptgraft", "journal.jsonl", "summary.md", "baseline.json", "gate.xml"},
    OF_JOBS: {"jobs.db", "winners.db", "journal.jsonl"},
    OF_AGENTS: {"journal.jsonl", "events.jsonl"},
}


@pytest.mark.parametrize(
    "program",
    [OF_RUNS, OF_JOBS, pytest.param(OF_AGENTS, marks=pytest.mark.thorough)],
    ids=["runs", "jobs", "agents"],
)
def test_files_and_folders_have_what_the_umask_leaves(
    program: str, programs: Programs, tmp_path: Path
) -> None:
    ended = programs("-c", program, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = list((tmp_path / "demo").rglob("*"))
    assert {path.name for path in found} >= EXPECTED[program]
    wrong = {
        str(path): oct(path.stat().st_mode & 0o777)
        for path in found
        if path.stat().st_mode & 0o777 != (0o777 if path.is_dir() else 0o666) & ~MASK
    }
    assert not wrong


# While a database is open, its log and its index lie beside it.
OPENED = f"""
import json, os
from pathlib import Path
os.umask({MASK})
from promptgraft.service.database import SqlPromptOverridesStore
from promptgraft.service.jobs import JobManager
store = SqlPromptOverridesStore("sqlite:///winners.db")
store.addresses()
manager = JobManager("sqlite:///jobs.db", projects={{}})
manager.list()
files = {{path.name: path.stat().st_mode & 0o777 for path in Path().iterdir()}}
print(json.dumps(files))
"""


def test_the_log_of_an_open_database_has_the_permissions_of_its_file(
    programs: Programs, tmp_path: Path
) -> None:
    files = json.loads(programs.output("-c", OPENED, folder=tmp_path))
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "winners.db"} <= files.keys()
    assert set(files.values()) == {0o666 & ~MASK}


def test_a_database_that_exists_keeps_its_permissions(programs: Programs, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.touch(0o600)
    path.chmod(0o640)
    programs.output("-c", OPENED, folder=tmp_path)
    assert path.stat().st_mode & 0o777 == 0o640
