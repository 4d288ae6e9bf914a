"""``AgentOptimizer``: improves the texts of an agent as another optimizer would, files included.

During a run it tells listeners, writes lines to standard error, and keeps a file of each round. It
also finds algorithms of the user by the ``algorithm.name`` of its configuration.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from promptgraft.agents.adapter import BlackBox
from promptgraft.agents.live import LiveFiles
from promptgraft.agents.sources import Sources
from promptgraft.algorithms import algorithm
from promptgraft.bridges.agent_optimizer import configuration
from promptgraft.bridges.agent_optimizer.result import (
    OptimizeResult,
    ResultNames,
    RoundRecord,
    best_outputs,
    canceled,
    result_of,
    rounds_of,
)
from promptgraft.bridges.agent_optimizer.target import TargetPrompt, file_names
from promptgraft.errors import ConfigError, PromptgraftError, RunCancelledError
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.splits import Splits
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.files import write_atomically
from promptgraft.ground.functions import function_name
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.text import listed, score, visible, visible_line
from promptgraft.project.format_search import OPTIMIZER
from promptgraft.runs import RunFolder, RunRecord, read_run
from promptgraft.runs.configuration import described_job, run_config
from promptgraft.runs.folder import make_run, write_text, write_texts
from promptgraft.runs.recorder import recorded
from promptgraft.runtime.deadline import Cancellation
from promptgraft.runtime.event_loop import awaited, beside
from promptgraft.runtime.session import EventBus
from promptgraft.search import OptimizationContext, OptimizationJob, RunConfig, events
from promptgraft.search.cases import Judging, data_settings
from promptgraft.search.events import QuestionAsked, RoundStarted
from promptgraft.search.place import Place
from promptgraft.search.settings import Data, Limits
from promptgraft.search.stopping import RunState, StopFile, Stopper

_CALLED_ON: Mapping[str, type[object]] = {
    "on_optimization_start": events.RunStarted,
    "on_iteration_start": RoundStarted,
    "on_proposal_start": QuestionAsked,
    "on_proposal_end": events.MutationProposed,
    "on_budget_updated": events.RolloutCompleted,
    "on_valset_evaluated": events.CandidateAdded,
    "on_valset_breakdown": events.CandidateAdded,
    "on_candidate_accepted": events.MutationAccepted,
    "on_candidate_rejected": events.MutationRejected,
    "on_merge_attempted": events.MergeAttempted,
    "on_merge_accepted": events.MergeAccepted,
    "on_merge_rejected": events.MergeRejected,
    "on_optimization_end": events.RunEnded,
}


def warn_of_unheard(listeners: Iterable[object]) -> None:
    """Warn of methods of listeners that look like hooks and are never called."""
    for listener in listeners:
        hooks = [name for name in dir(listener) if name.startswith("on_")]
        if unheard := [name for name in hooks if name not in _CALLED_ON]:
            warnings.warn(
                f"extra_gepa_callbacks: {listed(unheard)} of {type(listener).__name__} will not be "
                f"called; there are {listed(_CALLED_ON)}",
                stacklevel=3,
            )


@contextlib.contextmanager
def listening(
    bus: EventBus, *, listeners: Sequence[object], verbose: int, names: ResultNames
) -> Iterator[None]:
    """Subscribe the user's listeners, and the messages of ``verbose``, to a run."""
    by_kind = defaultdict[type[object], list[Callable[[Any], Any]]](list)
    for name, kind in _CALLED_ON.items():
        hooks = (getattr(listener, name, None) for listener in listeners)
        by_kind[kind] += [partial(_called, hook) for hook in hooks if hook is not None]
    if verbose:
        by_kind[events.CandidateAdded].append(partial(_say_joined, names))
        by_kind[events.MutationRejected].append(partial(_say_rejected, names))
    if verbose > 1:
        by_kind[QuestionAsked].append(_say_asked)
    with contextlib.ExitStack() as subscribed:
        for kind, handlers in by_kind.items():
            for handler in handlers:
                subscribed.callback(bus.subscribe(kind, handler))
        yield


def _called(handler: Callable[[object], Any], event: object) -> None:
    awaited(handler(event))


