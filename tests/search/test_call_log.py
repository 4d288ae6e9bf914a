"""What the journal of a run keeps of the calls inside its answers, and what they are charged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from decimal import Decimal

import pytest

from promptgraft import MemoryJournal
from promptgraft.adapters.base import ModelCalled, Usage, called_to_json
from promptgraft.errors import JournalCorruptError
from promptgraft.evals.spending import Role, Spending, spent_on
from promptgraft.ground.serde import HexDigest, Json, digest_text
from promptgraft.journal import Journal
from promptgraft.journal.records import Record
from promptgraft.runtime.calls import Bound, KeptCalls
from promptgraft.search.call_log import CallLog

KEY = "baseline/1"
BOUND = Bound(model="m", input_tokens=900, output_tokens=100, cost=Decimal("0.5"))
LOST = Spending(
    role=Role.UNANSWERED, model="m", input_tokens=900, output_tokens=100, cost=Decimal("0.5")
)


def question(words: str) -> HexDigest:
    return digest_text(words)


def called(cost: str = "0.01", *, requests: int = 1) -> ModelCalled:
    usage = Usage(input_tokens=50, output_tokens=5)
    return ModelCalled(model="m", requests=requests, usage=usage, cost=Decimal(cost), seconds=0.25)


def spent(*calls: ModelCalled, role: Role = Role.TASK) -> tuple[Spending, ...]:
    return spent_on(role, calls, "")


@pytest.fixture
def journal() -> Journal:
    journal = MemoryJournal()
    journal.begin({})
    return journal


def call(kept: KeptCalls, place: str, words: str, event: ModelCalled) -> None:
    """Make a call that is answered."""
    for _ in range(event.requests):
        kept.sent(place, question(words), BOUND)
    answer: Json = {"calls": [called_to_json(event)], "turn": words}
    kept.keep(place, lambda: (question(words), answer))


def killed(journal: Journal, *answered: str, sent: int = 0) -> None:
    """Make calls in a process that is killed: some are answered, the last ones only sent."""
    places = CallLog(journal).places(KEY)
    for words in answered:
        call(places.kept, places.next(), words, called())
    places.kept.begin()
    for _ in range(sent):
        places.kept.sent(places.next(), question("lost"), BOUND)


def test_an_answered_call_is_used_again_and_paid_for_once(journal: Journal) -> None:
    killed(journal, "first", "second")
    log = CallLog(journal)
    assert log.unfinished() == [*spent(called(), called())]
    assert [*log.counted([KEY, "another"])] == [*spent(called(), called())]
    assert log.was_counted(KEY)
    kept = log.places(KEY).kept
    answer: Json = {"calls": [called_to_json(called())], "turn": "first"}
    assert (kept.find("1", question("first")), kept.holds_any) == (answer, True)
    assert (kept.find("2", question("second")) is None, kept.holds_any) == (False, False)
    third = called("0.02")
    assert log.finish(KEY, spent(called(), called(), third)) == [*spent(third)]


def test_a_question_is_found_at_another_place_and_another_question_is_not(
    journal: Journal,
) -> None:
    killed(journal, "first", "second")
    kept = CallLog(journal).places(KEY).kept
    assert kept.find("1", question("third")) is None
    assert kept.find("1", question("second")) is not None
    assert kept.find("2", question("second")) is None
    assert kept.find("2", question("first")) is not None


def test_requests_without_an_answer_are_charged_once_at_the_most_they_can_cost(
    journal: Journal,
) -> None:
    killed(journal, "first", sent=2)
    assert CallLog(journal).unfinished() == [*spent(called()), LOST, LOST]
    assert CallLog(journal).unfinished() == [*spent(called()), LOST, LOST]
    killed(journal, sent=1)
    assert CallLog(journal).unfinished() == [*spent(called()), LOST, LOST, LOST]


def test_retries_of_an_answered_call_are_not_lost(journal: Journal) -> None:
    places = CallLog(journal).places(KEY)
    call(places.kept, places.next(), "first", called(requests=3))
    places.kept.begin()
    assert CallLog(journal).unfinished() == [*spent(called(requests=3))]


def test_a_call_is_written_when_the_next_one_follows(journal: Journal) -> None:
    places = CallLog(journal).places(KEY)
    call(places.kept, "1", "first", called())
    assert journal.calls_of(KEY) == (f"{KEY}/call/1/sent/1",)
    places.kept.sent("2", question("second"), BOUND)
    assert journal.calls_of(KEY)[1:] == (f"{KEY}/call/1", f"{KEY}/call/2/sent/1")


def test_a_call_is_written_at_once_while_another_is_in_flight(journal: Journal) -> None:
    kept = CallLog(journal).places(KEY).kept
    kept.sent("2", question("slow"), BOUND)
    call(kept, "1", "first", called())
    assert journal.calls_of(KEY)[-1] == f"{KEY}/call/1"


def test_calls_of_other_answers_that_are_made_are_written_too(journal: Journal) -> None:
    log = CallLog(journal)
    call(log.places(KEY).kept, "1", "first", called())
    log.made(KEY)
    log.places("baseline/2").kept.sent("1", question("second"), BOUND)
    assert f"{KEY}/call/1" in journal.calls_of(KEY)


def test_the_last_call_of_an_answer_is_not_written_beside_it(journal: Journal) -> None:
    log = CallLog(journal)
    call(log.places(KEY).kept, "1", "first", called())
    assert log.finish(KEY, spent(called())) == spent(called())
    log.places("baseline/2").kept.sent("1", question("second"), BOUND)
    assert f"{KEY}/call/1" not in journal.calls_of(KEY)


def test_a_failed_attempt_is_charged_for_what_is_new_and_records_what_is_not_kept(
    journal: Journal,
) -> None:
    killed(journal, "first")
    log = CallLog(journal)
    kept = log.places(KEY).kept
    assert kept.find("1", question("first")) is not None
    second, third = called("0.02"), called("0.03")
    call(kept, "2", "second", second)
    lost, fresh = log.fail(KEY, spent(called(), second, third))
    assert [*fresh] == [*spent(second, third)]
    assert [*lost] == [*spent(third)]


class SlowJournal(MemoryJournal):
    """Takes a while to record a call."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def append_all(self, records: Sequence[Record]) -> None:
        if any(record.kind == "call" for record in records):
            self.has_begun.set()
            self.may_end.wait(0.2)
        super().append_all(records)


