"""A run as it is made, changed, carried out and kept: from a command, a program or a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import attrs
from attrs.converters import optional

from promptgraft.clock import SystemClock
from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.evals.spending import Role
from promptgraft.journal.base import Journal
from promptgraft.project.files import DEFAULT_RUNS
from promptgraft.project.origins import Origin, loaded_job, loaded_project
from promptgraft.project.outcome import Outcome
from promptgraft.project.project import Project
from promptgraft.project.python_source import place_of
from promptgraft.project.services import ExecutorConfig, TrackersConfig
from promptgraft.runs import RunFolder, State, list_runs, read_run, transcripts
from promptgraft.runs.documents import described_job, run_config
from promptgraft.runs.folder import make_run, read_document, write_document
from promptgraft.runs.recorder import recorded
from promptgraft.runtime import Cancellation, EventBus
from promptgraft.search import OptimizationJob, RunPlan, RunResult
from promptgraft.search.plan import SeenAnswers
from promptgraft.search.planned_rows import seen_nodes
from promptgraft.search.scores import weights_of
from promptgraft.serde import Json
from promptgraft.strict import structure

_MOST_LOOKED_AT = 500
"""Rollouts of an earlier run that a plan counts the steps of."""


def _is_given(_: object, value: object) -> bool:
    return value is not None


@attrs.frozen(kw_only=True)
class Changes:
    """What is changed of a job for one run, as ``config.json`` keeps it; None changes nothing.

    Attributes:
        tag: the tag that the search begins from and that gets the winner.
        pick: weights of objectives that decide which candidate wins.
        seed: decides every random choice.
        budget: rollouts in all.
        max_cost: US dollars, a decimal number as text.
        max_tokens: tokens in all, sent and received.
        timeout: seconds that this one process may take; not kept.
    """

    tag: str | None = None
    pick: str | None = None
    seed: int | None = None
    budget: int | None = None
    max_cost: str | None = attrs.field(default=None, converter=optional(str))
    max_tokens: int | None = None
    timeout: float | None = None

    def applied(self, job: OptimizationJob) -> OptimizationJob:
        """Return the job with the changes.

        Raises:
            ConfigError: one of them does not fit the job.
        """
        given = attrs.asdict(self, filter=_is_given)
        tag, pick = (given.pop(name, None) for name in ("tag", "pick"))
        own = {"budget": "rollout_budget", "seed": "seed"}
        settings = {own[name]: given.pop(name) for name in own if name in given}
        limits = attrs.evolve(job.config.limits, **given)
        config = attrs.evolve(job.config, limits=limits, **settings)
        if pick is not None:
            objectives = attrs.evolve(config.objectives, pick=weights_of(pick, "pick"))
            config = attrs.evolve(config, objectives=objectives)
        context = job.context if tag is None else attrs.evolve(job.context, overrides_tag=tag)
        return OptimizationJob(job.subject, context, config)

    def and_then(self, more: Changes) -> Changes:
        """Return these changes with those of ``more`` that change anything in their place."""
        return attrs.evolve(self, **attrs.asdict(more, filter=_is_given))


@attrs.frozen(kw_only=True)
class Runnable:
    """A job with where it came from.

    Attributes:
        name: what names it: the prompt of the project, or the job.
        origin: where it came from, as ``config.json`` keeps it; ``settings`` those it had there.
        runs: the folder for its run directory.
        workers: rollouts side by side; None leaves their number to the job.
        executor: what makes them in place of threads.
        code: the folder that its functions are in.
        to_source: whether a winner that is shown to be better is to be written into its source.
        trackers: where the run is to be shown besides.
        changes: what was changed of it.
    """

    job: OptimizationJob
    name: str
    origin: Mapping[str, Json]
    settings: Mapping[str, Json]
    runs: Path
    workers: int | None = None
    executor: ExecutorConfig | None = None
    code: Path | None = None
    to_source: bool = False
    trackers: TrackersConfig = attrs.field(factory=TrackersConfig)
    changes: Changes = attrs.field(factory=Changes)

    @classmethod
    def of(cls, project: Project, name: str, job: OptimizationJob) -> Runnable:
        """Return ``job``, which is one of a prompt or graph of the project."""
        return cls(
            job=job,
            name=name,
            origin={"kind": "project", "path": str(project.path.absolute()), "prompt": name},
            settings=project.described(),
            runs=project.runs_folder,
            workers=project.workers,
            executor=project.config.executor,
            code=project.folder,
            to_source=project.config.apply is not None,
            trackers=project.config.trackers,
        )

    def changed(self, changes: Changes) -> Runnable:
        """Return the same with a changed job."""
        return attrs.evolve(self, job=changes.applied(self.job), changes=changes)

    @property
    def config(self) -> dict[str, Json]:
        """What ``config.json`` says of a run of it, but for the id."""
        options = attrs.asdict(attrs.evolve(self.changes, timeout=None), filter=_is_given)
        return run_config(self.job, origin=self.origin, settings=self.settings, options=options)

    def plan(self) -> RunPlan:
        """Return what a run may use; without a call, with what earlier runs say of answers."""
        return self.job.plan(seen=_seen(self.runs, self.job.name))

    def make_folder(self, runs: Path) -> RunFolder:
        """Make a run directory for it in the folder ``runs``.

        Raises:
            ConfigError: the folder cannot be made.
        """
        key = self.job.name.rpartition("/")[2]
        return make_run(runs.absolute(), key, self.config, now=SystemClock().now())


def _seen(runs: Path, prompt: str) -> SeenAnswers | None:
    """Return how long answers were in the newest run that has ended, and what nodes were asked."""
    for run in list_runs(runs):
        if run.state is not State.ENDED or run.prompt != prompt:
            continue
        record = read_run(run.folder)
        ledger = record.ended.ledger if record.ended else ()
        traces = [one.record.steps for one in islice(transcripts(record), _MOST_LOOKED_AT)]
        nodes = seen_nodes(traces) if any(traces) else {}
        rows = [row for row in ledger if row.role is Role.TASK and row.usage.output_tokens]
        model, tokens = "", 0.0
        if rows:
            model, tokens = rows[0].model, rows[0].usage.output_tokens / rows[0].calls
        if rows or nodes:
            return SeenAnswers(model=model, tokens=tokens, where=f"as in run {run.id}", nodes=nodes)
    return None


@contextlib.contextmanager
def loaded(
    target: str | None = None, project: str | None = None, *, to_plan: bool = False
) -> Iterator[Runnable]:
    """Give what ``target`` names, to be run inside: a prompt of the project, or a JOB.

    Args:
        target: the name of a prompt, ``file.py:NAME`` or ``module:NAME``; None for the only prompt.
        project: the project file; None for the nearest one.
        to_plan: no call will be made, so secrets of the project need not be set.

    Raises:
        ConfigError: there is no such project, prompt or job, or it cannot be run.
        DataFormatError: something that the project names is at fault.
    """
    if target is not None and (":" in target or target.endswith(".py")):
        if project is not None:
            raise ConfigError(f"--project: {target} is a job and takes no project; leave one out")
        with loaded_job(target) as job:
            yield Runnable(
                job=job,
                name=target,
                origin={"kind": "job", "spec": target, "folder": str(Path.cwd())},
                settings=described_job(job),
                runs=Path(DEFAULT_RUNS),
                code=place_of(target, "JOB").folder,
            )
        return
    with loaded_project(project) as found:
        name = found.prompt(target).name
        if to_plan:
            found.stand_in()
        else:
            found.config.trackers.check()
        yield Runnable.of(found, name, found.job(name))


@contextlib.contextmanager
def loaded_again(
    folder: RunFolder, changes: Changes, *, project: str | None = None
) -> Iterator[Runnable]:
    """Give what a run was made from, as it is today and changed as it was then, to be run inside.

    Args:
        folder: the run, by its absolute path.
        changes: what else is changed now.
        project: the project file; None for the one that the run was made from.

    Raises:
        ConfigError: what the run was made from is not there any more, or cannot be run.
        DataFormatError: ``config.json``, or something that the project names, is at fault.
    """
    config = read_document(folder.config)
    before = structure(config.get("options"), Changes, where=f"{folder.config}: options")
    changes = before.and_then(changes)
    origin = Origin(folder, config)
    if origin.is_project:
        with loaded(origin.name, str(origin.project_file(project))) as found:
            yield found.changed(changes)
        return
    origin.refuse_project(project)
    with contextlib.chdir(origin.job_folder()), loaded(origin.name) as found:
        yield found.changed(changes)


def run_job(
    job: OptimizationJob,
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    listeners: Sequence[Callable[[object], None]] = (),
    cancellation: Cancellation | None = None,
    journal: Journal | None = None,
) -> RunResult:
    """Run a job as ``OptimizationJob.run`` does.

    Args:
        job: the job.
        workers: rollouts side by side, in threads; None leaves that to the job.
        executor: makes them instead.
        listeners: are told every event of the run, from several threads.
        cancellation: stops the run, and so does that of the job.
        journal: keeps the answers, in place of the job's.
    """
    given = job.context
    bus = given.event_bus or EventBus()
    with contextlib.ExitStack() as held:
        for listener in listeners:
            held.callback(bus.subscribe(object, listener))
        if cancellation is not None and (theirs := given.cancellation) is not None:
            held.callback(theirs.listen(lambda: cancellation.set(theirs.reason)))
        executor = executor or (None if workers is not None else given.executor)
        if executor is None and workers is not None:
            # One worker is a thread, too: this one waits for what may not end.
            executor = threads = ThreadPoolExecutor(max_workers=workers)
            # A run that was stopped leaves behind what does not end; so does its process.
            held.callback(threads.shutdown, wait=False, cancel_futures=True)
        context = attrs.evolve(
            given,
            event_bus=bus,
            cancellation=cancellation or given.cancellation,
            executor=executor,
            journal=given.journal if journal is None else journal,
        )
        return attrs.evolve(job, context=context).run()


Run = Callable[[OptimizationJob], RunResult]
"""Runs a job, such as :func:`run_job` with arguments of its own."""


def keep(
    folder: RunFolder,
    job: OptimizationJob,
    run: Run = run_job,
    *,
    config: Mapping[str, Json] | None = None,
) -> Outcome:
    """Run a job in its folder; answers that it holds are not paid again.

    Args:
        folder: the run directory.
        job: the job.
        run: runs it.
        config: what ``config.json`` is to say now, with the id and the origin that it has.

    Raises:
        JournalLockedError: another process works in the folder.
    """
    with recorded(folder, job) as (kept, recorder):
        if config is not None:
            there = read_document(folder.config)
            same = {name: there[name] for name in ("id", "tracked_as", "created", "origin")}
            write_document(folder.config, {**same, **config, **same})
        outcome = _run(kept, run)
    return attrs.evolve(outcome, job=job, folder=folder, failure=recorder.failure)


def run_dry(job: OptimizationJob, run: Run = run_job) -> Outcome:
    """Run a job on the embedded offline model, which must serve it, and keep nothing."""
    try:
        return attrs.evolve(_run(job.dry(), run), dry=True)
    except ConfigError as error:
        raise ConfigError(f"--dry-run: {error}") from error


def _run(job: OptimizationJob, run: Run) -> Outcome:
    error: PromptgraftError | None = None
    clock = SystemClock()
    began = clock.monotonic()
    try:
        result = run(job)
    except PromptgraftError as found:
        if not isinstance(found.result, RunResult) or found.result.best_pareto_mean is None:
            raise  # nothing was found by then
        result, error = found.result, found
    return Outcome(job=job, result=result, error=error, seconds=clock.monotonic() - began)