def _say_joined(names: ResultNames, event: events.CandidateAdded) -> None:
    rate = "" if event.figures.pass_rate is None else f", pass rate {event.figures.pass_rate:.3f}"
    changed = event.changed if event.module is None else _shown(names, event.module)
    what = f"round {event.step}: {changed}" if event.step else "baseline"
    line = visible_line(f"{what}: {score(event.mean)} on the validation set{rate}")
    sys.stderr.write(f"{line}\n")


def _say_rejected(names: ResultNames, event: events.MutationRejected) -> None:
    module = _shown(names, event.module)
    line = visible_line(f"round {event.step}: {module} refused: {event.reason}")
    sys.stderr.write(f"{line}\n")


def _say_asked(event: QuestionAsked) -> None:
    sys.stderr.write(f"{event.position}:\n{visible(event.text)}\n")


def _shown(names: ResultNames, modules: str) -> str:
    return visible(", ".join(names.several(modules)))


class RoundFiles:
    """Writes ``round_NNN.json`` of a run, each when its step has ended."""

    def __init__(self, output: Path, run: RunFolder, names: ResultNames) -> None:
        self._folder = output / "rounds"
        self._run = run
        self._names = names
        self._step = 1
        self._written = 0

    def on_question(self, event: QuestionAsked) -> None:
        """Write the rounds of all steps before the step of a question."""
        self._write_until(Place.parse(event.position).step)

    def on_rollout(self, event: events.RolloutCompleted) -> None:
        """Write the rounds of all steps before the step of a rollout."""
        self._write_until(Place.parse(event.position.rpartition("/")[0]).step)

    def _write_until(self, step: int) -> None:
        if step > self._step:
            self._step = step
            rounds = rounds_of(read_run(self._run), self._names, until=step)
            self._written += write_rounds(self._folder, list(rounds)[self._written :])


def write_rounds(folder: Path, rounds: Sequence[RoundRecord]) -> int:
    """Write each round to its file in ``folder``; return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in rounds:
        record.dump_to(folder / f"round_{record.round:03d}.json")
    return len(rounds)


@attrs.frozen(kw_only=True)
class BaseOptimizer(ABC):
    """Base class of algorithms that users register.

    Attributes:
        config: the configuration file as plain data, with its own spelling of the keys.
        call_agent: answers a query with a text.
        target_prompt: the texts; restored after the run, whatever is written meanwhile.
        train_dataset_path: the training set.
        validation_dataset_path: the validation set.
        callbacks: always None.
        output_dir: the folder of the result.
        extra_stop_callbacks: functions that end the run by returning true.
        extra_gepa_callbacks: objects that are told what happens.
    """

    config: Mapping[str, Json] = attrs.field(hash=False)
    call_agent: Callable[..., Any]
    target_prompt: TargetPrompt
    train_dataset_path: str
    validation_dataset_path: str
    callbacks: object = attrs.field(default=None, hash=False)
    output_dir: str
    extra_stop_callbacks: Sequence[Callable[..., bool]] = ()
    extra_gepa_callbacks: Sequence[object] = attrs.field(default=(), hash=False)

    @abstractmethod
    async def run(self, *, reporter: object = None) -> OptimizeResult:
        """Search for better texts and return the result.

        Args:
            reporter: always None; what is printed is printed after the run.
        """


class OptimizerRegistry:
    """Algorithms by the name that a configuration file gives as ``algorithm.name``."""

    def __init__(self) -> None:
        self._classes: dict[str, type[BaseOptimizer]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a file may give, the built-in one first."""
        return configuration.PUBLISHED, *self._classes

    def register(self, name: str, optimizer: type[BaseOptimizer]) -> None:
        """Register an algorithm under a name; registering the same class again is harmless.

        Raises:
            TypeError: it is not a subclass of :class:`BaseOptimizer`.
            ConfigError: the name is taken.
        """
        optimizer_object: object = (
            optimizer  # users may pass anything, whatever the annotation says
        )
        if not isinstance(optimizer_object, type) or not issubclass(
            optimizer_object, BaseOptimizer
        ):
            raise TypeError(
                f"expected a subclass of BaseOptimizer, found {shown(optimizer_object)}"
            )
        if name == configuration.PUBLISHED or self._classes.get(name, optimizer) is not optimizer:
            raise ConfigError(f"there already is an algorithm `{name}`; choose another name")
        self._classes[name] = optimizer

    def get(self, name: str) -> type[BaseOptimizer] | None:
        """Return the class of a registered algorithm; None for the built-in one.

        Raises:
            ConfigError: there is no such algorithm; lists those that exist.
        """
        if name not in self.names:
            raise ConfigError(f"expected one of {', '.join(self.names)}, found {shown(name)}")
        return self._classes.get(name)


