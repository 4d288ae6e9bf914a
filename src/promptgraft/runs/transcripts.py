"""Who said what during a run: rollouts out of its journal, without the lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import attrs

from promptgraft.journal.records import Record, decode_record, record_key
from promptgraft.runs.fields import Fields
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.lines import read_lines
from promptgraft.search.batches import record_from_json
from promptgraft.serde import Json
from promptgraft.targets.types import RolloutRecord

_NO_ROLLOUTS = {"reflect", "spent"}


@attrs.frozen(kw_only=True)
class Transcript:
    """One rollout as the journal keeps it.

    Attributes:
        position: where in the run: ``step/12/child/3``.
        phase: ``baseline``, ``parent``, ``child``, ``pareto``, ``merge``, ``final``, ``confirm``
            or ``held-out``.
        step: the step; 0 outside of the steps.
        candidate: position of the candidate; None for a child that did not join the pool, or
            not as it was tried, for a merge that did not, and for the parent in a step without
            a proposal.
        record: the rollout: input, answer, trace, score and feedback.
    """

    position: str
    phase: str
    step: int
    candidate: int | None
    record: RolloutRecord

    @property
    def case(self) -> str:
        """The id of the example."""
        return self.record.example_id


def transcripts(
    folder: RunFolder, *, candidates: Collection[int] | None = None, case: str | None = None
) -> Iterator[Transcript]:
    """Yield the rollouts of a run in the order in which they were recorded.

    Reads the journal without its lock, so also while the run goes on; what is being written
    is left out.

    Args:
        folder: the run.
        candidates: only those of these candidates.
        case: only those on this example.

    Raises:
        OSError: a file cannot be read.
        JournalCorruptError: a line is not what was written.
        DataFormatError: ``events.jsonl`` is not what a run writes.
    """
    steps = _steps(folder)
    try:
        file = folder.journal.open("rb")
    except FileNotFoundError:
        return
    with file:
        next(file, None)  # the header
        for line in file:
            if not line.endswith(b"\n"):
                return
            found = _place(record_key(line), steps)
            if found is None or (candidates is not None and found[2] not in candidates):
                continue
            transcript = _transcript(decode_record(line), found)
            if case in (None, transcript.case):
                yield transcript


Place = tuple[str, int, int | None]
"""Phase, step and candidate."""


@attrs.define
class _Step:
    """Who is tried in a step; in races the best one is, too, before somebody joins."""

    parent: int | None = None
    child: int | None = None
    joined_as_tried: bool = False
    merge: int | None = None
    best_for_child: int | None = None
    best_for_merge: int | None = None
    scored: int | None = None

    def add(self, event: Json, fields: Fields) -> None:
        match event:
            case "proposed" | "rejected":
                self.parent = fields.integer("parent")
            case "scored" if self.scored is None:
                self.scored = fields.integer("candidate")
            case "candidate" if len(fields.integers("parents")) > 1:
                self.merge, self.best_for_merge = fields.integer("candidate"), self.scored
                self.scored = None
            case "candidate":
                self.joined_as_tried = fields.integers("parents") == (self.parent,)
                self.child, self.best_for_child = fields.integer("candidate"), self.scored
                self.scored = None
            case _:
                pass


def _steps(folder: RunFolder) -> Mapping[int, _Step]:
    steps: dict[int, _Step] = {}
    events = str(folder.events)
    for number, line in read_lines(folder.events):
        if line["event"] in ("proposed", "rejected", "scored", "candidate"):
            fields = Fields(line, f"{events}:{number}")
            steps.setdefault(fields.integer("step"), _Step()).add(line["event"], fields)
    return steps


def _place(key: str, steps: Mapping[int, _Step]) -> Place | None:
    parts = key.split("/")
    if _NO_ROLLOUTS & set(parts):
        return None
    match parts:
        case ["baseline", _]:
            return "baseline", 0, 0
        case ["held-out" | "final" as phase, candidate, *_]:
            return phase, 0, int(candidate)
        case ["confirm", _, "baseline", *_]:
            return "confirm", 0, 0
        case ["confirm", candidate, "winner", *_]:
            return "confirm", 0, int(candidate)
        case ["step", number, proposal, *inside] if proposal.isdigit():
            found = _place_in_step(inside, steps.get(int(number), _Step()))
            # The child of one of several proposals is no candidate: what joins is all together.
            return found and (found[0], int(number), found[1] if found[0] == "parent" else None)
        case ["step", number, *inside]:
            found = _place_in_step(inside, steps.get(int(number), _Step()))
            return None if found is None else (found[0], int(number), found[1])
    return None


def _place_in_step(parts: list[str], step: _Step) -> tuple[str, int | None] | None:
    match parts:
        case ["pareto", "best", _]:
            # Where steps overlap, the best one is tried on more though nobody may join.
            return "pareto", step.scored if step.child is None else step.best_for_child
        case ["merge", "race", "best", _]:
            return "pareto", step.best_for_merge
        case ["idle", _, _]:
            return "pareto", step.scored
        case ["again", _, "child", _] | ["child", *_]:
            return "child", step.child if step.joined_as_tried else None
        case ["again", _, phase, _] | [phase, *_]:
            whose = {"parent": step.parent, "merge": step.merge}
            return phase, whose.get(phase, step.child)
    return None


def _transcript(record: Record, place: Place) -> Transcript:
    phase, step, candidate = place
    return Transcript(
        position=record.key,
        phase=phase,
        step=step,
        candidate=candidate,
        record=record_from_json(record.answer, record.key),
    )
