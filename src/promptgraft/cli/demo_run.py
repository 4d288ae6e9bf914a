"""The implementation of ``promptgraft demo``: run the example, store the winner, report."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import attrs

from promptgraft.adapters.base import adapter_identity
from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.cli import stored
from promptgraft.cli.choosing import shipped
from promptgraft.cli.display import progress_for
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.options import DemoOptions
from promptgraft.cli.outcome import FIELD, MODEL, Runner, early_stop, print_found, print_verdict
from promptgraft.cli.output import Screen, print_json, relative
from promptgraft.cli.show import entry_json, shown_entries
from promptgraft.cli.summary import exit_code_for, print_next
from promptgraft.errors import ConfigError, LimitReachedError, RunCancelledError, StoreError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.text import counted
from promptgraft.journal import FileJournal
from promptgraft.overrides import (
    OverrideAddress,
    PartDiff,
    PromptOverride,
    Provenance,
    Revision,
    RevisionedStore,
    diff_override,
)
from promptgraft.overrides.differences import parts_json
from promptgraft.overrides.resolution import checked_entry
from promptgraft.project.adding import open_store
from promptgraft.project.origins import loaded_job
from promptgraft.runs.documents import figures_json, gain_json, pareto_means_json
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.search.config import RunConfig
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult


def load_example() -> OptimizationJob:
    """Return the job of the triage example."""
    # The example as users read it, so that the demo shows nothing that they cannot do.
    with loaded_job(f"{shipped('examples/triage/optimize.py')}:job") as job:
        return job


@attrs.frozen(kw_only=True)
class DemoOutcome:
    """The outcome of the demo.

    Attributes:
        job: the job, as it was run.
        result: the result of the run.
        store: the store for the winner.
        address: prompt and tag of the winner.
        revision: the revision that the tag points at now; None if nothing was written.
        problem: why the store refused the winner; empty if it did not.
    """

    job: OptimizationJob
    result: RunResult
    store: RevisionedStore
    address: OverrideAddress
    revision: Revision | None = None
    problem: str = ""

    @property
    def prompt(self) -> str:
        """The prompt as the command line names it."""
        return f"{self.address.ns}/{self.address.prompt_key}"

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How the winner differs from the source."""
        return diff_override(self.job.prompt, self.result.best_override)


def demonstrate(options: DemoOptions, *, as_json: bool, quiet: bool) -> ExitCode:
    """Run the demo, print its outcome, and return the exit code."""
    outcome = _run_demo(options, quiet=quiet)
    if as_json:
        print_json(_plain(outcome))
    else:
        _print(Screen(), outcome)
    result = outcome.result
    if outcome.problem:
        complain(f"the winner is not stored: {outcome.problem}")
        return ExitCode.WRONG_USE
    if problem := early_stop(result):
        complain(problem)
    return exit_code_for(result.stop_reason, improved=result.improved)


def _run_demo(options: DemoOptions, *, quiet: bool) -> DemoOutcome:
    """Search from the plain source, and store the winner if there is one.

    The search ignores the overrides in the store, so that runs with the same seed give the same
    winner, whatever earlier runs have stored under the tag.
    """
    example = load_example()
    descriptor = example.prompt.descriptor
    context = OptimizationContext(OfflineAdapter(words_per_rule=8), overrides_tag=options["tag"])
    job = OptimizationJob(example.prompt, context, _config(example.config, options))
    address = OverrideAddress(descriptor.ns, descriptor.key, options["tag"])
    store = _usable_store(options["store"], address)
    progress = progress_for(f"promptgraft demo, {MODEL}, seed {options['seed']}", quiet=quiet)
    result = _uninterrupted(
        job,
        Runner(progress=progress, workers=options["workers"]),
        journal=options["journal"],
        say=f"the winner will be kept under tag `{options['tag']}` in {store.place}",
    )
    outcome = DemoOutcome(job=job, result=result, store=store, address=address)
    return _kept(outcome) if result.improved else outcome


def _config(example: RunConfig, options: DemoOptions) -> RunConfig:
    # `_kept` stores the winner: it replaces what the tag held instead of adding to it.
    config = attrs.evolve(example, seed=options["seed"], persist=False)
    if options["budget"] is None:
        return config
    # Baseline and winner are measured on the held-out tickets at the end, outside `--budget`.
    for_held_out = 2 * len(config.held_out)
    least = config.least_budget - for_held_out
    if options["budget"] < least:
        raise ConfigError(
            f"--budget: expected at least {least} test calls, enough for your "
            f"prompt and one step, found {options['budget']}"
        )
    return attrs.evolve(config, rollout_budget=options["budget"] + for_held_out)