OPTIMIZER_REGISTRY = OptimizerRegistry()
"""The algorithms that ``AgentOptimizer`` finds."""


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

        Ctrl+C ends the run with the result ``CANCELED`` and the best texts so far; a second one
        interrupts the program.

        Args:
            config_path: the ``optimizer.json``; its ``algorithm.name`` may be one that is
                registered in ``OPTIMIZER_REGISTRY``.
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
            extra_stop_callbacks: functions that end the run by returning true. The attribute
                ``label`` of one is its ``stop_reason``, else that is ``completed``.
            extra_gepa_callbacks: objects with methods such as ``on_candidate_accepted(event)``; a
                warning names methods that are never called.

        Raises:
            ConfigError, DataFormatError: an argument, the configuration, the data or a source is
                unusable; raised before the first call.
            TypeError: ``call_agent`` cannot be called.
        """
        if callbacks is not None:
            raise ConfigError(
                "callbacks: expected None; `extra_gepa_callbacks` receive the events of a run"
            )
        if not output_dir:
            raise ConfigError("output_dir: expected a folder, found an empty text")
        settings = _GivenOptions(
            path=Path(config_path),
            agent=call_agent,
            target=target_prompt,
            data=(Path(train_dataset_path), Path(validation_dataset_path)),
            output=Path(output_dir),
            writes=update_source,
            verbose=verbose,
            stops=tuple(extra_stop_callbacks or ()),
            listeners=tuple(extra_gepa_callbacks or ()),
        )
        settings.check()
        name = configuration.algorithm_name(config_path, OPTIMIZER_REGISTRY.names)
        if (registered := OPTIMIZER_REGISTRY.get(name)) is not None:
            return await settings.run_registered(registered, name)
        warn_of_unheard(settings.listeners)
        stop = Cancellation()
        with _stopped_by_ctrl_c(stop):
            # In a worker thread: the caller's event loop stays free for the agent's coroutines.
            return await beside(partial(settings.optimize, stop), stop=stop)


@contextlib.contextmanager
def _stopped_by_ctrl_c(stop: Cancellation) -> Iterator[None]:
    """Let the first Ctrl+C set ``stop``, and the second do what it did before.

    Outside the main thread, where Python delivers no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        if not stop.is_set:
            stop.set("interrupted (Ctrl+C)")
        elif callable(before):
            before(number, frame)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@attrs.frozen(kw_only=True)
