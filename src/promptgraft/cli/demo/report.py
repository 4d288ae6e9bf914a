"""What the demo tells at its end."""

from __future__ import annotations

import shlex
from collections import Counter

from promptgraft.cli.demo.run import MODEL, DemoOutcome
from promptgraft.cli.diff import parts_json, print_parts
from promptgraft.cli.entry import ShownEntry, entry_json, shown_entries
from promptgraft.cli.output import Screen
from promptgraft.cli.stored import revision_json_or_none, short
from promptgraft.cli.text import counted, difference, score

_Scores = tuple[float | None, float | None]


def print_report(screen: Screen, outcome: DemoOutcome) -> None:
    """Print the outcome for people."""
    result = outcome.result
    verdict = "improved" if result.improved else "not improved"
    screen.line(f"{_prompt(outcome)}: {verdict}", bold=True)
    screen.line(f"GEPA on the {MODEL}, seed {outcome.settings.seed}")
    print_parts(screen, outcome.parts, cropped=True)
    screen.line()
    _print_scores(screen, outcome)
    screen.line()
    _print_figures(screen, outcome)
    screen.line()
    _print_kept(screen, outcome)


def _print_scores(screen: Screen, outcome: DemoOutcome) -> None:
    searched = f"{counted(len(outcome.result.pareto_ids), 'ticket')}, searched on"
    unseen = f"{counted(len(outcome.example.held_out), 'ticket')}, never seen"
    screen.line("           baseline   best    gain")
    for name, scores, what in (
        ("D_pareto", _pareto(outcome), searched),
        ("held-out", _held_out(outcome), unseen),
    ):
        before, after = (f"{score(value):>5}" for value in scores)
        screen.line(f"{name:9}     {before}  {after}  {difference(*scores):>6}  {what}")


def _print_figures(screen: Screen, outcome: DemoOutcome) -> None:
    result = outcome.result
    rejected = ", ".join(f"{number} {reason}" for reason, number in _rejected(outcome).items())
    used = f"{result.total_rollouts} of {outcome.config.rollout_budget} rollouts"
    screen.fields(
        [
            ("used", f"{used}, {counted(result.total_reflections, 'reflection')}"),
            ("stopped", f"{result.stop_reason}: {result.stop_detail}"),
            ("accepted", counted(result.accepted_mutations, "mutation")),
            ("rejected", rejected or "none"),
        ]
    )


def _print_kept(screen: Screen, outcome: DemoOutcome) -> None:
    kept = outcome.kept
    tag = f"tag `{kept.address.tag}`"
    if kept.revision is None:
        why = kept.problem or "nothing beat the baseline"
        screen.line(f"not stored under {tag}: {why}")
        return
    command = f"{_prompt(outcome)} --tag {kept.address.tag}"
    if outcome.settings.store is not None:
        command += f" --store {shlex.quote(str(kept.store.root_path))}"
    screen.fields([("stored", f"{tag}, {short(kept.revision)}"), ("file", str(kept.path))])
    screen.line()
    screen.line("Use it in Python:", bold=True)
    screen.body("\n".join(use_lines(outcome)))
    screen.line()
    screen.line("Look at it, or take it back:", bold=True)
    screen.body(f"promptgraft show {command}\npromptgraft rollback {command}")


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
        "run_id": result.run_id,
        "improved": result.improved,
        "stop": {"reason": result.stop_reason, "detail": result.stop_detail},
        "scores": {
            "pareto": _scores_json(_pareto(outcome), len(result.pareto_ids)),
            "held_out": _scores_json(_held_out(outcome), len(outcome.example.held_out)),
        },
        "rollouts": {
            "used": result.total_rollouts,
            "budget": outcome.config.rollout_budget,
            "unscored": result.unscored_rollouts,
        },
        "reflections": result.total_reflections,
        "steps": result.steps,
        "mutations": {"accepted": result.accepted_mutations, "rejected": _rejected(outcome)},
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


def _scores_json(scores: _Scores, examples: int) -> dict[str, float | None]:
    before, after = scores
    gain = None if before is None or after is None else after - before
    return {"baseline": before, "best": after, "gain": gain, "examples": examples}


def _pareto(outcome: DemoOutcome) -> _Scores:
    return outcome.result.baseline_pareto_mean, outcome.result.best_pareto_mean


def _held_out(outcome: DemoOutcome) -> _Scores:
    return outcome.measured.baseline, outcome.measured.best


def _rejected(outcome: DemoOutcome) -> dict[str, int]:
    counts = Counter(str(rejection.reason) for rejection in outcome.result.rejections)
    return dict(counts.most_common())


def _prompt(outcome: DemoOutcome) -> str:
    return f"{outcome.example.template.ns}/{outcome.example.template.key}"
