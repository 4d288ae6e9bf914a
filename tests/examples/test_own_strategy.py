"""An addition of somebody else is found by its name, and its search runs, resumes and overlaps."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from optimizers.worlds import RULES, Run, answer, answers, bound, config, instruction
from programs import Programs
from promptgraft.algorithms.gepa import Addition
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_strategy"
sys.path.insert(0, str(EXAMPLE))
from restart import Restart  # noqa: E402

EMPTY = "It has no text yet."


def installed(folder: Path, value: str = "restart:Restart") -> None:
    """Write the metadata of a package that brings an addition."""
    metadata = folder / "restarting-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: restarting\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[promptgraft.additions]\nrestart = {value}\n")


def writes_once(rendered: RenderedPrompt[object]) -> str:
    """Write the missing word, but only where there is no text."""
    shown = bound(rendered, "current")
    missing = bound(rendered, "examples").partition("missing ")[2].split()[0]
    return instruction(missing if shown == EMPTY else f"{shown} x")


def run_of(
    journal: MemoryJournal, at_once: Mapping[str, int] = {}, *, executor: Executor | None = None
) -> Run:
    settings = config(
        additions=[Restart(after=2)],
        target_section_paths=(RULES,),
        minibatch_size=2,
        max_failed_reflections=50,
        **at_once,
    )
    return Run(settings, task=answer, reflection=writes_once, journal=journal, executor=executor)


def test_it_is_short_and_known_to_nobody_else() -> None:
    assert len((EXAMPLE / "restart.py").read_text("utf-8").splitlines()) <= 60


def test_it_begins_anew_after_some_steps_without_a_better_candidate() -> None:
    run = run_of(MemoryJournal())
    result = run.start()
    shown = [bound(request, "current") for request in run.reflection.requests]
    first = shown.index(EMPTY)
    assert first >= 2
    assert EMPTY not in shown[:2]
    assert result.accepted_mutations > 0


@pytest.mark.parametrize("at_once", [{}, {"steps_at_once": 3}, {"proposals_per_step": 2}])
def test_its_search_is_the_same_with_workers_and_when_it_is_resumed(
    at_once: dict[str, int],
) -> None:
    journal, beside = MemoryJournal(), MemoryJournal()
    whole = run_of(journal, at_once).start()
    with ThreadPoolExecutor(4) as executor:
        assert run_of(beside, at_once, executor=executor).start().candidates == whole.candidates
    assert answers(beside) == answers(journal)
    again = run_of(journal, at_once)
    assert again.start() == whole
    assert again.task.calls == again.reflection.calls == 0


def test_a_project_finds_it_by_name(tmp_path: Path, programs: Programs) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    installed(project)
    path = {"PYTHONPATH": str(project)}
    run = programs.promptgraft("optimize", "--json", folder=project, environment=path)
    assert run.returncode in (0, 1), run.stderr
    [journal] = project.glob("**/journal.jsonl")
    header = json.loads(journal.read_text("utf-8").splitlines()[0])
    assert ["restart", {"after": 3}] in header["fingerprint"]["additions"]


def test_what_is_no_addition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "json:dumps")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ConfigError,
        match=r"`restart`: the entry point 'json:dumps': expected a subclass of Addition",
    ):
        config(additions=["restart"])
    with pytest.raises(
        ConfigError, match=r"unknown addition `restrat` \(did you mean `restart`\?\)"
    ):
        config(additions=["restrat"])
    with pytest.raises(ConfigError, match="`blame` is named twice"):
        config(additions=["blame", "blame"])
    with pytest.raises(ConfigError, match="expected the name of an addition or an object"):
        config(additions=[Addition])
