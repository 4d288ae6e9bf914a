"""What a run that is kept shows of itself in notebooks and in ``print``."""

from __future__ import annotations

from promptgraft.notebook import Card, LongText, first_rows
from promptgraft.runs.records import RunRecord
from promptgraft.search.events import CandidateAdded
from promptgraft.text import change, counted, dollars, moment, score


def run_line(run: RunRecord) -> str:
    """Return where a run stands in one line."""
    return (
        f"{run.id} {run.state}: {run.prompt or 'no prompt yet'}, {_means(run)} on D_pareto, "
        f"{counted(len(run.candidates), 'candidate')}, {counted(run.rollouts, 'rollout')}"
    )


def run_card(run: RunRecord) -> Card:
    """Return what a run shows: where it stands, its pool, and the texts of the best candidate."""
    used = f"{run.rollouts}" if run.budget is None else f"{run.rollouts} of {run.budget}"
    best = run.sides[1] if run.sides else None
    texts = (
        ()
        if best is None
        else (
            LongText(title=f"{name} of candidate {best.candidate}", text=text)
            for name, text in best.texts.items()
        )
    )
    return Card(
        title=run.id,
        lead=f"{run.state}, {run.prompt}" if run.prompt else str(run.state),
        fields=(
            ("D_pareto", f"{_means(run)} on {counted(len(run.pareto_ids), 'example')}"),
            ("used", f"{used} rollouts, {dollars(run.cost if best else None)}"),
            ("steps", f"{run.steps}"),
            ("rejected", counted(len(run.rejections), "proposal")),
            ("created", moment(run.created)),
            ("folder", str(run.folder.path)),
        ),
        blocks=(
            first_rows(
                (_row(candidate) for candidate in run.ranked),
                ("candidate", "D_pareto", "from", "step", "changed"),
            ),
            *texts,
        ),
    )


def _row(candidate: CandidateAdded) -> tuple[str, ...]:
    parents = " + ".join(map(str, candidate.parents))
    mean = score(candidate.mean, estimated=candidate.estimated)
    return f"{candidate.candidate}", mean, parents, f"{candidate.step}", candidate.changed


def _means(run: RunRecord) -> str:
    return change(*run.means, estimated=run.estimated) if run.candidates else "nothing known"
