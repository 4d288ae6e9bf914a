"""The Markdown pages of a run: candidates, rejected proposals, rounds, and the summary."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from promptgraft.ground.text import (
    clip_line,
    counted,
    difference,
    dollars,
    fenced,
    fewer_tokens,
    score,
    visible,
    visible_line,
)
from promptgraft.overrides.differences import PartDiff, diff_bodies
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory, shown_mean
from promptgraft.search.events import CandidateAdded, MutationRejected, RunEnded, RunStarted
from promptgraft.search.round_events import (
    GradientsMerged,
    PatchWritten,
    QuestionUnanswered,
    RoundEnded,
    RoundEvent,
    RoundTrained,
    StepBlamed,
)
from promptgraft.search.scores import Score, mean_score
from promptgraft.targets.types import names_in

_MOST_CANDIDATES = 50  # in the summary; each has its own page


def waiting_baseline(started: RunStarted) -> str:
    """Return the page of the baseline before it has been evaluated."""
    facts = [("prompt", started.prompt), ("mean on the validation set", "not known yet")]
    return page("Candidate 0: your prompt", facts, _texts(started.texts))


def reasons_of(history: RunHistory, candidate: CandidateAdded) -> list[str]:
    """Return the reasons that the reflection model gave for the changes of a candidate."""
    if candidate.shortened or candidate.module is None or candidate.step not in history.tried:
        return []
    names = names_in(candidate.module)
    reasons = history.tried[candidate.step].reasons.items()
    return [f"{name}: {reason}" for name, reason in reasons if reason and name in names]


def candidate_page(
    started: RunStarted,
    added: CandidateAdded,
    parents: Sequence[CandidateAdded],
    *,
    why: Sequence[str],
) -> str:
    """Return the page of a candidate: its parents, changes, texts and scores."""
    number = added.candidate
    origin = f", step {added.step}" if number else ": your prompt"
    facts = [("prompt", started.prompt)]
    facts += [("parent", f"candidate {parent.candidate}") for parent in parents]
    if added.module:
        facts.append(("changes", added.module))
    facts += [("why", reason) for reason in why]
    if len(parents) > 1:
        facts.append(("changes", "nothing new: a merge of its parents"))
    facts.append(("mean on the validation set", _mean(added, parents)))
    if (rate := added.figures.pass_rate) is not None:
        facts.append(("pass rate", f"{rate:.3f} of the cases with a score"))
    facts += [(f"objective {name}", f"{value:.4g}") for name, value in added.objectives.items()]
    used = (
        f"{counted(added.rollouts, 'test call')}, {counted(added.reflections, 'reflection call')}"
    )
    facts.append(("used so far", f"{used}, {added.tokens:,} tokens, {dollars(added.cost)}"))
    blocks = [
        *(block for parent in parents for block in _changes(parent, added)),
        *_texts(added.texts),
        _scores(started, added, parents),
    ]
    return page(f"Candidate {number}{origin}", facts, blocks)


def rejection_page(rejected: MutationRejected) -> str:
    """Return the page of a rejected proposal: its text, the text before, and the reason."""
    facts = [
        ("proposed change to", rejected.module),
        ("parent", f"candidate {rejected.parent}"),
        ("reason", f"{rejected.reason}: {rejected.detail}"),
    ]
    if rejected.child_score is not None or rejected.parent_score is not None:
        tried = f"{score(rejected.child_score)}, the parent had {score(rejected.parent_score)}"
        facts.append(("mean on the cases that it was written for", tried))
    blocks = ["## Proposed text", _quoted(rejected.text) if rejected.text else "Nothing."]
    if rejected.before:
        blocks += ["## Text before", _quoted(rejected.before)]
    if rejected.before and rejected.text:
        blocks += text_change("## Difference", rejected.module, rejected.before, rejected.text)
    return page(f"Step {rejected.step}, attempt {rejected.attempt}: rejected", facts, blocks)


def fenced_diff(text: str) -> str:
    """Return a unified diff between fences."""
    lines = visible(text).removesuffix("\n").split("\n")
    # "No newline at end of text" is noise if it applies to both texts.
    remarks = [line for line in lines if line.startswith("\\ ")]
    # One remark alone is a change: only one of the texts lacks the line break.
    diff_lines = [line for line in lines if line not in remarks] if len(remarks) == 2 else lines
    fence, _, rest = fenced("\n".join(diff_lines)).partition("\n")
    return f"{fence}diff\n{rest}"


def table(head: Sequence[str], rows: Iterable[str]) -> list[str]:
    """Return the lines of a table."""
    return [table_row(head), f"|{' --- |' * len(head)}", *rows]


def table_row(cells: Iterable[str]) -> str:
    """Return one row of a table; cells are escaped so that none can begin another cell or row."""
    return f"| {' | '.join(map(_table_cell, cells))} |"


def _table_cell(text: str) -> str:
    return plain_line(text).replace("|", "\\|")


def plain_line(text: str) -> str:
    """Return a text as one line of a page, escaped so that it is no HTML, link or image."""
    # The texts come from models and data: a viewer would load an image from anywhere.
    return re.sub(r"[<\[]", r"\\\g<0>", visible_line(text))


def _quoted(text: str) -> str:
    """Return a text between fences, with control characters spelled out."""
    return fenced(visible(text))


def page(title: str, facts: Iterable[tuple[str, str]], blocks: Iterable[str]) -> str:
    """Return a page: a title, a list of named facts, and further blocks."""
    lines = [f"- {plain_line(name)}: {plain_line(value)}" for name, value in facts]
    return "\n\n".join([f"# {title}", "\n".join(lines), *blocks]) + "\n"


def _mean(added: CandidateAdded, parents: Sequence[CandidateAdded]) -> str:
    before = "".join(
        f"; candidate {parent.candidate} has {score(parent.mean)}" for parent in parents
    )
    scored, total = sum(value is not None for value in added.scores), len(added.scores)
    over = f"over {counted(scored, 'scored case')}"
    if added.estimated:
        there = f"{score(mean_score(added.scores))} there"
        over = f"estimated from {scored} of {counted(total, 'case')}, {there}"
    return f"{score(added.mean)} {over}{before}"


def _changes(parent: CandidateAdded, added: CandidateAdded) -> Iterator[str]:
    title = f"## Changes from candidate {parent.candidate}"
    for name, text in added.texts.items():
        before = parent.texts.get(name, "")
        if before != text:
            yield from text_change(title, name, before, text)
            title = ""


def text_change(title: str, name: str, before: str, after: str) -> list[str]:
    """Return the diff of a text, below a title unless that is empty."""
    return [*([title] if title else []), fenced_diff(diff_bodies(before, after, part=name))]


def _texts(texts: Mapping[str, str]) -> list[str]:
    parts = [f"### {plain_line(name)}\n\n{_quoted(text)}" for name, text in texts.items()]
    return ["## Texts", *parts] if parts else []


def _scores(started: RunStarted, added: CandidateAdded, parents: Sequence[CandidateAdded]) -> str:
    columns: list[Sequence[Score]] = [added.scores, *(parent.scores for parent in parents)]
    head = ("case", "score", *(f"candidate {parent.candidate}" for parent in parents))
    # Without any scores if the run was stopped in the evaluation.
    blank = ["no score"] * len(started.pareto_ids)
    shown_columns = ([*map(_shown, column)] or blank for column in columns)
    rows = zip(_names(started.pareto_ids), *shown_columns, strict=True)
    missing = any(None in column or not column for column in columns)
    remark = ["No score: not tried on it, or not scorable.\n"] if missing else []
    body = table(head, (f"| {' | '.join(row)} |" for row in rows))
    return "\n".join(["## Scores on the validation set\n", *remark, *body])


@functools.lru_cache(maxsize=1)
def _names(pareto_ids: tuple[str, ...]) -> tuple[str, ...]:
    # Cached because every page of a run has the same names.
    return tuple(map(_table_cell, pareto_ids))


def _shown(value: Score) -> str:
    return "no score" if value is None else f"{value:.4g}"


def summary_page(
    folder: RunFolder,
    history: RunHistory,
    ended: RunEnded,
    changes: tuple[PartDiff, ...],
    *,
    warnings: tuple[str, ...],
) -> str:
    """Return the summary page; ``changes`` is what the winner changes in the source."""
    name = history.started.prompt if history.started else folder.id
    blocks = [
        f"# {name}: {ended.verdict}",
        f"Run `{folder.id}`, stopped by {ended.stop_reason}: {plain_line(ended.stop_detail)}.",
        *_summary_scores(history, ended),
        *_summary_metrics(ended),
        _summary_used(history, ended),
        *(f"Warning: {warning}." for warning in warnings),
        *(["## Changes of the winner"] if changes else []),
        *(f"### {plain_line(part.part)}\n\n{fenced_diff(part.text)}" for part in changes),
        *_summary_candidates(history, ended),
        "## Next steps",
        "\n".join(_next_steps(folder, ended)),
    ]
    return "\n\n".join(blocks) + "\n"


def _summary_scores(history: RunHistory, ended: RunEnded) -> Iterator[str]:
    rows, held_out = [], ended.held_out
    if held_out is not None and not held_out.why_not:
        label = f"{len(held_out.ids)} test cases, never seen by the search{held_out.repeats}"
        before, after = held_out.baseline_mean, held_out.winner_mean
        rows.append([label, score(before), score(after), difference(before, after)])
    label = f"{len(history.pareto_ids)} validation cases, on which the search chooses"
    gain = difference(*history.means, estimated=history.estimated)
    rows.append([label, *map(shown_mean, history.sides or ()), gain])
    yield "\n".join(table(["mean score", "your prompt", "winner", "gain"], map(table_row, rows)))
    if held_out is not None and held_out.gain is not None and held_out.gain.details:
        yield f"Test cases, case by case: {held_out.gain.details}."
        if held_out.answer_length:
            yield f"Length of the answers: {held_out.answer_length}."
    if held_out is not None and held_out.why_not:
        yield f"Not measured on test cases: {plain_line(held_out.why_not)}."


def _summary_metrics(ended: RunEnded) -> Iterator[str]:
    rows = [
        [what, threshold, score(before), score(after), difference(before, after)]
        for what, threshold, before, after in ended.passing.rows
    ]
    if rows:
        head = ["metric", "passes from", "your prompt", "winner", "gain"]
        yield "\n".join(table(head, map(table_row, rows)))


def _summary_used(history: RunHistory, ended: RunEnded) -> str:
    shorter = f"- shortened: {fewer_tokens(ended.shortened)}\n" if ended.shortened else ""
    return (
        f"{shorter}"
        f"- used: {ended.rollouts} of {counted(history.budget or 0, 'test call')}\n"
        f"- reflection calls: {ended.reflections}\n"
        f"- steps: {ended.steps}\n"
        f"- cost: {dollars(ended.cost)}\n"
        f"- rewrites: {history.rewrites}"
    )


def _summary_candidates(history: RunHistory, ended: RunEnded) -> Iterator[str]:
    listed, rows = history.candidates[:_MOST_CANDIDATES], []
    for candidate in listed:
        parents = ", ".join(map(str, candidate.parents))
        winner = " (winner)" if candidate.candidate == ended.best and candidate.candidate else ""
        cells = [
            f"{candidate.candidate}{winner}",
            parents,
            candidate.changed if candidate.candidate else "your prompt",
            shown_mean(candidate),
        ]
        rows.append(table_row(cells))
    yield "## Candidates"
    yield "\n".join(table(["candidate", "parents", "changes", "mean on the validation set"], rows))
    if (more := len(history.candidates) - _MOST_CANDIDATES) > 0:
        yield f"and {more} more, in the folder `candidates`."
    if any(candidate.estimated for candidate in listed):
        yield "A mean with ~ is an estimate: some cases have no score."


def _next_steps(folder: RunFolder, ended: RunEnded) -> Iterator[str]:
    if ended.improved:
        yield f"- `promptgraft apply {folder.id}` shows the change and applies it"
    yield f"- `promptgraft show {folder.id} --rejected` lists what was dropped, with the reasons"
    yield f"- `promptgraft resume {folder.id} --budget N` resumes the run with a larger budget"


_LONGEST = 300


def round_page(events: Sequence[RoundEvent]) -> str:
    """Return the page of a round from its events so far."""
    ended = next((event for event in events if isinstance(event, RoundEnded)), None)
    became = ended.decided if ended is not None else "the run ended within it"
    facts = [fact for event in events for fact in _round_facts(event)]
    return page(f"Round {events[0].step}: {became}", facts, _round_blocks(events))


def _round_facts(event: RoundEvent) -> Iterator[tuple[str, str]]:
    match event:
        case RoundTrained():
            failed = len({loss.case for loss in event.losses})
            yield "current candidate", str(event.current)
            yield "training cases", f"{len(event.cases)}, {failed} failed"
            yield "mean on them", score(mean_score(event.scores))
        case RoundEnded():
            yield from _means("on the failures", event.tried)
            yield from _means("on the validation set", event.validated)
            yield "decision", f"{event.decided}: {event.detail}"
            if event.candidate is not None:
                yield "new candidate", str(event.candidate)
            if event.stop:
                yield "the run ended", event.stop


def _means(where: str, means: tuple[Score, Score] | None) -> Iterator[tuple[str, str]]:
    if means is not None:
        yield where, f"{score(means[0])} -> {score(means[1])}"


def _round_blocks(events: Sequence[RoundEvent]) -> Iterator[str]:
    trained = [round_events for round_events in events if isinstance(round_events, RoundTrained)]
    losses = [loss for event in trained for loss in event.losses]
    yield from _listing(
        "Failures",
        ("case", "metric", "severity", "reason"),
        [(loss.case, loss.metric, loss.severity, loss.reason) for loss in losses],
    )
    yield from _listing(
        "Blame",
        ("case", "step", "blames", "severity", "problem"),
        [
            (event.case, f"{event.at} {event.node}".strip(), blame.to, blame.severity, blame.text)
            for event in events
            if isinstance(event, StepBlamed)
            for blame in (*event.blamed, *event.handed_on)
        ],
    )
    for event in events:
        match event:
            case GradientsMerged():
                yield f"## Problems of {plain_line(event.module)}"
                yield f"Blamed by {', '.join(map(plain_line, event.cases))}."
                problems = (
                    f"- {problem.severity}: {_short(problem.text)}" for problem in event.problems
                )
                yield "\n".join(problems)
            case PatchWritten():
                yield f"## New text of {plain_line(event.module)}"
                yield f"{_short(event.why)}"
                yield from text_change("", event.module, event.before, event.text)
    unanswered = [questions for questions in events if isinstance(questions, QuestionUnanswered)]
    yield from _listing(
        "Questions without an answer",
        ("question", "why"),
        [(question.position, question.detail) for question in unanswered],
    )


def _listing(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield f"## {title}"
        yield "\n".join(table(head, (table_row([_short(value) for value in row]) for row in rows)))


def _short(text: str) -> str:
    return plain_line(clip_line(text, _LONGEST))
