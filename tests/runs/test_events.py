"""Events round-trip through lines, and a history is the same live and read from the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from further import thorough
from optimizers.worlds import twins
from promptgraft.adapters.base import Usage
from promptgraft.errors import DataFormatError
from promptgraft.evals.spending import Role, Spending
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.runs import RunHistory, read_run
from promptgraft.runs.event_file import EventLines, RunEvent, decoded, encoded
from promptgraft.runtime import EventBus
from promptgraft.search.events import (
    CallWaits,
    CandidateAdded,
    CandidateScored,
    CaseTaught,
    Event,
    ExampleGenerated,
    MergeAccepted,
    MergeAttempted,
    MergeRejected,
    MutationAccepted,
    MutationProposed,
    MutationRejected,
    NewBest,
    RolloutCompleted,
    RoundStarted,
    RunEnded,
    RunPlanned,
    RunProgress,
    RunStarted,
    StopFileRemoved,
    Unknown,
    Working,
)
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.round_events import (
    Blame,
    Decided,
    GradientsMerged,
    Loss,
    PatchWritten,
    Problem,
    QuestionUnanswered,
    RoundEnded,
    RoundTrained,
    Severity,
    StepBlamed,
)
from promptgraft.search.verdict import HeldOut, RunVerdict
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import RolloutFeedback, RolloutRecord
from promptgraft.testing import FakeClock
from runs.toy_runs import carry_out, make_job, new_folder, sulky

# Half characters, too: models and data sets have them.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=6)
NAMES = st.lists(TEXTS, max_size=3, unique=True).map(tuple)
COUNTS = st.integers(0, 2**53)
POSITIONS = st.integers(0, 9)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SCORES = st.none() | NUMBERS


def measured(rows: Sequence[tuple[str, float | None, float | None]]) -> HeldOut:
    ids, before, after = zip(*rows, strict=True)
    return HeldOut(ids=ids, baseline_scores=before, winner_scores=after)


ROWS = st.lists(SCORES, max_size=4).map(tuple)
MONEY = st.none() | st.decimals(0, 10**6, allow_nan=False, allow_infinity=False)
MAPS = st.dictionaries(TEXTS, NUMBERS, max_size=3).map(FrozenMap)
BY_NAME = st.dictionaries(TEXTS, TEXTS, max_size=3).map(FrozenMap)
REASONS = st.sampled_from(RejectionReason)
PARENTS = st.tuples(POSITIONS, POSITIONS)
USED = {"rollouts": COUNTS, "reflections": COUNTS, "tokens": COUNTS, "cost": MONEY}
AT_WORK = {"position": TEXTS, "done": COUNTS, "total": COUNTS, **USED}
SCORED = {
    "step": COUNTS,
    "candidate": POSITIONS,
    "mean": SCORES,
    "best": POSITIONS,
    "scores": ROWS,
    "objectives": MAPS,
}
MEANS = {
    "baseline_mean": SCORES,
    "best_mean": SCORES,
    "baseline_estimated": st.booleans(),
    "best_estimated": st.booleans(),
}
RECORDS = st.builds(
    RolloutRecord,
    example_id=st.text(max_size=3),
    inputs_repr=st.text(max_size=3),
    output_repr=st.text(max_size=3),
    tool_trace_repr=st.just(""),
    feedback=st.none() | st.builds(RolloutFeedback, score=NUMBERS, feedback=st.text(max_size=3)),
    spent=st.just((Spending(role=Role.TASK, model="m", cost=Decimal("0.1")),)),
)
LEDGER = st.builds(
    LedgerEntry,
    role=st.sampled_from(Role),
    model=TEXTS,
    calls=COUNTS,
    retries=COUNTS,
    usage=st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS),
    cost=MONEY.filter(lambda found: found is not None),
    unpriced_calls=COUNTS,
    seconds=NUMBERS,
)
SEVERITIES = st.sampled_from(Severity)
BLAMES = st.builds(Blame, to=TEXTS, severity=SEVERITIES, text=TEXTS)


def some(kind: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(kind, max_size=2).map(tuple)


CHILD = {"step": COUNTS, "parent": POSITIONS, "module": TEXTS}
JOINED = {"step": COUNTS, "candidate": POSITIONS, "pareto_mean": SCORES}
FIELDS: dict[type[Event], Mapping[str, st.SearchStrategy[object]]] = {
    RunStarted: {
        "run_id": TEXTS,
        "prompt": TEXTS,
        "seed": st.integers(),
        "settings": BY_NAME,
        "modules": NAMES,
        "texts": BY_NAME,
        "pareto_ids": NAMES,
    },
    RunPlanned: {
        "budget": COUNTS,
        "line": TEXTS,
        "warnings": NAMES,
        "max_cost": MONEY,
        "max_tokens": st.none() | COUNTS,
        "max_seconds": SCORES,
    },
    StopFileRemoved: {"path": TEXTS},
    Working: AT_WORK,
    RolloutCompleted: {"position": TEXTS, "record": RECORDS, "total_rollouts": COUNTS},
    CandidateAdded: {
        **SCORED,
        **USED,
        "parents": st.just(()) | PARENTS,
        "module": st.none() | TEXTS,
        "shortened": NUMBERS,
        "texts": BY_NAME,
        "entries": st.just({"a/b": {"sections": [{"path": ["a"], "body": "b"}]}}),
    },
    CandidateScored: SCORED,
    MutationProposed: {**CHILD, "before": TEXTS, "after": TEXTS},
    MutationAccepted: {
        **CHILD,
        **JOINED,
        "parent_score": SCORES,
        "child_score": SCORES,
        "best_pareto_mean": SCORES,
    },
    MutationRejected: {
        **CHILD,
        "reason": REASONS,
        "detail": TEXTS,
        "before": TEXTS,
        "text": TEXTS,
        "parent_score": SCORES,
        "child_score": SCORES,
        "final": st.booleans(),
    },
    ExampleGenerated: {
        "step": COUNTS,
        "candidate": POSITIONS,
        "container_path": NAMES,
        "key": TEXTS,
        "objective": TEXTS,
    },
    MergeAttempted: dict.fromkeys(("step", "ancestor", "better", "other"), POSITIONS),
    MergeAccepted: {**JOINED, "parents": PARENTS, "best_pareto_mean": SCORES},
    MergeRejected: {"step": COUNTS, "parents": PARENTS, "reason": REASONS, "detail": TEXTS},
    RoundTrained: {
        "step": COUNTS,
        "current": POSITIONS,
        "cases": NAMES,
        "scores": ROWS,
        "losses": some(
            st.builds(Loss, case=TEXTS, metric=TEXTS, severity=SEVERITIES, reason=TEXTS, node=TEXTS)
        ),
    },
    StepBlamed: {
        **dict.fromkeys(("case", "at", "node"), TEXTS),
        "step": COUNTS,
        "blamed": some(BLAMES),
        "handed_on": some(BLAMES),
    },
    QuestionUnanswered: {"step": COUNTS, "position": TEXTS, "detail": TEXTS},
    GradientsMerged: {
        "step": COUNTS,
        "module": TEXTS,
        "cases": NAMES,
        "problems": some(st.builds(Problem, severity=SEVERITIES, text=TEXTS)),
    },
    PatchWritten: {
        "step": COUNTS,
        "cases": NAMES,
        **dict.fromkeys(("module", "before", "text", "why"), TEXTS),
    },
    RoundEnded: {
        "step": COUNTS,
        "current": POSITIONS,
        "decided": st.sampled_from(Decided),
        "detail": TEXTS,
        "tried": st.none() | st.tuples(SCORES, SCORES),
        "validated": st.none() | st.tuples(SCORES, SCORES),
        "candidate": st.none() | POSITIONS,
        "stop": TEXTS,
    },
    CaseTaught: dict.fromkeys(("case", "teacher", "expected"), TEXTS),
    CallWaits: {"model": TEXTS, "seconds": SCORES, "reason": TEXTS},
    RoundStarted: {"step": POSITIONS, "current": POSITIONS},
    NewBest: {
        "step": POSITIONS,
        "candidate": POSITIONS,
        "mean": SCORES,
        "estimated": st.booleans(),
    },
    RunProgress: {
        **AT_WORK,
        **MEANS,
        **dict.fromkeys(
            ("step", "budget", "candidates", "accepted", "rejected", "best"), POSITIONS
        ),
    },
    RunEnded: {
        **MEANS,
        **dict.fromkeys(("run_id", "stop_reason", "stop_detail", "tag"), TEXTS),
        **dict.fromkeys(
            ("best", "accepted", "merges", "candidates", "steps", "rollouts", "unscored"),
            POSITIONS,
        ),
        "reflections": COUNTS,
        "verdict": st.sampled_from(RunVerdict),
        "means": ROWS,
        "frontier": PARENTS,
        "shortened": NUMBERS,
        "gains": MAPS,
        "held_out": st.none()
        | st.builds(HeldOut, ids=NAMES, why_not=TEXTS.filter(bool))
        | st.lists(st.tuples(TEXTS, SCORES, SCORES), min_size=1, unique_by=lambda one: one[0]).map(
            measured
        ),
        "rejected": st.dictionaries(TEXTS, COUNTS, max_size=2),
        "ledger": st.lists(LEDGER, max_size=2).map(tuple),
        "cost": MONEY,
    },
}
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(  # noqa: DTZ001 - made UTC
    lambda time: time.replace(tzinfo=UTC)
)


def built(kind: Callable[..., Event]) -> st.SearchStrategy[Event]:
    assert isinstance(kind, type)
    told = st.builds(kind, **FIELDS[kind])
    return told | st.builds(
        lambda event, number, time: replace(event, number=number, time=time), told, COUNTS, TIMES
    )


def test_every_kind_of_event_is_tried_here() -> None:
    assert {*get_args(RunEvent)} == {*FIELDS}


@pytest.mark.parametrize("kind", FIELDS)
def test_every_event_is_read_from_its_line_as_it_was_told(kind: type[Event]) -> None:
    @settings(max_examples=6)
    @given(built(kind))
    def check(event: Event) -> None:
        line = encoded(event)
        assert line.isascii()
        assert "\n" not in line
        assert decoded(line.encode("ascii"), "here") == event

    check()


def test_a_line_of_a_kind_that_is_not_known_is_unknown_and_keeps_its_number() -> None:
    line = b'{"event":"greeting","n":7,"text":"\\ud800"}'
    assert decoded(line, "here") == Unknown(number=7)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"event":"accepted","step":"one"}', "here: step: expected `int`, found `str`"),
        (b'{"event":"accepted","step":1}', "here: object missing required field"),
        (b'{"event":"waiting","n":true}', "here: n: expected `int`, found `bool`"),
        (b'{"event":"waiting","model":"\\ud800","seconds":"1"}', "here: seconds: expected `float"),
        (b'{"event":7}', "here: expected an object with `event`"),
        (b"{", "here:1:2: Expecting property name"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_the_field(line: bytes, says: str) -> None:
    with pytest.raises(DataFormatError) as fault:
        decoded(line, "here")
    assert str(fault.value).startswith(says)
    assert str(fault.value).endswith("; `promptgraft resume` writes the file again")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"preset": "lean", "training_examples": twins(20), "pareto_set_size": 20},
        {"proposals_per_step": 2, "steps_at_once": 2},
        *thorough([{"enable_merge": True}]),
    ],
)
def test_a_run_is_the_same_whether_it_is_told_or_read(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    bus, raw, clock = EventBus(), RunHistory(), FakeClock()
    told, lines = RunHistory(), EventLines(clock, every=0)

    def hear(event: object) -> None:
        if isinstance(event, Event):
            raw.add(event)
        for line in lines.of(event):
            told.add(line)

    bus.subscribe(object, hear)
    job = make_job(reflection=sulky, rollout_budget=150, **changes)
    job = job.within(attrs.evolve(job.context, event_bus=bus))
    folder = new_folder(tmp_path, job)
    carry_out(folder, job, clock)

    read = read_run(folder)
    for live in (raw, told, lines.history):
        assert known(live) == known(read)
    assert json.loads(encoded(told.progress()))["candidates"] == len(read.candidates)


def known(run: RunHistory) -> dict[str, object]:
    """Return what does not depend on when a process looked, without times and numbers."""
    transient = {"place", "done", "total", "wait", "waits", "plan", "folder"}
    found: dict[str, object] = {}
    for field in attrs.fields(RunHistory):
        if field.name not in transient and not field.name.startswith("_"):
            value = getattr(run, field.name)
            found[field.name] = [*map(bare, value)] if isinstance(value, list) else bare(value)
    return found


def bare(value: object) -> object:
    blank = Unknown()
    return (
        replace(value, number=blank.number, time=blank.time) if isinstance(value, Event) else value
    )
