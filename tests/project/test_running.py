"""A run that a program makes, keeps and resumes as commands do."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from promptgraft.cli.main import run
from promptgraft.errors import DataFormatError, JournalCorruptError
from promptgraft.project.replaying import replayed
from promptgraft.project.running import Changes, keep, loaded, loaded_again, run_dry, run_job
from promptgraft.runs import RunFolder
from promptgraft.runtime import Cancellation
from promptgraft.search import MaxProposals, NoImprovement, StopReason, TargetScore
from promptgraft.search.events import RolloutCompleted

PROJECT = """
version: 1
prompts: {triage: triage.md}
dataset: {path: tickets.csv, fields: {input: text}}
metrics: [{name: exact}]
models:
  task: {provider: offline}
optimizer: {minibatch_size: 4}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    cases = (
        f"b{n},invoice {n} is wrong,billing\nl{n},password {n} is lost,login" for n in range(8)
    )
    (tmp_path / "tickets.csv").write_text("\n".join(["id,text,expected", *cases]))
    (tmp_path / "promptgraft.yaml").write_text(PROJECT)
    (tmp_path / "triage.md").write_text(
        "---\nsyntax: dollar\noutput: {choices: [billing, login]}\n---\n"
        "# Rules\n\nChoose a queue.\n\n# Ticket {#ticket .frozen}\n\n$text\n"
    )
    return tmp_path


def kept(project: Path, runs: str, budget: int) -> RunFolder:
    with loaded(None, str(project), changes=Changes(budget=budget)) as source:
        folder = source.make_folder(project / runs)
        assert keep(folder, source.job).folder == folder
    return folder


def test_a_resumed_run_is_the_one_with_the_larger_budget(project: Path) -> None:
    folder, whole = kept(project, "runs", 36), kept(project, "others", 60)
    before = json.loads(folder.config.read_text())

    with loaded_again(folder, Changes(budget=60)) as source:
        outcome = keep(folder, source.job, config=source.config)

    after = json.loads(folder.config.read_text())
    assert (before["options"], after["options"]) == ({"budget": 36}, {"budget": 60})
    assert [before[name] for name in ("id", "created", "origin")] == [
        after[name] for name in ("id", "created", "origin")
    ]
    assert outcome.document()["means"] == json.loads(whole.result.read_text())["means"]
    assert folder.journal.read_bytes() == whole.journal.read_bytes()


def test_a_budget_that_replaces_one_too_small_decides(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "promptgraft.yaml"
    file.write_text(PROJECT.replace("minibatch_size", "rollout_budget: 1, minibatch_size"))
    with (
        pytest.raises(DataFormatError, match="rollout_budget: expected at least"),
        loaded(None, str(project)),
    ):
        pass
    folder = kept(project, "runs", 60)
    with loaded_again(folder, Changes()) as again:
        assert again.job.config.budget == 60
    assert replayed(folder, may_run_code=False).difference is None
    command = ["optimize", "--project", str(file), "--dry-run", "--quiet", "--budget"]
    assert run([*command, "1"]) == 2
    assert "rollout_budget: expected at least 20" in capsys.readouterr().err
    assert run([*command, "60"]) in (0, 1)


def damage_answers(folder: RunFolder) -> None:
    header, *_ = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(header + b"damaged\n")


def test_a_plan_of_a_prompt_reads_no_answers_of_earlier_runs(project: Path) -> None:
    damage_answers(kept(project, "runs", 36))
    with loaded(None, str(project)) as source:
        assert source.plan().rollouts


GRAPH = """
from typing import Literal

from promptgraft import MarkdownSection, PromptTemplate
from promptgraft.graphs import Graph, Node, Run

QUEUE = PromptTemplate(
    ns="toy/desk",
    key="queue",
    output_type=Literal["billing", "login"],
    sections=[
        MarkdownSection(title="Rules", key="rules", template="Choose a queue."),
        MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),
    ],
)


def flow(run: Run, ticket: str) -> str:
    # A rule answers all of the cases.
    return "login" if "password" in ticket else "billing"


DESK = Graph(name="desk", nodes=[Node("queue", QUEUE)], flow=flow)
"""


def test_a_plan_of_a_graph_reads_the_answers_of_the_last_runs_only(project: Path) -> None:
    # None of the runs says how often its prompts are asked, so an earlier one is read.
    (project / "desk.py").write_text(GRAPH)
    file = project / "promptgraft.yaml"
    file.write_text(PROJECT.replace("prompts: {triage: triage.md}", "graphs: {desk: desk.py:DESK}"))
    folder = kept(project, "runs", 36)
    runs = [folder, *(RunFolder(folder.path.with_name(f"{folder.id}-{n}")) for n in range(2, 5))]
    for copy in runs[1:]:
        shutil.copytree(folder.path, copy.path)

    with loaded(None, str(project)) as source:
        damage_answers(runs[0])  # the oldest of the four
        assert source.plan().rollouts
        damage_answers(runs[1])
        with pytest.raises(JournalCorruptError):
            source.plan()


def test_changes_of_a_run_are_kept_but_for_its_time(project: Path) -> None:
    changes = Changes(tag="canary", seed=3, max_cost="2.50", timeout=60.0)
    with loaded(None, str(project), changes=changes) as source:
        folder = source.make_folder(project / "runs")
    with loaded_again(folder, Changes(seed=4)) as again:
        assert again.changes == Changes(tag="canary", seed=4, max_cost="2.50")
        assert again.job.context.overrides_tag == "canary"
        assert again.job.config.seed == 4
        assert str(again.job.config.limits.max_cost) == "2.50"


def test_a_changed_limit_takes_the_place_of_that_of_the_project(project: Path) -> None:
    stoppers = "[{no_improvement: {steps: 2}}, {max_proposals: {proposals: 9}}]"
    limits = f"minibatch_size: 4, limits: {{stoppers: {stoppers}}}"
    (project / "promptgraft.yaml").write_text(PROJECT.replace("minibatch_size: 4", limits))
    with loaded(None, str(project), changes=Changes(patience=30, target_score=0.9)) as source:
        assert source.job.config.limits.stoppers == (
            MaxProposals(9),
            NoImprovement(30),
            TargetScore(0.9),
        )


def test_listeners_are_told_of_a_run_and_may_cancel_it(project: Path) -> None:
    cancellation, told = Cancellation(), list[object]()

    def listen(event: object) -> None:
        told.append(event)
        if sum(isinstance(one, RolloutCompleted) for one in told) >= 3:
            cancellation.set("enough")

    with loaded("triage", str(project)) as found:
        run = partial(run_job, workers=2, listeners=[listen], cancellation=cancellation)
        outcome = run_dry(found.job, run)

    assert outcome.result.stop_reason is StopReason.CANCELLED
    assert (outcome.dry, outcome.folder) == (True, None)
    assert not list(project.glob("runs/*"))