def _usable_store(folder: str | None, address: OverrideAddress) -> RevisionedStore:
    """Return the store for the winner; raise early if it cannot be written."""
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--store: cannot create the folder {folder!r}: {error.strerror}; name another one"
            ) from error
    store = open_store(folder)
    if not os.access(store.place, os.W_OK):
        raise StoreError(
            f"the store's folder {store.place} is not writable; name another one with --store"
        )
    # Writes nothing, but takes the lock and reads the present overrides.
    store.mutate(address, lambda present: present)
    return store


def _uninterrupted(
    job: OptimizationJob, runner: Runner, *, journal: str | None, say: str
) -> RunResult:
    opened = contextlib.nullcontext() if journal is None else FileJournal(journal)
    with contextlib.suppress(KeyboardInterrupt, RunCancelledError), opened as recorded_run:
        result = runner.run(job, say=[say], journal=recorded_run)
        if result.stop_reason is not StopReason.CANCELLED:
            return result
    again = f"; the same command resumes from {journal}" if journal else ""
    raise LimitReachedError(f"interrupted, nothing was stored{again}")


def _kept(outcome: DemoOutcome) -> DemoOutcome:
    """Replace the content of the tag by the winner in one write; record a refusal."""
    result, measured = outcome.result, outcome.result.held_out
    scores = {"baseline": result.baseline_pareto_mean, "best": result.best_pareto_mean}
    if measured is not None:
        scores["held_out_baseline"] = measured.baseline_mean
        scores["held_out_best"] = measured.winner_mean
    used = f"{counted(result.total_rollouts, 'test call')}, seed {outcome.job.config.seed}"
    provenance = Provenance(
        run_id=result.run_id,
        note=f"promptgraft demo, GEPA, {MODEL}, {used}",
        scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
    )
    winner, descriptor = result.best_override, outcome.job.prompt.descriptor

    def replace(_: PromptOverride) -> PromptOverride:
        return winner.holding(checked_entry(descriptor, entry) for entry in winner.entries())

    try:
        outcome.store.mutate(outcome.address, replace, provenance=provenance)
        return attrs.evolve(outcome, revision=outcome.store.current_at(outcome.address))
    except StoreError as error:
        return attrs.evolve(outcome, problem=str(error))


def _print(screen: Screen, outcome: DemoOutcome) -> None:
    result = outcome.result
    print_verdict(screen, outcome.prompt, result)
    screen.line(f"GEPA on the {MODEL}, seed {outcome.job.config.seed}")
    print_found(screen, result, outcome.parts, noun="ticket", job=outcome.job)
    screen.line()
    address, tag = outcome.address, f"tag `{outcome.address.tag}`"
    if outcome.revision is None:
        why = outcome.problem or (
            f"{result.verdict}" if result.found_better else "no new text was better than yours"
        )
        screen.line(f"not stored under {tag}: {why}")
        return
    file = str(relative(Path(stored.override_file(outcome.store, address) or "")))
    screen.fields(
        [("stored", f"{tag}, {stored.short(outcome.revision)}"), ("file", file)], width=FIELD
    )
    diff = stored.tag_command("diff", address, outcome.store)
    print_next(screen, f"{diff}\npromptgraft init my-prompt")


_USE = """\
import sys
sys.path.insert(0, {folder!r})
from task import TEMPLATE, Ticket
from promptgraft import LocalPromptOverridesStore, Prompt
from promptgraft.project.origins import loaded_job
from promptgraft.project.adding import open_store
prompt = Prompt(
    TEMPLATE,
    overrides_store=LocalPromptOverridesStore({store!r}),
    overrides_tag={tag!r},
)
ticket = Ticket("Charged twice", "Two payments.", "team")
print(prompt.bind(ticket).render().text)
"""
"""Python code that renders a ticket with the winner."""


def _plain(outcome: DemoOutcome) -> object:
    """Return the outcome as plain data; the same for all runs with the same seed and store."""
    result, job = outcome.result, outcome.job
    measured = result.held_out.gain if result.held_out else None
    root, tag = outcome.store.place, outcome.address.tag
    folder = str(shipped("examples/triage"))
    use = _USE.format(folder=folder, store=root, tag=tag).splitlines()
    winner = shown_entries(result.best_override, job.prompt.template)
    return {
        "model": MODEL,
        "model_identity": adapter_identity(job.context.proposing_adapter),
        "prompt": outcome.prompt,
        "seed": outcome.job.config.seed,
        **figures_json(result.ended, job.config.budget, result.kept_rewrites),
        "scores": {
            "pareto": pareto_means_json(result.ended, len(result.pareto_ids)),
            "held_out": None if measured is None else gain_json(measured),
        },
        "winner": [entry_json(entry) for entry in winner],
        "parts": parts_json(outcome.parts, checked=True),
        "stored": {
            "store": root,
            "tag": tag,
            "file": stored.override_file(outcome.store, outcome.address),
            "revision": stored.revision_json_or_none(outcome.revision),
            "problem": outcome.problem or None,
        },
        "use": use if outcome.revision is not None else [],
    }
