"""Records and displays of steps that change several parts at once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from optimizers.several_world import NAMES, Rendered, lacking, prompt_of, several, teach
from optimizers.worlds import current_text, instruction
from promptgraft import OptimizationContext, OptimizationJob, ScriptedAdapter
from promptgraft.cli.progress import doing, sentence
from promptgraft.runs import RunFolder, RunHistory, read_run
from promptgraft.runs.event_file import read_lines
from promptgraft.runs.folder import read_document
from promptgraft.search.events import MutationAccepted
from promptgraft.search.place import Place
from runs.toy_runs import kept_run

PARTS = NAMES[:3]
ALL = tuple(f"section {name}" for name in PARTS)


def job() -> OptimizationJob:
    def reply(rendered: Rendered) -> str:
        """Propose something useful, or something useless, as the question decides."""
        chance = random.Random(rendered.text)
        useless = instruction(f"{current_text(rendered)} {chance.random()}")
        return useless if chance.random() < 0.6 else teach(rendered)

    context = OptimizationContext(
        ScriptedAdapter(lacking(PARTS), identity="task"),
        reflection_adapter=ScriptedAdapter(reply, identity="writer"),
    )
    return OptimizationJob(prompt_of(PARTS), context, several(PARTS, rollout_budget=120))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return kept_run(tmp_path_factory.mktemp("several"), job())


def test_a_candidate_is_kept_with_all_that_was_changed(folder: RunFolder) -> None:
    record = read_run(folder)
    [one, *_] = [found for found in record.candidates if (found.module or "").count(",") == 2]
    assert one.module is not None
    assert sorted(one.module.split(", ")) == sorted(ALL)
    page = folder.candidate(one.candidate).read_text("utf-8")
    assert f"- changes: {one.module}\n" in page
    for name in ALL:
        assert f"+++ {name} (after)" in page
    accepted = [event for _, event in read_lines(folder.events)]
    [line] = [
        event
        for event in accepted
        if isinstance(event, MutationAccepted) and event.candidate == one.candidate
    ]
    assert line.module == one.module
    told = sentence(line, record)
    assert told.startswith(f"step {one.step}: new text for {one.module}: ")
    assert one.module in (folder.path / "report.html").read_text("utf-8")


def test_every_page_counts_the_same_rewrites_one_for_each_part(folder: RunFolder) -> None:
    record = read_run(folder)
    whole = [event for _, event in read_lines(folder.events)]
    kept = [one.module for one in whole if isinstance(one, MutationAccepted)]
    dropped = Counter(str(one.reason) for one in record.rejections)
    assert any(", " in module for module in kept)
    assert record.rewrites.kept == sum(len(module.split(", ")) for module in kept)
    assert sum(record.rewrites.dropped.values()) == len(record.rejections)
    assert read_document(folder.result)["mutations"] == {
        "accepted": len(kept),
        "kept_rewrites": record.rewrites.kept,
        "rejected": dropped,
    }
    line = str(record.rewrites)
    assert f"- rewrites: {line}\n" in f"{folder.summary.read_text('utf-8')}\n"
    assert f"<dt>Rewrites</dt><dd>{line}</dd>" in folder.report.read_text("utf-8")
    assert line in record._repr_html_()


def test_each_change_of_a_rejected_child_has_a_page_and_the_last_is_told(folder: RunFolder) -> None:
    by_step: dict[int, list[str]] = {}
    for one in read_run(folder).rejections:
        by_step.setdefault(one.step, []).append(one.module)
    step, modules = next((step, found) for step, found in by_step.items() if len(found) == 3)
    assert sorted(modules) == sorted(ALL)
    for attempt, module in enumerate(modules, 1):
        page = folder.rejection(step, attempt).read_text("utf-8")
        others = ", ".join(name for name in modules if name != module)
        assert f"- proposed change to: {module}\n" in page
        assert f"changed together with {others}\n" in page
    told = [sentence(one, RunHistory()) for one in read_run(folder).rejections if one.step == step]
    assert told[:2] == ["", ""]
    assert told[2].startswith(f"step {step}: new text for {modules[2]} dropped: not better; ")
    assert told[2].endswith(f"changed together with {modules[0]}, {modules[1]}")


@pytest.mark.parametrize(
    ("attempt", "what"),
    [(0, "writing a new text"), (1, "repairing the new text"), (2, "writing a new text")],
)
def test_what_is_waited_for_is_told_for_every_part(attempt: int, what: str) -> None:
    place = Place.parse(f"step/4/reflect/{attempt}")
    assert doing(RunHistory(place=place)) == f"step 4: {what}"


def test_a_run_that_is_resumed_leaves_the_same_files(folder: RunFolder, tmp_path: Path) -> None:
    again = kept_run(tmp_path, job())
    for name in ("candidates", "rejected"):
        pages = {page.name: page.read_bytes() for page in (folder.path / name).iterdir()}
        assert pages == {page.name: page.read_bytes() for page in (again.path / name).iterdir()}
