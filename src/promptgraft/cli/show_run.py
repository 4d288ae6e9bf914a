"""Showing a run directory, as text or JSON."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.cli.choosing import Runs
from promptgraft.cli.output import Screen, echo, print_json, relative
from promptgraft.cli.progress import ESTIMATED
from promptgraft.errors import ConfigError
from promptgraft.evals.types import step_to_json
from promptgraft.ground.serde import Json, did_you_mean, parse_json
from promptgraft.ground.text import change, counted, dollars, moment, score, visible, visible_line
from promptgraft.overrides.differences import PartDiff
from promptgraft.runs import RunRecord, State, Transcript, read_run, transcripts
from promptgraft.runs.comparing import figures_json, held_out_gain
from promptgraft.runs.event_file import encoded
from promptgraft.runs.folder import read_document
from promptgraft.runs.history import shown_mean
from promptgraft.runs.pages import reasons_of
from promptgraft.runs.reading import questions_of, summarize
from promptgraft.runs.report.texts import changes_in_words
from promptgraft.search.events import CandidateAdded, Event
from promptgraft.search.scores import mean_score

_MOST_CANDIDATES = 20
_IN_SHORT = ("candidate", "step", "parents", "module", "mean", "estimated", "rollouts")


@attrs.frozen(kw_only=True)
class ShownRun:
    """The view of a run that was asked for; with nothing set, the overview."""

    candidate: int | None = None
    rejected: bool = False
    case: str | None = None
    step: int | None = None


def show_run(runs: Runs, name: str, choice: ShownRun, *, as_json: bool) -> None:
    """Print one view of a run."""
    record = read_run(runs.find(name))
    if record.state is State.INTERRUPTED:  # its last events may be behind its journal
        summary = summarize(record.folder)
        record.rollouts, record.cost = summary.rollouts, summary.cost
    if choice.step is not None:
        _show_questions(record, choice.step, as_json=as_json)
    elif choice.case is not None:
        _show_case(record, choice.case, candidate=choice.candidate, as_json=as_json)
    elif choice.candidate is not None:
        _show_candidate(record, choice.candidate, as_json=as_json)
    elif choice.rejected:
        _show_rejections(record, as_json=as_json)
    else:
        _show_overview(record, runs, as_json=as_json)


def _show_overview(record: RunRecord, runs: Runs, *, as_json: bool) -> None:
    """Print the state of a run and its candidates; the JSON leaves out texts and scores."""
    gain, folder = held_out_gain(record), record.folder
    if as_json:
        print_json(
            {
                **figures_json(record),
                "run": record.id,
                "folder": str(folder.path.absolute()),
                "created": record.created.isoformat(),
                "config": dict(record.config),
                "candidates": [
                    {name: _plain(candidate)[name] for name in _IN_SHORT}
                    for candidate in record.candidates
                ],
                "result": None if record.ended is None else {**read_document(folder.result)},
            }
        )
        return
    cost = record.cost if record.candidates else None
    detail = record.ended.stop_detail if record.ended else ""
    rows = [
        ("run", f"{record.id}, {record.state}"),
        ("prompt", record.prompt),
        ("made", moment(record.created)),
        ("validation", change(*record.means, estimated=record.estimated)),
        ("test", change(gain.mean_before, gain.mean_after) if gain else ""),
        ("cases", gain.details if gain else ""),
        ("cost", f"{dollars(cost)}, {counted(record.rollouts, 'test call')}"),
        ("stopped", record.stopped),
        ("", "" if detail in record.stopped else detail),
        ("rewrites", str(record.rewrites) if record.candidates else ""),
        ("folder", str(relative(folder.path))),
    ]
    screen = Screen()
    screen.fields([(name, value) for name, value in rows if value], width=len("validation"))
    screen.line()
    _print_candidates(screen, record)
    screen.line()
    commands = [runs.command("show", folder, "--candidate N")]
    if record.rejections:
        commands.append(runs.command("show", folder, "--rejected"))
    commands.append(runs.command("show", folder, "--case ID"))
    commands.append(runs.command("show", folder, "--step N"))
    screen.body("\n".join(commands))


def _print_candidates(screen: Screen, record: RunRecord) -> None:
    if not record.candidates:
        screen.line("your prompt has not been evaluated yet")
        return
    best = [candidate for candidate in record.ranked if candidate.candidate]
    # The highest means are chosen, but listed in the order in which they joined.
    listed = sorted(best[:_MOST_CANDIDATES], key=lambda one: one.candidate)
    listed.insert(0, record.candidates[0])
    table = [("candidate", "mean", "parents", "step", "changes")]
    for candidate in listed:
        parents = ", ".join(map(str, candidate.parents))
        table.append(
            (
                str(candidate.candidate),
                shown_mean(candidate),
                parents,
                str(candidate.step),
                _changed(record, candidate),
            )
        )
    screen.table(table)
    if (more := len(best) - _MOST_CANDIDATES) > 0:
        screen.line(f"and {more} more with lower means")
    if any(candidate.estimated for candidate in listed):
        screen.line(ESTIMATED)


def _changed(record: RunRecord, candidate: CandidateAdded) -> str:
    """Name the parts that a candidate changes, without the name of the graph; mark the best."""
    if not candidate.candidate:
        return "your prompt"
    changed = candidate.changed.replace(f"{record.prompt}/", "")
    best = record.ended.best if record.ended else None
    return f"{changed} (best)" if candidate.candidate == best else changed


def _show_candidate(record: RunRecord, number: int, *, as_json: bool) -> None:
    candidate, page = _candidate(record, number), record.folder.candidate(number)
    if as_json:
        where = {"run": record.id, "page": str(page.absolute())}
        more = {
            "pareto_ids": list(record.pareto_ids),
            "why": [*reasons_of(record, candidate)],
            "cases": sum(value is not None for value in candidate.scores),
            "mean_there": mean_score(candidate.scores),
        }
        print_json({**where, **more, **_plain(candidate)})
        return
    screen = Screen()
    screen.line(f"candidate {number} of {record.id}", bold=True)
    parents = [record.candidates[position] for position in candidate.parents]
    scored = sum(value is not None for value in candidate.scores)
    on = f" on {counted(scored, 'validation case')}"
    if candidate.estimated:
        validation = counted(len(candidate.scores), "validation case")
        there = score(mean_score(candidate.scores))
        on = f", estimated from {scored} of {validation}, {there} there"
    screen.fields(
        [
            ("parents", ", ".join(f"{p.candidate} ({shown_mean(p)})" for p in parents) or "none"),
            ("changes", candidate.changed if number else "nothing: your prompt"),
            *(("why", reason) for reason in reasons_of(record, candidate)),
            ("mean", f"{shown_mean(candidate)}{on}"),
            ("step", str(candidate.step)),
            ("page", str(relative(page))),
        ]
    )
    for parent in parents:
        for name, text in candidate.texts.items():
            before = parent.texts.get(name, "")
            if before != text:
                screen.line()
                screen.line(f"{name}, against candidate {parent.candidate}", bold=True)
                words = changes_in_words(name, before, text)
                difference = PartDiff(kind="text", part=name, before=before, after=text)
                screen.body(words or difference.readable.removesuffix("\n"))
    for name, text in candidate.texts.items():
        screen.line()
        screen.line(name, bold=True)
        screen.body(text)


def _candidate(record: RunRecord, number: int) -> CandidateAdded:
    if number < len(record.candidates):
        return record.candidates[number]
    has = f"0 to {len(record.candidates) - 1}" if record.candidates else "none yet"
    raise ConfigError(f"--candidate: run {record.id} has no candidate {number}; it has {has}")


def _show_rejections(record: RunRecord, *, as_json: bool) -> None:
    pages = [
        (rejection, record.folder.rejection(rejection.step, rejection.attempt))
        for rejection in record.rejections
    ]
    if as_json:
        rejected = [
            {"page": str(page.absolute()), **_plain(rejection)} for rejection, page in pages
        ]
        print_json({"run": record.id, "rejected": rejected})
        return
    screen = Screen()
    screen.line(f"{counted(len(pages), 'dropped rewrite')} of {record.id}", bold=True)
    for rejection, page in pages:
        screen.line()
        screen.line(
            f"step {rejection.step}, attempt {rejection.attempt}: "
            f"{rejection.module} of candidate {rejection.parent}",
            bold=True,
        )
        rows = [("reason", f"{rejection.reason}: {rejection.detail}")]
        if rejection.child_score is not None:
            rows.append(
                ("tried on", f"{score(rejection.parent_score)} -> {score(rejection.child_score)}")
            )
        screen.fields([*rows, ("page", str(relative(page)))])
        screen.body(rejection.text or "(nothing was proposed)")


def _show_questions(record: RunRecord, step: int, *, as_json: bool) -> None:
    """Print every question of a step as it was sent, without wrapping or colours."""
    questions = questions_of(record.folder)
    questions_of_step = {place: path for place, path in questions.items() if place.step == step}
    if not questions_of_step:
        steps = ", ".join(map(str, dict.fromkeys(place.step for place in questions))) or "none"
        raise ConfigError(
            f"--step: run {record.id} has no question in step {step}; steps with questions: {steps}"
        )
    texts = {str(place): path.read_text("utf-8") for place, path in questions_of_step.items()}
    if as_json:
        rows = [{"position": place, "question": text} for place, text in texts.items()]
        print_json({"run": record.id, "step": step, "questions": rows})
        return
    for place, text in texts.items():
        if len(texts) > 1:
            echo(visible_line(f"==> {place} <=="))
        echo(visible(text))


def _plain(event: Event) -> dict[str, Json]:
    """Return the line of an event as plain data, without its name and number."""
    line = parse_json(encoded(event), where="the event")
    plain = line if isinstance(line, dict) else {}
    return {name: value for name, value in plain.items() if name not in ("event", "n")}


@attrs.frozen(kw_only=True)
class _HeldOut:
    """The scores of baseline and winner on a held-out case, or why it was not measured."""

    baseline: float | None = None
    winner: float | None = None
    why_not: str = ""


def _show_case(record: RunRecord, case: str, *, candidate: int | None, as_json: bool) -> None:
    only = None if candidate is None else {_candidate(record, candidate).candidate}
    rollouts = list(transcripts(record, candidates=only, case=case))
    unseen = _unseen(record)
    held_out, taught = unseen.get(case), record.taught.get(case)
    if not rollouts:
        who = "" if candidate is None else f"candidate {candidate} of "
        why = _why_not_tried(record, case, held_out, unseen)
        raise ConfigError(f"--case: {who}run {record.id} has no answer to a case `{case}`{why}")
    if as_json:
        plain = None if held_out is None else attrs.asdict(held_out)
        rows = [_rollout(rollout) for rollout in rollouts]
        document: dict[str, Json] = {"run": record.id, "held_out": plain, "rollouts": rows}
        if taught is not None:
            document["taught"] = {"teacher": taught.teacher, "expected": taught.expected}
        print_json(document)
        return
    screen = Screen()
    screen.line(f"case {case}", bold=True)
    if taught is not None:
        screen.line(f"expected, as the teacher `{taught.teacher}` answered:")
        screen.body(taught.expected, wrapped=True)
    if held_out is not None:
        means = change(held_out.baseline, held_out.winner)
        screen.line(f"an unseen case: {held_out.why_not or means}")
    printed = ""
    for rollout in rollouts:
        # The input is the same for all answers unless the case was changed between two processes.
        if rollout.record.inputs_repr != printed:
            printed = rollout.record.inputs_repr
            screen.body(printed)
            if taught is None and (expected := rollout.record.expected_repr):
                screen.line("expected:")
                screen.body(expected, wrapped=True)
        _print_rollout(screen, rollout)


def _unseen(record: RunRecord) -> Mapping[str, _HeldOut]:
    """Return the held-out cases by id; none before the run has ended."""
    held_out = record.ended.held_out if record.ended else None
    if held_out is None:
        return {}
    if held_out.why_not:
        return dict.fromkeys(held_out.ids, _HeldOut(why_not=held_out.why_not))
    pairs = zip(held_out.ids, held_out.baseline_scores, held_out.winner_scores, strict=True)
    return {case: _HeldOut(baseline=before, winner=after) for case, before, after in pairs}


def _why_not_tried(
    record: RunRecord, case: str, held_out: _HeldOut | None, unseen: Mapping[str, _HeldOut]
) -> str:
    if held_out is not None and held_out.why_not:
        return f": it is an unseen case, and was not measured: {held_out.why_not}"
    if held_out is not None:
        return ": it is an unseen case; only your prompt and the winner are evaluated on it"
    if case in record.pareto_ids:
        return "; it was not evaluated on it"
    near = did_you_mean(case, [*record.pareto_ids, *unseen])
    return f"{near}; the candidates' pages list the cases of the validation set"


def _print_rollout(screen: Screen, transcript: Transcript) -> None:
    record = transcript.record
    screen.line()
    who = "a candidate that was not kept" if transcript.candidate is None else transcript.candidate
    screen.line(f"candidate {who}, {transcript.position}: {score(record.score)}", bold=True)
    texts = {
        "answer": record.output_repr,
        "trace": record.tool_trace_repr,
        "feedback": record.feedback.feedback if record.feedback else "",
        "fault": record.fault,
    }
    for name, text in texts.items():
        if text:
            screen.line(f"  {name}:")
            screen.body(text, wrapped=True)
    for step in record.steps:
        after = f", after {', '.join(step.after)}" if step.after else ""
        screen.line(f"  step {step.id}: {step.node}{after}")
        for text in (step.input, f"-> {step.output}", step.error and f"failed: {step.error}"):
            if text:
                screen.body(text, wrapped=True)


def _rollout(transcript: Transcript) -> Json:
    return {
        "position": transcript.position,
        "phase": transcript.phase,
        "step": transcript.step,
        "candidate": transcript.candidate,
        "case": transcript.case,
        "score": transcript.record.score,
        "input": transcript.record.inputs_repr,
        "expected": transcript.record.expected_repr,
        "answer": transcript.record.output_repr,
        "trace": transcript.record.tool_trace_repr,
        "feedback": transcript.record.feedback.feedback if transcript.record.feedback else None,
        "fault": transcript.record.fault,
        **(
            {"steps": list(map(step_to_json, transcript.record.steps))}
            if transcript.record.steps
            else {}
        ),
    }
