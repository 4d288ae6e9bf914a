"""What the lines of a run say, in words: for logs, and for the last rows of the panel."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.cli.run_state import RunState, number, whole
from promptgraft.serde import Json
from promptgraft.text import change, counted, difference, score

ESTIMATED = "~ is estimated, from some of the examples"
"""What the mark means, said where it is seen for the first time."""

_LONGEST_DETAIL = 160

_DOING: Mapping[str, str] = {
    "parent": "trying the parent",
    "reflect": "reflecting",
    "child": "trying the child",
    "again": "trying both again",
    "pareto": "validating",
    "merge": "merging",
    "idle": "trying the best on more",
}


def sentence(line: Mapping[str, Json], state: RunState) -> str:
    """Return what a line says, empty when people need not know; ``state`` knows it already."""
    match line.get("event"):
        case "plan":
            return str(line.get("line"))
        case "candidate" if line.get("candidate") == 0:
            return f"baseline {_mean(line)} on {_tried(state)}D_pareto, {used(state)}"
        case "accepted":
            return (
                f"step {line.get('step')}: accepted {line.get('module')} with {_mean(line)}, "
                f"best {best(state)}, {used(state)}"
            )
        case "rejected" if line.get("final"):
            return f"step {line.get('step')}: rejected {line.get('module')}: {_why(line)}"
        case "merge_accepted":
            return (
                f"step {line.get('step')}: merged {_parents(line)} with {_mean(line)}, "
                f"best {best(state)}, {used(state)}"
            )
        case "merge_rejected":
            return f"step {line.get('step')}: rejected the merge of {_parents(line)}: {_why(line)}"
        case "waiting":
            return waiting(
                str(line.get("model")), number(line.get("seconds")), str(line.get("reason"))
            )
        case "stop_file_removed":
            return f"removed the stop file {line.get('path')} that an earlier run has left behind"
        case "ended":
            return _ended(line)
    return ""


def brief(line: Mapping[str, Json], state: RunState) -> str:
    """Return the same for the panel, which shows the figures: what comes last may be cut off."""
    step = f"step {line.get('step')}:"
    mean = _mean(line)
    lead = ", best so far" if line.get("candidate") == state.leader else ""
    match line.get("event"):
        case "plan" | "waiting":
            return ""
        case "candidate" if line.get("candidate") == 0:
            return f"the baseline has {mean}"
        case "accepted":
            return f"{step} accepted {mean}{lead}, {line.get('module')}"
        case "rejected" if line.get("final"):
            return f"{step} rejected, {line.get('reason')}: {line.get('module')}"
        case "merge_accepted":
            return f"{step} merged {_parents(line)}, {mean}{lead}"
        case "merge_rejected":
            return f"{step} merge of {_parents(line)} rejected, {line.get('reason')}"
    return sentence(line, state)


def warnings(line: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the warnings of a plan, a sentence each; nothing for other lines."""
    plan = line.get("plan") if line.get("event") == "plan" else None
    told = plan.get("warnings") if isinstance(plan, dict) else None
    return tuple(f"warning: {warning}" for warning in told) if isinstance(told, list) else ()


def waiting(model: str, seconds: float | None, reason: str) -> str:
    """Return what a call waits for, and how long."""
    length = "" if seconds is None else f" {seconds:.0f} s"
    return f"waiting{length} for {model}: {reason}"


def doing(state: RunState) -> str:
    """Return what the run does now."""
    if state.ended:
        return "ended"
    progress = f", {state.done} of {state.total}" if state.total > 1 else ""
    return f"{_phase(state.position)}{progress}"


def _phase(position: str) -> str:
    kind, *rest = position.split("/")
    match kind, rest:
        case "step", [number, proposal, *what] if proposal.isdigit():
            of_step = _phase("/".join(("step", number, *what)))
            return of_step.replace(":", f", proposal {proposal}:", 1)
        case "baseline", _:
            return "trying the baseline"
        case "step", [number, "reflect", attempt] if attempt[-1:] in tuple("13579"):
            return f"step {number}: asking for a repair"
        case "step", [number, what, *_] if what in _DOING:
            return f"step {number}: {_DOING[what]}"
        case "final", _:
            return "trying the finalists"
        case "confirm", _:
            return "confirming the winner"
        case "held-out", _:
            return "trying held-out examples"
    return "starting"


def best(state: RunState) -> str:
    """Return the best mean so far, and how far it is above the baseline."""
    gained = difference(state.baseline, state.best, estimated=state.estimated)
    told = score(state.best, estimated=state.estimated[1])
    return f"{told} ({gained})" if gained else told


def used(state: RunState) -> str:
    """Return how many rollouts are used."""
    if not state.budget:
        return counted(state.rollouts, "rollout")
    return f"{state.rollouts} of {state.budget} rollouts"


def _mean(line: Mapping[str, Json]) -> str:
    return score(number(line.get("mean")), estimated=line.get("estimated") is True)


def _tried(state: RunState) -> str:
    """Return how many examples the baseline has a score for, where that is not all of them."""
    return f"{state.scored} of the {state.examples} examples of " if state.estimated[0] else ""


def _parents(line: Mapping[str, Json]) -> str:
    parents = line.get("parents")
    return " and ".join(map(str, parents)) if isinstance(parents, list) else ""


def _why(line: Mapping[str, Json]) -> str:
    detail = str(line.get("detail"))
    if len(detail) > _LONGEST_DETAIL:
        detail = f"{detail[:_LONGEST_DETAIL]}…"
    return f"{line.get('reason')}; {detail}" if detail else str(line.get("reason"))


def _ended(line: Mapping[str, Json]) -> str:
    verdict = "improved" if line.get("improved") else "not improved"
    stop, held_out = line.get("stop"), line.get("held_out")
    told = f"ended: {verdict}, {_change(line, 'best')} on D_pareto"
    if isinstance(held_out, dict) and held_out.get("winner_mean") is not None:
        told += f", {_change(held_out, 'winner')} on held-out examples"
    rollouts = counted(whole(line.get("rollouts")), "rollout")
    why = f"; stopped by {stop['reason']}: {stop['detail']}" if isinstance(stop, dict) else ""
    return f"{told}, {rollouts}{why}"


def _change(plain: Mapping[str, Json], side: str) -> str:
    before, after = (number(plain.get(f"{name}_mean")) for name in ("baseline", side))
    marks = (plain.get(f"{name}_estimated") is True for name in ("baseline", side))
    return change(before, after, estimated=(next(marks), next(marks)))
