"""Two servers and three workers on one database, as the example runs them."""

from __future__ import annotations

import os
import re
import subprocess
import types
from contextlib import ExitStack
from pathlib import Path

import pytest

from database.database_servers import missing, running
from programs import Programs, Started
from promptgraft.project.python_source import load_file

EXAMPLE = Path(__file__).parents[2] / "examples" / "team"


# The other one takes as long, and a longer test looks at both.
@pytest.mark.parametrize(
    "kind", ["postgresql", "mariadb"] if "PROMPTGRAFT_KILLS" in os.environ else ["postgresql"]
)
def test_a_team_shares_a_database(
    kind: str,
    tmp_path: Path,
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if why_not := missing(kind):
        pytest.skip(why_not)
    team = load_file(EXAMPLE / "team.py", name="team", what="example")
    monkeypatch.chdir(tmp_path)
    with running(kind) as server, ExitStack() as started:

        def start(command: list[str], *, cwd: Path, env: dict[str, str], **_: object) -> Started:
            process = programs.started(*command[1:], folder=cwd, environment=env)
            return started.enter_context(process)

        def run(command: list[str], *, cwd: Path, env: dict[str, str], **_: object) -> object:
            done = programs(*command[1:], folder=cwd, environment=env)
            done.check_returncode()
            return done

        own = {**vars(subprocess), "Popen": start, "run": run}
        monkeypatch.setattr(team, "subprocess", types.SimpleNamespace(**own))
        monkeypatch.setattr("sys.argv", ["team.py", "--jobs", server.fresh(), "--count", "2"])
        team.main()
    page = (EXAMPLE / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    expected = shown.replace("4 jobs", "2 jobs").replace("4 completed", "2 completed")
    assert capsys.readouterr().out == expected
    assert list(tmp_path.iterdir()) == []
