"""``events.jsonl`` after a replay: the events of the replay, with the times of the first run."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from promptgraft.adapters.base import CallWaiting
from promptgraft.runs import list_runs
from promptgraft.runs.event_file import EventFile, EventLines, RunEvent, read_lines
from promptgraft.runs.folder import make_run
from promptgraft.runs.recorder import Recorder
from promptgraft.search.events import (
    CallWaits,
    Event,
    MutationProposed,
    RolloutCompleted,
    RunPlanned,
    RunProgress,
    Working,
)
from promptgraft.targets.types import RolloutRecord
from promptgraft.testing import FakeClock
from runs.toy_runs import make_job, new_folder

TEXTS = st.text(max_size=8)
NUMBERED = st.builds(
    lambda text: MutationProposed(step=1, parent=0, module=text, before="", after=""), TEXTS
)
TRANSIENT = st.builds(lambda text: CallWaits(model="m", seconds=None, reason=text), TEXTS)
PLANS = st.builds(lambda budget: RunPlanned(budget=budget, line=""), st.integers(1, 3))
RUNS = st.lists(st.one_of(NUMBERED, NUMBERED, TRANSIENT, PLANS), max_size=8)
FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def tell(path: Path, events: list[Event], time: str) -> None:
    """Tell events as a run does, numbered where they are to be."""
    file, number = EventFile(path), 0
    for event in events:
        line = replace(event, time=datetime.fromisoformat(time))
        if isinstance(event, MutationProposed):
            number += 1
            line = replace(line, number=number)
        if not file.holds(line):
            file.append(line)
    file.close()


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines; one without its end is not there for readers."""
    return [
        json.loads(line)
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


@settings(max_examples=80)
@given(RUNS, RUNS, st.integers(0, 40))
def test_a_file_says_what_was_told_last_however_much_of_it_was_there(
    tmp_path_factory: Any, before: list[Event], after: list[Event], torn: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "events.jsonl"
    path.unlink(missing_ok=True)
    tell(path, before, FIRST)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - torn)])
    there = [line for line in lines(path) if "n" in line]

    tell(path, after, SECOND)

    told = [event.module for event in after if isinstance(event, MutationProposed)]
    found = [line for line in lines(path) if "n" in line]
    kept = [line["module"] for line in found]
    # What a replay has not reached yet stays.
    assert kept[: len(told)] == told
    assert kept[len(told) :] == [line["module"] for line in there][len(told) :] or kept == told
    assert [line["n"] for line in found] == list(range(1, len(found) + 1))
    for line, old in zip(found, there, strict=False):
        if line["module"] != old["module"]:
            break
        assert line["time"] == FIRST
    plans = [line["budget"] for line in lines(path) if line["event"] == "plan"]
    asked = [event.budget for event in after if isinstance(event, RunPlanned)]
    if asked and len(told) >= len(there):
        assert plans[-1] == asked[-1]


def test_many_runs_that_begin_at_once_get_folders_of_their_own(tmp_path: Path) -> None:
    now = FakeClock().now()
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: make_run(tmp_path, "x", {"prompt": "a/x"}, now=now), range(24))
        )
    assert len({folder.id for folder in made}) == 24
    assert {run.id for run in list_runs(tmp_path)} == {folder.id for folder in made}


def test_waits_are_told_from_many_threads_line_by_line(tmp_path: Path) -> None:
    job = make_job()
    folder = new_folder(tmp_path, job)
    notice = CallWaiting(model="slow", seconds=3.0, reason="rate limited")
    with (
        contextlib.closing(Recorder(folder, job.prompts, clock=FakeClock())) as recorder,
        ThreadPoolExecutor(8) as pool,
    ):
        notices = [attrs.evolve(notice, seconds=float(number)) for number in range(200)]
        list(pool.map(recorder.on_event, notices))

    waits = [event for _, event in read_lines(folder.events) if isinstance(event, CallWaits)]
    assert sorted(wait.seconds or 0.0 for wait in waits) == [float(n) for n in range(200)]
    assert {(wait.model, wait.reason) for wait in waits} == {("slow", "rate limited")}


def test_a_run_whose_clock_stands_still_has_its_state_near_the_end_of_the_file() -> None:
    """Otherwise a list of runs would read all events of each run that has not ended."""
    told, record = EventLines(FakeClock()), rollout_record()
    kinds: list[type[Event]] = []
    for number in range(200):
        proposed = MutationProposed(step=number, parent=0, module="m", before="", after="")
        made = RolloutCompleted(position=f"step/{number}/child/0", record=record, total_rollouts=1)
        kinds += [type(line) for event in (proposed, made) for line in told.of(event)]
    places = [place for place, kind in enumerate(kinds) if kind is RunProgress]
    assert [b - a for a, b in itertools.pairwise([-1, *places])] == [33] * (200 // 32)


def rollout_record() -> RolloutRecord:
    return RolloutRecord(
        example_id="e1", inputs_repr="", output_repr="", tool_trace_repr="", feedback=None
    )


def test_the_page_has_every_event_of_the_file_with_its_keys() -> None:
    page = (Path(__file__).parents[2] / "specs" / "runs.md").read_text("utf-8")
    rows: dict[str, set[str]] = {}
    for names, keys in re.findall(r"(?m)^\| (`\w+`(?:, `\w+`)*) \|(?: \w+)? \| (.*) \|$", page):
        for name in re.findall(r"`(\w+)`", names):
            rows[name] = set(re.findall(r"`(\w+)`", keys))

    for kind in get_args(RunEvent):
        if kind in (RolloutCompleted, Working):  # the journal has the one, `progress` the other
            continue
        tag = kind.__struct_config__.tag
        assert {field.encode_name for field in fields(kind)} - {"n", "time"} <= rows[tag], tag
