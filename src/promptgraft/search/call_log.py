"""The calls inside the answers of a run, as its journal keeps them.

A request is noted as sent before it leaves, and its answer is kept under the place of the call.
After a kill, answered calls are not made again, and requests whose answers were lost are charged
at the most that they can have cost.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter

import attrs

from promptgraft.adapters.base import called_from_json
from promptgraft.errors import JournalCorruptError, PromptgraftError, user_errors
from promptgraft.evals.spending import (
    Role,
    Spending,
    attempts_of,
    spent_from_json,
    spent_key,
    spent_on,
    spent_to_json,
)
from promptgraft.ground.serde import HexDigest, Json
from promptgraft.journal.base import CALL, Journal
from promptgraft.journal.records import LOST, SENT, Record, plain_text
from promptgraft.runtime.calls import AGENT, Bound, Places

_SENT = "/sent/"
_FAILED = "/failed"
"""The end of the key of a record that a request has failed, which is therefore not lost."""
_OF_AGENT = re.compile(rf"(?:.*\.)?{AGENT}\.\d+")
_SOON = 0.5  # mostly the record of the rollout follows, which has the answer
"""Seconds until an answer is written if neither a further call nor the whole answer follows."""

_ROLES_BY_WORD = {
    "teacher": Role.TEACHER,
    "reflect": Role.REFLECTION,
    **{str(role): role for role in (Role.BACKWARD, Role.AGGREGATE, Role.OPTIMIZE)},
}


def without(spent: Iterable[Spending], others: Iterable[Spending]) -> list[Spending]:
    """Return the calls that are not among ``others``, whatever their role."""
    unmatched = Counter(map(_bill, others))
    remaining: list[Spending] = []
    for call in spent:
        bill = _bill(call)
        if unmatched[bill]:
            unmatched[bill] -= 1
        else:
            remaining.append(call)
    return remaining


_bill = attrgetter(
    "model", "requests", "input_tokens", "output_tokens", "cached_tokens", "cost", "microseconds"
)


class AnswerCalls:
    """The calls of one answer; see :class:`promptgraft.runtime.calls.KeptCalls`.

    Args:
        log: the log of the run.
        key: the key of the answer in the journal.
        records: kept calls of earlier attempts, by place.

    Attributes:
        sessions: how many sessions have made calls for the answer.
        replayed: the calls of earlier attempts whose answers were used again.
        kept: the calls of this attempt whose answers are in the journal.
        waiting: answers that are not written yet.
    """

    def __init__(self, log: CallLog, key: str, records: dict[str, Record]) -> None:
        self._log = log
        self.key = key
        self._records = records
        self.sessions = 0
        self.replayed: list[Spending] = []
        self.kept: list[Spending] = []
        self.waiting: list[_WaitingRecord] = []
        self._in_flight: set[str] = set()

    @property
    def is_slow(self) -> bool:
        """Whether the journal is slower than a switch to another thread."""
        return self._log.is_slow

    @property
    def holds_any(self) -> bool:
        """Whether calls of an earlier attempt are left that were not used again."""
        return bool(self._records)

    def find(self, place: str, question: HexDigest) -> Json | None:
        """Return the kept answer to a question, at its place or at any other."""
        if not self._records:
            return None
        with self._log.lock:
            record = self._records.get(place)
            if record is None or record.digest != question:
                # Calls that users make side by side may change places with each other.
                same = (
                    record_of_call
                    for record_of_call in self._records.values()
                    if record_of_call.digest == question
                )
                record = next(same, None)
            if record is None:
                return None
            del self._records[_place_of(record.key)]
        self.replayed += _spent_in(record)
        return record.answer

    def begin(self) -> None:
        """Write the calls that have ended, because another one follows."""
        if self.waiting:
            self._log.write([], answers=[self])

    def sent(self, place: str, question: HexDigest, bound: Bound) -> None:
        """Note durably that a request is about to be sent, as :meth:`begin` does."""
        self._in_flight.add(place)
        self._log.note_sent(self, place, question, bound)

    def settle(self, place: str) -> None:
        """Note durably that the request of a place has failed, so that it is not taken for lost."""
        self._in_flight.discard(place)
        self._log.note_failed(self, place)

    def keep(self, place: str, answer: Callable[[], tuple[HexDigest, Json] | None]) -> None:
        """Keep the answer of a call, unless the whole answer is recorded soon."""
        self._log.wait_with(_WaitingRecord(self, place, answer))
        self._in_flight.discard(place)
        # Other calls in flight may take long, so this record does not wait for the whole answer.
        if self._in_flight:
            self.begin()


class CallLog:
    """Keeps the calls of a run in its journal; safe to share between threads.

    Attributes:
        lock: guards what has changed since the last write.
        is_slow: whether the journal is slower than a switch to another thread.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_slow: bool = journal.is_slow
        self._open: dict[str, AnswerCalls] = {}
        self._made: dict[str, AnswerCalls] = {}
        self._queue: list[_Entry] = []
        self._counted: dict[str, list[Spending]] = {}
        self._is_closed = False
        self.lock: threading.Lock = threading.Lock()
        self._writing = threading.Lock()
        self._stirred = threading.Condition(self.lock)
        self._writer: threading.Thread | None = None

    def places(self, position: str) -> Places:
        """Return the places of a session that answers at a position of the run."""
        # Without a lock: the sessions of one answer are made one after the other.
        answer = self._open.get(position)
        if answer is None:
            records = (
                {_place_of(record.key): record for record in self._kept(position)}
                if self._journal.calls_of(position)
                else {}
            )
            answer = self._open[position] = AnswerCalls(self, position, records)
        answer.sessions += 1
        places = Places(answer)
        return places if answer.sessions == 1 else places.within(f"repeat.{answer.sessions}")

    def made(self, position: str) -> None:
        """Note that an answer is made, and will be recorded as soon as the run gets to it."""
        answer = self._open.get(position)
        if answer is not None and answer.waiting:
            self._made[position] = answer

    # Payments.

    def unfinished(self) -> list[Spending]:
        """Return what was paid for answers that are not recorded, by earlier processes.

        Requests whose answers were lost are charged first. Call it once, before the first answer.
        """
        for key in self._journal.with_calls:
            if key not in self._journal:
                self._charge_lost(key)
                self._counted[key] = self._paid(key)
        return [*chain.from_iterable(self._counted.values())]

    def was_counted(self, key: str) -> bool:
        """Return whether :meth:`unfinished` has returned what was paid at ``key``."""
        return key in self._counted

    def counted(self, keys: Iterable[str]) -> Iterable[Spending]:
        """Return what :meth:`unfinished` has returned of these answers."""
        return chain.from_iterable(self._counted.get(key, ()) for key in keys)

    def unused(self, key: str, spent: Sequence[Spending]) -> list[Spending]:
        """Return the kept calls of a recorded answer that it was not made with.

        Args:
            key: the key of the answer.
            spent: the calls that it was made with.
        """
        answers = sum(_SENT not in call for call in self._journal.calls_of(key))
        # Otherwise all of them were used: when some were not, those that were are all kept.
        if answers <= sum(spending.calls for spending in spent):
            return []
        return without(chain.from_iterable(map(_spent_in, self._kept(key))), spent)

    def finish(self, key: str, spent: Sequence[Spending]) -> Sequence[Spending]:
        """Return the calls of an answer that this process has paid for; it is recorded next."""
        answer = self._close(key)
        if answer is None:
            return spent
        if answer.holds_any:
            answer.begin()
        else:
            answer.waiting = []
        return without(spent, answer.replayed) if answer.replayed else spent

    def fail(
        self, key: str, spent: Sequence[Spending]
    ) -> tuple[Sequence[Spending], Sequence[Spending]]:
        """Return the calls of an attempt that failed: those that are not kept, and the new ones."""
        answer = self._open.get(key)
        if answer is None:
            return spent, spent
        # Even if none of its calls wait: another thread may be writing them, and counts them then.
        self.write([], answers=[answer])
        self._close(key)
        fresh = without(spent, answer.replayed)
        return without(fresh, answer.kept), fresh

    def close(self) -> list[Spending]:
        """Stop keeping answers; return what was paid for answers that were left behind."""
        with self.lock:
            self._is_closed = True
            still_open, self._open = self._open, {}
            self._stirred.notify_all()
        spent: list[Spending] = []
        for key, answer in still_open.items():
            self.write([], answers=[answer])  # as above
            spent += [*answer.kept, *self._charge_lost(key)]
        return spent

    def _close(self, key: str) -> AnswerCalls | None:
        self._made.pop(key, None)
        return self._open.pop(key, None)

    def _kept(self, key: str) -> list[Record]:
        keys = [call for call in self._journal.calls_of(key) if _SENT not in call]
        return [record for call in keys if (record := self._journal.record(call)) is not None]

    def _paid(self, key: str) -> list[Spending]:
        """Return the calls that were paid for an answer: those that are kept, then the others."""
        kept = map(_spent_in, self._kept(key))
        return [*chain.from_iterable((*kept, *attempts_of(self._journal, key)))]

    def _charge_lost(self, key: str) -> tuple[Spending, ...]:
        """Record the requests of an unfinished answer that were sent and never answered."""
        sent = self._unsettled(key)
        missing = len(sent) - sum(spending.requests for spending in self._paid(key))
        if missing <= 0:
            return ()
        answered = {record.key for record in self._kept(key)}
        # The latest: earlier ones of the same place were charged after an earlier kill.
        unanswered = [call for call in sent if call.rpartition(_SENT)[0] not in answered] or sent
        entries = map(self._journal.record, unanswered[-missing:])
        records = [record for record in entries if record is not None]
        lost = tuple(
            spent for record in records for spent in spent_from_json(record.answer, record.key)
        )
        if lost:
            at = spent_key(key, len(attempts_of(self._journal, key)))
            self._journal.append(at, records[-1].digest, LOST, spent_to_json(lost))
        return lost

    def _unsettled(self, key: str) -> list[str]:
        """Return the keys of the requests that were sent for an answer, and are not known to fail.

        Without those to agents whose own calls are kept, which say all that was paid for.
        """
        keys = self._journal.calls_of(key)
        sent = [sent_key for sent_key in keys if _SENT in sent_key]
        failed = {sent_key.removesuffix(_FAILED) for sent_key in sent if _FAILED in sent_key}
        return [
            sent_key
            for sent_key in sent
            if _FAILED not in sent_key
            and sent_key not in failed
            and not self._has_calls_inside(sent_key.rpartition(_SENT)[0], keys)
        ]

    @staticmethod
    def _has_calls_inside(place: str, keys: Sequence[str]) -> bool:
        if _OF_AGENT.fullmatch(_place_of(place)) is None:
            return False
        return any(key_of_call.startswith(f"{place}.") for key_of_call in keys)

    # Writing.

    def note_sent(self, answer: AnswerCalls, place: str, question: HexDigest, bound: Bound) -> None:
        """Record a request that is about to be sent."""
        start = f"{answer.key}{CALL}{place}{_SENT}"
        number = 1
        while f"{start}{number}" in self._journal:  # retries, or an earlier process
            number += 1
        record = Record(f"{start}{number}", question, SENT, *_charge_of(bound))
        if answer.waiting or self._made or self.is_slow:
            # Those too whose threads make the next calls before the run has recorded them.
            self.write([record], answers=(answer, *[*self._made.values()]))
        else:
            self._journal.append_all([record])

    def note_failed(self, answer: AnswerCalls, place: str) -> None:
        """Record that the latest request of a place has failed."""
        keys = [
            sent_key
            for sent_key in self._journal.calls_of(answer.key)
            if sent_key.startswith(f"{answer.key}{CALL}{place}{_SENT}") and _FAILED not in sent_key
        ]
        record = self._journal.record(keys[-1]) if keys else None
        if record is not None and f"{record.key}{_FAILED}" not in self._journal:
            failed = Record(f"{record.key}{_FAILED}", record.digest, SENT, None)
            self.write([failed], answers=[answer])

    def wait_with(self, call: _WaitingRecord) -> None:
        """Write the answer of a call when another call follows, or in a while."""
        with self.lock:
            # Its request was charged as lost when the log was closed.
            if self._is_closed:
                return
            call.answer.waiting.append(call)
            if self._writer is None:
                self._writer = threading.Thread(
                    target=self._write_late, name="promptgraft-journal", daemon=True
                )
                self._writer.start()

    def _write_late(self) -> None:
        """Write what no further call and no record of the whole answer has settled for a while."""
        while True:
            with self.lock:
                if self._is_closed:
                    return
                self._stirred.wait(_SOON)
                now = time.monotonic()
                late = [
                    answer
                    for answer in [*self._open.values()]
                    if answer.waiting and answer.waiting[0].since + _SOON <= now
                ]
            try:
                for answer in late:
                    answer.begin()
            except PromptgraftError:
                # The run's next record meets the same fault, and ends the run with it.
                return

    def write(self, records: Sequence[Record], *, answers: Sequence[AnswerCalls] = ()) -> None:
        """Append records, and before them the calls of answers that wait.

        Those of several threads that arrive while one is writing are appended together.
        """
        entry = _Entry(records, answers)
        with self.lock:
            self._queue.append(entry)
        with self._writing:
            if entry.is_written:
                return
            with self.lock:
                queue, self._queue = self._queue, []
                for entry_queued in queue:
                    entry_queued.take_waiting()
            batch = [
                record for entry_queued in queue for record in entry_queued.content(self._journal)
            ]
            try:
                if batch:
                    self._journal.append_all(batch)
            except BaseException:
                # Their own threads try again: this one may be to blame, or be interrupted.
                with self.lock:
                    self._queue = [
                        entry_queued for entry_queued in queue if entry_queued is not entry
                    ] + self._queue
                raise
            for entry_queued in queue:
                entry_queued.finish()


