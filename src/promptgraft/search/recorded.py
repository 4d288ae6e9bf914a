"""Rollouts as the journal keeps them."""

from __future__ import annotations

import attrs
import msgspec

from promptgraft.errors import FeedbackError, JournalCorruptError
from promptgraft.evals.spending import spent_to_json
from promptgraft.evals.trace import step_to_json
from promptgraft.evals.types import Verdict
from promptgraft.serde import Json
from promptgraft.targets.types import RolloutRecord

READER = msgspec.json.Decoder(RolloutRecord)
"""Reads a rollout as it stands in a journal; quick, because a resume reads all of them."""

_UNSAID = {("amount", None), ("node", "")}


def record_to_json(record: RolloutRecord) -> Json:
    """Return what the journal keeps of a rollout: its fields by name."""
    feedback = record.feedback
    told: dict[str, Json] = {
        "example_id": record.example_id,
        "inputs_repr": record.inputs_repr,
        "output_repr": record.output_repr,
        "tool_trace_repr": record.tool_trace_repr,
        "feedback": None
        if feedback is None
        else {
            "score": feedback.score,
            "feedback": feedback.feedback,
            "eval_trace": feedback.eval_trace,
            "objectives": dict(feedback.objectives),
        },
        "fault": record.fault,
        "hidden": list(record.hidden),
        "spent": spent_to_json(record.spent),
    }
    # Most records have neither, and a journal may hold a million of them.
    if record.verdicts:
        told["verdicts"] = [_verdict_to_json(one) for one in record.verdicts]
    if record.steps:
        told["steps"] = [step_to_json(step) for step in record.steps]
    return told


def _verdict_to_json(verdict: Verdict) -> Json:
    plain: dict[str, Json] = attrs.asdict(verdict)
    return {name: value for name, value in plain.items() if (name, value) not in _UNSAID}


def record_from_json(answer: Json, key: str) -> RolloutRecord:
    """Return the rollout that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: it is no rollout.
    """
    try:
        return msgspec.convert(answer, RolloutRecord)
    except (msgspec.ValidationError, FeedbackError):
        raise JournalCorruptError(
            f"the journal's record `{key}` is no rollout; restore the journal"
        ) from None
