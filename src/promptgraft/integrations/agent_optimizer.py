"""Drop-in replacements for ``AgentOptimizer`` and ``TargetPrompt`` of another optimizer.

A program for that optimizer runs unchanged but for its import. The output folder holds the files
that it expects, and a run directory of promptgraft.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.adapter import BlackBox
from promptgraft.agents.live import LiveFiles
from promptgraft.agents.sources import CallbackSource, FileSource, Source, Sources, read_sources
from promptgraft.algorithms import algorithm
from promptgraft.clock import SystemClock
from promptgraft.errors import ConfigError, PromptgraftError
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.judges.registry import judge_kinds
from promptgraft.evals.metrics.registry import METRICS, load_metrics
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Metric
from promptgraft.functions import function_name
from promptgraft.integrations.optimize_result import OptimizeResult, RoundRecord, result_of
from promptgraft.project.format_models import MODEL
from promptgraft.project.format_search import OPTIMIZER
from promptgraft.project.importing import Imported, import_optimizer
from promptgraft.project.models import make_adapter
from promptgraft.project.parts import judge_among
from promptgraft.project.python_source import PythonSource
from promptgraft.project.settings import Judging, data_settings
from promptgraft.runs import RunFolder, read_run
from promptgraft.runs.configuration import described_job, run_config
from promptgraft.runs.folder import make_run, write_text, write_texts
from promptgraft.runs.recorder import recorded
from promptgraft.runtime.deadline import Cancellation
from promptgraft.runtime.event_loop import awaited, beside
from promptgraft.runtime.session import EventBus
from promptgraft.search import OptimizationContext, OptimizationJob, RunConfig, events
from promptgraft.search.notices import QuestionAsked
from promptgraft.search.settings import Data, Limits
from promptgraft.search.stopping import RequiredObjectives, RunState, StopFile, Stopper
from promptgraft.serde import Json
from promptgraft.strict.checks import Kind
from promptgraft.strict.nodes import Source as Written
from promptgraft.text import score, visible

__all__ = ["AgentOptimizer", "OptimizeResult", "RoundRecord", "TargetPrompt"]

_HANDLERS: Mapping[type[object], str] = {
    events.RunStarted: "on_optimization_start",
    events.MutationProposed: "on_proposal_end",
    events.CandidateAdded: "on_valset_evaluated",
    events.MutationAccepted: "on_candidate_accepted",
    events.MutationRejected: "on_candidate_rejected",
    events.RunEnded: "on_optimization_end",
}


class TargetPrompt:
    """The texts of an agent that are to be improved, and where they are stored."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def add_path(self, name: str, path: str | os.PathLike[str]) -> Self:
        """Add a text that is stored in a file.

        Raises:
            ConfigError: there already is a text with this name.
        """
        return self._add(name, FileSource(Path(path).absolute()))

    def add_callback(
        self, name: str, *, read: Callable[[], Any], write: Callable[[str], Any]
    ) -> Self:
        """Add a text that functions read and write, plain or ``async``.

        Raises:
            ConfigError: there already is a text with this name, or an argument is not a function.
        """
        return self._add(name, CallbackSource(read, write))

    def _add(self, name: str, source: Source) -> Self:
        if name in self._sources:
            raise ConfigError(f"two texts have the name `{name}`; rename one")
        self._sources[name] = source
        return self

    def names(self) -> list[str]:
        """Return the names of the texts in the order of their addition."""
        return list(self._sources)

    def describe_source(self, name: str) -> str:
        """Return the path of a text, or ``<callback>``.

        Raises:
            KeyError: there is no such text.
        """
        source = self._sources[name]
        return str(source.path) if isinstance(source, FileSource) else "<callback>"

    async def read(self, name: str) -> str:
        """Return a text."""
        return (await self.read_all())[name]

    async def read_all(self) -> dict[str, str]:
        """Return all texts by name."""
        found = await beside(self.sources, stop=Cancellation())
        return {name: found.texts[name] for name in self._sources}

    async def write_all(self, prompts: Mapping[str, str]) -> None:
        """Write all texts or none: files first, and after a failure everything is restored.

        Raises:
            ConfigError: ``prompts`` has other names than the texts, or a text cannot be written.
        """
        if set(prompts) != set(self._sources):
            raise ConfigError(
                f"expected the texts {', '.join(self._sources)}, found {', '.join(prompts)}"
            )
        await beside(lambda: self.sources().write(prompts, by="TargetPrompt"), stop=Cancellation())

    def sources(self) -> Sources:
        """Read the current texts."""
        files = [one.path for one in self._sources.values() if isinstance(one, FileSource)]
        here = Path.cwd()
        # Sources are named relative to one folder that contains all of them.
        if any(not path.resolve().is_relative_to(here.resolve()) for path in files):
            # The folder that holds the lock and the record of writes must contain every file.
            here = Path(os.path.commonpath([path.resolve().parent for path in files]))
        return read_sources(self._sources, folder=here)


