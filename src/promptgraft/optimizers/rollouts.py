"""Rollouts: asked for in a fixed order, run side by side, recorded as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.errors import JournalCorruptError
from promptgraft.optimizers.answers import Answers
from promptgraft.optimizers.ledger import Ledger, Role
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutFeedback, RolloutRecord
from promptgraft.runtime.deadline import Deadline
from promptgraft.serde import HexDigest, Json, digest_text

RolloutFn = Callable[[Candidate, GepaExample, Deadline | None], RolloutRecord]


class RolloutRunner:
    """Tries candidates on examples.

    Args:
        rollout: makes one rollout; called from the threads of ``executor``.
        answers: what is recorded already, and where new answers go.
        ledger: counts every rollout.
        executor: None makes the rollouts in turn.
        deadline: handed to each rollout.
        example_digests: SHA-256 of each example, by id.
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
    ) -> None:
        self._rollout = rollout
        self._answers = answers
        self._ledger = ledger
        self._executor = executor
        self._deadline = deadline
        self._example_digests = example_digests

    def run(
        self, position: str, candidate: Candidate, examples: Sequence[GepaExample]
    ) -> tuple[RolloutRecord, ...]:
        """Return one record for each example, in their order.

        When a rollout raises, what others have answered by then is recorded, nothing new is
        begun, and the error of the first example in order is raised.
        """
        self._answers.accept_faults()
        batch = _Batch(
            keys=tuple(f"{position}/{index}" for index in range(len(examples))),
            digests=tuple(
                digest_text(f"{candidate.digest}:{self._example_digests[example.id]}")
                for example in examples
            ),
            records=[None] * len(examples),
        )
        missing = [index for index in range(len(examples)) if not self._recall(batch, index)]
        if self._executor is None:
            for index in missing:
                record = self._rollout(candidate, examples[index], self._deadline)
                self._keep(batch, index, record)
        elif missing:
            self._run_side_by_side(batch, candidate, examples, missing)
        return batch.complete()

    def _recall(self, batch: _Batch, index: int) -> bool:
        answer = self._answers.recall(batch.keys[index], batch.digests[index])
        if answer is None:
            return False
        record = record_from_json(answer, batch.keys[index])
        self._ledger.count(Role.TASK, record.usage)
        batch.records[index] = record
        return True

    def _keep(self, batch: _Batch, index: int, record: RolloutRecord) -> None:
        answer = record_to_json(record)
        key, digest = batch.keys[index], batch.digests[index]
        if record.feedback is None:
            self._answers.hold(key, digest, answer)
        else:
            self._answers.record(key, digest, "rollout", answer)
        self._ledger.count(Role.TASK, record.usage)
        batch.records[index] = record

    def _run_side_by_side(
        self,
        batch: _Batch,
        candidate: Candidate,
        examples: Sequence[GepaExample],
        missing: Sequence[int],
    ) -> None:
        executor = self._executor
        assert executor is not None  # noqa: S101 - the caller has looked
        futures: dict[Future[RolloutRecord], int] = {
            executor.submit(self._rollout, candidate, examples[index], self._deadline): index
            for index in missing
        }
        failures: dict[int, BaseException] = {}
        try:
            for future in as_completed(futures):
                if future.cancelled():
                    continue
                if error := future.exception():
                    failures[futures[future]] = error
                    _cancel(futures)
                else:
                    self._keep(batch, futures[future], future.result())
        finally:
            _cancel(futures)
        if failures:
            raise failures[min(failures)]


def _cancel(futures: Mapping[Future[RolloutRecord], int]) -> None:
    for future in futures:
        future.cancel()


@attrs.frozen(kw_only=True)
class _Batch:
    keys: tuple[str, ...]
    digests: tuple[HexDigest, ...]
    records: list[RolloutRecord | None]

    def complete(self) -> tuple[RolloutRecord, ...]:
        return tuple(record for record in self.records if record is not None)


def record_to_json(record: RolloutRecord) -> Json:
    """Return what the journal keeps of a rollout."""
    feedback = record.feedback
    usage = record.usage
    return {
        "example": record.example_id,
        "inputs": record.inputs_repr,
        "output": record.output_repr,
        "trace": record.tool_trace_repr,
        "score": None if feedback is None else feedback.score,
        "feedback": "" if feedback is None else feedback.feedback,
        "eval_trace": None if feedback is None else feedback.eval_trace,
        "fault": record.fault,
        "hidden": list(record.hidden),
        "usage": [usage.input_tokens, usage.output_tokens, usage.cached_tokens],
    }


def record_from_json(answer: Json, key: str) -> RolloutRecord:
    """Return the rollout that the journal keeps under ``key``.

    Raises:
        JournalCorruptError: it is no rollout.
    """
    # Read by hand: replaying a long run does this for every answer.
    match answer:
        case {
            "example": str(example),
            "inputs": str(inputs),
            "output": str(output),
            "trace": str(trace),
            "score": None | int() | float() as score,
            "feedback": str(feedback),
            "eval_trace": None | str() as eval_trace,
            "fault": str(fault),
            "hidden": list(hidden),
            "usage": [int(sent), int(received), int(cached)],
        }:
            return RolloutRecord(
                example_id=example,
                inputs_repr=inputs,
                output_repr=output,
                tool_trace_repr=trace,
                feedback=None
                if score is None
                else RolloutFeedback(score=score, feedback=feedback, eval_trace=eval_trace),
                fault=fault,
                hidden=tuple(str(part) for part in hidden),
                usage=Usage(input_tokens=sent, output_tokens=received, cached_tokens=cached),
            )
    raise JournalCorruptError(f"the journal's record `{key}` is no rollout; restore the journal")
