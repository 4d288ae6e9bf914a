"""An addition of somebody else is found by its name, and its search runs, resumes and overlaps."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from optimizers.worlds import RULES, Run, answer, answers, config, propose
from programs import Programs
from promptgraft.algorithms.gepa import Addition
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_strategy"
sys.path.insert(0, str(EXAMPLE))
from drafts import Drafts  # noqa: E402

GOOD, EQUAL, BAD = "Known words: w0 w1 w2 w3", "Known words: none", "Known words: $nobody $asks"


def installed(folder: Path, value: str = "drafts:Drafts") -> None:
    """Write the metadata of a package that brings an addition."""
    metadata = folder / "drafting-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: drafting\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[promptgraft.additions]\ndrafts = {value}\n")


def run_of(
    journal: MemoryJournal,
    at_once: Mapping[str, int] = {},
    *,
    texts: Sequence[str] = (EQUAL, GOOD),
    executor: Executor | None = None,
) -> Run:
    settings = config(
        additions=[Drafts(texts=texts)],
        target_section_paths=(RULES,),
        minibatch_size=2,
        **at_once,
    )
    return Run(settings, task=answer, reflection=propose, journal=journal, executor=executor)


def test_it_is_short() -> None:
    assert len((EXAMPLE / "drafts.py").read_text("utf-8").splitlines()) <= 60


def test_drafts_are_tried_before_any_reflection_and_the_better_one_is_kept() -> None:
    run = run_of(MemoryJournal())
    result = run.start()
    assert [rejection.text for rejection in result.rejections][:1] == [EQUAL]
    [first, *_] = [candidate for candidate in result.candidates if candidate.parents]
    assert first.section_overrides[RULES] == GOOD
    proposed = [request for request in run.reflection.requests if GOOD in request.text]
    assert run.reflection.calls == result.total_reflections == len(proposed)


def test_a_draft_that_cannot_be_used_is_rejected_with_its_reason() -> None:
    [rejection, *_] = run_of(MemoryJournal(), texts=["Known words:"]).start().rejections
    assert rejection.text == "Known words:"
    assert rejection.reason == "unchanged"


def test_a_part_that_does_not_exist_is_refused_by_the_names_of_those_that_do() -> None:
    settings = config(additions=[Drafts(part="section rule", texts=[GOOD])])
    with pytest.raises(ConfigError, match="expected one of section rules, section notes, found"):
        Run(settings).start()


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
    settings = dict(header["fingerprint"]["additions"])["drafts"]
    assert settings["part"] == "section bins"
    assert len(settings["texts"]) == 2


def test_what_is_no_addition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "json:dumps")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ConfigError,
        match=r"`drafts`: the entry point 'json:dumps': expected a subclass of Addition",
    ):
        config(additions=["drafts"])
    with pytest.raises(ConfigError, match=r"unknown addition `drafst` \(did you mean `drafts`\?\)"):
        config(additions=["drafst"])
    with pytest.raises(ConfigError, match="`blame` is named twice"):
        config(additions=["blame", "blame"])
    with pytest.raises(ConfigError, match="expected the name of an addition or an object"):
        config(additions=[Addition])
    with pytest.raises(ConfigError, match="`Addition` has no `name`; give the class one"):
        config(additions=[Addition()])
