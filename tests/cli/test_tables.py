"""Every table of the console fits terminals of 50, 80 and 120 columns, and keeps its figures."""

from __future__ import annotations

import io
import re
import sys
from contextlib import closing
from pathlib import Path

import pytest

from promptgraft.cli.main import run
from promptgraft.service.database import Database
from promptgraft.service.jobs.approvals import Approvals, MoveKind, TagMove

SOURCES = Path(__file__).parents[2] / "src" / "promptgraft"
JOBS = "sqlite:///jobs.db"
TABLES = {
    "cli/project.py": ["plan"],
    "cli/runs.py": ["runs", "compare {first} {second}"],
    "cli/show_run.py": ["show {second}"],
    "cli/outcome.py": ["resume {second} --quiet"],
    "cli/render.py": ["describe"],
    "service/commands/jobs.py": ["jobs list"],
    "service/commands/approvals.py": ["jobs approvals list"],
    "service/commands/datasets.py": ["jobs datasets list"],
    "service/commands/serve.py": ["tokens list"],
}
"""Commands that print the tables of a module."""
OPTIONAL = ("runs",)
"""Commands that leave columns out where the terminal is narrow."""
COMMANDS = [command for commands in TABLES.values() for command in commands]


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project with two runs, a job, a data set and tokens; the names of the runs."""
    folder = tmp_path_factory.mktemp("tables") / "a-project-with-quite-a-long-name"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        patch.setattr(sys, "stderr", io.StringIO())
        patch.setenv("PROMPTGRAFT_JOBS", JOBS)
        assert run(["init", str(folder), "--graph"]) == 0
        patch.chdir(folder)
        cases = folder / "data" / "reports.jsonl"
        lines = cases.read_text("utf-8").splitlines(keepends=True)
        cases.write_text("".join(lines[:80]), "utf-8")
        for budget in ("120", "110"):
            assert run(["optimize", "--quiet", "--budget", budget]) in {0, 1}
        assert run(["jobs", "submit", "--budget", "110", "--note", "nightly"]) == 0
        assert run(["jobs", "datasets", "save", "hard-cases-of-march", "data/reports.jsonl"]) == 0
        scopes = [part for name in ("read", "submit", "approve") for part in ("--scope", name)]
        assert run(["tokens", "create", "continuous-integration-of-march", *scopes]) == 0
        assert run(["jobs", "approvals", "protect", "production"]) == 0
        move = TagMove(
            kind=MoveKind.PROMOTE,
            project=folder.name,
            prompt="answers-of-the-whole-support-desk",
            tag="production",
            before={"desk/answer": ""},
            after={"desk/answer": "0" * 64},
        )
        with closing(Database(JOBS)) as database:
            Approvals(database).ask(move, by="somebody.with.a.long.name@example.org")
    first, second = sorted(path.name for path in (folder / "runs").iterdir() if path.is_dir())
    return folder, {"first": first, "second": second}


def printed(command: str, columns: int, patch: pytest.MonkeyPatch) -> str:
    screen = Terminal()
    with patch.context() as here:
        here.setattr(sys, "stdout", screen)
        here.setenv("COLUMNS", str(columns))
        here.setenv("NO_COLOR", "1")
        assert run(command.split()) in {0, 1}
    return screen.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_table_fits_the_terminal_and_keeps_its_figures(
    command: str, runs: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, names = runs
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PROMPTGRAFT_JOBS", JOBS)
    texts = {at: printed(command.format(**names), at, monkeypatch) for at in (50, 80, 120)}

    for columns, text in texts.items():
        too_long = [line for line in text.splitlines() if len(line) > columns]
        # Commands, paths, ids and names are never broken, so that they can be copied.
        too_long = [line for line in too_long if not re.match("  promptgraft |.* -> ", line)]
        assert not [line for line in too_long if 2 * max(map(len, line.split())) < columns]
    if command not in OPTIONAL and not command.startswith("resume"):
        figures = [re.findall(r"[\d.,%$]*\d[\d.,%$]*", text) for text in texts.values()]
        assert sorted(figures[0]) == sorted(figures[1]) == sorted(figures[2])


def test_the_commands_print_the_tables_of_every_module() -> None:
    callers = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if re.search(r"(?i)screen(\(\))?\.table\(", path.read_text("utf-8"))
    }
    assert callers == set(TABLES)
