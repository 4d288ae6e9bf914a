"""Runs of a project: kept, listed, shown, compared, watched, resumed and removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console
from cli.jobs import write_jobs
from programs import Programs
from promptgraft.cli.main import run
from promptgraft.errors import JournalLockedError
from promptgraft.ground.serde import Json
from promptgraft.runs import RunFolder, find_run, list_runs, read_run
from promptgraft.runs.folder import make_run
from servers.behaviour import Answer, Asked
from servers.loopback import MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

CASES, BUDGET, LARGER = 120, 170, 240


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one run that has used up its rollouts."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    with contextlib.chdir(folder.parent):
        assert run(["init", "demo"]) == 0
    cases, settings = folder / "data" / "reports.jsonl", folder / "promptgraft.yaml"
    cases.write_text("".join(cases.read_text().splitlines(keepends=True)[:CASES]))
    # In the published strategy every candidate is tried on everything at once, which is short.
    strategy = (
        "minibatch_size: 16\n"
        "  strategy: {preset: paper, published_question: false, minibatches: random}"
    )
    settings.write_text(settings.read_text().replace("minibatch_size: 6", strategy))
    with contextlib.chdir(folder):
        assert run(["optimize", "--budget", str(BUDGET), "-q"]) in (0, 1)
    return folder


@pytest.fixture
def demo(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the current folder."""
    folder = shutil.copytree(made, tmp_path / "demo")
    monkeypatch.chdir(folder)
    for config in folder.rglob("config.json"):
        config.write_text(config.read_text().replace(str(made), str(folder)))
    return folder


def latest(folder: Path) -> RunFolder:
    return find_run(folder / "runs")


def make_runs(root: Path, *keys: str) -> list[RunFolder]:
    """Make folders of runs that have not begun, in this order."""
    first = datetime(2026, 1, 31, 12, tzinfo=UTC)
    config: dict[str, Json] = {
        "origin": {"kind": "job", "spec": "x:y", "folder": str(root)},
        "prompt": "a/b",
    }
    return [
        make_run(root, key, config, now=first + timedelta(hours=number))
        for number, key in enumerate(keys)
    ]


