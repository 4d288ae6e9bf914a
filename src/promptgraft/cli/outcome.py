"""What became of a job, told at its end."""

from __future__ import annotations

import shlex

import attrs

from promptgraft.cli.diff import parts_json, print_parts
from promptgraft.cli.figures import (
    figures_json,
    ledger_json,
    pareto_scores,
    print_figures,
    print_ledger,
    print_scores,
    scores_json,
)
from promptgraft.cli.output import Screen
from promptgraft.cli.running import MODEL
from promptgraft.cli.stored import override_file, revision_json_or_none, short
from promptgraft.cli.text import counted
from promptgraft.optimizers import PersistenceScope
from promptgraft.optimizers.gepa import GepaResult, OptimizationJob
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PartDiff,
    Revision,
    diff_override,
)
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Outcome:
    """A job that was carried out.

    Attributes:
        job: the job, as it was run.
        dry: whether it was a dry run.
        result: what the run found.
        problem: why the store refused the winner; empty when it did not.
    """

    job: OptimizationJob
    dry: bool
    result: GepaResult
    problem: str

    @property
    def prompt(self) -> str:
        """The prompt as the command line names it."""
        return f"{self.address.ns}/{self.address.prompt_key}"

    @property
    def address(self) -> OverrideAddress:
        """Prompt and tag."""
        descriptor = self.job.prompt.descriptor
        return OverrideAddress(descriptor.ns, descriptor.key, self.job.context.overrides_tag)

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How the winner differs from the source."""
        return diff_override(self.job.prompt, self.result.best_override)

    @property
    def local_store(self) -> LocalPromptOverridesStore | None:
        """The store on disk that holds the winner; None when there is no such thing."""
        store = self.job.context.overrides_store
        kept = self.result.persisted and isinstance(store, LocalPromptOverridesStore)
        return store if kept and isinstance(store, LocalPromptOverridesStore) else None

    @property
    def revision(self) -> Revision | None:
        """What the tag points at since the winner was stored; None without a store on disk."""
        if self.local_store is None:
            return None
        address = self.address
        return self.local_store.current(
            ns=address.ns, prompt_key=address.prompt_key, tag=address.tag
        )

    @property
    def unstored(self) -> str:
        """Why no winner is in the store; empty when one is."""
        if self.result.persisted:
            return ""
        if not self.result.improved:
            return "nothing beat the baseline"
        if self.dry:
            return "a dry run stores nothing"
        if self.problem:
            return self.problem
        config = self.job.config
        if not config.persist:
            return "the job has `persist=False`"
        if config.persist_scope is PersistenceScope.SESSION:
            return "the job keeps it in a session only"
        return "the job has no `overrides_store`"


def print_outcome(screen: Screen, outcome: Outcome) -> None:
    """Print the outcome for people."""
    result, config = outcome.result, outcome.job.config
    verdict = "improved" if result.improved else "not improved"
    screen.line(f"{outcome.prompt}: {verdict}", bold=True)
    screen.line(_what(outcome))
    screen.line()
    examples = counted(len(result.pareto_ids), "example")
    print_scores(screen, [("D_pareto", pareto_scores(result), examples)])
    screen.line()
    print_figures(screen, result, config.rollout_budget)
    screen.line()
    if result.ledger:
        print_ledger(screen, result)
        screen.line()
    _print_kept(screen, outcome)


def _what(outcome: Outcome) -> str:
    run = f"GEPA, seed {outcome.job.config.seed}, run {outcome.result.run_id}"
    return f"{run}: a dry run on the {MODEL}" if outcome.dry else run


def _print_kept(screen: Screen, outcome: Outcome) -> None:
    parts = outcome.parts
    if parts:
        screen.fields([("changed", ", ".join(part.part for part in parts))])
    if outcome.unstored:
        screen.line(f"not stored under tag `{outcome.address.tag}`: {outcome.unstored}")
        if not outcome.dry:
            # Nobody can look at it anywhere else.
            print_parts(screen, parts, cropped=True)
        return
    if outcome.local_store is None:
        kind = type(outcome.job.context.overrides_store).__name__
        screen.fields([("stored", f"tag `{outcome.address.tag}` of the {kind}")])
        return
    store = outcome.local_store
    path = override_file(store, outcome.address)
    revision = short(outcome.revision)
    screen.fields([("stored", f"tag `{outcome.address.tag}`, {revision}"), ("file", str(path))])
    named = f"{outcome.prompt} --tag {outcome.address.tag}"
    if store.root_path != LocalPromptOverridesStore().root_path:
        named += f" --store {shlex.quote(str(store.root_path))}"
    screen.line()
    screen.line("Look at it, or take it back:", bold=True)
    screen.body(f"promptgraft diff {named}\npromptgraft rollback {named}")


def outcome_json(outcome: Outcome) -> object:
    """Return the outcome for machines; money is a decimal number as text."""
    result, store = outcome.result, outcome.local_store
    cost = result.total_cost
    return {
        "prompt": outcome.prompt,
        "dry_run": outcome.dry,
        "seed": outcome.job.config.seed,
        **figures_json(result, outcome.job.config.rollout_budget),
        "merges": result.accepted_merges,
        "scores": {"pareto": scores_json(pareto_scores(result), len(result.pareto_ids))},
        "cost": None if cost is None else f"{cost:f}",
        "ledger": ledger_json(result),
        "parts": parts_json(outcome.parts, checked=True),
        "stored": _stored_json(outcome, store),
    }


def _stored_json(outcome: Outcome, store: LocalPromptOverridesStore | None) -> dict[str, Json]:
    return {
        "tag": outcome.address.tag,
        "persisted": outcome.result.persisted,
        "store": None if store is None else str(store.root_path),
        "file": None if store is None else str(override_file(store, outcome.address)),
        "revision": revision_json_or_none(outcome.revision),
        "problem": outcome.unstored or None,
    }