class _GivenOptions:
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

    @property
    def names(self) -> ResultNames:
        return ResultNames({key: name for name, key in self.target.keys.items()})

    def check(self) -> None:
        """Raise unless there are an agent, texts, and two sets of cases."""
        agent: object = self.agent  # users may pass anything, whatever the annotation says
        if not callable(agent) and not hasattr(agent, "ask"):
            raise TypeError(f"call_agent: expected a function, found {shown(agent)}")
        if not self.target.names():
            raise ConfigError("target_prompt: expected at least one text, found none")
        train, validation = self.data
        if train.resolve() == validation.resolve():
            raise ConfigError(f"train and validation are the same file, {train}; give two")

    def optimize(self, stop: Cancellation) -> OptimizeResult:
        """Run a search of ours, and write what it leaves; ``stop`` ends it early."""
        began = SystemClock().now()
        imported, sources = configuration.import_optimizer(self.path), self.target.sources()
        self._warn(imported)
        with ThreadPoolExecutor(imported.workers) as executor:
            bus, reflection = EventBus(), imported.models["reflection"]
            context = OptimizationContext(
                reflection_adapter=configuration.adapter_of(
                    reflection, "reflection_lm", path=self.path, keys=imported.keys
                ),
                executor=executor,
                event_bus=bus,
                cancellation=stop,
            )
            job = self._job(imported, sources, context)
            folder = self._begin(job, sources)
            error = self._run(job, folder, bus)
        record = read_run(folder)
        result = self._result(record, job, sources, began=began, error=error)
        # After `recorded` has closed, so that the live delivery has restored the sources.
        if self.writes and result.status == "SUCCEEDED":
            by_key = {self.target.keys[name]: text for name, text in result.best_prompts.items()}
            sources.write(by_key, by=f"run {folder.id}")
        self._conclude(result, remarks=record.ended.remarks if record.ended is not None else ())
        if imported.tracks_outputs:
            outputs = json.dumps(best_outputs(record), indent=2, ensure_ascii=False)
            write_atomically(self.output / "best_outputs.json", f"{outputs}\n".encode())
        return result

    def _run(self, job: OptimizationJob, folder: RunFolder, bus: EventBus) -> str:
        """Run a job; return the error that ended it with a result, or an empty text."""
        try:
            with recorded(folder, job) as (recorded_job, _), self._listening(bus, folder):
                recorded_job.run()
        except RunCancelledError:
            pass  # the run directory says so, and the result too
        except PromptgraftError as failure:
            # AgentOptimizer does not raise an error that leaves a result, but reports it there.
            if failure.result is None:
                raise
            return str(failure)
        return ""

    async def run_registered(self, kind: type[BaseOptimizer], name: str) -> OptimizeResult:
        """Run an algorithm of the user; the sources hold their texts again when it has ended."""
        texts = await self.target.read_all()
        optimizer = kind(
            config=configuration.config_of(self.path),
            call_agent=self.agent,
            target_prompt=self.target,
            train_dataset_path=str(self.data[0]),
            validation_dataset_path=str(self.data[1]),
            output_dir=str(self.output),
            extra_stop_callbacks=self.stops,
            extra_gepa_callbacks=self.listeners,
        )
        self._write_beginning(texts)
        try:
            result: object = await optimizer.run(reporter=None)
        finally:
            await self.target.write_all(texts)
        if not isinstance(result, OptimizeResult):
            raise ConfigError(
                f"algorithm `{name}`: expected `run` to return an OptimizeResult, found "
                f"{shown(result)}"
            )
        if self.writes and result.status == "SUCCEEDED":
            await self.target.write_all(result.best_prompts)
        self._conclude(result)
        return result

    def _warn(self, imported: configuration.Imported) -> None:
        """Warn of settings without the effect that they have in that optimizer."""
        for line in imported.ignored:
            warnings.warn(line, stacklevel=2)
        if imported.optimizer["enable_merge"] and len(self.target.names()) == 1:
            warnings.warn(
                f"{self.path}: use_merge has no effect: merging combines changes of different "
                f"texts, and `{self.target.names()[0]}` is the only one",
                stacklevel=2,
            )

    def _begin(self, job: OptimizationJob, sources: Sources) -> RunFolder:
        origin: dict[str, Json] = {"kind": "agent_optimizer", "config": str(self.path)}
        config = run_config(job, origin=origin, settings=described_job(job), options={})
        folder = make_run(self.output, "agent", config, now=SystemClock().now())
        # Before the run, which puts candidates into the sources.
        self._write_beginning(self.target.named(sources.texts))
        return folder

    def _write_beginning(self, texts: Mapping[str, str]) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        self._write_prompts("baseline_prompts", texts)
        config, snapshot = configuration.config_of(self.path), self.output / "config.snapshot.json"
        if (shareable := configuration.without_plain_keys(config)) == config:
            shutil.copyfile(self.path, snapshot)
        else:
            write_text(snapshot, f"{json.dumps(shareable, indent=2, ensure_ascii=False)}\n")

    def _write_prompts(self, folder: str, texts: Mapping[str, str]) -> None:
        files = file_names(self.target.names(), self.target.keys)
        by_part = {f"section {files[name]}": text for name, text in texts.items()}
        write_texts(self.output / folder, by_part)

    @contextlib.contextmanager
    def _listening(self, bus: EventBus, folder: RunFolder) -> Iterator[None]:
        rounds = RoundFiles(self.output, folder, self.names)
        with contextlib.ExitStack() as subscribed:
            # First, so that the user's listeners find the files of earlier rounds.
            subscribed.callback(bus.subscribe(QuestionAsked, rounds.on_question))
            subscribed.callback(bus.subscribe(events.RolloutCompleted, rounds.on_rollout))
            subscribed.enter_context(
                listening(bus, listeners=self.listeners, verbose=self.verbose, names=self.names)
            )
            yield

    def _job(
        self, imported: configuration.Imported, sources: Sources, context: OptimizationContext
    ) -> OptimizationJob:
        subject = BlackBox(
            sources.texts,
            agent=self.agent,
            delivery=LiveFiles(sources),
            placeholders=self.target.placeholders,
        )
        train, validation = (Dataset.load(path) for path in self.data)
        # Files of that optimizer often number their cases alike; rounds name those of validation.
        validation_ids = {case.id for case in validation}
        renamed = (
            attrs.evolve(case, id=f"train/{case.id}") if case.id in validation_ids else case
            for case in train
        )
        train = attrs.evolve(train, cases=tuple(renamed))
        judges = imported.models.get("judges")
        metrics = configuration.metrics_of(
            imported.evaluate,
            judges if isinstance(judges, dict) else {},
            path=self.path,
            keys=imported.keys,
        )
        judging = Judging(splits=Splits(train, validation), metrics=metrics)
        optimizer = configuration.read_as(OPTIMIZER, imported.optimizer)
        settings = {
            **optimizer.settings,
            **data_settings(subject.prompt, judging),
            "data": Data(held_out=()),  # that optimizer holds nothing out
            "persist": False,  # winners go to the sources of the texts, not to a store
        }
        limits = settings["limits"]
        assert isinstance(limits, Limits)  # noqa: S101 - every import has some
        by_file = StopFile(self.output / "optimize.stop")
        stop_conditions = [partial(_asked_to_stop, stop) for stop in self.stops]
        stoppers: tuple[Stopper, ...] = (*limits.stoppers, by_file, *stop_conditions)
        settings["limits"] = attrs.evolve(limits, stoppers=stoppers)
        make: Callable[..., RunConfig] = algorithm(optimizer.algorithm)
        return OptimizationJob(subject, context, make(**settings))

    def _result(
        self,
        record: RunRecord,
        job: OptimizationJob,
        sources: Sources,
        *,
        began: datetime,
        error: str,
    ) -> OptimizeResult:
        if not record.candidates:
            texts = self.target.named(sources.texts)
            return canceled(texts, began=began, ended=SystemClock().now())
        labels = {_stop_detail(stop): label for stop in self.stops if (label := _label_of(stop))}
        return result_of(
            record,
            stoppers=job.config.limits.stoppers,
            labels=labels,
            names=self.names,
            error=error,
        )

    def _conclude(self, result: OptimizeResult, *, remarks: Sequence[str] = ()) -> None:
        """Write the files of the output folder; the result has no field for ``remarks``."""
        output, succeeded = self.output, result.status == "SUCCEEDED"
        summary = result.format_summary(output_dir=output, update_source=self.writes)
        summary += "".join(f"remark        : {remark}\n" for remark in remarks)
        if result.status != "FAILED":
            self._write_prompts("best_prompts", result.best_prompts)
        if succeeded:
            write_text(output / "summary.txt", summary)
        result.dump_to(output / "result.json")
        write_rounds(output / "rounds", result.rounds)
        rates = result.baseline_pass_rate, result.best_pass_rate
        write_text(
            output / "run.log",
            f"{result.finished_at} status={result.status} algorithm={result.algorithm} "
            f"baseline={rates[0]:.4f} best={rates[1]:.4f} delta={rates[1] - rates[0]:+.4f} "
            f"rounds={result.total_rounds} duration_seconds={result.duration_seconds:.2f}\n",
        )
        if self.verbose:
            sys.stderr.write(visible(summary))


def _asked_to_stop(stop: Callable[..., bool], state: RunState) -> str | None:
    return _stop_detail(stop) if stop(state) else None


def _stop_detail(stop: Callable[..., bool]) -> str:
    return f"`{_label_of(stop) or function_name(stop)}` asked to stop"


def _label_of(stop: Callable[..., bool]) -> str:
    """Return the reason that a stopper gives itself; empty for a plain function."""
    label: object = getattr(stop, "label", "")
    return label if isinstance(label, str) else ""