def test_runs_are_removed_only_when_that_is_confirmed(console: Console, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    one, two, three = make_runs(root, "one", "two", "three")
    there = ("--runs", str(root))

    asked = console("runs", "rm", one.id, "latest", one.id, *there)
    assert asked.code == 2
    assert [line.split()[-1] for line in asked.out.splitlines()[1:]] == [three.id, one.id]
    again = f"promptgraft runs rm {one.id} {three.id} --yes --runs {root}"
    assert asked.err == f"promptgraft: nothing was removed; `{again}` removes them\n"
    assert len(list_runs(root)) == 3

    (root / ".removed-by-a-killed-process").mkdir()
    ended = console(*again.split()[1:])
    assert (ended.code, ended.out) == (0, f"removed `{one.id}`, `{three.id}`\n")
    assert [path.name for path in root.iterdir()] == [two.id]
    document = json.loads(console("runs", "rm", "2026", "--yes", "--json", *there).out)
    assert document == {"runs_folder": str(root), "removed": [two.id]}


def test_no_run_is_removed_while_a_process_works_in_one(console: Console, tmp_path: Path) -> None:
    one, two = make_runs(tmp_path, "one", "two")
    with two.held():
        ended = console("runs", "rm", one.id, two.id, "--yes", "--runs", str(tmp_path))
        with pytest.raises(JournalLockedError):
            two.remove()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"promptgraft: running: `{two.id}`; stop them first; nothing was removed\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {one.id, two.id}


def test_a_damaged_run_is_removed_and_a_link_to_one_is_not(
    console: Console, tmp_path: Path
) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "runs"
    (damaged,) = make_runs(root, "damaged")
    damaged.config.write_text("{")
    assert "damaged" in console("runs", "rm", "latest", "--runs", str(root)).out
    assert console("runs", "rm", "latest", "--yes", "--runs", str(root)).code == 0

    (kept,) = make_runs(elsewhere, "kept")
    (root / kept.id).symlink_to(kept.path)
    ended = console("runs", "rm", "latest", "--yes", "--runs", str(root))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "is a link" in ended.err
    assert kept.config.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rm",), "RUN... is missing"),
        (("rm", "none", "--yes"), "there are no runs in"),
        (("--json", "rm", "x"), "put options of `rm` after its name"),
        (("remove", "x"), "no such command `remove`"),
    ],
)
def test_what_cannot_be_removed_is_one_line(
    arguments: tuple[str, ...], said: str, console: Console, tmp_path: Path
) -> None:
    with contextlib.chdir(tmp_path):
        ended = console("runs", *arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert said.lower() in ended.err.lower()


def test_a_run_of_a_project_is_kept_below_it_and_changes_nothing_else(made: Path) -> None:
    folder = latest(made)
    config = json.loads(folder.config.read_text())

    assert re.fullmatch(r"\d{8}-\d{6}-triage", folder.id)
    assert config["origin"] == {
        "kind": "project",
        "path": str(made / "promptgraft.yaml"),
        "prompt": "triage",
    }
    assert config["settings"]["optimizer"]["minibatch_size"] == 16
    assert config["options"] == {"budget": BUDGET}
    assert config["plan"]["rollouts"] == BUDGET
    # Which cases have judged it is remembered, whatever becomes of its winner.
    kept = {path.name for path in made.rglob(".promptgraft/*")}
    assert kept == {"looks.jsonl", ".looks.lock"}
    assert read_run(folder).prompt == "fernhill/triage"


def test_runs_are_listed_for_people_and_for_machines(console: Console, demo: Path) -> None:
    folder = latest(demo)
    ended = console("runs")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("1 run in runs\n")
    listed = json.loads(console("runs", "--json").out)
    [summary] = listed["runs"]
    row = rf"(?m)^ended +0\.\d+ +0\.\d+ .*  {summary['verdict']}  +\d+ .* +{folder.id}$"
    assert re.search(row, ended.out)
    assert "  verdict  " in ended.out.splitlines()[1]
    assert (summary["id"], summary["state"], summary["budget"]) == (folder.id, "ended", BUDGET)
    assert summary["folder"] == str(folder.path)
    assert summary["stop_reason"] == "budget"
    folder.config.write_text("{")
    ended = console("runs")
    assert ended.err.startswith(f"promptgraft: {folder.config}:")
    assert re.search(r"(?m)^damaged ", ended.out)


def test_a_folder_without_runs_is_told_so(console: Console, tmp_path: Path) -> None:
    ended = console("runs", "--runs", str(tmp_path / "none"))
    assert ended.code == 0
    assert ended.out == f"no runs in {tmp_path}/none; `promptgraft optimize` makes one\n"


def test_a_run_goes_on_with_a_larger_budget_from_anywhere(
    console: Console, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = latest(demo)
    before = read_run(folder)
    monkeypatch.chdir(tmp_path)
    ended = console(
        "resume", "--runs", "demo/runs", folder.id[:12], "--budget", str(LARGER), "--json", "-q"
    )

    document = json.loads(ended.out.splitlines()[-1])
    assert ended.err == ""
    assert document["run"] == folder.id
    assert BUDGET < document["rollouts"]["used"] <= document["rollouts"]["budget"] == LARGER
    after = read_run(folder)
    assert after.candidates[: len(before.candidates)] == before.candidates
    assert len(after.candidates) > len(before.candidates)
    config = json.loads(folder.config.read_text())
    assert (config["options"], config["id"]) == ({"budget": LARGER}, folder.id)
    assert config["created"] == before.config["created"]


def test_a_run_that_has_ended_is_resumed_without_a_call(console: Console, demo: Path) -> None:
    folder = latest(demo)
    journal, events = folder.journal.read_bytes(), folder.events.read_bytes()
    result = json.loads(folder.result.read_text())
    ended = console("resume", "-q")
    assert "1 reflection call; nothing was asked now\n" in ended.out
    assert (folder.journal.read_bytes(), folder.events.read_bytes()) == (journal, events)
    assert json.loads(folder.result.read_text()) == result


def test_a_run_does_not_go_on_with_other_settings(console: Console, demo: Path) -> None:
    settings = demo / "promptgraft.yaml"
    settings.write_text(settings.read_text().replace("minibatch_size: 16", "minibatch_size: 12"))
    ended = console("resume", "-q")
    assert (ended.code, ended.out) == (2, "")
    assert "belongs to another run" in ended.err
    assert "`minibatch_size` is 16 in the journal, 12 here" in ended.err
    assert ended.err.count("\n") == 1


def test_a_run_without_its_project_says_how_to_name_it(console: Console, demo: Path) -> None:
    (demo / "promptgraft.yaml").rename(demo / "moved.yaml")
    ended = console("resume", "-q")
    assert ended.code == 2
    assert ended.err == (
        f"promptgraft: run {latest(demo).id} was made from {demo}/promptgraft.yaml, which no "
        "longer exists; name the project file with --project\n"
    )
    assert console("resume", "-q", "--project", "moved.yaml").code in (0, 1)


def test_a_run_in_use_is_refused_in_one_line(console: Console, demo: Path) -> None:
    folder = latest(demo)
    with folder.held():
        ended = console("resume", "-q")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"promptgraft: run {folder.id} is in use by process ")
    assert ended.err.count("\n") == 1


def test_a_run_is_shown_with_its_candidates(console: Console, demo: Path) -> None:
    folder = latest(demo)
    ended = console("show", "latest")
    assert (ended.code, ended.err) == (0, "")
    assert f"run         {folder.id}, ended\n" in ended.out
    assert re.search(r"(?m)^0 +0\.\d+ +0  your prompt$", ended.out)
    # The sentence of the summary, and below it the arithmetic that the summary leaves out.
    sentence, arithmetic = re.findall(r"(?m)^stopped +(.+)\n +(.+)$", ended.out)[0]
    assert sentence == "too few test calls left for another step and the final test"
    assert arithmetic == json.loads(folder.result.read_text())["stop"]["detail"]
    assert re.match(rf"one more step may take \d+ test calls, and \d+ of {BUDGET} are", arithmetic)
    [rewrites] = re.findall(r"(?m)^rewrites +(.+)$", ended.out)
    assert f"<dt>Rewrites</dt><dd>{rewrites}</dd>" in folder.report.read_text("utf-8")
    assert ended.out.rstrip().endswith(f"promptgraft show {folder.id} --step N")

    document = json.loads(console("show", folder.id, "--json").out)
    assert document["result"]["run_id"] == document["config"]["plan"] is None or document["run"]
    assert [one["candidate"] for one in document["candidates"]] == list(
        range(len(read_run(folder).candidates))
    )


def test_a_candidate_is_shown_with_what_it_changes(console: Console, demo: Path) -> None:
    ended = console("show", "latest", "--candidate", "1")
    assert ended.code == 0
    assert "parents  0 (" in ended.out
    assert re.search(r"(?m)^  \+- roads: ", ended.out)
    document = json.loads(console("show", "latest", "--candidate", "1", "--json").out)
    assert document["parents"] == [0]
    assert len(document["scores"]) == len(document["pareto_ids"]) > 10
    missing = console("show", "latest", "--candidate", "99")
    assert missing.code == 2
    assert "has no candidate 99; it has 0 to " in missing.err


def test_refused_proposals_are_shown(console: Console, demo: Path) -> None:
    ended = console("show", "latest", "--rejected")
    assert ended.code == 0
    assert re.match(r"\d+ dropped rewrites? of ", ended.out)
    document = json.loads(console("show", "latest", "--rejected", "--json").out)
    assert len(document["rejected"]) == len(read_run(latest(demo)).rejections)


def test_what_was_answered_to_a_case_is_shown(console: Console, demo: Path) -> None:
    case = read_run(latest(demo)).pareto_ids[0]
    ended = console("show", "latest", "--case", case, "--candidate", "0")
    assert ended.code == 0
    assert ended.out.startswith(f"case {case}\n")
    assert "candidate 0, baseline/0: " in ended.out
    assert "  answer:\n" in ended.out
    [rollout] = json.loads(
        console("show", "latest", "--case", case, "--candidate", "0", "--json").out
    )["rollouts"]
    assert (rollout["phase"], rollout["case"]) == ("baseline", case)
    assert rollout["answer"]
    missing = console("show", "latest", "--case", f"{case}x")
    assert missing.code == 2
    assert f"(did you mean `{case}`?)" in missing.err


def test_the_questions_of_a_step_are_shown_to_the_letter(console: Console, demo: Path) -> None:
    folder = latest(demo)
    printed = console("show", "latest", "--step", "1")
    assert (printed.code, printed.err) == (0, "")
    found = json.loads(console("show", "latest", "--step", "1", "--json").out)
    texts = {one["position"]: one["question"] for one in found["questions"]}
    assert list(texts) == ["step/1/reflect/0"]
    assert printed.out == f"{texts['step/1/reflect/0']}\n"
    kept = folder.path / "questions" / "step+1+reflect+0.txt"
    assert kept.read_text("utf-8") == texts["step/1/reflect/0"]
    baseline = (folder.path / "baseline_prompts" / "teams.md").read_text()
    assert baseline in printed.out


def test_a_held_out_case_is_shown_as_such_with_its_two_scores(console: Console, demo: Path) -> None:
    folder = latest(demo)
    result = json.loads(folder.result.read_text())
    held_out, case = result["held_out"], result["held_out"]["ids"][0]
    before, after = held_out["baseline_scores"][0], held_out["winner_scores"][0]

    lines = console("show", "latest", "--case", case).out.splitlines()
    assert lines[0] == f"case {case}"
    assert lines[1].startswith(f"an unseen case: {before:.3f} -> {after:.3f} (")
    document = json.loads(console("show", "latest", "--case", case, "--json").out)
    assert lines[lines.index("expected:") + 1].strip() == document["rollouts"][0]["expected"]
    for number, score in ((0, before), (result["best"], after)):
        told = rf"candidate {number}, held-out/{number}/[0-9a-f]{{12}}: {score:.3f}"
        assert any(re.fullmatch(told, line) for line in lines)
    assert document["held_out"] == {"baseline": before, "winner": after, "why_not": ""}
    seen = read_run(folder).pareto_ids[0]
    assert json.loads(console("show", "latest", "--case", seen, "--json").out)["held_out"] is None


def test_a_held_out_case_without_an_answer_says_why(console: Console, demo: Path) -> None:
    console("resume", "--budget", str(LARGER), "-q")
    folder = latest(demo)
    result = json.loads(folder.result.read_text())
    case = result["held_out"]["ids"][0]
    numbers = range(len(read_run(folder).candidates))
    other = next(one for one in numbers if one not in (0, result["best"]))
    # The winner of the smaller budget has been evaluated on it as well.
    answers = folder.journal.read_bytes().splitlines(keepends=True)
    of_other = f'"held-out/{other}/'.encode()
    folder.journal.write_bytes(b"".join(line for line in answers if of_other not in line))

    shown = console("show", "latest", "--case", case, "--candidate", str(other))
    assert shown.code == 2
    assert (
        f"candidate {other} of run {folder.id} has no answer to a case `{case}`: it is an unseen "
        "case; only your prompt and the winner are evaluated on it\n" in shown.err
    )
    assert f"(did you mean `{case}`?)" in console("show", "latest", "--case", f"{case}x").err

    *before, last = folder.events.read_text("ascii").splitlines()
    held_out = {"ids": [case], "why_not": "nothing was better"}
    changed = json.dumps({**json.loads(last), "held_out": held_out})
    folder.events.write_text("\n".join([*before, changed]) + "\n")
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join(one for one in lines if b'"held-out/' not in one))
    unmeasured = console("show", "latest", "--case", case)
    assert unmeasured.code == 2
    assert "it is an unseen case, and was not measured: nothing was better\n" in unmeasured.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--candidate", "1"), "--candidate is for what a run holds; give RUN, an id or `latest`"),
        (("a/b", "--rejected"), "--rejected is for what a run holds; give RUN, an id or `latest`"),
        (("latest", "--tag", "x"), "--tag is for what a store holds; give no RUN"),
        (("triage",), "nothing is stored for prompt `fernhill/triage` under tag `latest`"),
        (("2020",), "is called `2020`"),
        (("latest", "--rejected", "--case", "x"), "--rejected does not go with --case; choose one"),
        (("latest", "--step", "1", "--candidate", "1"), "--step does not go with --candidate"),
        (("latest", "--step", "999"), "has no question in step 999; steps with questions: 1"),
        (("a/b", "--step", "1"), "--step is for what a run holds; give RUN, an id or `latest`"),
    ],
)
def test_what_is_of_a_run_and_what_is_of_a_store_is_kept_apart(
    console: Console, demo: Path, arguments: tuple[str, ...], says: str
) -> None:
    ended = console("show", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert ended.err.count("\n") == 1


def test_two_runs_are_compared_side_by_side(console: Console, demo: Path) -> None:
    first = latest(demo)
    console("optimize", "--budget", str(LARGER), "-q")
    second = latest(demo)
    ended = console("compare", first.id)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"A  {first.id}, fernhill/triage, ended"
    assert lines[1] == f"B  {second.id}, fernhill/triage, ended"
    for row in (
        "your prompt",
        "best candidate",
        "unseen cases, winner",
        "verdict",
        "test calls",
        "dollars",
    ):
        assert re.search(rf"(?m)^{row} +\S+ +\S+", ended.out), row
    assert ended.out.count("your prompt\n") == 2
    document = json.loads(console("compare", first.id, second.id, "--json").out)
    one, other = document["runs"]
    assert (one["run"], other["run"]) == (first.id, second.id)
    assert one["rollouts"] <= BUDGET < other["rollouts"]
    assert one["stop_reason"] == "budget"
    assert one["path"][0][:2] == [0, "baseline"]
    assert document["incomparable"] == {"pareto": [], "held_out": []}
    in_result = json.loads(second.result.read_text())["scores"]["held_out"]
    assert other["held_out"] == in_result
    listed = json.loads(console("runs", "--json").out)["runs"][0]
    assert (listed["id"], listed["held_out"]) == (second.id, in_result)
    assert in_result["won"] + in_result["lost"] + in_result["tied"] == in_result["examples"]
    gain = "{gain:+.3f} ({low:+.2f} to {high:+.2f})".format(**in_result)
    assert gain in console("runs").out
    assert re.search(rf"(?m)^unseen cases, gain .*{re.escape(gain)}", ended.out)
    cases = "{won} better, {lost} worse, {tied} the same".format(**in_result)
    counts = "{won}, {lost}, {tied}".format(**in_result)
    assert re.search(rf"(?m)^better, worse, same .*{counts}", ended.out)
    between = document["between"]
    assert between["gain"] == pytest.approx(other["held_out"]["best"] - one["held_out"]["best"])
    assert (
        "B's winner against A's, on unseen cases: gain {gain:+.3f} (".format(**between) in ended.out
    )
    assert f"cases       {cases}; 95 % interval " in console("show", second.id).out


def test_scores_of_other_data_are_not_subtracted(console: Console, demo: Path) -> None:
    first, cases = latest(demo), demo / "data" / "reports.jsonl"
    cases.write_text("".join(cases.read_text().splitlines(keepends=True)[: CASES - 20]))
    console("optimize", "--budget", str(BUDGET), "-q")
    ended = console("compare", first.id)
    assert re.search(
        r"(?m)^scores of validation cases cannot be compared: the examples of the validation set "
        r"differ: \d+ in A, \d+ in B",
        ended.out,
    )
    assert re.search(r"(?m)^your prompt +0\.\d{3} +0\.\d{3}$", ended.out)
    assert re.search(r"(?m)^rewrites dropped +\d+ +\d+ +[+-]\d+$", ended.out)


def test_a_run_of_another_process_is_watched_by_its_files(console: Console, demo: Path) -> None:
    folder = latest(demo)
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    ended = console("watch")
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0] == f"run {folder.id}"
    assert f"plan: about {BUDGET} test calls" in lines[1]
    assert any(line.startswith("your prompt: ") for line in lines)
    assert re.search(rf"promptgraft (apply|show) {folder.id}$", lines[-1])
    end = re.search(rf"(?m)^{folder.id} has ended: (.+), \d.+ on \d+ test cases; (.+)$", ended.out)
    assert end is not None
    assert end.group(2) == "stopped: too few test calls left for another step and the final test"
    assert ended.code == (0 if json.loads(folder.result.read_text())["improved"] else 1)

    told = console("watch", "--json").out.splitlines()
    assert [json.loads(line) for line in told[:-1]] == [
        json.loads(line) for line in folder.events.read_text().splitlines()
    ]
    assert json.loads(told[-1])["event"] == "summary"
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before


