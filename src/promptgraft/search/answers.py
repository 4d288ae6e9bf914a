"""Answers that cannot be recomputed: asked for once, then remembered by the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import msgspec

from promptgraft.errors import FeedbackError, JournalCorruptError
from promptgraft.evals.spending import Spending, spent_from_json, spent_to_json
from promptgraft.evals.types import step_to_json
from promptgraft.journal.base import Journal
from promptgraft.journal.records import Record
from promptgraft.serde import HexDigest, Json
from promptgraft.targets.types import RolloutRecord

Working = Callable[[str, int, int], None]
"""Is called where answers are waited for: position, how many are there, how many are wanted."""

_READER = msgspec.json.Decoder()

READER = msgspec.json.Decoder(RolloutRecord)
"""Reads a rollout as it stands in a journal; quick, because a resume reads all of them."""

_UNSAID = {("amount", None), ("node", "")}


@attrs.define(eq=False)
class Answers:
    """The journal as a part of a run sees it.

    A *fault* of a provider is an answer only once the run continues without it. Until then it is
    held back, so that a run which stops because of faults asks again when it is resumed. Each
    branch holds back its own.

    Attributes:
        journal: keeps what is recorded.
        held: faults that are held back, by key with the digests of the questions.
    """

    journal: Journal
    held: dict[str, tuple[HexDigest, Json]] = attrs.field(factory=dict, init=False)

    def recall(self, key: str, digest: HexDigest) -> Json | None:
        """Return what was recorded for the question, or None; recorded answers are objects.

        Raises:
            JournalMismatchError: the journal holds the answer to another question there.
        """
        [text] = self.journal.find_texts([key], [digest])
        if text is None:
            return None
        try:
            answer: Json = _READER.decode(text)
        except msgspec.DecodeError:  # half characters and the like, which JSON itself can hold
            found = self.journal.find(key, digest)
            return None if found is None else found.value
        return answer

    def spend(self, key: str, digest: HexDigest, spent: Sequence[Spending]) -> None:
        """Record calls that were made for an answer which did not come of them."""
        attempt = _spent_key(key, len(self._attempts(key, digest)))
        self.journal.append(attempt, digest, "spent", spent_to_json(spent))

    def spent(self, keys: Sequence[str], digests: Sequence[HexDigest]) -> list[Spending]:
        """Return the calls that were made for answers before these came."""
        # Nearly always there were none, and a replay asks this for every batch.
        if not self.journal.holds_any([_spent_key(key, 0) for key in keys]):
            return []
        return [
            spent
            for key, digest in zip(keys, digests, strict=True)
            for attempt in self._attempts(key, digest)
            for spent in spent_from_json(attempt, key)
        ]

    def _attempts(self, key: str, digest: HexDigest) -> list[Json]:
        found: list[Json] = []
        while _spent_key(key, len(found)) in self.journal:
            found.append(self.recall(_spent_key(key, len(found)), digest))
        return found

    def hold(self, key: str, digest: HexDigest, fault: Json) -> None:
        """Keep a fault until the run continues without the answer."""
        self.held[key] = (digest, fault)

    def accept_faults(self) -> None:
        """Record the faults that were held back: the run continues without those answers."""
        held, self.held = self.held, {}
        if held:
            self.journal.append_all(
                [Record(key, digest, "fault", fault) for key, (digest, fault) in held.items()]
            )


def _spent_key(key: str, number: int) -> str:
    return f"{key}/spent/{number}"


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
        plain: list[dict[str, Json]] = [attrs.asdict(one) for one in record.verdicts]
        told["verdicts"] = [
            {name: value for name, value in one.items() if (name, value) not in _UNSAID}
            for one in plain
        ]
    if record.steps:
        told["steps"] = [step_to_json(step) for step in record.steps]
    return told


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
