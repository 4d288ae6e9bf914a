"""``promptgraft optimize``: a job from its plan to its winner."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from cli.console import Console
from cli.jobs import write_jobs
from promptgraft.overrides import LocalPromptOverridesStore, Revision

FILE = "toy_jobs.py"


@pytest.fixture(autouse=True)
def jobs(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_jobs(project)
    for name in ("toy_jobs", "neighbour", "lateneighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return project


def stored(project: Path, tag: str = "toy") -> Revision | None:
    return LocalPromptOverridesStore(project).current(ns="toy", prompt_key="words", tag=tag)


def test_an_improved_prompt_is_0_with_a_summary_that_fits_a_screen(
    console: Console, project: Path
) -> None:
    ended = console("optimize", f"{FILE}:good")

    assert ended.code == 0
    told = ended.err.splitlines()
    assert told[0] == "a job may print"
    assert told[1] == f"promptgraft optimize {FILE}:good"
    assert told[2].startswith("plan: at most 60 rollouts, 30 reflections and ")
    assert told[3].startswith("baseline 0.000 on D_pareto, 6 of 60 rollouts")
    revision = stored(project)
    assert revision is not None
    best = revision.provenance.scores["best"]
    lines = ended.out.splitlines()
    assert len(lines) <= 24
    assert lines[0] == "toy/words: improved"
    assert f"D_pareto      0.000  {best:.3f}  +{best:.3f}  6 examples" in lines
    for start in ("used      ", "stopped   budget: ", "accepted  ", "rejected  none"):
        assert any(line.startswith(start) for line in lines), start
    assert re.search(r"(?m)^task +\d+ +0 +0 +0 +0 +0\.0000 +0\.0  task$", ended.out)
    assert re.search(r"(?m)^reflection +\d+ .*  writer$", ended.out)
    assert f"stored  tag `toy`, revision 1 ({revision.id[:12]})" in lines
    assert f"file    {project}/.promptgraft/overrides/toy/words/toy.json" in lines
    assert lines[-2:] == [
        "  promptgraft diff toy/words --tag toy",
        "  promptgraft rollback toy/words --tag toy",
    ]
    for line in lines[-2:]:
        assert console(*line.split()[1:]).code == 0
    assert stored(project) is None


def test_the_document_says_the_same(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:JOB", "--json", "--quiet")

    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    revision = stored(project)
    assert revision is not None
    assert document["prompt"] == "toy/words"
    assert document["dry_run"] is False
    assert document["improved"] is True
    assert document["rollouts"]["used"] <= document["rollouts"]["budget"] == 60
    assert document["scores"]["pareto"]["best"] == revision.provenance.scores["best"]
    assert document["cost"] == "0"
    by_role = {entry["role"]: entry for entry in document["ledger"]}
    assert by_role["task"]["calls"] == document["rollouts"]["used"]
    assert by_role["reflection"]["calls"] == document["reflections"]
    assert {part["part"] for part in document["parts"]} <= {"section rules", "section notes"}
    assert document["stored"]["revision"]["id"] == revision.id
    assert Path(document["stored"]["file"]).is_file()
    assert document["stored"]["problem"] is None


def test_workers_and_journal_change_nothing_and_a_finished_run_costs_nothing_again(
    console: Console, project: Path
) -> None:
    command = ("optimize", f"{FILE}:good", "--json", "--quiet", "--journal", "run.jsonl")
    first = json.loads(console(*command, "--workers", "4").out)
    again = json.loads(console(*command).out)

    for document in (first, again):
        del document["ledger"]
    assert again == first
    assert (project / "run.jsonl").is_file()


def test_the_winner_goes_to_the_tag_that_is_asked_for(console: Console, project: Path) -> None:
    assert console("optimize", f"{FILE}:good", "--tag", "canary", "--quiet").code == 0

    assert stored(project, "canary") is not None
    assert stored(project) is None


def test_the_winner_can_be_picked_by_other_weights(console: Console, project: Path) -> None:
    # Whoever uses most tokens is the last to win by tokens: the baseline has the fewest words.
    ended = console("optimize", f"{FILE}:good", "--pick", "tokens=1", "--quiet")
    assert ended.code == 1
    assert stored(project) is None
    assert console("optimize", f"{FILE}:good", "--pick", "score=1", "--quiet").code == 0
    assert stored(project) is not None


@pytest.mark.parametrize("weights", ["", "score", "score=-1", "="])
def test_weights_that_make_no_sense_are_2(console: Console, weights: str) -> None:
    ended = console("optimize", f"{FILE}:good", "--pick", weights)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("promptgraft: pick: ")


def test_nothing_better_is_1(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:hopeless", "--quiet")

    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith("toy/words: not improved\n")
    assert ended.out.endswith("not stored under tag `toy`: nothing beat the baseline\n")
    assert stored(project) is None


def test_a_provider_that_refuses_is_4(console: Console) -> None:
    ended = console("optimize", f"{FILE}:refused", "--quiet")

    assert ended.code == 4
    assert ended.err == "promptgraft: the provider failed: 401: no key\n"
    assert "stopped   provider failed: 401: no key\n" in ended.out


def test_a_limit_is_3_even_when_the_prompt_is_better(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:few_reflections", "--quiet")

    assert ended.code == 3
    assert ended.err == "promptgraft: stopped early: max_reflections: 3 of 3 are used\n"
    assert ended.out.startswith("toy/words: improved\n")
    assert stored(project) is not None


@pytest.mark.parametrize("workers", ["1", "4"])
def test_a_signal_is_3_keeps_the_best_so_far_and_can_be_gone_on_from(
    console: Console, project: Path, workers: str
) -> None:
    whole = json.loads(console("optimize", f"{FILE}:good", "--json", "--quiet").out)
    console("rollback", "toy/words", "--tag", "toy")
    command = ("optimize", "--journal", "run.jsonl", "--json", "--quiet", "--workers", workers)

    ended = console(*command, f"{FILE}:interrupted")

    assert ended.code == 3
    assert ended.err == (
        "promptgraft: stopped early: the run was stopped: SIGINT; "
        "the same command goes on from run.jsonl\n"
    )
    document = json.loads(ended.out)
    assert document["stop"]["reason"] == "cancelled"
    assert document["rollouts"]["used"] < whole["rollouts"]["used"]

    resumed = json.loads(console(*command, f"{FILE}:good").out)
    assert resumed["scores"] == whole["scores"]
    assert resumed["rollouts"] == whole["rollouts"]


def test_what_the_context_of_a_job_has_counts_too(
    console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = console("optimize", f"{FILE}:owned", "--quiet")
    assert ended.code == 3
    assert ended.err == ("promptgraft: stopped early: the run was stopped: the owner came home\n")

    monkeypatch.syspath_prepend(str(project))
    console("rollback", "toy/words", "--tag", "toy")
    journal = importlib.import_module("toy_jobs").JOURNAL
    assert console("optimize", "toy_jobs:journaled", "--quiet").code == 0
    assert any(record.kind == "rollout" for record in journal.records())


def test_a_winner_that_the_store_refuses_is_2_and_is_shown(console: Console) -> None:
    ended = console("optimize", f"{FILE}:full", "--quiet")

    assert ended.code == 2
    assert ended.err == "promptgraft: the winner is not stored: the disk is full; make space\n"
    assert "toy/words: improved\n" in ended.out
    assert "not stored under tag `toy`: the winner is not stored: the disk is full" in ended.out
    assert re.search(r"(?m)^\+.*w\d", ended.out)


def test_a_winner_that_is_kept_nowhere_is_shown(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:unstored", "--quiet")

    assert ended.code == 0
    assert "not stored under tag `toy`: the job has `persist=False`\n" in ended.out
    assert "--- section " in ended.out
    assert stored(project) is None
    kept = console("optimize", f"{FILE}:in_memory", "--quiet")
    assert kept.out.endswith("stored  tag `toy` of the InMemoryPromptOverridesStore\n")


def test_waits_are_said_with_their_reason(console: Console) -> None:
    assert "waiting 30 s for slow: rate limited\n" in console("optimize", f"{FILE}:waiting").err


def test_a_job_imports_its_neighbours_while_it_runs_and_prints_nothing_to_the_output(
    console: Console,
) -> None:
    ended = console("optimize", f"{FILE}:lazy", "--json")

    assert ended.code == 0
    assert json.loads(ended.out)["improved"] is True
    assert "judging\n" in ended.err


DRY = """
import sys