class AgentOptimizer:
    """Improves the texts of a black-box agent."""

    @staticmethod
    async def optimize(
        *,
        config_path: str,
        call_agent: Callable[..., Any],
        target_prompt: TargetPrompt,
        train_dataset_path: str,
        validation_dataset_path: str,
        output_dir: str,
        callbacks: object = None,
        update_source: bool = False,
        verbose: int = 1,
        extra_stop_callbacks: Sequence[Callable[..., bool]] | None = None,
        extra_gepa_callbacks: Sequence[object] | None = None,
    ) -> OptimizeResult:
        """Improve the texts of an agent. During the run, their sources hold candidates.

        Args:
            config_path: the ``optimizer.json``.
            call_agent: answers a query with a text, plain or ``async``; must read its texts anew
                for each query.
            target_prompt: the texts.
            train_dataset_path: the training set.
            validation_dataset_path: the validation set.
            output_dir: the folder of the result, which also holds the run directory.
            callbacks: must be None; use ``extra_gepa_callbacks``.
            update_source: whether to write the best texts to their sources.
            verbose: 0 prints nothing, 1 one line per candidate, 2 also the questions to the
                reflection model.
            extra_stop_callbacks: functions that end the run by returning true.
            extra_gepa_callbacks: objects with methods such as ``on_candidate_accepted(event)``.

        Raises:
            ConfigError, DataFormatError: an argument, the configuration, the data or a source is
                unusable; raised before the first call.
        """
        if callbacks is not None:
            raise ConfigError(
                "callbacks: expected None; `extra_gepa_callbacks` receive the events of a run"
            )
        if not output_dir:
            raise ConfigError("output_dir: expected a folder, found an empty text")
        if not target_prompt.names():
            raise ConfigError("target_prompt: expected at least one text, found none")
        data = Path(train_dataset_path), Path(validation_dataset_path)
        if data[0].resolve() == data[1].resolve():
            raise ConfigError(f"train and validation are the same file, {data[0]}; give two")
        given = _Given(
            path=Path(config_path),
            agent=call_agent,
            target=target_prompt,
            data=data,
            output=Path(output_dir),
            writes=update_source,
            verbose=verbose,
            stops=tuple(extra_stop_callbacks or ()),
            listeners=tuple(extra_gepa_callbacks or ()),
        )
        stop = Cancellation()
        # In a worker thread: the caller's event loop stays free for the coroutines of the agent.
        return await beside(partial(given.optimize, stop), stop=stop)


