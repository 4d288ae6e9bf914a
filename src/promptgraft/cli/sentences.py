"""What the events of a run say, in words: for logs, and for the last rows of the panel."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.runs import RunHistory
from promptgraft.search.events import (
    CandidateAdded,
    MergeAccepted,
    MergeRejected,
    MutationAccepted,
    MutationRejected,
    RunEnded,
)
from promptgraft.search.notices import CallWaits, Event, RunPlanned, StopFileRemoved
from promptgraft.search.place import Phase
from promptgraft.text import change, counted, difference, score

ESTIMATED = "~ is estimated, from some of the examples"
"""What the mark means, said where it is seen for the first time."""

_LONGEST_DETAIL = 160

_DOING: Mapping[Phase, str] = {
    Phase.BASELINE: "evaluating the baseline",
    Phase.STEP: "starting",
    Phase.PARENT: "evaluating the parent",
    Phase.REFLECT: "reflecting",
    Phase.CHILD: "evaluating the child",
    Phase.PARETO: "validating",
    Phase.MERGE: "merging",
    Phase.IDLE: "evaluating the best on more",
    Phase.FINAL: "evaluating the finalists",
    Phase.CONFIRM: "confirming the winner",
    Phase.HELD_OUT: "evaluating held-out examples",
}


def sentence(event: Event, run: RunHistory) -> str:
    """Return what an event says, empty when people need not know; ``run`` knows it already."""
    match event:
        case RunPlanned():
            return event.line
        case CandidateAdded() if event.candidate == 0:
            return f"baseline {_mean(event)} on {_tried(run)}the validation set, {used(run)}"
        case MutationAccepted():
            return (
                f"step {event.step}: accepted {event.module} with {_mean_of(event, run)}, "
                f"best {best(run)}, {used(run)}"
            )
        case MutationRejected() if event.final:
            return f"step {event.step}: rejected {event.module}: {_why(event)}"
        case MergeAccepted():
            return (
                f"step {event.step}: merged {_parents(event)} with {_mean_of(event, run)}, "
                f"best {best(run)}, {used(run)}"
            )
        case MergeRejected():
            return f"step {event.step}: rejected the merge of {_parents(event)}: {_why(event)}"
        case CallWaits():
            return waiting(event.model, event.seconds, event.reason)
        case StopFileRemoved():
            return f"removed the stop file {event.path} that an earlier run has left behind"
        case RunEnded():
            return _ended(event)
    return ""


def brief(event: Event, run: RunHistory) -> str:
    """Return the same for the panel, which shows the figures: what comes last may be cut off."""
    match event:
        case RunPlanned() | CallWaits():
            return ""
        case CandidateAdded() if event.candidate == 0:
            return f"the baseline has {_mean(event)}"
        case MutationAccepted():
            return f"step {event.step}: accepted {_lead(event, run)}, {event.module}"
        case MutationRejected() if event.final:
            return f"step {event.step}: rejected, {event.reason}: {event.module}"
        case MergeAccepted():
            return f"step {event.step}: merged {_parents(event)}, {_lead(event, run)}"
        case MergeRejected():
            return f"step {event.step}: merge of {_parents(event)} rejected, {event.reason}"
    return sentence(event, run)


def warnings(event: Event) -> tuple[str, ...]:
    """Return the warnings of a plan, a sentence each; nothing for other events."""
    found = event.warnings if isinstance(event, RunPlanned) else ()
    return tuple(f"warning: {warning}" for warning in found)


def waiting(model: str, seconds: float | None, reason: str) -> str:
    """Return what a call waits for, and how long."""
    length = "" if seconds is None else f" {seconds:.0f} s"
    return f"waiting{length} for {model}: {reason}"


def doing(run: RunHistory) -> str:
    """Return what the run does now."""
    if run.ended:
        return "ended"
    progress = f", {run.done} of {run.total}" if run.total > 1 else ""
    return f"{_phase(run)}{progress}"


def _phase(run: RunHistory) -> str:
    place = run.place
    if place is None:
        return "starting"
    what = _DOING[place.phase]
    if place.phase is Phase.REFLECT and place.count % 2:
        what = "asking for a repair"
    elif place.phase in (Phase.PARENT, Phase.CHILD) and place.count:
        what = "evaluating both again"
    if not place.step:
        return what
    proposal = f", proposal {place.proposal}" if place.proposal else ""
    return f"step {place.step}{proposal}: {what}"


def best(run: RunHistory) -> str:
    """Return the best mean so far, and how far it is above the baseline."""
    gained = difference(*run.means, estimated=run.estimated)
    text = score(run.means[1], estimated=run.estimated[1])
    return f"{text} ({gained})" if gained else text


def used(run: RunHistory) -> str:
    """Return how many rollouts are used."""
    if not run.budget:
        return counted(run.rollouts, "rollout")
    return f"{run.rollouts} of {run.budget} rollouts"


def _mean(one: CandidateAdded) -> str:
    return score(one.mean, estimated=one.estimated)


def _mean_of(event: MutationAccepted | MergeAccepted, run: RunHistory) -> str:
    return _mean(run.candidates[event.candidate])


def _lead(event: MutationAccepted | MergeAccepted, run: RunHistory) -> str:
    lead = ", best so far" if event.candidate == run.best else ""
    return f"{_mean_of(event, run)}{lead}"


def _tried(run: RunHistory) -> str:
    """Return how many examples the baseline has a score for, where that is not all of them."""
    return f"{run.scored} of the {len(run.pareto_ids)} examples of " if run.estimated[0] else ""


def _parents(event: MergeAccepted | MergeRejected) -> str:
    return " and ".join(map(str, event.parents))


def _why(event: MutationRejected | MergeRejected) -> str:
    detail = event.detail
    if len(detail) > _LONGEST_DETAIL:
        detail = f"{detail[:_LONGEST_DETAIL]}…"
    return f"{event.reason}; {detail}" if detail else str(event.reason)


def _ended(event: RunEnded) -> str:
    verdict = "improved" if event.improved else "not improved"
    marks = event.baseline_estimated, event.best_estimated
    means = change(event.baseline_mean, event.best_mean, estimated=marks)
    text = f"ended: {verdict}, {means} on the validation set"
    found = event.held_out
    if found is not None and found.winner_mean is not None:
        text += f", {change(found.baseline_mean, found.winner_mean)} on held-out examples"
    why = f"; stopped by {event.stop_reason}: {event.stop_detail}"
    return f"{text}, {counted(event.rollouts, 'rollout')}{why}"