sys.path.insert(0, {folder!r})
import attrs
from task import TEMPLATE, feedback, load_tickets

from promptgraft import *
from promptgraft.adapters.base import answered


class Costly:
    identity = "costly"

    def evaluate(self, prompt, *, session, deadline=None):
        raise AssertionError("a dry run calls nobody")


def job():
    tickets = load_tickets({tickets!r})
    config = GepaConfig(
        rollout_budget=300, minibatch_size=40, pareto_set_size=60, max_tokens=1,
        target_section_paths=(("queues",),), training_examples=tickets, feedback_fn=feedback,
    )
    context = OptimizationContext(Costly(), overrides_store=LocalPromptOverridesStore())
    return OptimizationJob(Prompt(TEMPLATE), context, config)
"""


@pytest.fixture
def dry(project: Path) -> str:
    folder = Path(__file__).parents[2] / "examples" / "triage"
    text = DRY.replace("{folder!r}", repr(str(folder)))
    tickets = f"__import__('pathlib').Path({str(folder / 'train.jsonl')!r})"
    (project / "dry.py").write_text(text.replace("{tickets!r}", tickets), "utf-8")
    return "dry.py:job"


def test_a_dry_run_calls_nobody_stores_nothing_and_says_what_it_is(
    console: Console, project: Path, dry: str
) -> None:
    before = sorted(project.rglob("*"))
    ended = console("optimize", dry, "--dry-run")

    assert ended.code == 0
    assert ended.err.startswith(
        f"promptgraft optimize {dry}, dry run on the embedded offline model\n"
    )
    assert ended.out.splitlines()[1].endswith(": a dry run on the embedded offline model")
    assert ended.out.endswith("not stored under tag `latest`: a dry run stores nothing\n")
    document = json.loads(console("optimize", dry, "--dry-run", "--json", "--quiet").out)
    assert document["dry_run"] is True
    assert {entry["model"] for entry in document["ledger"]} == {"offline/1"}
    assert document["stored"]["persisted"] is False
    assert [path for path in sorted(project.rglob("*")) if "__pycache__" not in str(path)] == [
        path for path in before if "__pycache__" not in str(path)
    ]


def test_a_dry_run_of_a_prompt_that_the_embedded_model_does_not_serve_says_what_it_needs(
    console: Console,
) -> None:
    ended = console("optimize", f"{FILE}:good", "--dry-run", "--quiet")

    assert (ended.code, ended.out) == (2, "")
    line = ended.err.splitlines()[-1]
    assert line.startswith(
        "promptgraft: --dry-run: the embedded offline model does not serve `toy/words`: it answers "
        "prompts whose output type is a choice"
    )


def test_a_dry_run_takes_no_journal(console: Console, dry: str) -> None:
    ended = console("optimize", dry, "--dry-run", "--journal", "run.jsonl")

    assert ended.code == 2
    assert ended.err == (
        "promptgraft: optimize: --dry-run stores nothing, so it takes no --journal; leave one out\n"
    )
