"""A gradient run that is kept in a run directory, and one of a project file."""

from __future__ import annotations

from pathlib import Path

from gradient.flow_world import Flow
from gradient.flow_world import reply as flow_reply
from gradient.flow_world import settings as flow_settings
from gradient.words_world import reply, settings
from optimizers.worlds import PROMPT, answer
from promptgraft import OptimizationContext, OptimizationJob, ScriptedAdapter
from promptgraft.cli.progress import doing
from promptgraft.runs.history import RunHistory
from promptgraft.runtime.session import EventBus
from promptgraft.search.notices import Working
from runs.toy_runs import carry_out, files_of, new_folder


def job(**changes: object) -> OptimizationJob:
    context = OptimizationContext(
        ScriptedAdapter(answer, identity="task"),
        reflection_adapter=ScriptedAdapter(reply, identity="writer"),
    )
    return OptimizationJob(PROMPT, context, settings(**changes))


def test_every_round_has_a_page_and_a_resumed_run_leaves_the_same(tmp_path: Path) -> None:
    folder = new_folder(tmp_path, job())
    carry_out(folder, job())
    assert sorted(path.name for path in folder.rounds.iterdir()) == ["1.md", "2.md", "3.md"]
    page = folder.round(2).read_text("utf-8")
    for line in (
        "# Round 2: accepted",
        "- training cases: 6, 4 failed",
        "- on the validation set: 0.333 -> 0.667",
        "| e2-again |  | P1 | missing w2 |",
        "| e2-again | 1 toy/words | section rules | P1 | missing w2 |",
        "it does not know w2, w3",
        "+Known words: w0 w1 w2 w3",
    ):
        assert line in page
    before = files_of(folder)
    carry_out(folder, job())
    assert files_of(folder) == before


def test_progress_names_round_stage_and_what_is_waited_for() -> None:
    bus, history = EventBus(), RunHistory()
    said: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, Working):
            history.add(event)
            said.append(doing(history))

    bus.subscribe(object, hear)
    model = ScriptedAdapter(flow_reply, identity="writer")
    context = OptimizationContext(model, event_bus=bus)
    OptimizationJob(Flow(), context, flow_settings(max_rounds=1)).run()
    assert "round 1: evaluating training cases, 3 of 9" in said
    assert "round 1: tracing a failure back, a0 b0 c0 again/1.1.1" in said
    assert "round 1: merging what was said, left" in said
    assert "round 1: writing a new text, writer/0" in said
    assert "round 1: validating, 9 of 9" in said
