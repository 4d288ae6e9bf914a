"""Runs: loaded, changed, carried out and recorded, for commands, programs and workers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
from attrs.converters import optional

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Step
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict import structure
from promptgraft.ground.text import counted
from promptgraft.journal.base import Journal
from promptgraft.project.adding import Tracker, Workers, check_trackers
from promptgraft.project.checking import try_metrics
from promptgraft.project.exporting import keep_sources
from promptgraft.project.files import DEFAULT_RUNS
from promptgraft.project.origins import Origin, loaded_job, loaded_project
from promptgraft.project.other_cases import on_kept_cases
from promptgraft.project.outcome import RunOutcome
from promptgraft.project.project import Project
from promptgraft.project.python_source import place_of
from promptgraft.runs import RunFolder, RunSummary, State, list_runs, transcripts
from promptgraft.runs.configuration import described_job, run_config
from promptgraft.runs.folder import make_run, read_document, write_document
from promptgraft.runs.reading import summarize
from promptgraft.runs.recorder import recorded
from promptgraft.runtime import Cancellation, EventBus
from promptgraft.search import OptimizationJob, RunPlan, RunResult
from promptgraft.search.events import Working
from promptgraft.search.plan import SeenAnswers, SeenUse
from promptgraft.search.scores import weights_of
from promptgraft.search.settings import Size
from promptgraft.search.stopping import MaxProposals, NoImprovement, Stopper, TargetScore
from promptgraft.targets.prompts import PromptSet

_MOST_LOOKED_AT = 500
"""The most rollouts of an earlier run that a plan counts steps in."""
_MOST_RUNS = 3
"""The most earlier runs whose answers a plan reads."""


def seen_in(runs: Path, job: OptimizationJob) -> SeenAnswers | None:
    """Return what answers used in the newest of the last completed runs of a job that tells."""
    ended = (run for run in list_runs(runs) if run.state is State.ENDED and run.prompt == job.name)
    # Runs on the embedded model tell nothing, however many there are.
    for run in islice(ended, _MOST_RUNS):
        if usage_seen := seen_answers(run, job, f"as in run {run.id}"):
            return usage_seen
    return None


def seen_answers(
    run: RunSummary, job: OptimizationJob, where: str, *, is_probe: bool = False
) -> SeenAnswers | None:
    """Return what the answers of a run used; None if it has none whose tokens are known.

    Args:
        run: the run, which has ended.
        job: what it was made of.
        where: the run, in words.
        is_probe: whether it is a probe of the present prompt.
    """
    if (ended := run.ended) is None:
        return None
    nodes: dict[str, SeenUse] = {}
    # Only answers of graphs have steps.
    if isinstance(job.subject, PromptSet):
        rollouts = islice(transcripts(run.folder), _MOST_LOOKED_AT)
        traces = [transcript.record.steps for transcript in rollouts]
        nodes = _nodes_seen(traces) if any(traces) else {}
    uses = tuple(
        SeenUse(
            role=row.role,
            model=row.model,
            calls=row.calls / max(1, ended.rollouts),
            input_tokens=row.usage.input_tokens / row.calls,
            output_tokens=row.usage.output_tokens / row.calls,
            # The first call of a probe finds nothing in the cache, unlike most calls of a run.
            cached_tokens=row.usage.cached_tokens / max(1, row.calls - is_probe),
            thinking=row.usage.reasoning_tokens / row.calls,
            cost=None if row.unpriced_calls else row.cost / row.calls,
        )
        for row in ended.ledger
        if row.usage.output_tokens
    )
    if not (nodes or any(use.role is Role.TASK for use in uses)):
        return None
    return SeenAnswers(where=where, uses=uses, nodes=nodes, is_probe=is_probe)


def _nodes_seen(traces: Iterable[Iterable[Step]]) -> dict[str, SeenUse]:
    """Return the average calls per answer, and tokens per call, of each node of a graph."""
    answers, calls = 0, Counter[str]()
    sent, received = Counter[str](), Counter[str]()
    for steps in traces:
        answers += 1
        for step in steps:
            for spending in step.spent:
                calls[step.node] += spending.calls
                sent[step.node] += spending.input_tokens
                received[step.node] += spending.output_tokens
    return {
        name: SeenUse(
            calls=calls[name] / answers,
            input_tokens=sent[name] / calls[name],
            output_tokens=received[name] / calls[name],
        )
        for name in calls
    }


def _is_given(_: object, value: object) -> bool:
    return value is not None


def _given(changes: Changes, *names: str) -> dict[str, Any]:
    values = ((name, getattr(changes, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def _model(project: Project, name: str) -> ProviderAdapter:
    places = {str(place[-1]): place for place in project.models()}
    if name not in places:
        raise ConfigError(
            f"model: the project has no model `{name}`{did_you_mean(name, list(places))}; there: "
            f"{', '.join(places)}"
        )
    return project.model(places[name])


@attrs.frozen(kw_only=True)
class Changes:
    """Settings of a job to change for one run, as ``config.json`` records them; None for no change.

    Attributes:
        tag: the tag that the search starts from and the winner is stored under.
        pick: weights of the objectives, which decide the winner.
        seed: seed of all random choices.
        budget: total rollouts, or ``light``, ``medium`` or ``heavy``.
        max_cost: US dollars, as decimal text.
        max_tokens: total tokens, sent and received.
        timeout: seconds for the current process; not recorded.
        algorithm: the search algorithm.
        tuning: other settings of the search, by their names in the project file.
        max_iterations: proposals after which it ends.
        patience: steps without a better candidate after which it ends.
        target_score: mean on the validation set at which it ends.
        model: the model of the project that answers and reflects.
        dry_run: whether the embedded offline model answers everything, and nothing is stored.
    """

    tag: str | None = None
    pick: str | None = None
    seed: int | None = None
    budget: int | Size | None = None
    max_cost: str | None = attrs.field(default=None, converter=optional(str))
    max_tokens: int | None = None
    timeout: float | None = None
    algorithm: str | None = None
    # Any JSON, read by the project.
    tuning: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    max_iterations: int | None = None
    patience: int | None = None
    target_score: float | None = None
    model: str | None = None
    dry_run: bool | None = None

    @property
    def stand_in_budget(self) -> Size | None:
        """A budget that is never too small, until a changed one replaces it; None without one."""
        return None if self.budget is None else "light"

    def tuned(self, project: Project) -> Project:
        """Return the project with the changed settings of the search; raises as it does."""
        algorithm = {} if self.algorithm is None else {"algorithm": self.algorithm}
        return project.tuned({**(self.tuning or {}), **algorithm})

    def job_of(self, project: Project, name: str) -> OptimizationJob:
        """Return the changed job of the prompt or graph ``name`` of a project.

        Raises:
            ConfigError, DataFormatError: the project has faults, or a change does not suit it.
        """
        tuned = self.tuned(project)
        return self.applied(tuned.job(name, budget=self.stand_in_budget), tuned)

    def applied(self, job: OptimizationJob, project: Project | None = None) -> OptimizationJob:
        """Return the changed job of a project, which is tuned already, or of Python.

        Raises:
            ConfigError: a change does not suit the job.
        """
        limit_changes = _given(self, "max_cost", "max_tokens", "timeout")
        stoppers = list(self._stoppers)
        changed_kinds = {type(stopper) for stopper in stoppers}
        unchanged_stoppers = [
            stopper for stopper in job.config.limits.stoppers if type(stopper) not in changed_kinds
        ]
        limits = attrs.evolve(
            job.config.limits, **limit_changes, stoppers=[*unchanged_stoppers, *stoppers]
        )
        settings = _given(self, "seed")
        if self.budget is not None:
            settings["rollout_budget"] = self.budget
        config = attrs.evolve(job.config, limits=limits, **settings)
        if self.pick is not None:
            objectives = attrs.evolve(config.objectives, pick=weights_of(self.pick, "pick"))
            config = attrs.evolve(config, objectives=objectives)
        context = job.context
        if self.tag is not None:
            context = attrs.evolve(context, overrides_tag=self.tag)
        if self.model is not None and project is not None:
            model = _model(project, self.model)
            context = attrs.evolve(context, adapter=model, reflection_adapter=model)
        changed_job = OptimizationJob(job.subject, context, config)
        return changed_job.dry() if self.dry_run else changed_job

    @property
    def _stoppers(self) -> Iterator[Stopper]:
        if self.max_iterations is not None:
            yield MaxProposals(self.max_iterations)
        if self.patience is not None:
            yield NoImprovement(self.patience)
        if self.target_score is not None:
            yield TargetScore(self.target_score)

    def and_then(self, more: Changes) -> Changes:
        """Return these changes, with those of ``more`` taking precedence."""
        return attrs.evolve(self, **attrs.asdict(more, filter=_is_given))


@attrs.frozen(kw_only=True)
class Probe:
    """The first rollouts of a run, and its plan by what they used.

    ``cost`` is in US dollars, None if a price is not known.
    """

    folder: RunFolder
    rollouts: int
    cost: Decimal | None
    plan: RunPlan


@attrs.frozen(kw_only=True)
class Runnable:
    """A job and its origin.

    Attributes:
        name: the prompt of the project, or the reference of the job.
        origin: its origin, as ``config.json`` records it.
        settings: its settings before any changes, as ``config.json`` records them.
        runs: the folder for its run directory.
        workers: concurrent rollouts; None to leave this to the job.
        executor: runs rollouts in place of threads.
        code: the folder of its Python code.
        to_source: whether to write a confirmed winner into its source.
        trackers: further places to report the run to.
        changes: the changes made so far.
        lacking: what a run needs and the environment lacks, one line each, if it is only planned.
        project: the project; None for a job in Python.
    """

    job: OptimizationJob
    name: str
    origin: Mapping[str, Json] = attrs.field(hash=False)
    settings: Mapping[str, Json] = attrs.field(hash=False)
    runs: Path
    workers: int | None = None
    executor: Workers | None = None
    code: Path | None = None
    to_source: bool = False
    trackers: Mapping[str, Tracker] = attrs.field(factory=dict)
    changes: Changes = attrs.field(factory=Changes)
    lacking: tuple[str, ...] = ()
    project: Project | None = None

    @classmethod
    def of(cls, project: Project, name: str, changes: Changes) -> Runnable:
        """Return the runnable of the prompt or graph ``name`` of a project, with ``changes``.

        Raises:
            ConfigError, DataFormatError: the project has faults, or a change does not suit it.
        """
        return cls.made(project, name, changes.job_of(project, name), changes)

    @classmethod
    def made(cls, project: Project, name: str, job: OptimizationJob, changes: Changes) -> Runnable:
        """Return the runnable of a job that was made of a project with ``changes``."""
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
            changes=changes,
            project=project,
        )

    def checked(self) -> Runnable:
        """Return the runnable of a checked job; see :meth:`OptimizationJob.check`."""
        return attrs.evolve(self, job=self.job.check())

    @property
    def config(self) -> dict[str, Json]:
        """The contents of ``config.json`` for its run, without the id."""
        options = attrs.asdict(attrs.evolve(self.changes, timeout=None), filter=_is_given)
        return run_config(self.job, origin=self.origin, settings=self.settings, options=options)

    def plan(self) -> RunPlan:
        """Estimate what a run may use, without a call, from the answers of earlier runs."""
        plan = self.job.plan(seen=seen_in(self.runs, self.job))
        return attrs.evolve(plan, warnings=(*plan.warnings, *self.lacking))

    def probed(self, rollouts: int, runs: Path) -> Probe:
        """Make the first rollouts of a run, and estimate the whole run from what they used.

        The run is kept in the folder ``runs`` and can be resumed, which reuses the rollouts.

        Raises:
            ConfigError: a model answers in batches, or the directory cannot be created.
        """
        if self.job.is_in_batches:
            raise ConfigError(
                "a probe would wait for a batch, up to a day; set `mode: call` for it, and "
                "`mode: batch` again for the run"
            )
        cancellation = Cancellation()

        def stop(notice: object) -> None:
            if isinstance(notice, Working) and notice.rollouts >= rollouts:
                cancellation.set(f"the probe of {counted(rollouts, 'test call')} is done")

        folder = self.make_folder(runs)
        # Without an executor, each rollout begins after the notice of the one before.
        job = self.job.within(attrs.evolve(self.job.context, executor=None))
        outcome = keep(folder, job, partial(run_job, listeners=(stop,), cancellation=cancellation))
        result = outcome.result
        where = f"as in the probe {folder.id}"
        usage_seen = seen_answers(summarize(folder), job, where, is_probe=True)
        return Probe(
            folder=folder,
            rollouts=result.total_rollouts,
            cost=result.total_cost,
            plan=self.job.plan(seen=usage_seen),
        )

    def make_folder(self, runs: Path) -> RunFolder:
        """Create a run directory in the folder ``runs``, with the files that the run is made from.

        Raises:
            ConfigError: the directory cannot be created.
        """
        key = self.job.name.rpartition("/")[2]
        folder = make_run(runs.absolute(), key, self.config, now=SystemClock().now())
        self.keep_sources(folder)
        return folder

    def keep_sources(self, folder: RunFolder) -> None:
        """Keep the present files of the project in the folder of a run, if there is a project."""
        if self.project is not None:
            keep_sources(self.project, folder.sources)


@contextlib.contextmanager
def loaded(
    target: str | None = None,
    project: str | None = None,
    *,
    changes: Changes | None = None,
    to_plan: bool = False,
    again: RunFolder | None = None,
) -> Iterator[Runnable]:
    """Load a prompt of a project, or a JOB, to be run inside the context.

    Args:
        target: the name of a prompt, ``file.py:NAME`` or ``module:NAME``; None for the only prompt.
        project: the project file; None for the nearest one.
        changes: settings to change; the file's own need not suit where these replace them.
        to_plan: whether no call will be made, so that secrets need not be set.
        again: an earlier run, whose cases count if it has kept some.

    Raises:
        ConfigError: there is no such project, prompt or job, or it cannot be run.
        DataFormatError: something that the project names has faults.
    """
    changes = changes or Changes()
    if target is not None and (":" in target or target.endswith(".py")):
        if project is not None:
            raise ConfigError(f"--project: {target} is a job and takes no project; leave one out")
        if changes.tuning:
            raise ConfigError(f"--part: {target} is a job and says itself what may change")
        with loaded_job(target) as job:
            yield Runnable(
                job=changes.applied(job),
                name=target,
                origin={"kind": "job", "spec": target, "folder": str(Path.cwd())},
                settings=described_job(job),
                runs=Path(DEFAULT_RUNS),
                code=place_of(target, "JOB").folder,
                changes=changes,
            )
        return
    with loaded_project(project, budget=changes.stand_in_budget) as as_written:
        present = as_written if again is None else on_kept_cases(as_written, again)
        name = present.prompt(target).name
        lacking = present.stand_in() if to_plan else []
        # Before the run directory is made, which would be left without a run.
        check_trackers(present.config.trackers)
        try_metrics(present)
        yield attrs.evolve(Runnable.of(present, name, changes), lacking=tuple(lacking))


@contextlib.contextmanager
def loaded_again(
    folder: RunFolder, changes: Changes, *, project: str | None = None
) -> Iterator[Runnable]:
    """Load the current origin of a run, with the recorded changes, to be run inside the context.

    Args:
        folder: the run, by its absolute path.
        changes: further changes, which take precedence over the recorded ones.
        project: the project file; None for the one that the run was made from.

    Raises:
        ConfigError: the origin of the run no longer exists, or cannot be run.
        DataFormatError: ``config.json``, or something that the project names, has faults.
    """
    config = read_document(folder.config)
    before = structure(config.get("options"), Changes, where=f"{folder.config}: options")
    changes = before.and_then(changes)
    origin = Origin(folder, config)
    if origin.is_project:
        path = str(origin.project_file(project))
        with loaded(origin.name, path, changes=changes, again=folder) as runnable:
            yield runnable
        return
    origin.refuse_project(project)
    with contextlib.chdir(origin.job_folder()), loaded(origin.name, changes=changes) as runnable:
        yield runnable


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
        workers: concurrent rollouts, in threads; None to leave this to the job.
        executor: runs rollouts in place of threads.
        listeners: called with every event of the run, from several threads.
        cancellation: stops the run; the cancellation of the job does too.
        journal: records the answers, in place of the job's own.
    """
    job_context = job.context
    bus = job_context.event_bus or EventBus()
    with contextlib.ExitStack() as stack:
        for listener in listeners:
            stack.callback(bus.subscribe(object, listener))
        if cancellation is not None and (theirs := job_context.cancellation) is not None:
            stack.callback(theirs.listen(lambda: cancellation.set(theirs.reason)))
        executor = executor or (None if workers is not None else job_context.executor)
        if executor is None and workers is not None:
            # Even one worker is a thread, so that this one can stop waiting for a hung rollout.
            executor = threads = ThreadPoolExecutor(max_workers=workers)
            # A stopped run does not wait for rollouts that hang.
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        context = attrs.evolve(
            job_context,
            event_bus=bus,
            cancellation=cancellation or job_context.cancellation,
            executor=executor,
            journal=job_context.journal if journal is None else journal,
        )
        return job.within(context).run()


