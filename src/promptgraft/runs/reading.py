"""Reading a run directory whole, also while another process writes to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.runs.event_lines import Line
from promptgraft.runs.fields import Fields
from promptgraft.runs.files import read_document
from promptgraft.runs.finding import state_of
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.lines import read_lines
from promptgraft.runs.records import (
    CandidateRecord,
    MergeRecord,
    RejectionRecord,
    RunRecord,
    WaitRecord,
)
from promptgraft.serde import Json


def read_run(folder: RunFolder) -> RunRecord:
    """Return a run as its files tell it, ended or not.

    Raises:
        OSError: a file cannot be read.
        DataFormatError: a file is not what a run writes; names the line.
    """
    config = read_document(folder.config)
    locked = folder.is_locked
    gathered = _Gathered()
    events = str(folder.events)
    for number, line in read_lines(folder.events):
        gathered.add(line, f"{events}:{number}")
    settings = Fields(config, str(folder.config))
    result = _result(folder, len(gathered.candidates)) if gathered.ended else None
    return RunRecord(
        folder=folder,
        state=state_of(locked=locked, ended=gathered.ended),
        config=config,
        created=settings.moment("created"),
        prompt=settings.text("prompt"),
        started=gathered.started,
        run_id=gathered.run_id,
        seed=gathered.seed,
        budget=gathered.budget,
        modules=gathered.modules,
        texts=gathered.texts,
        pareto_ids=gathered.pareto_ids,
        candidates=tuple(_at_the_end(gathered.candidates, folder, result)),
        rejections=tuple(gathered.rejections),
        merges=tuple(gathered.merges),
        waits=tuple(gathered.waits),
        steps=gathered.steps,
        rollouts=gathered.rollouts,
        leader=gathered.leader,
        result=result,
    )


def _result(folder: RunFolder, candidates: int) -> Mapping[str, Json] | None:
    try:
        result = read_document(folder.result)
    except FileNotFoundError:
        return None
    best = Fields(result, str(folder.result)).integer("best")
    if not 0 <= best < candidates:
        _refuse(
            str(folder.result),
            f"best: expected one of the run's {candidates} candidates, found {best}",
        )
    return result


def _at_the_end(
    candidates: Sequence[CandidateRecord], folder: RunFolder, result: Mapping[str, Json] | None
) -> Iterator[CandidateRecord]:
    """Yield the candidates with their means as the end has them.

    What a line says is an estimate by what was known then: the baseline may have been tried on
    more since.
    """
    if result is None:
        yield from candidates
        return
    means = Fields(result, str(folder.result)).scores("means")
    if len(means) != len(candidates):
        _refuse(str(folder.result), f"means: expected {len(candidates)}, found {len(means)}")
    for one, mean in zip(candidates, means, strict=True):
        yield one if one.mean == mean else attrs.evolve(one, mean=mean)


@attrs.define
class _Gathered:
    """What the lines have said so far."""

    started: datetime | None = None
    run_id: str = ""
    seed: int | None = None
    budget: int | None = None
    modules: tuple[str, ...] = ()
    texts: Mapping[str, str] = attrs.field(factory=dict)
    pareto_ids: tuple[str, ...] = ()
    candidates: list[CandidateRecord] = attrs.field(factory=list)
    rejections: list[RejectionRecord] = attrs.field(factory=list)
    merges: list[MergeRecord] = attrs.field(factory=list)
    waits: list[WaitRecord] = attrs.field(factory=list)
    steps: int = 0
    rollouts: int = 0
    leader: int = 0
    ended: bool = False
    _ancestor: int = 0

    def add(self, line: Line, where: str) -> None:
        fields = Fields(line, where)
        if "n" in line:
            self.ended = line["event"] == "ended"
        self._count(line, fields)
        match line["event"]:
            case "started":
                self._start(fields)
            case "plan":
                self.budget = fields.integer("budget")
            case "candidate":
                self._join(_candidate(fields), where)
                self._lead(fields, where)
            case "scored":
                self._score(fields, where)
                self._lead(fields, where)
            case "rejected":
                self._known(where, "parent", fields.integer("parent"))
                self.rejections.append(_rejection(fields, self._attempt(fields.integer("step"))))
            case "merge_attempted":
                self._ancestor = fields.integer("ancestor")
            case "merge_accepted" | "merge_rejected":
                self._known(where, "parents", *fields.integers("parents"))
                self.merges.append(_merge(fields, self._ancestor, kept="candidate" in line))
            case "waiting":
                self.waits.append(_wait(fields))
            case _:
                pass

    def _count(self, line: Line, fields: Fields) -> None:
        if "step" in line:
            self.steps = max(self.steps, fields.integer("step"))
        if "steps" in line:
            self.steps = fields.integer("steps")
        if "rollouts" in line:
            used = fields.integer("rollouts")
            # Steps that are under way have used more than a line says that tells of an earlier one.
            self.rollouts = used if line["event"] == "ended" else max(self.rollouts, used)

    def _start(self, fields: Fields) -> None:
        self.started = fields.moment("time")
        self.run_id = fields.text("run_id")
        self.seed = fields.integer("seed")
        self.modules = fields.names("modules")
        self.texts = fields.texts("texts")
        self.pareto_ids = fields.names("pareto_ids")

    def _join(self, one: CandidateRecord, where: str) -> None:
        if one.n != len(self.candidates):
            _refuse(where, f"candidate: expected {len(self.candidates)}, found {one.n}")
        self._known(where, "parents", *one.parents)
        self.candidates.append(self._checked(one, where))

    def _score(self, fields: Fields, where: str) -> None:
        at = fields.integer("candidate")
        self._known(where, "candidate", at)
        scored = attrs.evolve(
            self.candidates[at],
            scores=fields.scores("scores"),
            objectives=fields.numbers("objectives"),
            mean=fields.number("mean"),
        )
        self.candidates[at] = self._checked(scored, where)

    def _lead(self, fields: Fields, where: str) -> None:
        self.leader = fields.integer("best")
        self._known(where, "best", self.leader)

    def _known(self, where: str, name: str, *positions: int) -> None:
        for at in positions:
            if not 0 <= at < len(self.candidates):
                _refuse(where, f"{name}: expected one that was told of before, found {at}")

    def _checked(self, one: CandidateRecord, where: str) -> CandidateRecord:
        """Refuse scores that belong to other columns: they would be read as those of others."""
        if len(one.scores) not in (0, len(self.pareto_ids)):
            _refuse(
                where, f"scores: expected {len(self.pareto_ids)} or none, found {len(one.scores)}"
            )
        return one

    def _attempt(self, step: int) -> int:
        last = self.rejections[-1] if self.rejections else None
        return last.attempt + 1 if last is not None and last.step == step else 1


def _refuse(where: str, fault: str) -> NoReturn:
    raise DataFormatError(f"{where}: {fault}; `promptgraft resume` writes the file again")


def _candidate(fields: Fields) -> CandidateRecord:
    return CandidateRecord(
        n=fields.integer("candidate"),
        step=fields.integer("step"),
        parents=fields.integers("parents"),
        module=fields.text_or_none("module"),
        texts=fields.texts("texts"),
        entries=fields.plain("entries"),
        scores=fields.scores("scores"),
        objectives=fields.numbers("objectives"),
        mean=fields.number("mean"),
        rollouts=fields.integer("rollouts"),
        reflections=fields.integer("reflections"),
        cost=fields.money("cost"),
        tokens=fields.integer("tokens"),
        time=fields.moment("time"),
    )


def _rejection(fields: Fields, attempt: int) -> RejectionRecord:
    return RejectionRecord(
        step=fields.integer("step"),
        attempt=attempt,
        parent=fields.integer("parent"),
        module=fields.text("module"),
        reason=fields.text("reason"),
        detail=fields.text("detail"),
        text=fields.text("text"),
        before=fields.text("before"),
        final=fields.flag("final"),
        parent_score=fields.number("parent_score"),
        child_score=fields.number("child_score"),
        time=fields.moment("time"),
    )


def _merge(fields: Fields, ancestor: int, *, kept: bool) -> MergeRecord:
    return MergeRecord(
        step=fields.integer("step"),
        ancestor=ancestor,
        parents=fields.integers("parents"),
        candidate=fields.integer("candidate") if kept else None,
        reason="" if kept else fields.text("reason"),
        detail="" if kept else fields.text("detail"),
        time=fields.moment("time"),
    )


def _wait(fields: Fields) -> WaitRecord:
    return WaitRecord(
        time=fields.moment("time"),
        model=fields.text("model"),
        seconds=fields.number("seconds"),
        reason=fields.text("reason"),
    )
