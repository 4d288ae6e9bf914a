"""What a run directory holds, for people and for machines."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from promptgraft.cli.output import Screen
from promptgraft.cli.run_choice import Runs, relative
from promptgraft.cli.sentences import ESTIMATED
from promptgraft.errors import ConfigError
from promptgraft.overrides.diff import diff_bodies
from promptgraft.runs import RunRecord
from promptgraft.runs.comparing import figures_of
from promptgraft.runs.files import read_document
from promptgraft.runs.lines import encoded
from promptgraft.search.events import CandidateAdded, MutationRejected
from promptgraft.search.notices import Event
from promptgraft.serde import Json, parse_json, unstructure
from promptgraft.text import change, counted, dollars, moment, score

_MOST_CANDIDATES = 20


def show_overview(screen: Screen, record: RunRecord, runs: Runs) -> None:
    """Print where a run stands, its candidates, and how to see more."""
    figures = figures_of(record)
    estimated = figures.baseline_estimated, figures.best_estimated
    ended = f"{figures.stop_reason}: {figures.stop_detail}" if figures.stop_reason else ""
    cost = None if figures.cost is None else Decimal(figures.cost)
    rows = [
        ("run", f"{record.id}, {record.state}"),
        ("prompt", record.prompt),
        ("made", moment(record.created)),
        ("D_pareto", change(figures.baseline, figures.best, estimated=estimated)),
        *_held_out(figures.held_out),
        ("used", f"{counted(record.rollouts, 'rollout')}, {dollars(cost)}"),
        *([("stopped", ended)] if ended else []),
        ("rejected", counted(figures.rejected, "proposal")),
        ("folder", str(relative(record.folder.path))),
    ]
    screen.fields(rows)
    screen.line()
    _print_candidates(screen, record)
    screen.line()
    commands = [runs.command("show", record.folder, "--candidate N")]
    if record.rejections:
        commands.append(runs.command("show", record.folder, "--rejected"))
    commands.append(runs.command("show", record.folder, "--case ID"))
    screen.body("\n".join(commands))


def _held_out(means: tuple[float | None, float | None] | None) -> list[tuple[str, str]]:
    if means is None:
        return []
    return [("held out", change(*means))]


def _print_candidates(screen: Screen, record: RunRecord) -> None:
    if not record.candidates:
        screen.line("the baseline has not been evaluated yet")
        return
    baseline = record.candidates[0]
    best = [one for one in record.ranked if one.candidate]
    shown = [baseline, *sorted(best[:_MOST_CANDIDATES], key=lambda one: one.candidate)]
    screen.table(
        [
            ("candidate", "mean", "parents", "step", "changes"),
            *(
                (
                    str(one.candidate),
                    _mean(one),
                    ", ".join(map(str, one.parents)),
                    str(one.step),
                    one.changed,
                )
                for one in shown
            ),
        ]
    )
    if (more := len(best) - _MOST_CANDIDATES) > 0:
        screen.line(f"and {more} more with lower means")
    if any(one.estimated for one in shown):
        screen.line(ESTIMATED)


def _mean(one: CandidateAdded) -> str:
    return score(one.mean, estimated=one.estimated)


def overview_json(record: RunRecord) -> dict[str, Json]:
    """Return a run for machines, without texts and scores."""
    return {
        **_figures(record),
        "run": record.id,
        "folder": str(record.folder.path.absolute()),
        "created": record.created.isoformat(),
        "config": dict(record.config),
        "candidates": [_candidate_row(one) for one in record.candidates],
        "result": None if record.ended is None else {**read_document(record.folder.result)},
    }


def _figures(record: RunRecord) -> dict[str, Json]:
    plain = unstructure(figures_of(record))
    return plain if isinstance(plain, dict) else {}


def _candidate_row(one: CandidateAdded) -> Json:
    return {
        "candidate": one.candidate,
        "step": one.step,
        "parents": list(one.parents),
        "module": one.module,
        "mean": one.mean,
        "estimated": one.estimated,
        "rollouts": one.rollouts,
    }


def candidate_of(record: RunRecord, number: int) -> CandidateAdded:
    """Return a candidate by its number.

    Raises:
        ConfigError: there is none.
    """
    if number < len(record.candidates):
        return record.candidates[number]
    has = f"0 to {len(record.candidates) - 1}" if record.candidates else "none yet"
    raise ConfigError(f"--candidate: run {record.id} has no candidate {number}; it has {has}")


def show_candidate(screen: Screen, record: RunRecord, one: CandidateAdded) -> None:
    """Print where a candidate comes from, what it changes, and what it says."""
    screen.line(f"candidate {one.candidate} of {record.id}", bold=True)
    parents = [record.candidates[position] for position in one.parents]
    screen.fields(
        [
            ("parents", ", ".join(f"{p.candidate} ({_mean(p)})" for p in parents) or "none"),
            ("changes", one.changed if one.candidate else "nothing: the baseline"),
            ("mean", _mean_of(one)),
            ("step", str(one.step)),
            ("page", str(relative(record.folder.candidate(one.candidate)))),
        ]
    )
    for parent in parents:
        _print_changes(screen, parent, one)
    for name, text in one.texts.items():
        screen.line()
        screen.line(name, bold=True)
        screen.body(text)


def _mean_of(one: CandidateAdded) -> str:
    scored = sum(value is not None for value in one.scores)
    if one.estimated:
        return f"{_mean(one)}, estimated from {scored} of {len(one.scores)} of D_pareto"
    return f"{score(one.mean)} on {counted(scored, 'example')} of D_pareto"


def _print_changes(screen: Screen, parent: CandidateAdded, one: CandidateAdded) -> None:
    for name, text in one.texts.items():
        before = parent.texts.get(name, "")
        if before != text:
            screen.line()
            screen.line(f"{name}, against candidate {parent.candidate}", bold=True)
            screen.body(diff_bodies(before, text, part=name).removesuffix("\n"))


def candidate_json(record: RunRecord, one: CandidateAdded) -> dict[str, Json]:
    """Return a candidate for machines."""
    return {
        "run": record.id,
        "page": str(record.folder.candidate(one.candidate).absolute()),
        "pareto_ids": list(record.pareto_ids),
        **_plain(one),
    }


def show_rejections(screen: Screen, record: RunRecord) -> None:
    """Print every rejected proposal with its reason."""
    screen.line(f"{counted(len(record.rejections), 'rejected proposal')} of {record.id}", bold=True)
    for one in record.rejections:
        screen.line()
        screen.line(
            f"step {one.step}, attempt {one.attempt}: {one.module} of candidate {one.parent}",
            bold=True,
        )
        rows = [("reason", f"{one.reason}: {one.detail}")]
        if one.child_score is not None:
            rows.append(("minibatch", f"{score(one.parent_score)} -> {score(one.child_score)}"))
        rows.append(("page", str(relative(_page_of(record, one)))))
        screen.fields(rows)
        screen.body(one.text or "(nothing was proposed)")


def rejections_json(record: RunRecord) -> dict[str, Json]:
    """Return every rejected proposal for machines."""
    rejected = [
        {"page": str(_page_of(record, one).absolute()), **_plain(one)} for one in record.rejections
    ]
    return {"run": record.id, "rejected": [*rejected]}


def _page_of(record: RunRecord, one: MutationRejected) -> Path:
    return record.folder.rejection(one.step, one.attempt)


def _plain(event: Event) -> dict[str, Json]:
    """Return the line of an event, without what only lines have."""
    line = parse_json(encoded(event), where="the event")
    plain = line if isinstance(line, dict) else {}
    return {name: value for name, value in plain.items() if name not in ("event", "n")}
