"""What a run tells at its end, so that it fits a screen: verdict, figures, what to do next."""

from __future__ import annotations

import shlex

from promptgraft.cli.figures import (
    FIELD,
    pareto_scores,
    print_changed,
    print_figures,
    print_ledger,
    print_next,
    print_scores,
    print_verdict,
    told,
)
from promptgraft.cli.outcome import Outcome
from promptgraft.cli.output import Screen
from promptgraft.cli.run_choice import Runs, relative
from promptgraft.cli.running import MODEL, went_to_its_end
from promptgraft.cli.stored import short
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.text import counted


def print_outcome(screen: Screen, outcome: Outcome, runs: Runs) -> None:
    """Print the outcome for people.

    Args:
        screen: where to.
        outcome: what became of the run.
        runs: where it is kept; makes the commands about it.
    """
    result = outcome.result
    print_verdict(screen, outcome.prompt, result)
    if outcome.dry:
        screen.line(f"a dry run on the {MODEL}")
    screen.line()
    rows = [("D_pareto", pareto_scores(result), counted(len(result.pareto_ids), "example"))]
    found = result.held_out
    if found is not None and not found.why_not:
        seen = f"{counted(len(found.ids), 'example')}, never seen"
        rows.insert(0, ("held out", told((found.baseline_mean, found.winner_mean)), seen))
    print_scores(screen, rows)
    screen.line()
    if found is not None and found.why_not:
        screen.fields([("held out", f"not measured: {found.why_not}")], width=FIELD)
    print_changed(screen, outcome.parts)
    print_figures(screen, result, outcome.job.config.rollout_budget, seconds=outcome.seconds)
    if result.ledger:
        screen.line()
        print_ledger(screen, result)
    screen.line()
    _print_kept(screen, outcome)
    if command := _next(outcome, runs):
        print_next(screen, command)


def _print_kept(screen: Screen, outcome: Outcome) -> None:
    rows = []
    if outcome.file is not None:
        rows.append(("stored", f"tag `{outcome.address.tag}`, {short(outcome.revision)}"))
        rows.append(("file", str(relative(outcome.file))))
    elif outcome.result.persisted:
        kind = type(outcome.job.context.overrides_store).__name__
        rows.append(("stored", f"tag `{outcome.address.tag}` of the {kind}"))
    elif outcome.result.improved and (outcome.job.config.persist or outcome.folder is None):
        rows.append(("stored", f"no: {outcome.unstored}"))
    if (folder := outcome.folder) is not None:
        page = folder.report if folder.report.exists() else folder.path
        rows.append(("kept in", str(relative(page))))
    screen.fields(rows, width=FIELD)


def _next(outcome: Outcome, runs: Runs) -> str:
    """Return the one command that most people want now."""
    result, folder = outcome.result, outcome.folder
    if outcome.local_store is not None:
        store = outcome.local_store.root_path
        named = f"promptgraft diff {outcome.prompt} --tag {outcome.address.tag}"
        if store != LocalPromptOverridesStore().root_path:
            named += f" --store {shlex.quote(str(relative(store)))}"
        return named
    if folder is None:
        return ""
    if not went_to_its_end(result):
        return runs.command("resume", folder)
    return runs.command("apply" if result.improved else "show", folder)
