"""Reading run directories: whole, in part, damaged, and while they are written."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from optimizers.worlds import answer
from promptgraft.errors import ConfigError, DataFormatError, JournalCorruptError
from promptgraft.prompt import RenderedPrompt
from promptgraft.runs import (
    RunFolder,
    State,
    find_run,
    list_runs,
    read_run,
    transcripts,
)
from promptgraft.runs.event_file import read_lines
from promptgraft.runs.folder import make_run, read_document
from promptgraft.runs.reading import follow
from promptgraft.runs.recorder import write_missing
from promptgraft.search.events import RunStarted, Unknown
from promptgraft.search.validation import Racing
from promptgraft.targets.types import plain_changes
from promptgraft.testing import FakeClock
from runs.toy_runs import (
    KilledError,
    after,
    carry_out,
    kept_run,
    make_job,
    make_tiny_job,
    new_folder,
    sulky,
    with_task,
)


def test_a_run_is_read_as_the_run_returned_it(tmp_path: Path) -> None:
    job = make_job(reflection=sulky)
    made = new_folder(tmp_path, job)
    result = carry_out(made, job)
    record = read_run(made)

    assert (record.state, record.prompt, record.seed) == (State.ENDED, "toy/words", 1)
    assert record.started is not None
    assert (record.started.run_id, record.budget) == (result.run_id, 66)
    assert record.started.texts == {"section rules": "Known words:", "section notes": "More words:"}
    assert record.pareto_ids == result.pareto_ids
    assert [one.scores for one in record.candidates] == list(result.scores_matrix)
    assert [one.parents for one in record.candidates] == list(result.parents)
    assert [dict(one.objectives) for one in record.candidates] == [*map(dict, result.objectives)]
    assert [one.entries for one in record.candidates] == [
        plain_changes(one.changes) for one in result.candidates
    ]
    assert [(one.step, one.text, one.reason) for one in record.rejections] == [
        (one.step, one.text, one.reason) for one in result.rejections
    ]
    assert {one.attempt for one in record.rejections} == {1}
    assert (record.steps, record.rollouts) == (result.steps, result.total_rollouts)
    assert record.candidates[-1].cost == Decimal(0)
    assert record.ended is not None
    told = replace(result.ended, number=record.ended.number, time=record.ended.time)
    assert record.ended == told


def test_a_run_that_goes_on_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(rendered: RenderedPrompt[object]) -> str:
        seen.append((read_run(made), list_runs(tmp_path)[0]))
        return answer(rendered)

    job = make_job(look)
    made = new_folder(tmp_path, job)
    carry_out(made, job)

    record, summary = seen[30]
    assert (record.state, summary.state) == (State.RUNNING, State.RUNNING)
    assert record.ended is None
    assert summary.verdict is None
    assert 0 < len(record.candidates) == summary.candidates < len(read_run(made).candidates)
    assert summary.best_mean == max(one.mean for one in record.candidates)
    assert list_runs(tmp_path)[0].state is State.ENDED


def test_the_result_of_an_older_end_is_not_the_result_of_a_run_that_went_on(
    folder: RunFolder,
) -> None:
    job = make_job(reflection=sulky, rollout_budget=90)
    with pytest.raises(KilledError):
        carry_out(folder, with_task(job, after(20)))

    record = read_run(folder)
    assert record.state is State.INTERRUPTED
    assert folder.result.exists()
    assert record.ended is None


def test_a_run_whose_process_is_gone_is_interrupted_and_has_no_result(tmp_path: Path) -> None:
    job = make_job()
    made = new_folder(tmp_path, job)
    assert read_run(made).state is State.INTERRUPTED
    with pytest.raises(KilledError):
        carry_out(made, with_task(job, after(30)))

    record, [summary] = read_run(made), list_runs(tmp_path)
    assert (record.state, summary.state) == (State.INTERRUPTED, State.INTERRUPTED)
    assert record.ended is None
    assert len(record.candidates) == summary.candidates == 3
    assert (summary.rollouts, summary.budget) == (30, 66)
    assert summary.baseline_mean == 0.0

    # As on a full disk, which takes the last events.
    lines = made.events.read_bytes().splitlines(keepends=True)
    made.events.write_bytes(b"".join(lines[:-6]))
    assert read_run(made).rollouts < 30
    assert list_runs(tmp_path)[0].rollouts == 30


@settings(max_examples=30)
@given(st.data())
def test_an_events_file_that_is_cut_anywhere_is_read_up_to_its_last_whole_line(
    whole: RunFolder, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = whole.events.read_bytes()
    length = data.draw(st.integers(0, len(text)))
    cut = RunFolder(tmp_path_factory.getbasetemp() / "20260101-000000-cut")
    cut.path.mkdir(exist_ok=True)
    shutil.copy(whole.config, cut.config)
    cut.events.write_bytes(text[:length])

    record, summary = read_run(cut), list_runs(cut.path.parent)[0]
    complete = read_run(whole)
    lines = text[:length].count(b"\n")
    kinds = Counter(json.loads(line)["event"] for line in text.splitlines()[:lines])
    assert record.candidates == complete.candidates[: kinds["candidate"]]
    assert record.rejections == complete.rejections[: kinds["rejected"]]
    assert (record.state is State.ENDED) == (length == len(text))
    assert summary.candidates == len(record.candidates)
    assert summary.state is record.state


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (b"no json\n", ":3:1:1: Expecting value"),
        (b"[1]\n", ":3: expected an object with `event`"),
        (b'{"event": "candidate", "step": 1}\n', ":3: object missing required field `"),
        (
            b'{"event":"scored","step":1,"candidate":9,"mean":1,"best":0,"scores":[],"objectives":{}}\n',
            ":3: candidate: expected one of the 0 candidates so far, found 9",
        ),
        (
            b'{"event": "rejected", "n": 2, "step": true}\n',
            ":3: step: expected `int`",
        ),
        (b'{"event": "waiting", "time": "now"}\n', ":3: time: invalid RFC3339 encoded datetime"),
        (
            b'{"event": "waiting", "time": "2026-01-01T00:00:00"}\n',
            ":3: time: expected `datetime` with a timezone component",
        ),
    ],
)
def test_a_damaged_line_is_named_with_its_number(
    folder: RunFolder, changed: bytes, says: str
) -> None:
    lines = folder.events.read_bytes().splitlines(keepends=True)
    folder.events.write_bytes(b"".join([*lines[:2], changed, *lines[3:]]))
    with pytest.raises(DataFormatError) as fault:
        read_run(folder)
    assert str(fault.value).startswith(f"{folder.events}{says}")


def test_a_damaged_line_has_its_number_where_only_the_end_of_a_file_is_read(
    folder: RunFolder,
) -> None:
    lines = folder.events.read_bytes().splitlines(keepends=True)
    folder.events.write_bytes(b"".join([*lines, b"no json\n"]))
    [summary] = list_runs(folder.path.parent)
    assert summary.fault.startswith(f"{folder.events}:{len(lines) + 1}:1:1: Expecting value")
    with pytest.raises(DataFormatError, match=rf"events.jsonl:{len(lines) + 1}:"):
        list(follow(folder, wait=lambda _: None))


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_a_missing_document_is_named_with_a_mend(folder: RunFolder, name: str) -> None:
    path = folder.path / name
    path.unlink()
    with pytest.raises(DataFormatError) as fault:
        read_document(path)
    assert str(fault.value).startswith(f"{path}: expected a document, found no file; ")
    path.mkdir()
    [summary] = list_runs(folder.path.parent)
    assert "Errno" not in summary.fault


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"candidate": 7}, "candidate: expected 1, found 7"),
        ({"candidate": 0}, "candidate: expected 1, found 0"),
        ({"parents": [1]}, "parents: expected one of the 1 candidates so far, found 1"),
        ({"parents": [-1]}, "parents: expected one of the 1 candidates so far, found -1"),
        ({"scores": [1.0]}, "scores: expected 6 or none, found 1"),
        ({"cost": "Infinity"}, "cost: expected a finite number, found Infinity"),
    ],
)
def test_a_candidate_that_cannot_be_is_no_figure_of_the_run(
    folder: RunFolder, changes: dict[str, object], says: str
) -> None:
    lines = [json.loads(line) for line in folder.events.read_bytes().splitlines()]
    at = next(at for at, line in enumerate(lines) if line.get("candidate") == 1)
    lines[at].update(changes)
    folder.events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(DataFormatError) as fault:
        read_run(folder)
    assert str(fault.value).startswith(f"{folder.events}:{at + 1}: {says}")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"best": -1}, "best: expected one of the 5 candidates so far, found -1"),
        ({"best": 99}, "best: expected one of the 5 candidates so far, found 99"),
        ({"means": [0.5]}, "means: expected 5, found 1"),
    ],
)
def test_an_end_of_candidates_that_the_run_does_not_have_is_damage(
    folder: RunFolder, changes: dict[str, object], says: str
) -> None:
    *before, end = folder.events.read_text("ascii").splitlines()
    changed = json.dumps({**json.loads(end), **changes})
    folder.events.write_text("\n".join([*before, changed]) + "\n")
    with pytest.raises(DataFormatError) as fault:
        read_run(folder)
    said = f"{folder.events}:{len(before) + 1}: {says}; `promptgraft resume` writes the file again"
    assert str(fault.value) == said


def test_a_directory_of_another_version_is_refused_with_the_mend(folder: RunFolder) -> None:
    config = json.loads(folder.config.read_text())
    folder.config.write_text(json.dumps({**config, "version": 2}))
    with pytest.raises(DataFormatError, match="expected version 1, found 2; use the version of"):
        read_run(folder)


def test_keys_that_a_later_version_adds_are_left_alone(folder: RunFolder) -> None:
    before = read_run(folder)
    lines = [json.loads(line) for line in folder.events.read_text().splitlines()]
    lines.insert(2, {"event": "greeting", "time": "2026-01-01T00:00:00+00:00"})
    added = [json.dumps({**line, "new": [1]}) for line in lines]
    folder.events.write_text("\n".join(added) + "\n")
    assert read_run(folder) == before


def test_runs_are_listed_with_the_newest_first(tmp_path: Path) -> None:
    clock, made = FakeClock(), []
    for _ in range(3):
        made += [make_run(tmp_path, "x", {"prompt": "a/x"}, now=clock.now()).id for _ in range(11)]
        clock.advance(3600)
    (tmp_path / "notes").mkdir()
    (tmp_path / ".new-abc").mkdir()
    (tmp_path / "20260101-000000-file").write_text("")

    assert [run.id for run in list_runs(tmp_path)] == made[::-1]
    assert find_run(tmp_path).id == made[-1]
    assert list_runs(tmp_path / "nowhere") == ()


def test_lists_read_only_the_settings_and_the_end_of_the_events(folder: RunFolder) -> None:
    [before] = list_runs(folder.path.parent)
    text = folder.events.read_bytes()
    folder.events.write_bytes(b"\xff not read \n" * 40_000 + b"\n" + text[-9_000:])
    folder.journal.write_bytes(b"\xff")
    folder.result.write_bytes(b"\xff")
    assert list_runs(folder.path.parent) == (before,)


def test_a_damaged_run_does_not_hide_the_others(folder: RunFolder) -> None:
    root = folder.path.parent
    for name, spoilt in (
        ("20260102-000000-x", "config.json"),
        ("20251231-000000-y", "events.jsonl"),
    ):
        shutil.copytree(folder.path, root / name)
        (root / name / spoilt).write_bytes(b"{\n")

    first, good, last = list_runs(root)
    assert (first.state, good.state, last.state) == (State.DAMAGED, State.ENDED, State.DAMAGED)
    assert first.fault.startswith(f"{root}/20260102-000000-x/config.json:")
    assert last.fault.startswith(f"{root}/20251231-000000-y/events.jsonl:")
    assert find_run(root).id == first.id


def test_a_run_is_found_by_its_id_the_start_of_it_or_as_the_latest(tmp_path: Path) -> None:
    now, later = FakeClock().now(), FakeClock().now() + timedelta(days=1)
    first, second, third = (
        make_run(tmp_path, "words", {"prompt": "toy/words"}, now=moment)
        for moment in (now, now, later)
    )

    assert find_run(tmp_path, first.id) == first  # though the second begins so, too
    assert find_run(tmp_path, "20260101-000000-words-") == second
    assert find_run(tmp_path, "20260102") == find_run(tmp_path, "latest") == third
    with pytest.raises(ConfigError, match=f"several runs .* `{first.id}`, `{second.id}`; name one"):
        find_run(tmp_path, "20260101")
    with pytest.raises(ConfigError, match=r"is called `lastest` \(did you mean `latest`\?\)"):
        find_run(tmp_path, "lastest")
    with pytest.raises(ConfigError, match=r"there are no runs in .*; `promptgraft optimize` makes"):
        find_run(tmp_path / "nowhere")


def test_every_rollout_of_a_run_can_be_looked_up_by_candidate_and_case(
    tmp_path: Path, whole: RunFolder
) -> None:
    record = read_run(whole)
    found = list(transcripts(whole))

    assert len(found) == record.rollouts
    assert Counter(one.phase for one in found).keys() == {
        "baseline",
        "parent",
        "child",
        "pareto",
        "held-out",
    }
    for candidate in record.candidates:
        scores = {
            one.case: one.record.score
            for one in transcripts(whole, candidates={candidate.candidate})
            if one.phase in ("baseline", "pareto")
        }
        assert tuple(scores[case] for case in record.pareto_ids) == candidate.scores
    [asked] = [
        one for one in transcripts(whole, candidates={0}, case="e3") if one.phase == "baseline"
    ]
    assert (asked.record.output_repr, asked.position) == ("no", "baseline/3")
    assert list(transcripts(RunFolder(tmp_path))) == []


@pytest.mark.parametrize("overlapping", [1, 3])
def test_every_rollout_of_races_is_found_with_the_candidate_that_gave_it(
    tmp_path: Path, overlapping: int
) -> None:
    races = Racing(first=1, every=1, finalists=6)
    job = make_job(
        validation=races,
        pareto_set_size=5,
        rollout_budget=90,
        proposals_per_step=overlapping,
    )
    folder = kept_run(tmp_path, job)
    record = read_run(folder)
    found = list(transcripts(folder))

    assert len(found) == record.rollouts
    assert {"pareto", "final"} <= {one.phase for one in found}
    assert any(one.position.split("/")[2:4] == ["pareto", "best"] for one in found)
    for candidate in record.candidates:
        scores = {
            one.case: one.record.score
            for one in transcripts(folder, candidates={candidate.candidate})
            if one.phase in ("baseline", "pareto", "merge", "final")
        }
        assert tuple(scores.get(case) for case in record.pareto_ids) == candidate.scores


def test_rollouts_of_several_proposals_belong_to_their_parent_and_to_no_candidate(
    tmp_path: Path,
) -> None:
    job = make_job(pareto_set_size=5, rollout_budget=120, proposals_per_step=2, steps_at_once=2)
    folder = kept_run(tmp_path, job)
    record = read_run(folder)
    parents = {one.step: one.parents for one in record.candidates if one.candidate}
    found = [one for one in transcripts(folder) if one.phase in ("parent", "child")]
    assert {one.candidate for one in found if one.phase == "child"} == {None}
    assert len(parents) > 1
    for one in found:
        if one.phase == "parent" and one.step in parents:
            assert (one.candidate,) == parents[one.step]


def test_transcripts_leave_out_what_is_being_written_and_say_what_is_damaged(
    folder: RunFolder,
) -> None:
    found = len(list(transcripts(folder)))
    text = folder.journal.read_bytes()
    folder.journal.write_bytes(text[:-20])
    assert len(list(transcripts(folder))) == found - 1
    folder.journal.write_bytes(text.replace(b'"score":0.0', b'"score":1.0'))
    with pytest.raises(JournalCorruptError, match="do not fit its checksum"):
        list(transcripts(folder))


def test_a_follower_sees_every_line_once_until_the_run_is_left(tmp_path: Path) -> None:
    job = make_job(reflection=sulky)
    made = new_folder(tmp_path, job)
    waits: list[float] = []
    with made.held():
        lines = follow(made, wait=waits.append)
        carried: list[Any] = []
        text = kept_run(tmp_path / "other", job).events.read_bytes()
        for start in range(0, len(text), 700):
            # A part of a line is not told before its rest is there.
            with made.events.open("ab") as file:
                file.write(text[start : start + 700])
            carried += _some(lines, text[: start + 700].count(b"\n") - len(carried))
    carried += list(lines)

    assert [line for line, _ in carried] == text.decode("ascii").splitlines()
    assert [event for _, event in carried] == [event for _, event in read_lines(made.events)]
    assert set(waits) <= {0.5}


def _some(lines: Any, count: int) -> list[Any]:
    return [next(lines) for _ in range(count)]


def test_a_follower_goes_on_when_a_resumed_run_cuts_the_file(folder: RunFolder) -> None:
    text = folder.events.read_bytes()
    cut = text.index(b"\n", len(text) // 2) + 1
    other = b'{"event":"another end","n":1}\n'

    def change(seconds: float) -> None:
        """Cut the file, and let another end grow beyond the old one before anybody looks."""
        if other not in folder.events.read_bytes():
            folder.events.write_bytes(text[:cut] + other * 900)
        else:
            held.close()

    held = _Held(folder)
    told = list(follow(folder, wait=change))
    assert isinstance(told[0][1], RunStarted)
    assert set(told[text.count(b"\n") :]) == {(other.decode("ascii").strip(), Unknown(number=1))}


class _Held:
    """The lock of a folder, to be let go of from inside a callback."""

    def __init__(self, folder: RunFolder) -> None:
        self._context = folder.held()
        self._context.__enter__()

    def close(self) -> None:
        self._context.__exit__(None, None, None)


def test_an_end_with_held_out_examples_without_scores_is_damaged(tmp_path: Path) -> None:
    folder = kept_run(tmp_path)
    text = folder.events.read_text("ascii")
    folder.events.write_text(text.replace('"winner_scores":[', '"winner_scores":[1.0,'))
    (summary,) = list_runs(tmp_path)
    assert summary.state is State.DAMAGED
    assert "held-out examples: expected two scores for each id" in summary.fault


def test_a_candidate_without_any_scores_has_a_page(tmp_path: Path) -> None:
    folder = kept_run(tmp_path, make_tiny_job())
    lines = [json.loads(line) for line in folder.events.read_text("ascii").splitlines()]
    for line in lines:
        if line["event"] == "candidate":
            line["scores"] = []
    folder.events.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "ascii")
    shutil.rmtree(folder.candidates)
    write_missing(folder, {})
    assert "| no score |" in folder.candidate(0).read_text("utf-8")