def while_a_call_is_written() -> CallLog:
    """Return a log of which another thread, as the one that writes late, writes a call."""
    journal = SlowJournal()
    journal.begin({})
    log = CallLog(journal)
    kept = log.places(KEY).kept
    call(kept, "1", "first", called())
    threading.Thread(target=kept.begin, daemon=True).start()
    assert journal.has_begun.wait(10)
    return log


def test_a_call_that_is_being_written_when_its_answer_fails_is_charged_once() -> None:
    log = while_a_call_is_written()
    assert log.fail(KEY, spent(called())) == ([], [*spent(called())])


def test_a_call_that_is_being_written_when_the_log_is_closed_is_not_lost() -> None:
    assert while_a_call_is_written().close() == [*spent(called())]


def test_answers_that_are_left_behind_are_charged_when_the_log_is_closed(
    journal: Journal,
) -> None:
    log = CallLog(journal)
    kept = log.places(KEY).kept
    call(kept, "1", "first", called())
    kept.sent("2", question("second"), BOUND)
    assert log.close() == [*spent(called()), LOST]
    # What arrives later was charged as lost, and is not kept beside that.
    kept.keep("2", lambda: (question("second"), {"calls": [called_to_json(called())]}))
    kept.begin()
    assert f"{KEY}/call/2" not in journal.calls_of(KEY)


def test_kept_calls_that_a_recorded_answer_was_not_made_with_are_counted(
    journal: Journal,
) -> None:
    killed(journal, "first", "second", "third")
    log = CallLog(journal)
    assert log.unused(KEY, spent(called(), called(), called())) == []
    assert log.unused(KEY, spent(called(), role=Role.JUDGE)) == [*spent(called(), called())]


def test_another_answer_to_another_question_does_not_replace_the_first(journal: Journal) -> None:
    killed(journal, "first")
    killed(journal, "other")
    assert [key for key in journal.calls_of(KEY) if "/sent/" not in key] == [
        f"{KEY}/call/1",
        f"{KEY}/call/1~2",
    ]


def test_sessions_of_one_answer_have_places_of_their_own(journal: Journal) -> None:
    log = CallLog(journal)
    assert [log.places(KEY).next() for _ in range(3)] == ["1", "repeat.2.1", "repeat.3.1"]
    assert log.places("baseline/2").within("judge").next() == "judge.1"


@pytest.mark.parametrize(
    ("key", "place", "role"),
    [
        ("baseline/1", "2.1", Role.TASK),
        ("baseline/1", "judge.1", Role.JUDGE),
        ("step/3/reflect", "1", Role.REFLECTION),
        ("teacher/1", "1", Role.TEACHER),
    ],
)
def test_a_call_is_charged_to_the_role_of_its_place(
    journal: Journal, key: str, place: str, role: Role
) -> None:
    kept = CallLog(journal).places(key).kept
    call(kept, place, "first", called())
    kept.begin()
    assert [spending.role for spending in CallLog(journal).unfinished()] == [role]


def test_a_record_that_is_no_call_is_refused(journal: Journal) -> None:
    journal.append(f"{KEY}/call/1", question("first"), "call", {"turn": "first"})
    with pytest.raises(JournalCorruptError, match=r"`baseline/1/call/1` is no call; restore"):
        CallLog(journal).unfinished()
