"""What the demo says at its end."""

from __future__ import annotations

from promptgraft.cli.demo_run import DemoOutcome
from promptgraft.cli.outcome import (
    FIELD,
    MODEL,
    Scores,
    means_row,
    pareto_scores,
    print_changed,
    print_figures,
    print_next,
    print_scores,
    print_verdict,
)
from promptgraft.cli.output import Screen, relative
from promptgraft.cli.show_store import ShownEntry, entry_json, shown_entries
from promptgraft.cli.stored import revision_json_or_none, short, tag_command
from promptgraft.overrides.diff import parts_json
from promptgraft.runs.documents import figures_json, means_json, pareto_means_json
from promptgraft.text import counted


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
