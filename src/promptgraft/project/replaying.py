"""Replays: runs that have ended, run again from their journals without a call."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path, PurePosixPath

import attrs

from promptgraft.agents.adapter import AgentAdapter
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.agents.delivery import InCall
from promptgraft.errors import CallerError, ConfigError, DataFormatError, JournalError
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.files import opened
from promptgraft.ground.folders import temporary_folder
from promptgraft.ground.serde import Json, parse_json, shown
from promptgraft.ground.strict import structure
from promptgraft.journal import FileJournal
from promptgraft.journal.base import FUNCTIONS, NO_CONTENTS
from promptgraft.journal.records import Contents
from promptgraft.project.adding import StoreConfig
from promptgraft.project.exporting import archive_budget, read_sources
from promptgraft.project.format import ProjectConfig, read_project
from promptgraft.project.origins import Origin
from promptgraft.project.other_cases import on_kept_cases
from promptgraft.project.project import Project
from promptgraft.project.python_source import NOT_RUN, with_stand_ins
from promptgraft.project.running import Changes, Runnable, loaded_again
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import read_document
from promptgraft.runs.reading import read_run
from promptgraft.runs.recorder import Recorder
from promptgraft.runtime.session import EventBus
from promptgraft.search.events import RunEnded
from promptgraft.search.job import OptimizationJob
from promptgraft.search.stopping import BuiltIn, Plateau, RunStoppedError, StopFile, StopReason


@attrs.frozen(kw_only=True)
class Difference:
    """The first place where a replay differs from the run.

    Attributes:
        place: an event, or a key of the result.
        recorded: what the run has there.
        replayed: what the replay has there.
    """

    place: str
    recorded: str
    replayed: str

    def __str__(self) -> str:
        return f"{self.place}: {self.recorded} in the run, {self.replayed} in the replay"


@attrs.frozen(kw_only=True)
class Replay:
    """A run that was replayed.

    Attributes:
        folder: the run.
        ended: its recorded end.
        difference: the first difference; None if the result is the same.
        used_code: whether code of the user was loaded; otherwise stand-ins took its place.
        seconds: how long it took.
    """

    folder: RunFolder
    ended: RunEnded
    difference: Difference | None
    used_code: bool
    seconds: float


def replayed(folder: RunFolder, *, project: str | None = None, may_run_code: bool = True) -> Replay:
    """Run a run again from its journal alone, and compare the results.

    No call is made, and nothing is written to the folder or to a store. The files of the project
    are those that the run has kept; its code is not run unless a prompt is made by it.

    Args:
        folder: the run, by its absolute path.
        project: a project file to use instead of what the run was made from.
        may_run_code: whether code that the run was made from may run.

    Raises:
        ConfigError: the run has not ended, or needs code that may not run.
        JournalError: the journal is missing, damaged, or belongs to another run.
    """
    ended = _end_of(folder)
    clock = SystemClock()
    began = clock.monotonic()
    with temporary_folder() as work:
        copy = _copied(folder, work)
        lacking = (
            _without_code(folder, copy, ended, work / "sources") if project is None else "named"
        )
        if lacking:
            # The code itself may do what stand-ins cannot, such as make a prompt.
            if not may_run_code and project is None:
                raise _needs_code(folder, lacking)
            copy = _copied(folder, work)
            with loaded_again(folder, Changes(), project=project) as source:
                _run(source.job, copy, ended)
        difference = difference_between(folder, copy)
    return Replay(
        folder=folder,
        ended=ended,
        difference=difference,
        used_code=bool(lacking),
        seconds=clock.monotonic() - began,
    )


def _without_code(folder: RunFolder, copy: RunFolder, ended: RunEnded, place: Path) -> str:
    """Replay a run from the files that it has kept; return what it lacks, empty if nothing."""
    if not folder.sources.exists():
        return "it has kept no files of a project"
    try:
        with _stood_in(folder, place) as job:
            _run(job, copy, ended, replaced=True)
    except CallerError as error:
        if NOT_RUN not in str(error):
            raise
        return str(error).replace(f"{place}/", "")
    return ""


def _needs_code(folder: RunFolder, lacking: str) -> ConfigError:
    origin = Origin(folder, read_document(folder.config))
    if not origin.is_project:
        return ConfigError(
            f"run {folder.id} was made by the job {origin.name}, whose code is not in its file; "
            "unpack it with `promptgraft import`, add that code to the folder, and replay it there"
        )
    return ConfigError(
        f"run {folder.id} cannot be replayed from its file alone: {lacking}; name a project with "
        "the same prompts, whose code may run, with --project"
    )


def _end_of(folder: RunFolder) -> RunEnded:
    record = read_run(folder)
    if folder.scores.exists() or not folder.journal.exists():
        raise ConfigError(
            f"run {folder.id} has no answers, so it cannot be replayed; `promptgraft show`, "
            "`compare` and `report` work without"
        )
    if record.ended is None:
        raise ConfigError(
            f"run {folder.id} is {record.state} and has no result to compare with; "
            f"`promptgraft resume {folder.id}` completes it"
        )
    return record.ended


def _copied(folder: RunFolder, work: Path) -> RunFolder:
    """Return a copy of a run with nothing but its settings and its journal."""
    copy = RunFolder(work / "run" / folder.id)
    shutil.rmtree(copy.path, ignore_errors=True)
    copy.path.mkdir(parents=True)
    shutil.copyfile(folder.config, copy.config)
    shutil.copyfile(folder.journal, copy.journal)
    return copy


@contextlib.contextmanager
def _stood_in(folder: RunFolder, place: Path) -> Iterator[OptimizationJob]:
    """Yield the job of a run from the files that it has kept; models and functions are stand-ins.

    Raises:
        NotRunError: a prompt or a graph is made by code.
        DataFormatError: the files are damaged.
    """
    config = read_document(folder.config)
    origin = Origin(folder, config)
    changes = structure(config.get("options"), Changes, where=f"{folder.config}: options")
    archive = read_sources(folder.sources, archive_budget())
    archive.unpack(place, {name: name for name in archive.names})
    # Not importable: a foreign file could take the place of a module.
    with with_stand_ins():
        source, settings = read_project(place / origin.file_name)
        _check_inside(settings, folder)
        store = StoreConfig(tag=settings.store.tag)
        project = Project(source, attrs.evolve(settings, store=store, trackers={}, executor=None))
        project.stand_in()
        project = on_kept_cases(project, folder)
        yield Runnable.of(project, origin.name, changes).job


def _check_inside(settings: ProjectConfig, folder: RunFolder) -> None:
    """Refuse settings that name files elsewhere: they may come from a stranger."""
    for name in settings.named_files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise DataFormatError(
                f"{folder.sources}: expected the names of files in it, found {shown(name)}; "
                "nothing was read"
            )


class _Silent:
    """Stands in for an agent, which a replay never asks."""

    reports_tools = True
    takes_files = True

    def __init__(self, name: str) -> None:
        self.name = self.identity = name

    def check(self, delivery: str, names: object) -> None:
        del delivery, names

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        raise ConfigError(f"agent `{self.name}` is not asked in a replay")


def _silenced(job: OptimizationJob) -> OptimizationJob:
    """Return a job whose agent is not started, and whose texts are delivered nowhere."""
    adapter = job.context.adapter
    if not isinstance(adapter, AgentAdapter):
        return job
    silent = attrs.evolve(adapter, agent=_Silent(adapter.agent.name), delivery=InCall())
    return job.within(attrs.evolve(job.context, adapter=silent))


def _run(job: OptimizationJob, copy: RunFolder, ended: RunEnded, *, replaced: bool = False) -> None:
    """Run a job on a copied journal, and record its events and its result beside it."""
    reason = StopReason(ended.stop_reason)
    job = without_effects(_silenced(job) if replaced else job, reason)
    bus = EventBus()
    with (
        ReplayJournal(
            copy.journal,
            name=f"the journal of run {copy.id}",
            reason=reason,
            detail=ended.stop_detail,
        ) as journal,
        contextlib.closing(Recorder(copy, job.prompts, clock=SystemClock())) as recorder,
    ):
        bus.subscribe(object, recorder.on_event)
        job.within(attrs.evolve(job.context, event_bus=bus, journal=journal)).run()


_WORDS = (
    *("detail", "stop_detail", "stop", "remarks"),  # of events; `stop` of a result is an object
    *("stop.detail", "warnings"),  # of results
    *("held_out.why_not", "held_out.signs", "wear.line", "parts.part", "parts.diff"),
)
"""Words of events and results for what is compared itself: each version chooses its own."""

_NOT_COMPARED = (*_WORDS, "tokens", "cost")
"""Also totals so far, which lack calls before a kill in events of earlier versions that resumed."""

_FORMERLY = (
    ("verdict", "worse on held-out examples", "worse on a critical case"),
    ("input_tokens", 0, None),
    ("output_tokens", 0, None),
)
"""Keys with what earlier versions wrote there, and what this one writes for the same."""


def difference_between(recorded: RunFolder, copy: RunFolder) -> Difference | None:
    """Return the first difference of two runs: in their events, else in their results.

    Only what the run has recorded is compared: an earlier version wrote fewer keys.
    """
    pairs = zip_longest(_numbered(recorded), _numbered(copy))
    for at, (there, here) in enumerate(pairs, 1):
        if difference := _between(f"event {at}", there, here):
            return difference
    there, here = (dict(read_document(folder.result)) for folder in (recorded, copy))
    return _between("result", there, here)


def _numbered(folder: RunFolder) -> Iterator[Json]:
    """Yield the events that every replay repeats, as they are written but for their times."""
    with opened(folder.events) as file:
        for line in file:
            event = parse_json(line, where=str(folder.events))
            if isinstance(event, dict) and "n" in event:
                yield {name: value for name, value in event.items() if name not in ("time", "n")}


_ABSENT, _INDEX = "nothing", re.compile(r"\[\d+\]")


def _between(place: str, there: Json, here: Json) -> Difference | None:
    """Return the first difference of two values, down to the item that differs."""
    if there == here:
        return None
    if isinstance(there, dict) and isinstance(here, dict):
        members = (
            _between(f"{place}.{name}", value, here.get(name))
            for name, value in there.items()
            if _INDEX.sub("", f"{place}.{name}").partition(".")[2] not in _NOT_COMPARED
            or isinstance(value, dict)
        )
        return next(filter(None, members), None)
    if isinstance(there, list) and isinstance(here, list):
        items = enumerate(zip_longest(there, here))
        return next(filter(None, (_between(f"{place}[{at}]", *pair) for at, pair in items)), None)
    if (place.rpartition(".")[2], there, here) in _FORMERLY:
        return None
    recorded, replayed = (_ABSENT if value is None else shown(value) for value in (there, here))
    return Difference(place=place, recorded=recorded, replayed=replayed)


_ANSWERING = ("task_model", "reflection_model", "metrics", FUNCTIONS)
"""What a fingerprint says of those who answer and judge; a replay asks none of them."""

_BY_ANSWERS = (StopReason.BUDGET, StopReason.PERFECT, StopReason.NO_PROGRESS, StopReason.DONE)
"""Reasons to end that follow from the answers alone, whatever else the settings say."""


class ReplayJournal(FileJournal):
    """The journal of a run that has ended: it has all answers, and admits no others.

    Nobody answers or judges again, so that part of the fingerprint is taken from the journal. A
    replay appends a few records of its own, so give it a copy.

    Args:
        path: the file.
        name: the file in messages.
        reason: why the run ended.
        detail: the same in words.
    """

    def __init__(self, path: Path, *, name: str, reason: StopReason, detail: str) -> None:
        self._reason, self._detail = reason, detail
        super().__init__(path)
        self._name = name

    def begin(
        self,
        fingerprint: Mapping[str, Json],
        *,
        contents: Contents = NO_CONTENTS,
        reuse_scores: bool = False,
        translated: Callable[[Mapping[str, Json]], Mapping[str, Json]] = dict,
    ) -> Mapping[str, Json]:
        # With or without `reuse_scores`, for a replay asks no function for a score.
        present = dict(fingerprint)
        if self._fingerprint is not None:
            recorded = translated(self._fingerprint)
            present |= {name: recorded[name] for name in _ANSWERING if name in recorded}
        return super().begin(present, contents=contents, reuse_scores=True, translated=translated)

    def admit(self, key: str) -> None:
        """End the run as it ended then, if something outside of its answers ended it.

        Raises:
            RunStoppedError: the run was stopped before this answer.
            JournalError: the run has had this answer.
        """
        if self._reason not in _BY_ANSWERS:
            raise RunStoppedError(self._reason, self._detail)
        raise JournalError(
            f"{self._name} has no answer for `{key}`, which the run asks for; restore the journal, "
            "and the data and the version of promptgraft that it was made with"
        )


def without_effects(job: OptimizationJob, reason: StopReason) -> OptimizationJob:
    """Return a job that stores nothing, waits for nothing, and ends for reasons in its answers.

    Args:
        job: the job of a run that has ended.
        reason: why it ended.
    """
    limits = job.config.limits
    stoppers = [
        stopper
        for stopper in job.config.stoppers
        if isinstance(stopper, BuiltIn) and not isinstance(stopper, StopFile)
    ]
    if reason is not StopReason.PLATEAU:
        # Runs of earlier versions went on where one of today would have stopped.
        stoppers = [Plateau(risk=0), *(item for item in stoppers if not isinstance(item, Plateau))]
    config = attrs.evolve(
        job.config, persist=False, limits=attrs.evolve(limits, timeout=None, stoppers=stoppers)
    )
    context = attrs.evolve(
        job.context, executor=None, deadline=None, cancellation=None, pause=None, event_bus=None
    )
    return attrs.evolve(job, config=config, context=context)