@attrs.define(eq=False)
class _WaitingRecord:
    """A call that has ended, and is not written yet."""

    answer: AnswerCalls
    place: str
    content: Callable[[], tuple[HexDigest, Json] | None]
    since: float = attrs.field(factory=time.monotonic, init=False)

    def record(self, journal: Journal) -> Record | None:
        """Return its record; None if it cannot be kept."""
        try:
            if (content_made := self.content()) is None:
                return None
        except user_errors():  # values of users may not compare
            return None
        key, number = f"{self.answer.key}{CALL}{self.place}", 1
        # An answer to another question is there already: something in the rollout is not
        # deterministic, such as a tool.
        while key in journal:
            number += 1
            key = f"{self.answer.key}{CALL}{self.place}~{number}"
        return Record(key, content_made[0], "call", content_made[1])


@attrs.define(eq=False)
class _Entry:
    """Records that a thread waits for, and the answers whose calls are written before them."""

    records: Sequence[Record]
    answers: Sequence[AnswerCalls]
    is_written: bool = attrs.field(default=False, init=False)
    _waiting: list[_WaitingRecord] = attrs.field(factory=list[_WaitingRecord], init=False)
    _kept: list[tuple[AnswerCalls, Record]] = attrs.field(
        factory=list[tuple[AnswerCalls, Record]], init=False
    )

    def take_waiting(self) -> None:
        """Take over the calls that wait; under the lock of the log."""
        for answer in self.answers:
            self._waiting += answer.waiting
            answer.waiting = []

    def content(self, journal: Journal) -> list[Record]:
        """Return everything that is to be appended."""
        calls = [
            (waiting_call.answer, waiting_call.record(journal)) for waiting_call in self._waiting
        ]
        self._kept = [(answer, record) for answer, record in calls if record is not None]
        return [*(record for _, record in self._kept), *self.records]

    def finish(self) -> None:
        """Note that everything is written."""
        for answer, record in self._kept:
            answer.kept += _spent_in(record)
        self.is_written = True


@lru_cache(maxsize=1024)
def _charge_of(bound: Bound) -> tuple[Json, bytes | None]:
    """Return what a request is charged whose answer is lost, as the journal records it."""
    spent = Spending(
        role=Role.UNANSWERED,
        model=bound.model,
        input_tokens=bound.input_tokens,
        output_tokens=bound.output_tokens,
        cost=bound.cost,
    )
    charge = spent_to_json([spent])
    return charge, plain_text(charge)


def _place_of(key: str) -> str:
    return key.rpartition(CALL)[2]


def _spent_in(record: Record) -> tuple[Spending, ...]:
    """Return the calls that a kept answer has cost."""
    match record.answer:
        case {"calls": list(calls)}:
            events = [called_from_json(call_json, record.key) for call_json in calls]
            return spent_on(_role_of(record.key), events, "")
    raise JournalCorruptError(
        f"the journal's record `{record.key}` is no call; restore the journal"
    )


def _role_of(key: str) -> Role:
    position, _, place = key.rpartition(CALL)
    if "judge." in place:
        return Role.JUDGE
    words = position.split("/")
    return next((_ROLES_BY_WORD[word] for word in words if word in _ROLES_BY_WORD), Role.TASK)
