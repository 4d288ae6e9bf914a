"""The pages of a run in Markdown: candidates and rejected proposals."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from promptgraft.overrides.diff import diff_bodies
from promptgraft.prompt.fences import fenced
from promptgraft.search.events import CandidateAdded, MutationRejected, RunStarted
from promptgraft.search.scores import Score
from promptgraft.text import counted, dollars, score, visible, visible_line


def waiting_baseline(started: RunStarted) -> str:
    """Return the page of the baseline before it was evaluated."""
    facts = [("prompt", started.prompt), ("mean on D_pareto", "not known yet")]
    return _page("Candidate 0: the baseline", facts, _texts(started.texts))


def candidate_page(
    started: RunStarted,
    added: CandidateAdded,
    parents: Sequence[CandidateAdded],
) -> str:
    """Return the page of a candidate: where it comes from, what it changes, says and scores."""
    number = added.candidate
    made = f", step {added.step}" if number else ": the baseline"
    facts = [("prompt", started.prompt)]
    facts += [("parent", f"candidate {one.candidate}") for one in parents]
    if added.module:
        facts.append(("changes", added.module))
    if len(parents) > 1:
        facts.append(("changes", "nothing new: a merge of its parents"))
    facts += [
        ("mean on D_pareto", _mean(added, parents)),
        *((f"objective {name}", f"{value:.4g}") for name, value in added.objectives.items()),
        ("used until then", _used(added)),
    ]
    blocks = [
        *(block for parent in parents for block in _changes(parent, added)),
        *_texts(added.texts),
        _scores(started, added, parents),
    ]
    return _page(f"Candidate {number}{made}", facts, blocks)


def rejection_page(rejected: MutationRejected) -> str:
    """Return the page of a rejected proposal: what it was to replace, and why it did not."""
    facts = [
        ("was to change", rejected.module),
        ("of", f"candidate {rejected.parent}"),
        ("reason", f"{rejected.reason}: {rejected.detail}"),
    ]
    if rejected.child_score is not None or rejected.parent_score is not None:
        tried = f"{score(rejected.child_score)}, the parent had {score(rejected.parent_score)}"
        facts.append(("mean on the minibatch", tried))
    blocks = ["## What was proposed", _quoted(rejected.text) if rejected.text else "Nothing."]
    if rejected.before:
        blocks += ["## What it was to replace", _quoted(rejected.before)]
    if rejected.before and rejected.text:
        blocks += _difference("## The difference", rejected.module, rejected.before, rejected.text)
    return _page(f"Step {rejected.step}, attempt {rejected.attempt}: rejected", facts, blocks)


def fenced_diff(text: str) -> str:
    """Return a unified diff between fences."""
    lines = visible(text).removesuffix("\n").split("\n")
    # That both texts end without a line break is of no interest.
    remarks = [line for line in lines if line.startswith("\\ ")]
    kept = [line for line in lines if line not in remarks] if len(remarks) == 2 else lines
    fence, _, rest = fenced("\n".join(kept)).partition("\n")
    return f"{fence}diff\n{rest}"


def table_row(cells: Iterable[str]) -> str:
    """Return one row of a table; no text can pass for the next cell or row."""
    return f"| {' | '.join(map(table_cell, cells))} |"


def table_cell(text: str) -> str:
    """Return a text as one line that cannot pass for the next cell or row."""
    return plain_line(text).replace("|", "\\|")


def plain_line(text: str) -> str:
    """Return a text as one line of a page; it can be no HTML, no link and no picture."""
    return re.sub(r"[<\[]", r"\\\g<0>", visible_line(text))


def _quoted(text: str) -> str:
    """Return a text between fences; a terminal that shows the page finds nothing to obey."""
    return fenced(visible(text))


def _page(title: str, facts: Iterable[tuple[str, str]], blocks: Iterable[str]) -> str:
    lines = [f"- {plain_line(name)}: {plain_line(value)}" for name, value in facts]
    return "\n\n".join([f"# {title}", "\n".join(lines), *blocks]) + "\n"


def _mean(added: CandidateAdded, parents: Sequence[CandidateAdded]) -> str:
    before = "".join(f"; candidate {one.candidate} has {score(one.mean)}" for one in parents)
    scored, total = sum(value is not None for value in added.scores), len(added.scores)
    over = f"over {counted(scored, 'scored example')}"
    if added.estimated:
        over = f"estimated from {scored} of {counted(total, 'example')}"
    return f"{score(added.mean)} {over}{before}"


def _used(added: CandidateAdded) -> str:
    return (
        f"{counted(added.rollouts, 'rollout')}, {counted(added.reflections, 'reflection')}, "
        f"{added.tokens:,} tokens, {dollars(added.cost)}"
    )


def _changes(parent: CandidateAdded, added: CandidateAdded) -> Iterator[str]:
    title = f"## What changes against candidate {parent.candidate}"
    for name, text in added.texts.items():
        before = parent.texts.get(name, "")
        if before != text:
            yield from _difference(title, name, before, text)
            title = ""


def _difference(title: str, name: str, before: str, after: str) -> list[str]:
    return [*([title] if title else []), fenced_diff(diff_bodies(before, after, part=name))]


def _texts(texts: Mapping[str, str]) -> list[str]:
    parts = [f"### {plain_line(name)}\n\n{_quoted(text)}" for name, text in texts.items()]
    return ["## What it says", *parts] if parts else []


def _scores(
    started: RunStarted,
    added: CandidateAdded,
    parents: Sequence[CandidateAdded],
) -> str:
    columns: list[Sequence[Score]] = [added.scores, *(one.scores for one in parents)]
    head = ["example", "score", *(f"candidate {one.candidate}" for one in parents)]
    shown = [[_shown(value) for value in column] for column in columns]
    rows = zip(_names(started.pareto_ids), *shown, strict=True)
    missing = any(None in column for column in columns)
    return "\n".join(
        [
            "## How it scores on D_pareto\n",
            *(["No score: not tried on it, or not scorable.\n"] if missing else []),
            table_row(head),
            f"|{' --- |' * len(head)}",
            *[f"| {' | '.join(row)} |" for row in rows],
        ]
    )


@functools.lru_cache(maxsize=1)
def _names(pareto_ids: tuple[str, ...]) -> tuple[str, ...]:
    # The same in every page of a run.
    return tuple(map(table_cell, pareto_ids))


def _shown(value: Score) -> str:
    return "no score" if value is None else f"{value:.4g}"