@pytest.mark.parametrize("name", ["config.json", "events.jsonl", "run.lock", "result.json"])
def test_a_named_pipe_in_a_run_is_not_waited_for(demo: Path, name: str, programs: Programs) -> None:
    path = latest(demo).path / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    # Of another process, because one that waits for a pipe cannot be told to end.
    ended = programs.promptgraft("runs", folder=demo)
    refused = name in ("config.json", "events.jsonl")
    assert ("expected a file, found a pipe or a device; remove it" in ended.stderr) is refused


def test_a_folder_with_a_line_end_in_its_name_is_one_word_of_the_next_command(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "it's\n\tnew"
    out = console("init", name).out
    [enter] = [line for line in out.splitlines() if line.lstrip().startswith(("cd ", "$ cd "))]
    (tmp_path / name).mkdir(exist_ok=True)
    told = subprocess.run(
        ["bash", "-c", f"{enter.strip().removeprefix('$ ')} && pwd -P"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told == f"{tmp_path.resolve() / name}\n"


def test_watch_refuses_to_be_quiet_about_lines_that_it_was_asked_for(
    console: Console, demo: Path
) -> None:
    ended = console("watch", "--json", "--quiet")

    assert (ended.code, ended.out) == (2, "")
    assert "--quiet: with --json there is no other progress to hide; leave it out" in ended.err


def test_estimates_of_a_race_that_was_interrupted_are_marked_in_every_command(
    console: Console, demo: Path
) -> None:
    settings, folder = demo / "promptgraft.yaml", latest(demo)
    settings.write_text(settings.read_text().replace("preset: paper", "preset: lean"))
    shutil.rmtree(folder.path)
    assert run(["optimize", "--budget", str(BUDGET), "-q"]) in (0, 1)
    folder = latest(demo)
    # As a process leaves it that is killed after its first step.
    lines = folder.events.read_text().splitlines(keepends=True)
    joined = [at for at, one in enumerate(lines) if '"event":"accepted"' in one]
    folder.events.write_text("".join(lines[: joined[0] + 1]))

    marked, means = "~ is an estimate, from some of the cases\n", r"~0\.\d{3} -> ~[01]\.\d{3} "
    told = console("watch").out
    assert re.search(r"(?m)^your prompt: \d of the first 4 cases right", told)
    assert re.search(rf"{folder.id} was interrupted: {means}\(~", told)
    assert re.search(rf"validation +{means}\(~", console("show", "latest").out)
    assert re.search(r"(?m)^interrupted +~0\.\d+ +~[01]\.\d+ +~\+", console("runs").out)
    assert marked in console("runs").out
    assert re.search(
        r"(?m)^best candidate +(~[01]\.\d+ +){2}~\+0.000$", console("compare", "latest").out
    )
    [listed] = json.loads(console("runs", "--json").out)["runs"]
    assert (listed["baseline_estimated"], listed["best_estimated"]) == (True, True)
    assert "0 -> ~" in repr(list_runs(demo / "runs")[0])
    events = [json.loads(one) for one in console("watch", "--json").out.splitlines()]
    for one in events:
        for name in ("mean", "best_mean", "baseline_mean"):
            if one.get(name) is not None:
                assert one[name.replace("mean", "estimated")] is True, one


def test_a_run_that_was_interrupted_is_watched_to_its_last_line_with_3(
    console: Console, demo: Path
) -> None:
    folder = latest(demo)
    lines = folder.events.read_bytes().splitlines(keepends=True)
    folder.events.write_bytes(b"".join(lines[:4]))
    ended = console("watch")
    assert ended.code == 3
    assert f"{folder.id} was interrupted: 0." in ended.out
    assert ended.out.rstrip().endswith(f"promptgraft resume {folder.id}")


def test_a_run_of_a_project_that_was_moved_goes_on_where_the_project_is(
    console: Console, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = demo.parent / "moved"
    monkeypatch.chdir(shutil.move(demo, moved))
    assert console("resume", "-q").code in (0, 1)
    monkeypatch.chdir(moved.parent)
    ended = console("resume", "--runs", "moved/runs", "-q")
    assert ended.code == 2
    assert "promptgraft.yaml, which no longer exists; name the project file with" in ended.err


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        ({"kind": "job", "spec": "evil.py:JOB", "folder": "RUN"}, "from which no code is run"),
        ({"kind": "job", "spec": "RUN/evil.py:JOB", "folder": "HERE"}, "from which no code is run"),
        ({"kind": "job", "spec": "evil:JOB", "folder": "runs/ID"}, "expected an absolute path"),
        ({"kind": "project", "path": "RUN/promptgraft.yaml"}, "from which no code is run"),
    ],
)
@pytest.mark.parametrize("command", ["resume", "apply"])
def test_code_that_a_run_directory_brings_along_is_not_run(
    console: Console,
    demo: Path,
    monkeypatch: pytest.MonkeyPatch,
    origin: dict[str, str],
    says: str,
    command: str,
) -> None:
    folder = latest(demo)
    (folder.path / "evil.py").write_text("raise SystemExit('was run')\n")
    (folder.path / "promptgraft.yaml").write_text("prompts: {words: evil.py:PROMPT}\n")
    real = {"RUN": str(folder.path.absolute()), "HERE": str(demo), "ID": folder.id}
    written = json.dumps({"prompt": "words", **origin})
    for word, means in real.items():
        written = written.replace(word, means)
    config = json.loads(folder.config.read_text())
    folder.config.write_text(json.dumps({**config, "origin": json.loads(written)}))
    monkeypatch.chdir(demo.parent)

    chosen = ["--candidate", "1"] if command == "apply" else []
    ended = console(command, *chosen, "--runs", str(folder.path.parent))

    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_a_job_is_gone_on_with_where_it_was_made(
    console: Console, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jobs(project)
    assert console("optimize", "toy_jobs.py:few_reflections", "-q").code == 3
    folder = latest(project)
    assert json.loads(folder.config.read_text())["origin"] == {
        "kind": "job",
        "spec": "toy_jobs.py:few_reflections",
        "folder": str(project),
    }
    monkeypatch.chdir(project.parent)
    ended = console("resume", "--runs", "project/runs", "-q")
    assert ended.code == 3
    assert f"`promptgraft resume {folder.id} --runs project/runs` resumes it" in ended.err
    shutil.move(project, project.parent / "elsewhere")
    ended = console("resume", "--runs", "elsewhere/runs", "-q")
    assert ended.code == 2
    assert f"was made in {project}, which no longer exists; put it back\n" in ended.err


def test_the_run_of_a_job_below_a_project_is_found_by_the_command_that_is_told(
    console: Console, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = demo / "jobs"
    below.mkdir()
    write_jobs(below)
    monkeypatch.chdir(below)
    command = console("optimize", "toy_jobs.py:hopeless", "-q").out.splitlines()[-1].split()
    assert command[-2:] == ["--runs", "runs"]
    assert console(*command[1:]).code == 0


def test_the_run_of_a_job_takes_no_project(
    console: Console, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jobs(demo)
    monkeypatch.delitem(sys.modules, "toy_jobs", raising=False)
    assert console("optimize", "toy_jobs.py:good", "--runs", "jobs", "-q").code == 0
    [folder] = (demo / "jobs").iterdir()
    for command in ("apply", "resume"):
        ended = console(command, "--runs", "jobs", "--project", "promptgraft.yaml")
        assert ended.code == 2
        assert ended.err == (
            f"promptgraft: --project: run {folder.name} was made from the job toy_jobs.py:good, "
            "which takes no project; leave it out, and name the folder of the run with --runs\n"
        )


@pytest.mark.parametrize(
    "command", [("runs",), ("show", "latest"), ("watch",), ("report",), ("compare", "latest")]
)
def test_a_project_that_would_not_be_looked_at_is_refused(
    console: Console, demo: Path, command: tuple[str, ...]
) -> None:
    ended = console(*command, "--runs", "runs", "--project", "promptgraft.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "promptgraft: --project and --runs: both say where the runs are; leave one out\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--budget", "0"), "--budget: expected an integer of at least 1, found '0'"),
        (("--max-cost", "-1"), "--max-cost: expected US dollars such as 2.50, found '-1'"),
        (("--max-cost", "nan"), "--max-cost: expected US dollars such as 2.50, found 'nan'"),
        (("--timeout", "soon"), "--timeout: expected seconds such as 600, found 'soon'"),
        (("--budget", "20"), "rollout_budget: expected at least "),
        (("nothing",), "has no prompt `nothing`; there: `triage`"),
        (("a.py:JOB", "--project", "x"), "--project: a.py:JOB is a job and takes no project"),
        (("--dry-run", "--max-cost", "1"), "--max-cost: a dry run has no limit in money"),
        (("--dry-run", "--max-tokens", "9"), "--max-tokens: a dry run has no limit in money"),
        (("--dry-run", "--runs", "x"), "--runs: a dry run is not kept; leave it out"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line_and_leaves_no_folder(
    console: Console, demo: Path, arguments: tuple[str, ...], says: str
) -> None:
    ended = console("optimize", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert ended.err.count("\n") == 1
    assert len(list((demo / "runs").iterdir())) == 1


def test_a_limit_in_tokens_or_time_is_that_of_one_command(console: Console, demo: Path) -> None:
    ended = console("optimize", "--budget", str(BUDGET), "--timeout", "0.001", "-q")
    assert ended.code == 3
    assert "stopped early: " in ended.err
    assert json.loads(latest(demo).config.read_text())["options"] == {"budget": BUDGET}
    assert console("resume", "-q").code in (0, 1)


CANARY = "sk-canary-0123456789-abcdefghijklmnop"


def test_reading_runs_loads_nothing_that_makes_them(demo: Path) -> None:
    commands = (["runs"], ["show", "latest"], ["compare", "latest"], ["report"])
    makers = (
        "asyncio",
        "promptgraft.adapters.offline",
        "promptgraft.adapters.calling.gathering",
        "promptgraft.agents",
        "promptgraft.algorithms",
        "promptgraft.evals.judges",
        "promptgraft.project.project",
        "promptgraft.search.config",
        "promptgraft.search.job",
    )
    code = (
        "import sys\nfrom promptgraft.cli.main import run\n"
        f"for command in {commands!r}:\n"
        "    assert run(command) == 0\n"
        f"    made = [name for name in sys.modules if name.startswith({makers!r})]\n"
        "    assert not made, (command, made)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=demo, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def provider() -> Iterator[LoopbackServer]:
    """A model that answers with a team, or with a text that has the word `bins`."""

    def brain(asked: Asked) -> Answer:
        if "instruction" in "".join(asked.texts):
            return Answer(text=f"```instruction\n- waste: bins, attempt {asked.number}\n```")
        return Answer(text="waste")

    with LoopbackServer(OpenAIChat(), brain=brain, key=CANARY) as server:
        yield server


def with_model(demo: Path, base_url: str) -> None:
    """Let the project ask a model behind an address, with the key of the environment."""
    model = (
        f"  task:\n    provider: openai\n    model: {MODEL}\n    base_url: {base_url}\n"
        '    api_key: "${CANARY_KEY}"\n'
    )
    settings = demo / "promptgraft.yaml"
    text = settings.read_text().replace("  task: {provider: offline}\n", model)
    settings.write_text(text.replace("minibatch_size: 16", "minibatch_size: 3"))
    cases = demo / "data" / "reports.jsonl"
    cases.write_text("".join(cases.read_text().splitlines(keepends=True)[:32]))


def test_no_file_of_a_run_and_no_word_of_a_command_holds_the_key(
    console: Console, demo: Path, provider: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_model(demo, provider.base_url)
    shutil.rmtree(demo / "runs")
    told = []
    for key in (CANARY, f"{CANARY}-wrong"):
        monkeypatch.setenv("CANARY_KEY", key)
        ended = console("optimize", "--budget", "60", "--workers", "4", "--json")
        told.append(ended)
    assert provider.counts.statuses[200] > 30, told[0].err
    assert told[0].code in (0, 1)
    assert told[1].code == 4

    config: dict[str, Any] = json.loads(latest(demo).config.read_text())
    assert config["settings"]["models"]["task"]["api_key"] == "${CANARY_KEY}"
    assert not [ended for ended in told if CANARY in ended.out + ended.err]
    written = [path for path in (demo / "runs").rglob("*") if path.is_file()]
    assert len(written) > 16
    assert not [path for path in written if CANARY.encode() in path.read_bytes()]
