"""``promptgraft optimize``: a job from its plan to its winner."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console, Ended
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


def document_of(ended: Ended) -> dict[str, Any]:
    """Return the last line of ``--json``: what came of the run."""
    *events, last = map(json.loads, ended.out.splitlines())
    assert [event["event"] for event in events][:2] == ["started", "plan"]
    assert events[-1]["event"] == "ended"
    assert last["event"] == "result"
    document: dict[str, Any] = last
    return document


@pytest.mark.thorough
def test_a_run_that_accepts_nothing_loads_no_model_but_its_own(project: Path) -> None:
    command = ["optimize", f"{FILE}:hopeless", "--quiet"]
    code = (
        "import sys\nfrom promptgraft.cli.main import run\n"
        f"assert run({command!r}) == 1\n"
        "print('promptgraft.adapters.offline' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environment
    )
    assert ended.stdout.splitlines()[-1] == "False"
    assert re.search(r"(?m)^rewrites +0 kept", ended.stdout)


def test_a_job_in_python_says_itself_what_may_change(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:good", "--part", "section rules")
    assert ended.code == 2
    assert "is a job and says itself what may change" in ended.err


def test_an_improved_prompt_is_0_and_the_run_is_kept(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:good")

    assert ended.code == 0
    told = ended.err.splitlines()
    assert told[0] == "a job may print"
    assert told[1] == f"promptgraft optimize {FILE}:good"
    [folder] = (project / "runs").iterdir()
    assert told[2] == f"run {folder.name} is kept in runs/{folder.name}"
    assert told[3].startswith("plan: about ")
    assert told[4].startswith("warning: there are only 6 training and 6 validation cases")
    assert told[5].startswith("your prompt: 0 of the 6 cases right")
    revision = stored(project)
    assert revision is not None
    best = revision.provenance.scores["best"]
    lines = ended.out.splitlines()
    assert len(lines) <= 30
    assert lines[0] == "toy/words: improved"
    assert re.search(rf"(?m)^validation +0\.000 +{best:.3f} +\+{best:.3f}  6 cases$", ended.out)
    assert f"tag `toy`, revision 1 ({revision.id[:12]})" in ended.out
    assert re.search(rf"(?m)^kept in +runs/{folder.name}/report\.html$", ended.out)
    command = lines[-1].split()
    assert command == ["promptgraft", "diff", "toy/words", "--tag", "toy"]
    assert console(*command[1:]).code == 0


def test_a_winner_much_longer_than_the_source_is_warned_of(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:wordy", "--quiet")

    [warning] = [line for line in ended.out.splitlines() if line.startswith("warning: ")]
    assert re.fullmatch(
        r"warning: the winner has \d,\d{3} characters where the source has 41, and every call pays "
        r"for them; `guards\.max_part_chars` bounds each part",
        warning,
    )
    [folder] = (project / "runs").iterdir()
    [told] = json.loads((folder / "result.json").read_text("utf-8"))["warnings"]
    assert warning == f"warning: {told}"
    assert f"\n\nWarning: {told}.\n\n" in (folder / "summary.md").read_text("utf-8")


def test_the_last_line_for_machines_says_the_same(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:JOB", "--json", "--quiet")

    assert (ended.code, ended.err) == (0, "")
    document = document_of(ended)
    revision = stored(project)
    assert revision is not None
    assert document["prompt"] == "toy/words"
    assert document["dry_run"] is False
    assert document["improved"] is True
    assert document["rollouts"]["used"] <= document["rollouts"]["budget"] == 108
    assert document["scores"]["pareto"]["best"] == revision.provenance.scores["best"]
    assert document["cost"] == "0"
    by_role = {entry["role"]: entry for entry in document["ledger"]}
    assert by_role["task"]["calls"] == document["rollouts"]["used"]
    assert by_role["reflection"]["calls"] == document["reflections"]
    assert {part["part"] for part in document["parts"]} <= {"section rules", "section notes"}
    assert document["stored"]["revision"]["id"] == revision.id
    assert Path(document["stored"]["file"]).is_file()
    assert document["stored"]["problem"] is None
    assert Path(document["folder"]) == project / "runs" / document["run"]
    kept = json.loads((project / "runs" / document["run"] / "result.json").read_text())
    assert kept["version"] == 1
    assert kept.pop("prompts")["toy/words"]["winner"].startswith("## Rules\n\nKnown words:")
    shared = {name: value for name, value in kept.items() if name != "version"}
    assert {name: document[name] for name in shared} == shared


def test_what_is_streamed_is_what_the_events_file_holds(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:JOB", "--json", "--quiet")
    [folder] = (project / "runs").iterdir()

    def numbered(text: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in text.splitlines()]
        return [{**line, "time": ""} for line in lines if "n" in line]

    assert numbered(ended.out) == numbered((folder / "events.jsonl").read_text("ascii"))


def test_workers_change_nothing_and_a_finished_run_costs_nothing_again(
    console: Console, project: Path
) -> None:
    first = document_of(console("optimize", f"{FILE}:good", "--json", "-q", "--workers", "4"))
    again = document_of(console("resume", "--json", "-q"))

    del first["ledger"], again["ledger"]
    assert again == first
    assert len(list((project / "runs").iterdir())) == 1


def test_runs_can_be_kept_elsewhere_and_every_command_says_where(
    console: Console, project: Path
) -> None:
    ended = console("optimize", f"{FILE}:hopeless", "--runs", "my runs", "-q")

    [folder] = (project / "my runs").iterdir()
    assert not (project / "runs").exists()
    command = ended.out.splitlines()[-1].strip()
    assert command == f"promptgraft show {folder.name} --runs 'my runs'"
    assert console(*shlex.split(command)[1:]).code == 0


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


def test_the_seed_of_the_command_decides_and_is_kept_for_resuming(
    console: Console, project: Path
) -> None:
    told = []
    for seed in ("5", "5", "6"):
        ended = console("optimize", f"{FILE}:unstored", "--seed", seed, "--json", "--quiet")
        told.append(document_of(ended))
    assert [one["seed"] for one in told] == [5, 5, 6]
    assert told[0]["run_id"] == told[1]["run_id"] != told[2]["run_id"]

    again = console("resume", told[0]["run"], "--budget", "70", "--json", "--quiet")
    assert document_of(again)["seed"] == 5
    assert console("optimize", f"{FILE}:unstored", "--seed", "-1").code == 2


@pytest.mark.parametrize("weights", ["", "score", "score=-1", "="])
def test_weights_that_make_no_sense_are_2(console: Console, weights: str) -> None:
    ended = console("optimize", f"{FILE}:good", "--pick", weights)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("promptgraft: pick: ")


def test_nothing_better_is_1(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:hopeless", "--quiet")

    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith("toy/words: not improved\n")
    [folder] = (project / "runs").iterdir()
    assert ended.out.splitlines()[-1].strip() == f"promptgraft show {folder.name}"
    assert stored(project) is None


def goes_on(project: Path) -> str:
    """Return how the end of a run that was stopped names the command that resumes it."""
    [folder] = (project / "runs").iterdir()
    return f"`promptgraft resume {folder.name}` resumes it"


def test_a_provider_that_refuses_is_4(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:refused", "--quiet")

    assert ended.code == 4
    assert ended.err == f"promptgraft: the provider failed: 401: no key; {goes_on(project)}\n"
    assert re.search(r"(?m)^stopped +provider failed: 401: no key$", ended.out)


def test_a_limit_is_3_even_when_the_prompt_is_better(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:few_reflections", "--quiet")

    assert ended.code == 3
    assert ended.err == (
        f"promptgraft: stopped early: max_reflections: 3 of 3 are used; {goes_on(project)}\n"
    )
    assert ended.out.startswith("toy/words: improved, stopped early\n")
    assert stored(project) is not None


@pytest.mark.parametrize("workers", ["1", "4"])
def test_a_signal_is_3_keeps_the_best_so_far_and_can_be_gone_on_from(
    console: Console, project: Path, workers: str
) -> None:
    whole = document_of(console("optimize", f"{FILE}:good", "--json", "-q", "--runs", "whole"))
    console("rollback", "toy/words", "--tag", "toy")

    ended = console("optimize", f"{FILE}:interrupted", "--json", "-q", "--workers", workers)

    assert ended.code == 3
    assert ended.err == (
        f"promptgraft: stopped early: the run was stopped: interrupted (Ctrl+C); "
        f"{goes_on(project)}\n"
    )
    document = document_of(ended)
    assert document["stop"]["reason"] == "cancelled"
    assert document["rollouts"]["used"] < whole["rollouts"]["used"]

    assert console("runs").out.splitlines()[2].startswith("stopped")
    watched = console("watch")
    assert watched.code == 3
    assert " was stopped: " in watched.out
    reason = "cancelled: the run was stopped: interrupted (Ctrl+C)"
    assert f"; stopped: {reason}\n\nNext:\n  promptgraft resume " in watched.out

    source = (project / FILE).read_text("utf-8")
    (project / FILE).write_text(source.replace("signal.raise_signal(signal.SIGINT)", "None"))
    resumed = document_of(console("resume", "--json", "-q", "--workers", workers))
    assert resumed["scores"] == whole["scores"]
    assert resumed["rollouts"] == whole["rollouts"]


@pytest.mark.parametrize(
    ("job", "workers", "name", "reason"),
    [
        ("pressed", "1", "SIGTERM", "asked to end (SIGTERM)"),
        ("pressed", "2", "SIGINT", "interrupted (Ctrl+C)"),
        ("pressed_async", "1", "SIGINT", "interrupted (Ctrl+C)"),
        ("pressed_async", "2", "SIGTERM", "asked to end (SIGTERM)"),
    ],
)
def test_a_signal_reaches_a_run_whose_calls_all_wait(
    console: Console, project: Path, job: str, workers: str, name: str, reason: str
) -> None:
    source = (project / FILE).read_text("utf-8")
    (project / FILE).write_text(source.replace("signal.SIGINT", f"signal.{name}"), "utf-8")

    ended = console("optimize", f"{FILE}:{job}", "--quiet", "--workers", workers)
    assert ended.code == 3
    assert ended.err == (
        f"promptgraft: stopped early: the run was stopped: {reason}; {goes_on(project)}\n"
    )


def test_a_function_that_makes_a_job_may_be_async(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:made_in_a_loop", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert stored(project) is not None


def test_what_the_context_of_a_job_has_counts_too(
    console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = console("optimize", f"{FILE}:owned", "--quiet")
    assert ended.code == 3
    assert ended.err == (
        "promptgraft: stopped early: the run was stopped: the owner came home; "
        f"{goes_on(project)}\n"
    )


def test_the_journal_of_the_run_takes_the_place_of_that_of_the_job_and_that_is_said(
    console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project))
    ended = console("optimize", "toy_jobs:journaled")

    assert ended.code == 0
    assert "the run's own journal is used; the job's journal is left alone\n" in ended.err
    assert len(importlib.import_module("toy_jobs").JOURNAL) == 0
    [folder] = (project / "runs").iterdir()
    assert (folder / "journal.jsonl").stat().st_size > 1_000


def test_a_winner_that_the_store_refuses_is_2_and_is_kept_in_the_run(
    console: Console, project: Path
) -> None:
    ended = console("optimize", f"{FILE}:full", "--quiet")

    assert ended.code == 2
    assert ended.err == "promptgraft: the winner is not stored: the disk is full; make space\n"
    assert "toy/words: improved\n" in ended.out
    assert "the winner is not stored: the disk is full" in ended.out
    [folder] = (project / "runs").iterdir()
    assert json.loads((folder / "result.json").read_text())["winner"]["candidate"] > 0


def test_a_winner_that_is_kept_in_no_store_can_be_applied(console: Console, project: Path) -> None:
    ended = console("optimize", f"{FILE}:unstored", "--quiet")

    assert ended.code == 0
    [folder] = (project / "runs").iterdir()
    assert ended.out.splitlines()[-1].strip() == f"promptgraft apply {folder.name}"
    assert stored(project) is None
    kept = console("optimize", f"{FILE}:in_memory", "--quiet")
    assert re.search(r"stored +tag `toy` of the InMemoryPromptOverridesStore\n", kept.out)


def test_waits_are_said_with_their_reason(console: Console) -> None:
    assert "waiting 30 s for slow: rate limited\n" in console("optimize", f"{FILE}:waiting").err


def test_a_job_imports_its_neighbours_while_it_runs_and_prints_nothing_to_the_output(
    console: Console,
) -> None:
    ended = console("optimize", f"{FILE}:lazy", "--json")

    assert ended.code == 0
    assert document_of(ended)["improved"] is True
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
        rollout_budget=300, minibatch_size=40, pareto_set_size=60, limits=Limits(max_tokens=1),
        target_section_paths=(("queues",),), training_examples=tickets, feedback_fn=feedback,
        data=Data(held_out=()),
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

    assert ended.code == 1  # nothing is held out, so nothing is shown
    assert ended.err.startswith(
        f"promptgraft optimize {dry}, dry run on the embedded offline model\n"
    )
    assert ended.out.splitlines()[1].endswith("a dry run on the embedded offline model")
    assert "a dry run stores nothing\n" in ended.out
    document = document_of(console("optimize", dry, "--dry-run", "--json", "--quiet"))
    assert document["dry_run"] is True
    assert {entry["model"] for entry in document["ledger"]} == {"offline/5"}
    assert document["stored"]["persisted"] is False
    assert [path for path in sorted(project.rglob("*")) if "__pycache__" not in str(path)] == [
        path for path in before if "__pycache__" not in str(path)
    ]


def test_a_dry_run_of_a_prompt_that_wants_free_text_answers_with_its_input(
    console: Console,
) -> None:
    ended = console("optimize", f"{FILE}:good", "--dry-run", "--quiet")

    assert ended.code == 1, ended.err
    [document] = [
        json.loads(line)
        for line in console(
            "optimize", f"{FILE}:good", "--dry-run", "--quiet", "--json"
        ).out.splitlines()
        if json.loads(line)["event"] == "result"
    ]
    assert (document["dry_run"], document["improved"]) == (True, False)
    assert {entry["model"] for entry in document["ledger"]} == {"offline/5"}
