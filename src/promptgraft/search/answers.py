"""Answers that cannot be recomputed: asked for once, then remembered by the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

import attrs
import msgspec

from promptgraft.errors import FeedbackError, JournalCorruptError
from promptgraft.evals.spending import (
    AbandonedRolloutError,
    Spending,
    attempts_of,
    spent_key,
    spent_to_json,
)
from promptgraft.evals.types import Verdict, step_to_json
from promptgraft.ground.serde import HexDigest, Json
from promptgraft.ground.strict.checks import reaches
from promptgraft.ground.text import counted
from promptgraft.journal.base import Journal
from promptgraft.journal.records import Record
from promptgraft.runtime.deadline import Deadline
from promptgraft.search.ledger import Ledger
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

if TYPE_CHECKING:
    from promptgraft.search.call_log import CallLog

Working = Callable[[str, int, int], None]
"""Reports progress: position, answers that have arrived, answers that are wanted."""

RolloutFn = Callable[[Candidate, GepaExample, Deadline | None], RolloutRecord]
"""Evaluates a candidate on one example."""

_READER = msgspec.json.Decoder()

READER = msgspec.json.Decoder(RolloutRecord)
"""Reads a rollout from a journal; fast, because a resume reads all of them."""

_UNSAID = {("amount", None), ("node", "")}


@attrs.define(eq=False)
class DeferredFault:
    """A fault of a provider in the place of an answer, which the journal may not hold yet.

    Attributes:
        record: what the journal will hold.
        is_recorded: whether it holds it; the parts of a run share the faults before they began.
    """

    record: Record
    is_recorded: bool = False


@attrs.define(eq=False)
class Answers:
    """The accounts of a part of a run: the journal as it sees it, and what it has used.

    A *fault* of a provider becomes an answer only when a later answer of the same part is recorded,
    or when the run ends by itself. Until then it is held back, so that a run whose provider fails
    from some call on asks again for everything from there when it is resumed. A branch has accounts
    of its own until it is joined; it also holds back the faults that its parent held back when it
    began.

    Attributes:
        journal: keeps the records.
        ledger: counts what the part has used.
        deferred: faults that are held back, in the order in which they were asked for.
        calls: keeps the calls inside of answers; None if nothing is kept.
    """

    journal: Journal
    ledger: Ledger
    deferred: list[DeferredFault] = attrs.field(factory=list)
    calls: CallLog | None = attrs.field(default=None, kw_only=True)

    def recall(self, key: str, digest: HexDigest) -> Json | None:
        """Return the recorded answer to a question, or None; recorded answers are objects.

        Raises:
            JournalMismatchError: the journal holds the answer to another question there.
        """
        [text] = self.journal.find_texts([key], [digest])
        if text is None:
            return None
        try:
            answer: Json = _READER.decode(text)
        except msgspec.DecodeError:  # lone surrogates and the like, which JSON permits
            entry = self.journal.find(key, digest)
            return None if entry is None else entry.value
        return answer

    def record_failed(self, key: str, digest: HexDigest, spent: Sequence[Spending]) -> None:
        """Record and count calls that produced no answer: they are paid for, and repeated."""
        lost, fresh = (spent, spent) if self.calls is None else self.calls.fail(key, spent)
        if lost:
            # A key for each attempt, because records of a journal are never replaced.
            attempt = spent_key(key, len(attempts_of(self.journal, key)))
            self.journal.append(attempt, digest, "spent", spent_to_json(lost))
        self.ledger.count(fresh)

    def newly_paid(self, key: str, spent: Sequence[Spending]) -> Sequence[Spending]:
        """Return the calls of a new answer that this process has paid for."""
        return spent if self.calls is None else self.calls.finish(key, spent)

    def failed_calls(self, keys: Sequence[str]) -> list[Spending]:
        """Return the calls that failed before these answers arrived."""
        # There are hardly ever any, and a replay checks this for every batch.
        if not self.journal.holds_any([spent_key(key, 0) for key in keys]):
            return []
        return [
            spent
            for key in keys
            if self.calls is None or not self.calls.was_counted(key)
            for attempt in attempts_of(self.journal, key)
            for spent in attempt
        ]

    def count_recorded(
        self,
        keys: Sequence[str],
        recorded: Mapping[str, Sequence[Spending]],
        *,
        rollouts: int = 0,
        unscored: int = 0,
        reflections: int = 0,
    ) -> None:
        """Count recorded answers, and all calls that earlier processes have made for them.

        Args:
            keys: all answers that are asked for; of others, calls may have failed.
            recorded: the calls that each recorded answer was made with.
            rollouts: rollouts among the recorded answers.
            unscored: those of them without a score.
            reflections: reflections among the recorded answers.
        """
        spent = [*chain.from_iterable(recorded.values()), *self.failed_calls(keys)]
        if self.calls is not None:
            for key, calls in recorded.items():
                spent += self.calls.unused(key, calls)
            if self.ledger.whole is not None:
                self.ledger.count([*self.calls.counted(keys)], in_whole=True)
        self.ledger.count(
            spent, rollouts=rollouts, unscored=unscored, reflections=reflections, recorded=True
        )

    def defer(self, key: str, digest: HexDigest, fault: Json) -> None:
        """Hold a fault back until a later answer is recorded."""
        self.deferred.append(DeferredFault(Record(key, digest, "fault", fault)))

    def accept_faults(self) -> None:
        """Record the faults held back, because the run has ended without those answers."""
        if accepted := accepted_faults(self.deferred):
            self.journal.append_all(accepted)
        self.deferred.clear()


def accepted_faults(deferred: Iterable[DeferredFault]) -> list[Record]:
    """Return the records of faults that are now answers, each of them once."""
    accepted = [fault for fault in deferred if not fault.is_recorded]
    for fault in accepted:
        fault.is_recorded = True
    return [fault.record for fault in accepted]


def record_to_json(record: RolloutRecord) -> Json:
    """Return a rollout as the journal keeps it: its fields by name."""
    feedback = record.feedback
    record_plain: dict[str, Json] = {
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
    # Empty fields are left out, because a journal may hold a million records.
    if record.expected_repr:
        record_plain["expected_repr"] = record.expected_repr
    if record.verdicts:
        plain: list[dict[str, Json]] = [attrs.asdict(verdict) for verdict in record.verdicts]
        record_plain["verdicts"] = [
            {name: value for name, value in verdict.items() if (name, value) not in _UNSAID}
            for verdict in plain
        ]
    if record.steps:
        record_plain["steps"] = [step_to_json(step) for step in record.steps]
    return record_plain


def record_from_json(answer: Json, key: str) -> RolloutRecord:
    """Return the rollout that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: the record is not a rollout.
    """
    try:
        return msgspec.convert(answer, RolloutRecord)
    # A score that is not finite is refused by RolloutFeedback, with a FeedbackError.
    except (msgspec.ValidationError, FeedbackError):
        raise JournalCorruptError(
            f"the journal's record `{key}` is no rollout; restore the journal"
        ) from None


@attrs.frozen(kw_only=True)
class Repeated:
    """Makes each rollout several times, and combines the results into one record.

    Can be pickled if ``rollout`` can.

    Attributes:
        rollout: makes one rollout.
        runs: how many are made, at least 2.
        thresholds: the lowest mean score that passes, by metric.
    """

    rollout: RolloutFn
    runs: int
    thresholds: Mapping[str, float]

    def __call__(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        records: list[RolloutRecord] = []
        for run in range(self.runs):
            # The example is a copy made for this call, so the last run may modify it.
            copied = example if run == self.runs - 1 else example.copy()
            try:
                records.append(self.rollout(candidate, copied, deadline))
            except AbandonedRolloutError as error:
                # The answers before it are lost with it, and were paid for too.
                raise AbandonedRolloutError(error.cause, (*_spent(records), *error.spent)) from None
        return self._as_one(records)

    def _as_one(self, records: Sequence[RolloutRecord]) -> RolloutRecord:
        """Return the worst rollout with the mean scores of all that are scored."""
        scored = [(record, record.feedback) for record in records if record.feedback is not None]
        if not scored:
            return attrs.evolve(records[-1], spent=_spent(records))
        worst, feedback = min(scored, key=lambda pair: pair[1].score)
        scores = [feedback.score for _, feedback in scored]
        names = dict.fromkeys(chain.from_iterable(feedback.objectives for _, feedback in scored))
        if min(scores) < max(scores):
            listed = ", ".join(f"{score:.4g}" for score in scores)
            head = (
                f"Of {counted(len(scores), 'answer')} with the scores {listed} this is the worst."
            )
            feedback = attrs.evolve(feedback, feedback=f"{head}\n\n{feedback.feedback}")
        objectives = {
            name: fmean(feedback.objectives.get(name, 0.0) for _, feedback in scored)
            for name in names
        }
        return attrs.evolve(
            worst,
            feedback=attrs.evolve(feedback, score=fmean(scores), objectives=objectives),
            spent=_spent(records),
            verdicts=tuple(
                self._as_verdict(verdict, [record for record, _ in scored])
                for verdict in worst.verdicts
            ),
        )

    def _as_verdict(self, worst: Verdict, records: Sequence[RolloutRecord]) -> Verdict:
        """Return a metric's verdict on all answers; an answer without a verdict counts as 0."""
        scores_by_metric = [
            {verdict.metric: verdict.score for verdict in record.verdicts} for record in records
        ]
        metric_scores = [
            score
            for scores in scores_by_metric
            if (score := scores.get(worst.metric, 0.0)) is not None
        ]
        score = fmean(metric_scores) if metric_scores else None
        passed = None if score is None else reaches(score, self.thresholds.get(worst.metric, 0.0))
        return attrs.evolve(worst, score=score, passed=passed)


def _spent(records: Sequence[RolloutRecord]) -> tuple[Spending, ...]:
    return tuple(chain.from_iterable(record.spent for record in records))
