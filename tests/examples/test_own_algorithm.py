"""An algorithm of somebody else: it is run, planned, recorded and resumed like GEPA."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from forked import forking
from programs import Programs
from promptgraft.algorithms import algorithm
from promptgraft.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm"
KILLED = Path(__file__).with_name("kill_own_algorithm.py")
KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "4"))


def test_it_is_short_and_improves_the_prompt(programs: Programs) -> None:
    assert len((EXAMPLE / "rewrite.py").read_text("utf-8").splitlines()) <= 80
    found = programs.output("bins.py", folder=EXAMPLE)
    before, _, after = found.partition(": ")[2].partition(" -> ")
    assert float(after) > float(before)


def test_killed_at_any_answer_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    with forking(KILLED) as run, forking(KILLED) as run_again:
        ended = run(whole, 0)
        assert ended[0] == 0
        answers = len((whole / "journal.jsonl").read_text("utf-8").splitlines())
        for fatal in range(1, answers, answers // KILLS):
            folder = tmp_path / str(fatal)
            folder.mkdir()
            assert run(folder, fatal)[0] == -signal.SIGKILL
            assert run_again(folder, 0) == ended
            assert (folder / "journal.jsonl").read_bytes() == (whole / "journal.jsonl").read_bytes()


def test_the_command_line_plans_runs_and_resumes_it(tmp_path: Path, programs: Programs) -> None:
    job = f"{EXAMPLE / 'bins.py'}:job"
    assert "candidates" in programs.promptgraft("plan", job, folder=tmp_path).stdout

    ran = programs.promptgraft("optimize", job, folder=tmp_path)
    assert ran.returncode == 1, ran.stderr  # nothing is held out, so nothing is shown
    assert "the search has come to its own end" in ran.stdout
    [folder] = (tmp_path / "runs").iterdir()
    assert (folder / "report.html").exists()
    assert (folder / "journal.jsonl").exists()

    again = programs.promptgraft("resume", folder.name, folder=tmp_path)
    assert again.returncode == 1, again.stderr


def installed(folder: Path, value: str) -> None:
    """Write the metadata of a package that brings an algorithm."""
    metadata = folder / "rewriting-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rewriting\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[promptgraft.algorithms]\nrewrite = {value}\n")


def test_it_is_found_by_name_when_its_package_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "rewrite:Rewrite")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))
    found = algorithm("rewrite")
    assert found.algorithm == "rewrite"


def test_a_name_that_is_not_installed_lists_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown algorithm `gepe` \(did you mean `gepa`\?\)"):
        algorithm("gepe")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "not_there:Rewrite",
            "`rewrite`: the entry point 'not_there:Rewrite' cannot be imported: No module",
        ),
        ("json:dumps", "`rewrite`: the entry point 'json:dumps': expected a subclass of RunConfig"),
    ],
)
def test_a_package_without_an_algorithm_is_named(
    value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=message):
        algorithm("rewrite")
