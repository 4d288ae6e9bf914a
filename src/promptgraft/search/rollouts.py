"""Rollouts: asked for in a fixed order, run side by side, recorded as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future

import attrs
import msgspec

from promptgraft.errors import FeedbackError, JournalCorruptError
from promptgraft.runtime.deadline import Deadline
from promptgraft.search.answers import Answers, Working, untold
from promptgraft.search.ledger import Ledger
from promptgraft.search.overlap import InTurn, Overlap
from promptgraft.serde import HexDigest, Json, digest_all, digest_text
from promptgraft.targets.spending import (
    AbandonedRolloutError,
    Spending,
    spent_from_json,
    spent_to_json,
)
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

RolloutFn = Callable[[Candidate, GepaExample, Deadline | None], RolloutRecord]


@attrs.frozen(kw_only=True)
class Asked:
    """Rollouts that are asked for.

    Recorded under ``POSITION/I``, I is the place of an example; ``by_example`` it is a digest of
    its id and content instead, for examples that may be others when a run is resumed.

    Attributes:
        position: where in the run.
        candidate: who is tried.
        examples: what on.
        by_example: whether other examples may be tried there when the run is resumed.
    """

    position: str
    candidate: Candidate
    examples: Sequence[GepaExample]
    by_example: bool = False


class RolloutRunner:
    """Tries candidates on examples.

    Args:
        rollout: makes one rollout; called from the threads of ``executor``.
        answers: what is recorded already, and where new answers go.
        ledger: counts every rollout.
        executor: None makes the rollouts in turn.
        deadline: handed to each rollout.
        example_digests: SHA-256 of each example, by id.
        working: is told when rollouts are waited for, and as they arrive.
        overlap: lets others work while rollouts are waited for; None when there are no others.
    """

    def __init__(
        self,
        rollout: RolloutFn,
        *,
        answers: Answers,
        ledger: Ledger,
        executor: Executor | None,
        deadline: Deadline | None,
        example_digests: Mapping[str, HexDigest],
        working: Working = untold,
        overlap: Overlap | None = None,
    ) -> None:
        self._rollout = rollout
        self._answers = answers
        self._ledger = ledger
        self._executor = executor
        self._deadline = deadline
        self._example_digests = example_digests
        self._working = working
        self._overlap = overlap or InTurn()

    def run(self, *asked: Asked) -> list[tuple[RolloutRecord, ...]]:
        """Return the records of what is asked for, one for each example, in their order.

        All of it runs side by side. When a rollout raises, what others have answered by then is
        recorded, nothing new is begun, and the error of the first example in order is raised.
        When the deadline passes or the run is cancelled, rollouts that do not end within
        ``GRACE`` are left behind.

        Raises:
            HaltedError: the run has ended elsewhere.
        """
        self._overlap.check()
        self._answers.accept_faults()
        batches = [self._batch(one) for one in asked]
        missing = [(batch, index) for batch in batches for index in self._recall(batch)]
        for batch in dict.fromkeys(batch for batch, _ in missing):
            self._tell(batch)
        if self._executor is None:
            self._run_in_turn(missing)
        elif missing:
            self._run_side_by_side(self._executor, missing)
        return [batch.complete() for batch in batches]

    def _batch(self, asked: Asked) -> _Batch:
        digests, candidate = self._example_digests, asked.candidate
        return _Batch(
            position=asked.position,
            candidate=candidate,
            examples=asked.examples,
            keys=[
                f"{asked.position}/{self._name(example) if asked.by_example else index}"
                for index, example in enumerate(asked.examples)
            ],
            digests=digest_all(f"{candidate.digest}:", [digests[one.id] for one in asked.examples]),
            records=[None] * len(asked.examples),
        )

    def _name(self, example: GepaExample) -> str:
        return digest_text(f"{self._example_digests[example.id]}:{example.id}")[:12]

    def _recall(self, batch: _Batch) -> list[int]:
        """Take what is recorded of a batch; return the places of what is not."""
        texts = self._answers.recall_texts(batch.keys, batch.digests)
        for index, text in enumerate(texts):
            if text is not None:
                batch.records[index] = _record_from_text(text) or self._looked_at(batch, index)
        found = [record for record in batch.records if record is not None]
        spent = [one for record in found for one in record.spent]
        if self._answers.has_spent(batch.keys):
            spent += self._spent_in_vain(batch)
        batch.done = len(found)
        self._ledger.replay(spent)
        self._ledger.count_rollouts(
            batch.done, unscored=[record.feedback for record in found].count(None)
        )
        return [index for index, text in enumerate(texts) if text is None]

    def _looked_at(self, batch: _Batch, index: int) -> RolloutRecord:
        key = batch.keys[index]
        return record_from_json(self._answers.recall(key, batch.digests[index]), key)

    def _spent_in_vain(self, batch: _Batch) -> list[Spending]:
        return [
            one
            for key, digest in zip(batch.keys, batch.digests, strict=True)
            for paid in self._answers.spent(key, digest)
            for one in spent_from_json(paid, key)
        ]

    def _keep(self, batch: _Batch, index: int, record: RolloutRecord) -> None:
        key, digest = batch.keys[index], batch.digests[index]
        if record.feedback is None:
            self._spend(batch, index, record.spent)
            record = attrs.evolve(record, spent=())
            self._answers.hold(key, digest, record_to_json(record))
        else:
            self._answers.record(key, digest, "rollout", record_to_json(record))
            self._ledger.count(record.spent)
        self._ledger.count_rollouts(1, unscored=record.feedback is None)
        batch.put(index, record)
        self._tell(batch)

    def _tell(self, batch: _Batch) -> None:
        self._working(batch.position, batch.done, len(batch.records))

    def _spend(self, batch: _Batch, index: int, spent: tuple[Spending, ...]) -> None:
        """Count calls that no answer came of: they were paid for, and are made again."""
        if spent:
            self._answers.spend(batch.keys[index], batch.digests[index], spent_to_json(spent))
        self._ledger.count(spent)

    def _run_in_turn(self, missing: Sequence[_Missing]) -> None:
        for batch, index in missing:
            if self._deadline is not None:
                self._deadline.check()
            try:
                record = self._rollout(batch.candidate, batch.examples[index], self._deadline)
            except AbandonedRolloutError as error:
                self._spend(batch, index, error.spent)
                raise error.cause from None
            self._keep(batch, index, record)

    def _run_side_by_side(self, executor: Executor, missing: Sequence[_Missing]) -> None:
        futures: dict[Future[RolloutRecord], int] = {
            executor.submit(
                self._rollout, batch.candidate, batch.examples[index], self._deadline
            ): order
            for order, (batch, index) in enumerate(missing)
        }
        failures: dict[int, BaseException] = {}
        try:
            for future in self._overlap.as_ended(futures, self._deadline):
                if future.cancelled():
                    continue
                batch, index = missing[futures[future]]
                if error := future.exception():
                    failures[futures[future]] = self._failure(batch, index, error)
                    _cancel(futures)
                else:
                    self._keep(batch, index, future.result())
        finally:
            _cancel(futures)
        if failures:
            raise failures[min(failures)]
        if not all(batch.is_complete for batch, _ in missing):
            self._overlap.check()
            if self._deadline is not None:
                self._deadline.check()

    def _failure(self, batch: _Batch, index: int, error: BaseException) -> BaseException:
        if isinstance(error, AbandonedRolloutError):
            self._spend(batch, index, error.spent)
            return error.cause
        return error


def _cancel(futures: Mapping[Future[RolloutRecord], int]) -> None:
    for future in futures:
        future.cancel()


@attrs.define(kw_only=True, eq=False)
class _Batch:
    position: str
    candidate: Candidate
    examples: Sequence[GepaExample]
    keys: Sequence[str]
    digests: Sequence[HexDigest]
    records: list[RolloutRecord | None]
    done: int = 0

    def put(self, index: int, record: RolloutRecord) -> None:
        self.records[index] = record
        self.done += 1

    def complete(self) -> tuple[RolloutRecord, ...]:
        return tuple([record for record in self.records if record is not None])

    @property
    def is_complete(self) -> bool:
        return self.done == len(self.records)


_Missing = tuple[_Batch, int]

_READER = msgspec.json.Decoder(RolloutRecord)


def record_to_json(record: RolloutRecord) -> Json:
    """Return what the journal keeps of a rollout: its fields by name."""
    feedback = record.feedback
    return {
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


def _record_from_text(answer: bytes) -> RolloutRecord | None:
    """Return the rollout in the JSON of an answer; None when that has to be looked at closely."""
    try:
        return _READER.decode(answer)
    except (msgspec.MsgspecError, FeedbackError):
        return None
