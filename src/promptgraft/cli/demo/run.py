"""What the demo does: search, measure on unseen tickets, keep the winner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import attrs

from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.cli.demo.example import Example, load_example
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.progress import Progress
from promptgraft.cli.stored import open_store, override_file
from promptgraft.errors import LimitReachedError, StoreError
from promptgraft.frozenmap import FrozenMap
from promptgraft.journal import FileJournal
from promptgraft.optimizers import OptimizationContext, StopReason
from promptgraft.optimizers.gepa import Candidate, GepaConfig, GepaOptimizer, GepaResult
from promptgraft.optimizers.gepa.pool import mean_score
from promptgraft.optimizers.prompt_rollout import PromptRollout
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PartDiff,
    PromptOverride,
    Provenance,
    Revision,
    diff_override,
)
from promptgraft.overrides.validation import check_section_override
from promptgraft.prompt import Prompt
from promptgraft.runtime import EventBus

MODEL = "embedded offline model"


class InterruptedRunError(LimitReachedError):
    """Somebody pressed Ctrl+C."""


@attrs.frozen(kw_only=True)
class DemoSettings:
    """What the command line asks for; see the options of the command."""

    seed: int
    budget: int | None
    workers: int
    store: str | None
    tag: str
    journal: str | None


@attrs.frozen(kw_only=True)
class Kept:
    """What became of the winner.

    Attributes:
        store: where it was to be kept.
        address: under which prompt and tag.
        revision: what the tag points at now; None when nothing was written.
        problem: why the store refused; empty when it did not.
    """

    store: LocalPromptOverridesStore
    address: OverrideAddress
    revision: Revision | None = None
    problem: str = ""

    @property
    def path(self) -> Path:
        """The file that holds what the tag points at."""
        return override_file(self.store, self.address)


@attrs.frozen(kw_only=True)
class DemoOutcome:
    """Everything that the demo found out.

    Attributes:
        settings: what was asked for.
        example: what was improved.
        identity: name and version of the model.
        config: the settings of the search.
        result: what the search found.
        held_out: means of baseline and winner on the tickets that the search never saw.
        parts: how the winner differs from the source.
        kept: what became of the winner.
    """

    settings: DemoSettings
    example: Example
    identity: str
    config: GepaConfig
    result: GepaResult
    held_out: tuple[float | None, float | None]
    parts: tuple[PartDiff, ...]
    kept: Kept


def run_demo(settings: DemoSettings, progress: Progress) -> DemoOutcome:
    """Search from the plain source, measure, and keep the winner if there is one.

    The overrides that the store holds are no part of the search: runs with one seed give
    the same winner, whatever earlier runs have left under the tag.

    Raises:
        ConfigError: the settings cannot be used.
        JournalError: the journal cannot be used.
        StoreError: the store cannot be used; found before the search.
        InterruptedRunError: Ctrl+C.
    """
    example = load_example()
    adapter = OfflineAdapter()
    config = _config(example, settings)
    store = _open_store(settings.store)
    address = OverrideAddress(example.template.ns, example.template.key, settings.tag)
    _check_usable(store, address)
    with progress, _executor(settings.workers) as executor, _interruptible(settings.journal):
        progress.say(f"the winner will be kept under tag `{settings.tag}` in {store.root_path}")
        result = _search(
            example,
            config,
            adapter=adapter,
            settings=settings,
            executor=executor,
            progress=progress,
        )
        progress.say(f"measuring on {len(example.held_out)} tickets never seen before")
        held_out = _held_out(example, config, adapter, result)
    return DemoOutcome(
        settings=settings,
        example=example,
        identity=adapter.identity,
        config=config,
        result=result,
        held_out=held_out,
        parts=diff_override(example.template, result.best_override),
        kept=_keep(
            store,
            address,
            example=example,
            result=result,
            provenance=_provenance(result, settings.seed, held_out),
        ),
    )


def conclude_demo(outcome: DemoOutcome) -> ExitCode:
    """Say what went wrong, if anything did, and return the exit code."""
    result = outcome.result
    if outcome.kept.problem:
        complain(f"the winner is not stored: {outcome.kept.problem}")
        return ExitCode.WRONG_USE
    if result.stop_reason is StopReason.PROVIDER_FAILED:
        complain(f"the provider failed: {result.stop_detail}")
        return ExitCode.PROVIDER_FAILED
    if result.stop_reason is StopReason.DEADLINE:
        complain(f"stopped early: {result.stop_detail}")
        return ExitCode.STOPPED_EARLY
    return ExitCode.OK if result.improved else ExitCode.NOT_IMPROVED


def _config(example: Example, settings: DemoSettings) -> GepaConfig:
    return GepaConfig(
        rollout_budget=settings.budget or example.budget,
        minibatch_size=example.minibatch_size,
        pareto_set_size=example.pareto_set_size,
        target_section_paths=example.targets,
        training_examples=example.training,
        feedback_fn=example.feedback,
        seed=settings.seed,
        # The winner is kept by the demo itself, which replaces what the tag held.
        persist=False,
    )


def _open_store(folder: str | None) -> LocalPromptOverridesStore:
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return open_store(folder)


def _check_usable(store: LocalPromptOverridesStore, address: OverrideAddress) -> None:
    """Find out before the search what would keep the winner from being stored after it."""
    if not os.access(store.root_path, os.W_OK):
        raise StoreError(
            f"the store's folder {store.root_path} cannot be written; name another with --store"
        )
    store.mutate(address, lambda present: present)


@contextlib.contextmanager
def _executor(workers: int) -> Iterator[Executor | None]:
    if workers == 1:
        yield None
        return
    with ThreadPoolExecutor(max_workers=workers) as executor:
        yield executor


@contextlib.contextmanager
def _interruptible(journal: str | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        again = f"; the same command goes on from {journal}" if journal else ""
        raise InterruptedRunError(f"interrupted, nothing was stored{again}") from None


def _search(
    example: Example,
    config: GepaConfig,
    *,
    adapter: OfflineAdapter,
    settings: DemoSettings,
    executor: Executor | None,
    progress: Progress,
) -> GepaResult:
    bus = EventBus()
    bus.subscribe(object, progress.on_event)
    with contextlib.ExitStack() as held:
        path = settings.journal
        context = OptimizationContext(
            adapter=adapter,
            overrides_tag=settings.tag,
            event_bus=bus,
            executor=executor,
            journal=held.enter_context(FileJournal(path)) if path is not None else None,
        )
        return GepaOptimizer(context, config).optimize(Prompt(example.template))


def _held_out(
    example: Example, config: GepaConfig, adapter: OfflineAdapter, result: GepaResult
) -> tuple[float | None, float | None]:
    """Return the means of baseline and winner on the held-out tickets."""
    rollout = PromptRollout(
        prompt=Prompt(example.template),
        base=attrs.evolve(result.best_override, sections={}),
        adapter=adapter,
        scoring=config.scoring,
    )

    def mean(candidate: Candidate) -> float | None:
        return mean_score([rollout(candidate, ticket, None).score for ticket in example.held_out])

    baseline = mean(result.candidates[0])
    best = mean(result.candidates[result.best_index]) if result.improved else baseline
    return baseline, best


def _keep(
    store: LocalPromptOverridesStore,
    address: OverrideAddress,
    *,
    example: Example,
    result: GepaResult,
    provenance: Provenance,
) -> Kept:
    """Let the tag hold the winner and nothing else, in one write."""
    if not result.improved:
        return Kept(store=store, address=address)

    def replace(_: PromptOverride) -> PromptOverride:
        for section in result.best_override.sections.values():
            check_section_override(example.template.descriptor, section)
        return result.best_override

    try:
        store.mutate(address, replace, provenance=provenance)
        revision = store.current(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
    except StoreError as error:
        return Kept(store=store, address=address, problem=str(error))
    return Kept(store=store, address=address, revision=revision)


def _provenance(
    result: GepaResult, seed: int, held_out: tuple[float | None, float | None]
) -> Provenance:
    scores = {
        "baseline": result.baseline_pareto_mean,
        "best": result.best_pareto_mean,
        "held-out baseline": held_out[0],
        "held-out best": held_out[1],
    }
    return Provenance(
        run_id=result.run_id,
        note=f"promptgraft demo, GEPA, {MODEL}, {result.total_rollouts} rollouts, seed {seed}",
        scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
    )
