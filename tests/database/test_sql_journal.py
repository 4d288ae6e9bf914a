"""What every journal promises, of those in a database; and the fence that files lack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy

from flows.test_kept_steps import Own, optimized

# The tests of every journal, over the fixture `fresh` of this module.
from journal.test_contract import *  # noqa: F403
from journal.test_contract import ASKED, RUN
from promptgraft import GepaResult, MemoryJournal
from promptgraft.errors import JournalCorruptError, JournalWriteError, LeaseLostError
from promptgraft.journal import Journal, Record
from promptgraft.service.database import Database, SqlJournal


def new_job(database: Database) -> int:
    jobs = database.tables.jobs

    def insert(connection: sqlalchemy.Connection) -> int:
        row = sqlalchemy.insert(jobs).values(id="a" * 32, created=1.0, request=b"{}", fence=1)
        made = connection.execute(row).inserted_primary_key
        assert made
        return int(made[0])

    return database.write(insert)


def take_over(database: Database, job: int) -> None:
    jobs = database.tables.jobs
    database.write(
        lambda connection: connection.execute(
            sqlalchemy.update(jobs).where(jobs.c.number == job).values(fence=jobs.c.fence + 1)
        )
    )


@pytest.fixture
def job(database: Database) -> int:
    return new_job(database)


@pytest.fixture(name="fresh")
def fresh_in_a_database(database: Database, job: int) -> Iterator[Journal]:
    with SqlJournal(database, job, fence=1) as journal:
        yield journal


def test_another_process_finds_the_answers(database: Database, job: int) -> None:
    keys = [f"sch\u00f6n/{number}" for number in range(300)]
    records = [Record(key, ASKED, "rollout", {"n": number}) for number, key in enumerate(keys)]
    with SqlJournal(database, job, fence=1) as first:
        first.begin(RUN)
        first.append_all(records)
    with SqlJournal(database, job, fence=1) as second:
        second.begin(RUN)
        found = [second.find(key, ASKED) for key in keys]
    assert [one and one.value for one in found] == [{"n": number} for number in range(300)]


def test_nothing_is_written_after_a_take_over(database: Database, job: int) -> None:
    with SqlJournal(database, job, fence=1) as journal:
        journal.begin(RUN)
        journal.append("a", ASKED, "rollout", 1)
        take_over(database, job)
        with pytest.raises(LeaseLostError, match="was taken over by another worker"):
            journal.append("b", ASKED, "rollout", 2)
        with pytest.raises(LeaseLostError):
            journal.sync()
        assert "b" not in journal
        with SqlJournal(database, job, fence=2) as other:
            assert [record.key for record in other.records()] == ["a"]
            other.begin(RUN)
            other.append("b", ASKED, "rollout", 3)
        with pytest.raises(LeaseLostError):
            journal.close()


def test_nothing_is_written_behind_answers_that_a_crash_of_the_database_has_lost(
    database: Database, job: int
) -> None:
    answers = database.tables.answers
    lost = sqlalchemy.delete(answers).where(answers.c.job == job, answers.c.position > 1)
    journal = SqlJournal(database, job, fence=1)
    journal.begin(RUN)
    for key in "abc":
        journal.append(key, ASKED, "rollout", key)
    database.write(lambda connection: connection.execute(lost))
    with pytest.raises(JournalWriteError, match="the database has lost 2 answers, since"):
        journal.append("d", ASKED, "rollout", "d")
    with pytest.raises(JournalWriteError, match="has lost 2 answers"):
        journal.close()
    with SqlJournal(database, job, fence=1) as again:
        again.begin(RUN)
        assert next(iter(again.records())).key == "a"
        again.append("b", ASKED, "rollout", "b")


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_damage_is_found_when_it_is_opened(database: Database, job: int, damage: str) -> None:
    with SqlJournal(database, job, fence=1) as journal:
        journal.begin(RUN)
        for key in "abc":
            journal.append(key, ASKED, "rollout", key)
    answers = database.tables.answers
    at = (answers.c.job == job) & (answers.c.position == 2)
    change = (
        sqlalchemy.delete(answers).where(at)
        if damage == "missing"
        else sqlalchemy.update(answers).where(at).values(line=b"{}\n")
    )
    database.write(lambda connection: connection.execute(change))
    with pytest.raises(JournalCorruptError, match=f"journal of job {job} in .*, line [34]: .*copy"):
        SqlJournal(database, job, fence=1)


def test_steps_inside_rollouts_are_kept_in_a_database(database: Database, job: int) -> None:
    def answered_by(adapter: Own) -> GepaResult:
        with SqlJournal(database, job, fence=1) as journal:
            return optimized(adapter, journal)

    hasty, patient, calm = Own(stop_after=6), Own(), Own()
    answered_by(hasty)
    result = answered_by(patient)
    assert result == optimized(calm, MemoryJournal())
    assert sorted(hasty.asked + patient.asked) == sorted(calm.asked)