Run = Callable[[OptimizationJob], RunResult]
"""Runs a job, such as :func:`run_job` with some arguments bound."""


def keep(
    folder: RunFolder,
    job: OptimizationJob,
    run: Run = run_job,
    *,
    config: Mapping[str, Json] | None = None,
) -> RunOutcome:
    """Run a job in its folder, reusing the answers recorded there.

    Args:
        folder: the run directory.
        job: the job.
        run: runs the job.
        config: new contents of ``config.json``, which keeps its id and origin.

    Raises:
        JournalLockedError: another process is using the folder.
    """
    with recorded(folder, job) as (recorded_job, recorder):
        # Only under the lock, which `recorded` holds.
        if config is not None:
            there = read_document(folder.config)
            same = {name: there[name] for name in ("id", "tracked_as", "created", "origin")}
            # First for the order of the keys, last so that `config` cannot replace them.
            write_document(folder.config, {**same, **config, **same})
        journal = recorded_job.context.journal
        before = 0 if journal is None else len(journal)
        outcome = _run(recorded_job, run)
        is_replay = journal is not None and 0 < len(journal) == before
    return attrs.evolve(
        outcome, job=job, folder=folder, failure=recorder.failure, is_replay=is_replay
    )


def run_dry(job: OptimizationJob, run: Run = run_job) -> RunOutcome:
    """Run a job on the embedded offline model without recording it.

    Raises:
        ConfigError: the offline model cannot serve the job.
    """
    try:
        return attrs.evolve(_run(job.dry(), run), dry=True)
    except ConfigError as error:
        raise ConfigError(f"--dry-run: {error}") from error


def _run(job: OptimizationJob, run: Run) -> RunOutcome:
    error: PromptgraftError | None = None
    clock = SystemClock()
    began = clock.monotonic()
    try:
        result = run(job)
    except PromptgraftError as run_error:
        # An error after the baseline carries the best so far, which was paid for.
        if not isinstance(run_error.result, RunResult) or run_error.result.best_pareto_mean is None:
            raise  # the run failed before it had a result
        result, error = run_error.result, run_error
    return RunOutcome(job=job, result=result, error=error, seconds=clock.monotonic() - began)
