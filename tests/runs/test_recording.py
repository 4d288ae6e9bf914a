"""The files in a run directory, and when each is written."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

from further import thorough
from optimizers.worlds import answer, propose, section, twins
from promptgraft import (
    BlackBox,
    Case,
    Dataset,
    GepaConfig,
    OptimizationContext,
    OptimizationJob,
    ScriptedAdapter,
    Splits,
)
from promptgraft.adapters.scripted import Reply
from promptgraft.cli.main import run
from promptgraft.errors import (
    ConfigError,
    JournalLockedError,
    JournalMismatchError,
    JournalWriteError,
)
from promptgraft.evals import metrics
from promptgraft.ground.text import visible
from promptgraft.prompt import RenderedPrompt
from promptgraft.runs import RunFolder, State, list_runs, read_run
from promptgraft.runs.folder import write_texts
from promptgraft.runs.pages import reasons_of, table_row
from promptgraft.runs.reading import questions_of
from promptgraft.runs.recorder import recorded
from promptgraft.runs.report.data import gather
from promptgraft.runs.report.drawings import steps_of
from promptgraft.runs.report.page import render
from promptgraft.search import RunResult
from promptgraft.search.cases import Judging, data_settings
from promptgraft.search.place import Phase, Place
from promptgraft.testing import FakeClock
from runs.toy_runs import (
    KilledError,
    after,
    carry_out,
    files_of,
    held_out,
    kept_run,
    make_job,
    new_folder,
    sulky,
    with_task,
)
from settings_leaves import evolved


def events_of(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.events.read_text("ascii").splitlines()]


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("ascii"))
    assert found["version"] == 1
    return found


def test_a_run_leaves_every_file_that_is_promised(tmp_path: Path) -> None:
    job = make_job(reflection=sulky)
    folder = new_folder(tmp_path, job)
    result = carry_out(folder, job)

    assert set(files_of(folder)) == {
        "config.json",
        "events.jsonl",
        "frontier.json",
        "journal.jsonl",
        "ledger.json",
        "report.html",
        "result.json",
        "summary.md",
        *(f"candidates/{number}.md" for number in range(len(result.candidates))),
        *(f"rejected/{step}-1.md" for step in range(1, result.steps + 1)),
        *(
            f"questions/step+{n}+reflect+{k}.txt"
            for n in range(1, result.steps + 1)
            for k in (0, 1)
        ),
        *(
            f"{when}_prompts/{name}.md"
            for when in ("baseline", "best")
            for name in ("notes", "rules")
        ),
    }
    asked = document(folder.config)
    assert (asked["id"], asked["prompt"]) == (folder.id, "toy/words")
    assert asked["settings"]["optimizer"]["training_examples"] == 12
    assert asked["plan"]["rollouts"] == 66
    found = document(folder.result)
    assert (found["improved"], found["verdict"]) == (False, "better on validation only")
    assert found["scores"]["pareto"]["best"] == result.best_pareto_mean
    assert found["scores"]["held_out"]["examples"] == 3
    assert found["winner"]["entries"]["toy/words"]["sections"][0]["body"].startswith("More words: ")
    assert document(folder.ledger)["rollouts"] == result.total_rollouts
    leaders = document(folder.frontier)["frontier"]
    assert [one["candidate"] for one in leaders] == list(result.frontier)
    assert set(leaders[-1]["leads_on"]) <= set(result.pareto_ids)
    summary = folder.summary.read_text("utf-8")
    assert summary.startswith("# toy/words: better on validation only\n")
    assert "; not significant: 3 cases cannot prove a gain, use 6 or more, better 50.\n" in summary
    assert re.findall(r"- `promptgraft (\w+) (\S+?)[ `]", summary) == [
        ("show", folder.id),
        ("resume", folder.id),
    ]


def test_a_page_of_a_candidate_says_what_it_says_changes_and_scores(whole: RunFolder) -> None:
    page = whole.candidate(2).read_text("utf-8")

    assert page.startswith("# Candidate 2, step 2\n")
    assert "- parent: candidate 1\n" in page
    assert re.search(
        r"```diff\n--- section notes \(before\).*\n-More words:\n\+More words: w\d\n```",
        page,
        re.DOTALL,
    )
    assert re.search(r"### section notes\n\n```\nMore words: w\d\n```", page)
    assert len(re.findall(r"(?m)^\| e\d \|", page)) == 6


def test_scores_that_come_later_are_in_the_record_and_on_the_page(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "training_examples": twins(20),
        "pareto_set_size": 20,
        "rollout_budget": 200,
    }
    job = make_job(preset="lean", **sizes)
    folder = new_folder(tmp_path, job)
    result = carry_out(folder, job)

    record = read_run(folder)
    assert tuple(one.scores for one in record.candidates) == result.scores_matrix
    best = record.candidates[result.best_index]
    assert best.mean == result.best_pareto_mean
    assert "scored" in {event["event"] for event in events_of(folder)}
    page = folder.candidate(result.best_index).read_text("utf-8")
    assert len(re.findall(r"(?m)^\| e\d+ \|", page)) == 20
    files = files_of(folder)
    carry_out(folder, job)
    assert files_of(folder) == files


def test_every_file_of_a_race_has_the_same_means_at_its_end(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"training_examples": twins(20), "pareto_set_size": 20}
    job = make_job(preset="lean", rollout_budget=200, **sizes)
    folder = new_folder(tmp_path, job)
    result = carry_out(folder, job)

    assert any(map(result.is_estimated, range(len(result.means))))
    assert [one.mean for one in read_run(folder).candidates] == list(result.means)
    assert document(folder.result)["means"] == list(result.means)
    summary = folder.summary.read_text("utf-8")
    for position, mean in enumerate(result.means):
        assert mean is not None
        mark = "~" if result.is_estimated(position) else ""
        assert re.search(rf"(?m)^\| {position}( \(winner\))? \|.*\| {mark}{mean:.3f} \|$", summary)
        page = folder.candidate(position).read_text("utf-8")
        assert (
            f"- mean on the validation set: {mean:.3f} {'estimated from' if mark else 'over'} "
            in page
        )
    means = {one["candidate"]: one["mean"] for one in document(folder.frontier)["frontier"]}
    assert means == {position: result.means[position] for position in result.frontier}


def test_other_held_out_examples_of_a_resumed_run_are_measured_and_kept(tmp_path: Path) -> None:
    job = make_job()
    folder = kept_run(tmp_path, job)
    others = attrs.evolve(job, config=evolved(job.config, held_out=held_out(4)[1:]))
    carry_out(folder, others)

    assert document(folder.result)["held_out"]["ids"] == ["unseen-1", "unseen-2", "unseen-3"]
    again = kept_run(tmp_path / "anew", others)
    assert folder.summary.read_text("utf-8").count("3 test cases") == 1
    assert files_of(folder)["events.jsonl"] == files_of(again)["events.jsonl"]


def test_a_candidate_of_a_race_has_an_estimate_and_no_score_where_it_was_not_tried(
    tmp_path: Path,
) -> None:
    sizes: dict[str, Any] = {"training_examples": twins(20), "pareto_set_size": 20}
    job = make_job(preset="lean", rollout_budget=200, **sizes)
    folder = kept_run(tmp_path, job)
    record = read_run(folder)
    estimates = [one for one in record.candidates if one.mean is not None and None in one.scores]
    assert estimates
    for one in estimates:
        page = folder.candidate(one.candidate).read_text("utf-8")
        seen = [value for value in one.scores if value is not None]
        tried, there = len(seen), sum(seen) / len(seen)
        assert (
            f"- mean on the validation set: {one.mean:.3f} estimated from {tried} of 20 cases, "
            f"{there:.3f} there"
        ) in page
        assert page.count("| no score |") >= 20 - tried
    data = gather(folder)
    won = record.candidates[data.winner].mean or 0.0
    assert all((one.mean or 0.0) <= won for one in steps_of(data.candidates, data.winner))
    shown = render(data)
    assert "not tried on the case" in shown
    assert all(f">~{one.mean:.3f}<" in shown for one in estimates)
    # In the tree, and beside what the candidate changes.
    assert all(f">#{one.candidate}&#160; ~{one.mean:.3f}&#160; " in shown for one in estimates)
    assert all(f'class="figs">~{one.mean:.3f} ' in shown for one in estimates)
    assert {case for number, case in data.answers.seen if number == data.winner} == {
        *record.pareto_ids
    }


def test_a_candidate_that_lost_a_race_is_shown_with_its_cases_and_its_mean_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: dict[str, Any] = {"training_examples": twins(20), "pareto_set_size": 20}
    folder = kept_run(tmp_path, make_job(preset="lean", rollout_budget=200, **sizes))
    estimates = [added for added in read_run(folder).candidates if added.estimated]
    assert estimates
    for added in estimates:
        seen = [value for value in added.scores if value is not None]
        there = sum(seen) / len(seen)
        command = ["show", folder.id, "--candidate", str(added.candidate)]
        command += ["--runs", str(folder.path.parent)]
        assert run(command) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f", estimated from {len(seen)} of 20 validation cases, {there:.3f} there" in shown
        assert run([*command, "--json"]) == 0
        plain = json.loads(capsys.readouterr().out)
        assert (plain["cases"], plain["mean_there"]) == (len(seen), there)


def test_pages_hold_nothing_that_a_terminal_obeys_and_no_html_outside_of_fences(
    tmp_path: Path,
) -> None:
    hostile = "\x1b[2J\rspoof \u202e <img src=x> ![x](https://evil.example) "

    def refuse(rendered: RenderedPrompt[object]) -> str:
        return f"```instruction\n{hostile} $gone\n```"

    folder = kept_run(tmp_path, make_job(reflection=refuse))
    pages = [folder.summary, *folder.rejected.iterdir(), *folder.candidates.iterdir()]
    assert len(pages) > 2
    for page in pages:
        text = page.read_bytes().decode("utf-8")
        assert visible(text) == text
        outside = "\n".join(re.split(r"(?ms)^(`{3,}).*?^\1$", text))
        assert "<img" not in outside.replace("\\<", "")
    assert table_row([hostile]).count("\\<img") == table_row([hostile]).count("!\\[x") == 1


def test_a_text_with_fences_of_its_own_stays_inside_its_fence(tmp_path: Path) -> None:
    hostile = "Known words: w0\n```\n# Not a title\n| not | a row |"
    job = make_job(reflection=lambda rendered: f"````instruction\n{hostile}\n````")
    page = kept_run(tmp_path, job).candidate(1).read_text("utf-8")

    assert f"\n````\n{hostile}\n````\n" in page


def test_a_page_of_a_refused_proposal_has_its_text_and_the_reason(whole: RunFolder) -> None:
    page = whole.rejection(1, 1).read_text("utf-8")

    assert page.startswith("# Step 1, attempt 1: rejected\n")
    assert "- reason: unparsable reply: " in page
    assert "\n```\nI would rather not.\n```\n" in page
    assert "## Text before\n\n```\nKnown words:\n```\n" in page


def test_the_texts_of_the_baseline_are_on_disk_before_the_first_call(tmp_path: Path) -> None:
    seen: list[str] = []

    def look(rendered: RenderedPrompt[object]) -> str:
        if not seen:
            seen.append(made.candidate(0).read_text("utf-8"))
            seen.append(made.events.read_text("ascii"))
        return answer(rendered)

    job = make_job(look)
    made = new_folder(tmp_path, job)
    carry_out(made, job)

    page, events = seen
    assert "### section rules\n\n```\nKnown words:\n```\n" in page
    assert json.loads(events.splitlines()[0])["texts"]["section notes"] == "More words:"
    assert "- mean on the validation set: 0.000 over 6" in made.candidate(0).read_text("utf-8")


def test_events_are_numbered_in_order_and_end_with_the_end(whole: RunFolder) -> None:
    events = events_of(whole)

    numbered = [event for event in events if "n" in event]
    assert [event["n"] for event in numbered] == list(range(1, len(numbered) + 1))
    assert numbered[0]["event"] == "started"
    assert [event["event"] for event in numbered[2:6]] == [
        "rejected",
        "proposed",
        "candidate",
        "accepted",
    ]
    assert numbered[-1]["event"] == "ended"
    assert sum(numbered[-1]["held_out"]["winner_scores"]) > 0
    notices = {event["event"] for event in events if "n" not in event}
    assert notices == {"plan", "round_started", "new_best"}


def test_each_step_is_told_when_it_begins(whole: RunFolder) -> None:
    told, begun = [], set[int]()
    for event in events_of(whole):
        if event["event"] == "round_started":
            told.append(event["step"])
            begun.add(event["step"])
        elif event["event"] in ("proposed", "rejected", "accepted"):
            assert event["step"] in begun
    assert told == list(range(1, len(told) + 1))
    assert len(told) > 3


def test_each_new_best_candidate_is_told_after_its_score(whole: RunFolder) -> None:
    events = events_of(whole)
    best = [0]
    for event, following in itertools.pairwise(events):
        if event["event"] in ("candidate", "scored") and event["best"] != best[-1]:
            best.append(event["best"])
            mean = events_of_candidate(events, event["best"])["mean"]
            assert following["event"] == "new_best"
            assert (following["candidate"], following["mean"]) == (event["best"], mean)
    told = [event["candidate"] for event in events if event["event"] == "new_best"]
    assert told == best[1:]
    assert len(told) > 1


def events_of_candidate(events: list[Any], candidate: int) -> Any:
    [found] = [e for e in events if e["event"] == "candidate" and e["candidate"] == candidate]
    return found


def test_progress_is_told_once_a_second_and_when_new_work_begins(tmp_path: Path) -> None:
    clock = FakeClock()

    def slow(rendered: RenderedPrompt[object]) -> str:
        clock.advance(0.3)
        return answer(rendered)

    job = make_job(slow)
    folder = new_folder(tmp_path, job)
    carry_out(folder, job, clock)

    told = [event for event in events_of(folder) if event["event"] == "progress"]
    seconds = clock.monotonic()
    assert seconds / 3 < len(told)
    assert sum(event["done"] > 0 for event in told) <= seconds
    assert told[-1]["rollouts"] > 40


def test_a_run_that_fails_is_listed_with_all_that_it_used(tmp_path: Path) -> None:
    def fail_at(calls: int) -> Reply:
        left = iter(range(calls))

        def reply(rendered: RenderedPrompt[object]) -> str:
            if next(left, None) is None:
                raise ConfigError("the model is gone")
            return answer(rendered)

        return reply

    job = make_job(fail_at(41))
    folder = new_folder(tmp_path, job)
    with pytest.raises(ConfigError) as failed:
        carry_out(folder, job)

    assert isinstance(failed.value.result, RunResult)
    [summary] = list_runs(tmp_path)
    assert summary.state is State.INTERRUPTED
    assert summary.rollouts == failed.value.result.total_rollouts > 30


def test_a_finished_run_that_is_resumed_changes_no_byte_and_makes_no_call(
    folder: RunFolder,
) -> None:
    before = files_of(folder)
    carry_out(folder, make_job(after(0), reflection=sulky))
    assert files_of(folder) == before


@pytest.mark.parametrize("calls", [17, 57, *thorough([0, 3])])
def test_a_run_that_was_killed_and_is_resumed_leaves_the_files_of_one_that_was_not(
    tmp_path: Path, whole: RunFolder, calls: int
) -> None:
    job = make_job(reflection=sulky)
    folder = new_folder(tmp_path / "killed", job)
    with pytest.raises(KilledError):
        carry_out(folder, with_task(job, after(calls)))
    assert read_run(folder).state is State.INTERRUPTED
    assert not folder.result.exists()

    carry_out(folder, job)
    found, expected = files_of(folder), files_of(whole)
    del found["config.json"], expected["config.json"]
    assert found == expected


def test_a_larger_budget_cuts_the_old_end_and_keeps_what_came_before(tmp_path: Path) -> None:
    job = make_job()
    folder = new_folder(tmp_path, job)
    carry_out(folder, job)
    before = folder.events.read_text("ascii").splitlines()
    clock = FakeClock()
    clock.advance(3600)

    larger = attrs.evolve(job, config=attrs.evolve(job.config, rollout_budget=90))
    result = carry_out(folder, larger, clock)

    events = folder.events.read_text("ascii").splitlines()
    assert events[: len(before) - 1] == before[:-1]
    assert json.loads(events[len(before)])["time"].startswith("2026-01-01T01:")
    assert json.loads(before[-1]) not in [json.loads(line) for line in events]
    assert read_run(folder).budget == 90
    assert document(folder.result)["rollouts"]["used"] == result.total_rollouts > 66


def test_a_smaller_budget_leaves_no_pages_of_candidates_that_are_not_there(
    folder: RunFolder,
) -> None:
    job = make_job(reflection=sulky)
    pages = len(list(folder.candidates.iterdir()))
    # What a user has put beside them is not theirs.
    (folder.candidates / "my notes.md").write_text("number 3 reads best")
    (folder.rejected / ".checkpoints").mkdir()
    smaller = attrs.evolve(job, config=attrs.evolve(job.config, rollout_budget=40))
    result = carry_out(folder, smaller)

    (folder.candidates / "my notes.md").unlink()
    (folder.rejected / ".checkpoints").rmdir()
    assert len(list(folder.candidates.iterdir())) == len(result.candidates) < pages
    assert len(list(folder.rejected.iterdir())) == result.steps
    assert len(read_run(folder).candidates) == len(result.candidates)


@pytest.mark.parametrize(
    "rest", [b"", b'{"n":7,"ti', b"\x00\xff\n", *thorough([b"[]\n", b'{"n":99}\n'])]
)
def test_damage_in_the_events_is_mended_by_the_next_run_of_the_journal(
    folder: RunFolder, rest: bytes
) -> None:
    before = files_of(folder)
    lines = before["events.jsonl"].splitlines(keepends=True)
    folder.events.write_bytes(b"".join(lines[:6]) + rest)

    carry_out(folder, make_job(after(0), reflection=sulky))
    assert files_of(folder) == before


def test_questions_are_kept_as_the_model_was_sent_them(tmp_path: Path) -> None:
    sent: list[str] = []

    def reply(rendered: RenderedPrompt[object]) -> str:
        sent.append(rendered.text)
        return sulky(rendered)

    job = make_job(reflection=reply)
    folder = new_folder(tmp_path, job)
    carry_out(folder, job)
    kept = [path.read_text("utf-8") for path in questions_of(folder).values()]
    assert kept == sent


def test_questions_of_every_algorithm_are_found_again_in_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    places = [
        Place.of_step(2, 1).at(Phase.REFLECT, count=3),
        Place.parse("round/3/backward/mill-lane/1"),
        Place.parse("round/3/optimize/section%20a-b/0"),
    ]
    folder.questions.mkdir()
    for place in reversed(places):
        folder.question(str(place)).write_text(str(place))
    (folder.questions / "notes.txt").write_text("somebody's own")
    assert list(questions_of(folder)) == places
    assert all(path.read_text() == str(place) for place, path in questions_of(folder).items())


def test_texts_are_there_before_the_first_call_and_the_best_ones_with_the_first_gain(
    tmp_path: Path,
) -> None:
    seen: list[dict[str, str]] = []

    def look(rendered: RenderedPrompt[object]) -> str:
        folders = (folder.baseline_prompts, folder.best_prompts)
        there = {
            f"{path.parent.name}/{path.name}": path.read_text()
            for inside in folders
            if inside.is_dir()
            for path in inside.glob("*.md")
        }
        seen.append(there)
        return answer(rendered)

    job = make_job(look)
    folder = new_folder(tmp_path, job)
    result = carry_out(folder, job)
    started = read_run(folder).candidates[0].texts
    baseline = {f"baseline_prompts/{name.split()[1]}.md": text for name, text in started.items()}
    assert seen[0] == baseline
    assert any(name.startswith("best_prompts/") for name in seen[-1])
    best = read_run(folder).candidates[result.best_index].texts
    for name, text in best.items():
        assert (folder.best_prompts / f"{name.split()[1]}.md").read_text() == text


def test_parts_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    texts = {"tool search": "a", "section search": "b", "section a/../b": "c", "odd name\n": "d"}
    write_texts(tmp_path / "texts", texts)
    found = {path.name: path.read_text() for path in (tmp_path / "texts").iterdir()}
    assert found == {
        "tool-search.md": "a",
        "section-search.md": "b",
        "a-..-b.md": "c",
        "name-.md": "d",
    }


def test_parts_whose_files_would_have_one_name_lose_no_text(tmp_path: Path) -> None:
    texts = {"section a/b": "1", "section a-b": "2", "section A-b": "3", "section c": "4"}
    write_texts(tmp_path / "texts", texts)
    found = {path.name: path.read_text() for path in (tmp_path / "texts").iterdir()}
    assert found == {"a-b.md": "1", "a-b-2.md": "2", "A-b-3.md": "3", "c.md": "4"}


def test_a_file_in_the_folder_ends_the_run_in_good_order(tmp_path: Path) -> None:
    def stopping(rendered: RenderedPrompt[object]) -> str:
        folder.stop.touch()
        return propose(rendered)

    job = make_job(reflection=stopping)
    folder = new_folder(tmp_path, job)
    result = carry_out(folder, job)
    assert result.stop_reason == "stop file"
    assert read_run(folder).state is State.STOPPED
    assert document(folder.result)["stop"]["reason"] == "stop file"
    whole = kept_run(tmp_path / "whole")
    again = carry_out(folder, make_job())
    assert not folder.stop.exists()
    assert again.stop_reason == read_run(whole).ended.stop_reason  # type: ignore[union-attr]


def test_a_page_that_somebody_removed_comes_back(folder: RunFolder) -> None:
    before = files_of(folder)
    folder.candidate(1).unlink()
    folder.question("step/1/reflect/1").unlink()
    folder.summary.unlink()
    carry_out(folder, make_job(after(0), reflection=sulky))
    assert files_of(folder) == before


def test_a_second_process_is_refused_in_one_line_and_changes_nothing(tmp_path: Path) -> None:
    job = make_job()
    folder = new_folder(tmp_path, job)
    with recorded(folder, job):
        before = files_of(folder)
        with pytest.raises(JournalLockedError) as refusal, recorded(folder, job):
            pass
        assert files_of(folder) == before
    assert re.fullmatch(
        rf"run {folder.id} is in use by process \d+; wait for it to end, or follow it with "
        rf"`promptgraft watch {folder.id}`",
        str(refusal.value),
    )


def test_another_seed_in_the_folder_is_refused_and_changes_nothing(folder: RunFolder) -> None:
    before = files_of(folder)
    with pytest.raises(JournalMismatchError, match="seed"):
        carry_out(folder, make_job(seed=5))
    assert files_of(folder) == before


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    job, clock = make_job(), FakeClock()
    ids = [new_folder(tmp_path, job, clock).id for _ in range(3)]

    assert ids == [
        "20260101-000000-words",
        "20260101-000000-words-2",
        "20260101-000000-words-3",
    ]
    for name in ids:
        assert document(RunFolder(tmp_path / name).config)["id"] == name


def test_a_disk_that_takes_no_more_does_not_end_the_run_and_is_said(tmp_path: Path) -> None:
    job = make_job()
    folder = new_folder(tmp_path, job)
    with recorded(folder, job, clock=FakeClock()) as (kept, recorder):
        # The page of the third candidate cannot be written: there is a folder in its place.
        folder.candidate(3).mkdir()
        result = kept.run()

    assert result.found_better
    assert recorder.failure.startswith(f"{folder.candidates}/3.md cannot be written: ")
    assert "; fix the cause, then " in recorder.failure
    assert f"`promptgraft resume {folder.id}` writes what is missing" in recorder.failure
    assert read_run(folder).state is State.INTERRUPTED
    folder.candidate(3).rmdir()
    carry_out(folder, make_job(after(0)))
    assert {"candidates/3.md", "result.json", "report.html"} <= set(files_of(folder))


def test_a_run_whose_directory_is_deleted_ends_and_says_so(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer_and_delete(rendered: RenderedPrompt[object]) -> str:
        asked.append(rendered.text)
        if len(asked) == 20:
            shutil.rmtree(folder.path)
        return answer(rendered)

    job = make_job(answer_and_delete)
    folder = new_folder(tmp_path, job)
    with (
        pytest.raises(JournalWriteError, match="was deleted while it was written to"),
        recorded(folder, job, clock=FakeClock()) as (kept, recorder),
    ):
        kept.run()

    assert len(asked) <= 30  # the steps after that are not begun
    assert "make space" not in recorder.failure
    assert not folder.path.exists()


def test_what_stands_in_adapters_and_functions_of_a_job_is_not_written_down(tmp_path: Path) -> None:
    class Secretive(ScriptedAdapter):
        def __repr__(self) -> str:
            return "Secretive('sk-canary')"

    @attrs.frozen
    class Stopper:
        token: str

        def __call__(self, state: object) -> None:
            del state

    def judge(example: Any, response: Any, session: Any, key: str = "sk-canary") -> Any:
        from optimizers.worlds import judge as plain

        return plain(example, response, session)

    job = make_job(stoppers=(Stopper("sk-canary"),), feedback_fn=judge)
    job = attrs.evolve(job, context=attrs.evolve(job.context, adapter=Secretive(answer)))
    folder = kept_run(tmp_path, job)

    assert not [name for name, data in files_of(folder).items() if b"sk-canary" in data]
    optimizer = document(folder.config)["settings"]["optimizer"]
    assert optimizer["feedback_fn"].endswith("judge")
    assert optimizer["limits"]["stoppers"][0].endswith("Stopper")
    assert optimizer["acceptance"] == "Strict()"


def test_the_section_that_a_model_is_shown_is_the_one_on_the_page(tmp_path: Path) -> None:
    shown: set[str] = set()

    def look(rendered: RenderedPrompt[object]) -> str:
        shown.add(section(rendered, ("rules",)).text)
        return answer(rendered)

    folder = kept_run(tmp_path, make_job(look))
    texts = {one.texts["section rules"] for one in read_run(folder).candidates}
    assert {f"## 1. Rules\n\n{text}" for text in texts} <= shown or texts <= shown


def test_why_a_part_was_changed_stands_with_the_candidate(tmp_path: Path) -> None:
    edit = {"part": "P1", "reason": "it says\nno <b>word</b>", "text": "Say ok."}
    subject = BlackBox(
        {"rules": "Say no.", "tone": "Be kind."},
        agent=lambda query, call: call.texts["rules"].removeprefix("Say ").rstrip("."),
    )
    cases = [
        Dataset(
            tuple(Case(id=f"{part}-{at}", input=f"{part} {at}", expected="ok") for at in range(6))
        )
        for part in ("train", "validation", "test")
    ]
    judging = Judging(splits=Splits(*cases), metrics=(metrics.exact(),))
    settings: dict[str, Any] = data_settings(subject.prompt, judging)
    context = OptimizationContext(
        reflection_adapter=ScriptedAdapter(
            lambda asked: (
                json.dumps({"edits": [edit]}) if asked.key == "reflect-prompt" else "Nothing."
            )
        )
    )
    job = OptimizationJob(subject, context, GepaConfig(**settings, rollout_budget=80))
    folder = kept_run(tmp_path, job)

    record = read_run(folder)
    best = record.candidates[record.best]
    assert record.best
    assert reasons_of(record, best) == ["section rules: it says no <b>word</b>"]
    assert reasons_of(record, record.candidates[0]) == []
    assert "- why: section rules: it says no \\<b>word" in folder.candidate(1).read_text()
    assert "Why: section rules: it says no &lt;b&gt;word" in folder.report.read_text()


def test_texts_of_files_keep_the_endings_of_their_files(tmp_path: Path) -> None:
    job = make_job()
    folder = new_folder(tmp_path, job)
    config = json.loads(folder.config.read_text())
    files = {"rules": "a/rules.txt", "notes": {"path": "../../x.t/../notes.xml"}}
    config["settings"] = {"prompts": {"desk": {"files": files}, "other": "a.md"}}
    folder.config.write_text(json.dumps(config))
    carry_out(folder, job)
    for kept in (folder.baseline_prompts, folder.best_prompts):
        assert {"rules.txt", "notes.xml"} <= {path.name for path in kept.iterdir()}
