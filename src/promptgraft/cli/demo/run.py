"""What the demo does: search, measure on unseen tickets, keep the winner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import attrs

from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.algorithms import algorithm
from promptgraft.cli.demo.example import Example, load_example
from promptgraft.cli.demo.kept import Kept, keep, place_for
from promptgraft.cli.exits import ExitCode, complain, exit_code_of
from promptgraft.cli.interrupts import cancelled_by_signals
from promptgraft.cli.progress import Progress
from promptgraft.cli.running import MODEL, carry_out, complaint, exit_code_of_run
from promptgraft.errors import (
    ConfigError,
    LimitReachedError,
    PromptgraftError,
    ProviderError,
    RunCancelledError,
)
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides import PartDiff, Provenance, diff_override
from promptgraft.prompt import Prompt
from promptgraft.runtime import Cancellation
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.search.config import RunConfig
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.search.scores import mean_score
from promptgraft.targets.prompt_rollout import PromptRollout
from promptgraft.targets.spending import AbandonedRolloutError
from promptgraft.targets.types import Candidate


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
class HeldOut:
    """Means on the tickets that the search never saw.

    Attributes:
        baseline: the mean of the source; None when it could not be measured.
        best: the mean of the winner.
        fault: what kept them from being measured.
    """

    baseline: float | None = None
    best: float | None = None
    fault: PromptgraftError | None = None


@attrs.frozen(kw_only=True)
class DemoOutcome:
    """Everything that the demo found out.

    Attributes:
        settings: what was asked for.
        example: what was improved.
        identity: name and version of the model.
        config: the settings of the search.
        result: what the search found.
        measured: what baseline and winner have on the tickets that the search never saw.
        parts: how the winner differs from the source.
        kept: what became of the winner.
    """

    settings: DemoSettings
    example: Example
    identity: str
    config: RunConfig
    result: RunResult
    measured: HeldOut
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
    kept = place_for(example.template.descriptor, settings.tag, settings.store)
    with (
        progress,
        _interruptible(settings.journal) as cancellation,
    ):
        progress.say(
            f"the winner will be kept under tag `{settings.tag}` in {kept.store.root_path}"
        )
        context = OptimizationContext(adapter, overrides_tag=settings.tag)
        result = carry_out(
            OptimizationJob(Prompt(example.template), context, config),
            progress=progress,
            cancellation=cancellation,
            workers=settings.workers,
            journal=settings.journal,
        )
        cancellation.check()
        progress.say(f"measuring on {len(example.held_out)} tickets never seen before")
        measured = _measure(example, config, adapter, result)
    if result.improved:
        provenance = _provenance(result, settings.seed, measured)
        kept = keep(kept, result.best_override, provenance=provenance)
    return DemoOutcome(
        settings=settings,
        example=example,
        identity=adapter.identity,
        config=config,
        result=result,
        measured=measured,
        parts=diff_override(example.template, result.best_override),
        kept=kept,
    )


def conclude_demo(outcome: DemoOutcome) -> ExitCode:
    """Say what went wrong, if anything did, and return the exit code."""
    result = outcome.result
    if outcome.kept.problem:
        complain(f"the winner is not stored: {outcome.kept.problem}")
        return ExitCode.WRONG_USE
    if problem := complaint(result):
        complain(problem)
        return exit_code_of_run(result)
    if outcome.measured.fault is not None:
        complain(f"the held-out tickets are not measured: {outcome.measured.fault}")
        return exit_code_of(outcome.measured.fault)
    return exit_code_of_run(result)


def _config(example: Example, settings: DemoSettings) -> RunConfig:
    make: Callable[..., RunConfig] = algorithm()
    config = make(
        rollout_budget=example.budget,
        minibatch_size=example.minibatch_size,
        pareto_set_size=example.pareto_set_size,
        target_section_paths=example.targets,
        training_examples=example.training,
        feedback_fn=example.feedback,
        seed=settings.seed,
        shuffle_examples=example.shuffle,
        # The winner is kept by the demo itself, which replaces what the tag held.
        persist=False,
    )
    if settings.budget is None:
        return config
    if settings.budget < config.least_budget:
        raise ConfigError(
            f"--budget: expected at least {config.least_budget} rollouts, which pay for the "
            f"baseline and one step, found {settings.budget}"
        )
    return attrs.evolve(config, rollout_budget=settings.budget)


@contextlib.contextmanager
def _interruptible(journal: str | None) -> Iterator[Cancellation]:
    try:
        with cancelled_by_signals() as cancellation:
            yield cancellation
            cancellation.check()
    except (KeyboardInterrupt, RunCancelledError):
        again = f"; the same command goes on from {journal}" if journal else ""
        raise InterruptedRunError(f"interrupted, nothing was stored{again}") from None


def _measure(
    example: Example, config: RunConfig, adapter: OfflineAdapter, result: RunResult
) -> HeldOut:
    """Try baseline and winner on the held-out tickets; nothing is lost when that fails."""
    if result.stop_reason in (StopReason.PROVIDER_FAILED, StopReason.DEADLINE):
        return HeldOut()
    rollout = PromptRollout(
        prompt=Prompt(example.template),
        base=result.best_override.holding(()),
        adapter=adapter,
        scoring=config.scoring,
    )

    def mean(candidate: Candidate) -> float | None:
        return mean_score([rollout(candidate, ticket, None).score for ticket in example.held_out])

    try:
        baseline = mean(result.candidates[0])
        best = mean(result.candidates[result.best_index]) if result.improved else baseline
    except AbandonedRolloutError as error:
        return HeldOut(fault=error.cause)
    except (ProviderError, LimitReachedError) as error:
        return HeldOut(fault=error)
    return HeldOut(baseline=baseline, best=best)


def _provenance(result: RunResult, seed: int, measured: HeldOut) -> Provenance:
    scores = {
        "baseline": result.baseline_pareto_mean,
        "best": result.best_pareto_mean,
        "held_out_baseline": measured.baseline,
        "held_out_best": measured.best,
    }
    return Provenance(
        run_id=result.run_id,
        note=f"promptgraft demo, GEPA, {MODEL}, {result.total_rollouts} rollouts, seed {seed}",
        scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
    )