@attrs.frozen(kw_only=True)
class _Given:
    """The arguments of :meth:`AgentOptimizer.optimize`, which it passes to a worker thread."""

    path: Path
    agent: Callable[..., Any]
    target: TargetPrompt
    data: tuple[Path, Path]
    output: Path
    writes: bool
    verbose: int
    stops: tuple[Callable[..., bool], ...]
    listeners: tuple[object, ...] = attrs.field(hash=False)

    def optimize(self, stop: Cancellation) -> OptimizeResult:
        imported, sources = import_optimizer(self.path), self.target.sources()
        bus, error = EventBus(), ""
        with ThreadPoolExecutor(imported.workers) as executor:
            context = OptimizationContext(
                reflection_adapter=self._adapter(imported.models["reflection"], "reflection_lm"),
                executor=executor,
                event_bus=bus,
                cancellation=stop,
            )
            job = self._job(imported, sources, context)
            origin: dict[str, Json] = {"kind": "agent_optimizer", "config": str(self.path)}
            config = run_config(job, origin=origin, settings=described_job(job), options={})
            folder = make_run(self.output, "agent", config, now=SystemClock().now())
            # Before the run, which puts candidates into the sources.
            write_texts(self.output / "baseline_prompts", sources.texts)
            shutil.copyfile(self.path, self.output / "config.snapshot.json")
            with recorded(folder, job) as (kept, _), self._listening(bus):
                try:
                    kept.run()
                except PromptgraftError as found:
                    # An error with a result ends the run, but that optimizer reports it instead of
                    # raising.
                    if found.result is None:
                        raise
                    error = str(found)
        limits = job.config.limits
        requires = any(isinstance(one, RequiredObjectives) for one in limits.stoppers)
        result = result_of(read_run(folder), requires=requires, error=error)
        self._conclude(folder, result, sources)
        return result

    def _job(
        self, imported: Imported, sources: Sources, context: OptimizationContext
    ) -> OptimizationJob:
        subject = BlackBox(sources.texts, agent=self.agent, delivery=LiveFiles(sources))
        train, validation = (Dataset.load(path) for path in self.data)
        judging = Judging(splits=Splits(train, validation), metrics=self._metrics(imported))
        optimizer = _read(OPTIMIZER, imported.optimizer)
        settings = {
            **optimizer.settings,
            **data_settings(subject.prompt, judging),
            "data": Data(held_out=()),  # that optimizer holds nothing out
            "persist": False,  # winners go to the sources of the texts, not to a store
        }
        limits = settings["limits"]
        assert isinstance(limits, Limits)  # noqa: S101 - every import has some
        by_file = StopFile(self.output / "optimize.stop")
        asked = [partial(_asked_to_stop, stop) for stop in self.stops]
        stoppers: tuple[Stopper, ...] = (*limits.stoppers, by_file, *asked)
        settings["limits"] = attrs.evolve(limits, stoppers=stoppers)
        make: Callable[..., RunConfig] = algorithm(optimizer.algorithm)
        return OptimizationJob(subject, context, make(**settings))

    def _metrics(self, imported: Imported) -> tuple[Metric, ...]:
        judges = imported.models.get("judges")
        models = judges.items() if isinstance(judges, dict) else ()
        made = {name: self._adapter(model, name) for name, model in models}
        registry = METRICS.plus(*judge_kinds(judge_among(made)))
        return load_metrics(imported.evaluate, registry=registry)

    def _adapter(self, model: Json, what: str) -> ProviderAdapter:
        python = PythonSource(self.path.parent)
        return make_adapter(_read(MODEL, model), what=f"{self.path}: {what}", python=python)

    @contextlib.contextmanager
    def _listening(self, bus: EventBus) -> Iterator[None]:
        """Subscribe the user's listeners, and the messages of ``verbose``, to the run."""
        with contextlib.ExitStack() as held:
            for kind, name in _HANDLERS.items():
                for listener in self.listeners:
                    if (handler := getattr(listener, name, None)) is not None:
                        held.callback(bus.subscribe(kind, partial(_called, handler)))
            if self.verbose:
                held.callback(bus.subscribe(events.CandidateAdded, _say_joined))
                held.callback(bus.subscribe(events.MutationRejected, _say_rejected))
            if self.verbose > 1:
                held.callback(bus.subscribe(QuestionAsked, _say_asked))
            yield

    def _conclude(self, folder: RunFolder, result: OptimizeResult, sources: Sources) -> None:
        """Write the files of the output folder and, if requested, the sources."""
        output, succeeded = self.output, result.status == "SUCCEEDED"
        # After `recorded` has closed, so that the live delivery has restored the sources.
        if self.writes and succeeded:
            sources.write(result.best_prompts, by=f"run {folder.id}")
        summary = result.format_summary(output_dir=output, update_source=self.writes)
        if succeeded:
            write_texts(output / "best_prompts", result.best_prompts)
            write_text(output / "summary.txt", summary)
        result.dump_to(output / "result.json")
        (output / "rounds").mkdir(exist_ok=True)
        for one in result.rounds:
            one.dump_to(output / "rounds" / f"round_{one.round:03d}.json")
        rates = result.baseline_pass_rate, result.best_pass_rate
        write_text(
            output / "run.log",
            f"{result.finished_at} status={result.status} algorithm={result.algorithm} "
            f"baseline={rates[0]:.4f} best={rates[1]:.4f} delta={rates[1] - rates[0]:+.4f} "
            f"rounds={result.total_rounds} duration_seconds={result.duration_seconds:.2f}\n",
        )
        if self.verbose:
            sys.stderr.write(summary)


def _read(kind: Kind[Any], value: Json) -> Any:
    source = Written.of(value)
    found = kind.read(source.root)
    source.raise_all()
    return found


def _asked_to_stop(stop: Callable[..., bool], state: RunState) -> str | None:
    return f"`{function_name(stop)}` asked to stop" if stop(state) else None


def _called(handler: Callable[[object], Any], event: object) -> None:
    awaited(handler(event))


def _say_joined(event: events.CandidateAdded) -> None:
    rate = "" if event.figures.pass_rate is None else f", pass rate {event.figures.pass_rate:.3f}"
    what = f"round {event.step}: {event.changed}" if event.step else "baseline"
    sys.stderr.write(f"{what}: {score(event.mean)} on the validation set{rate}\n")


def _say_asked(event: QuestionAsked) -> None:
    sys.stderr.write(f"{event.position}:\n{visible(event.text)}\n")


def _say_rejected(event: events.MutationRejected) -> None:
    sys.stderr.write(f"round {event.step}: {event.module} refused: {event.reason}\n")
