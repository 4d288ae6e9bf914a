"""What the demo does: search, measure on unseen tickets, keep the winner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.algorithms import algorithm
from promptgraft.cli.choosing import example_folder, open_store
from promptgraft.cli.exits import ExitCode, complain, exit_code_of
from promptgraft.cli.outcome import (
    FIELD,
    MODEL,
    Scores,
    complaint,
    exit_code_of_run,
    means_row,
    pareto_scores,
    print_changed,
    print_figures,
    print_next,
    print_scores,
    print_verdict,
)
from promptgraft.cli.output import Screen, relative
from promptgraft.cli.progress import Progress
from promptgraft.cli.running import cancelled_by_signals, carry_out
from promptgraft.cli.show import ShownEntry, entry_json, shown_entries
from promptgraft.cli.stored import (
    current_of,
    override_file,
    revision_json_or_none,
    short,
    tag_command,
)
from promptgraft.errors import (
    ConfigError,
    LimitReachedError,
    PromptgraftError,
    ProviderError,
    RunCancelledError,
    StoreError,
)
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PartDiff,
    PromptDescriptor,
    PromptOverride,
    Provenance,
    Revision,
    diff_override,
)
from promptgraft.overrides.diff import parts_json
from promptgraft.overrides.resolution import checked_entry
from promptgraft.parts.descriptors import SectionPath
from promptgraft.project.python_source import load_file
from promptgraft.prompt import Prompt, PromptTemplate
from promptgraft.runs.documents import figures_json, means_json, pareto_means_json
from promptgraft.runtime import Cancellation
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.search.config import RunConfig
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult
from promptgraft.search.scores import mean_score
from promptgraft.targets.prompt_rollout import PromptRollout
from promptgraft.targets.spending import AbandonedRolloutError
from promptgraft.targets.types import Candidate, FeedbackFn, GepaExample
from promptgraft.text import counted

NAME = "triage"


@attrs.frozen(kw_only=True)
class Example:
    """A prompt with its data.

    Attributes:
        folder: where it stands.
        template: the prompt.
        training: tickets that the search may use.
        held_out: tickets that it never sees.
        feedback: scores an answer.
        targets: sections that the search may change.
        budget: rollouts that the search uses by default.
        minibatch_size: tickets that a change is evaluated on first.
        pareto_set_size: tickets that candidates are compared on.
        shuffle: whether the seed decides which these are.
    """

    folder: Path
    template: PromptTemplate[object]
    training: tuple[GepaExample, ...]
    held_out: tuple[GepaExample, ...]
    feedback: FeedbackFn
    targets: tuple[SectionPath, ...]
    budget: int
    minibatch_size: int
    pareto_set_size: int
    shuffle: bool


def load_example() -> Example:
    """Return the triage example.

    Raises:
        ConfigError: it is not installed, or its code has been changed beyond use.
    """
    folder = example_folder(NAME)
    module = load_file(folder / "task.py", name="promptgraft_example_triage", what="example")
    template: object = module.TEMPLATE
    if not isinstance(template, PromptTemplate):
        raise ConfigError(
            f"example: {folder / 'task.py'} has no TEMPLATE; install promptgraft again"
        )
    load_tickets: Callable[[Path], Sequence[GepaExample]] = module.load_tickets
    return Example(
        folder=folder,
        template=template,
        training=tuple(load_tickets(folder / "train.jsonl")),
        held_out=tuple(load_tickets(folder / "test.jsonl")),
        feedback=module.feedback,
        # As in its optimize.py.
        targets=(("queues",), ("conventions",)),
        budget=1500,
        minibatch_size=10,
        pareto_set_size=60,
        shuffle=True,
    )


@attrs.frozen(kw_only=True)
class Kept:
    """Where the winner is to be kept, and what became of it.

    Attributes:
        store: where.
        descriptor: the prompt that it is a winner for.
        tag: the tag that shall hold it.
        revision: what the tag points at now; None when nothing was written.
        problem: why the store refused; empty when it did not.
    """

    store: LocalPromptOverridesStore
    descriptor: PromptDescriptor
    tag: str
    revision: Revision | None = None
    problem: str = ""

    @property
    def address(self) -> OverrideAddress:
        """Prompt and tag."""
        return OverrideAddress(self.descriptor.ns, self.descriptor.key, self.tag)

    @property
    def path(self) -> Path:
        """The file that holds what the tag points at."""
        return override_file(self.store, self.address)


def place_for(descriptor: PromptDescriptor, tag: str, folder: str | None) -> Kept:
    """Return where a winner is to be kept, after a look at whether it can be.

    Raises:
        ConfigError: the folder cannot be made.
        StoreError: the store cannot be used.
    """
    kept = Kept(store=_open_store(folder), descriptor=descriptor, tag=tag)
    if not os.access(kept.store.root_path, os.W_OK):
        raise StoreError(
            f"the store's folder {kept.store.root_path} cannot be written; "
            "name another with --store"
        )
    # Changes nothing, but takes the lock and reads what is there.
    kept.store.mutate(kept.address, lambda present: present)
    return kept


def keep(kept: Kept, winner: PromptOverride, *, provenance: Provenance) -> Kept:
    """Let the tag hold ``winner`` and nothing else, in one write; a refusal is in the result."""
    store, address = kept.store, kept.address

    def replace(_: PromptOverride) -> PromptOverride:
        return winner.holding(checked_entry(kept.descriptor, entry) for entry in winner.entries())

    try:
        store.mutate(address, replace, provenance=provenance)
        revision = current_of(store, address)
    except StoreError as error:
        return attrs.evolve(kept, problem=str(error))
    return attrs.evolve(kept, revision=revision)


def _open_store(folder: str | None) -> LocalPromptOverridesStore:
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--store: folder {folder!r} cannot be made: {error.strerror}; name another one"
            ) from error
    return open_store(folder)


class InterruptedRunError(LimitReachedError):
    """The demo was interrupted with Ctrl+C."""


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
        again = f"; the same command resumes from {journal}" if journal else ""
        raise InterruptedRunError(f"interrupted, nothing was stored{again}") from None


def _measure(
    example: Example, config: RunConfig, adapter: OfflineAdapter, result: RunResult
) -> HeldOut:
    """Try baseline and winner on the held-out tickets; nothing is lost when that fails."""
    if result.stop_reason in (StopReason.PROVIDER_FAILED, StopReason.DEADLINE):
        return HeldOut()
    rollout = PromptRollout(
        prompts={result.name: Prompt(example.template)},
        base={result.name: result.best_override.holding(())},
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


def print_report(screen: Screen, outcome: DemoOutcome) -> None:
    """Print the outcome for people."""
    result = outcome.result
    print_verdict(screen, _prompt(outcome), result)
    screen.line(f"GEPA on the {MODEL}, seed {outcome.settings.seed}")
    screen.line()
    unseen = f"{counted(len(outcome.example.held_out), 'ticket')}, never seen"
    searched = counted(len(result.pareto_ids), "ticket")
    print_scores(
        screen,
        [
            ("held out", means_row(_held_out(outcome)), unseen),
            ("D_pareto", pareto_scores(result), searched),
        ],
    )
    screen.line()
    print_changed(screen, outcome.parts)
    print_figures(screen, result, outcome.config.rollout_budget)
    screen.line()
    _print_kept(screen, outcome)


def _print_kept(screen: Screen, outcome: DemoOutcome) -> None:
    kept = outcome.kept
    tag = f"tag `{kept.address.tag}`"
    if kept.revision is None:
        why = kept.problem or "nothing beat the baseline"
        screen.line(f"not stored under {tag}: {why}")
        return
    rows = [("stored", f"{tag}, {short(kept.revision)}"), ("file", str(relative(kept.path)))]
    screen.fields(rows, width=FIELD)
    print_next(screen, tag_command("diff", kept.address, outcome.settings.store or ""))


def use_lines(outcome: DemoOutcome) -> tuple[str, ...]:
    """Return the Python that renders a ticket with the winner."""
    kept, example = outcome.kept, outcome.example
    return (
        "import sys",
        f"sys.path.insert(0, {str(example.folder)!r})",
        "from task import TEMPLATE, Ticket",
        "from promptgraft import LocalPromptOverridesStore, Prompt",
        "prompt = Prompt(",
        "    TEMPLATE,",
        f"    overrides_store=LocalPromptOverridesStore({str(kept.store.root_path)!r}),",
        f"    overrides_tag={kept.tag!r},",
        ")",
        'ticket = Ticket("Charged twice", "Two payments.", "team")',
        "print(prompt.bind(ticket).render().text)",
    )


def report_json(outcome: DemoOutcome) -> object:
    """Return the outcome for machines; equal for runs with one seed on one store."""
    result, kept = outcome.result, outcome.kept
    return {
        "model": MODEL,
        "model_identity": outcome.identity,
        "prompt": _prompt(outcome),
        "seed": outcome.settings.seed,
        **figures_json(result.ended, outcome.config.rollout_budget),
        "scores": {
            "pareto": pareto_means_json(result.ended, len(result.pareto_ids)),
            "held_out": means_json(*_held_out(outcome), len(outcome.example.held_out)),
        },
        "winner": [entry_json(shown) for shown in _winner(outcome)],
        "parts": parts_json(outcome.parts, checked=True),
        "stored": {
            "store": str(kept.store.root_path),
            "tag": kept.address.tag,
            "file": str(kept.path),
            "revision": revision_json_or_none(kept.revision),
            "problem": kept.problem or None,
        },
        "use": list(use_lines(outcome)) if kept.revision is not None else [],
    }


def _winner(outcome: DemoOutcome) -> tuple[ShownEntry, ...]:
    return shown_entries(outcome.result.best_override, outcome.example.template.descriptor)


def _held_out(outcome: DemoOutcome) -> Scores:
    return outcome.measured.baseline, outcome.measured.best


def _prompt(outcome: DemoOutcome) -> str:
    return f"{outcome.example.template.ns}/{outcome.example.template.key}"
