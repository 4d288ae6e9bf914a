"""Two servers on one database that do the same at the same moment."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from jobs.job_world import FILE, sqlite_first, write_project
from jobs.test_approvals import NAME, TAG, asked, body, finished, write
from promptgraft.errors import OverrideConflictError, PromptgraftError
from promptgraft.service.database import Database
from promptgraft.service.database.store import ProtectedTagError
from promptgraft.service.jobs import JobConflictError, JobManager, JobNotFoundError
from promptgraft.service.jobs.approvals import RequestStep

PROMPT = {"ns": "support", "prompt_key": "triage"}
SECONDS = 30.0
CASES = [f'{{"id": "{name}", "input": "{name}", "expected": "billing"}}\n' for name in "abc"]


@pytest.fixture
def servers(database: Database, tmp_path: Path) -> Iterator[tuple[JobManager, JobManager]]:
    """Managers of two people, each with connections of its own."""
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    projects = {"support": write_project(tmp_path / "support", file=file)}
    with closing(Database(database.secret_url)) as other:
        ana, ben = (JobManager(each, projects=projects) for each in (database, other))
        yield ana.acting_for("ana"), ben.acting_for("ben")


Outcome = object | PromptgraftError


def outcome(act: Callable[[], object]) -> Outcome:
    try:
        return act()
    except PromptgraftError as error:
        return error


def meanwhile(
    first: Callable[[], object], at: str, second: Callable[[], object], *, begin: int = 1
) -> tuple[Outcome, Outcome]:
    """Carry out `second` as `first` is about to execute a statement like `at`, the first of these.

    In SQLite, before a write begins, the first or another: until its end nobody else writes.
    """
    ends, me = list[Outcome](), threading.get_ident()
    begins = itertools.count(1)

    def is_moment(dialect: str, statement: str) -> bool:
        if dialect == "sqlite":
            return statement == "BEGIN IMMEDIATE" and next(begins) == begin
        return not ends and re.match(at, statement, re.DOTALL) is not None

    def stop(connection: Connection, _: object, statement: str, *__: object) -> None:
        if threading.get_ident() == me and is_moment(connection.dialect.name, statement):
            thread = threading.Thread(target=lambda: ends.append(outcome(second)))
            thread.start()
            thread.join(SECONDS)

    event.listen(Engine, "before_cursor_execute", stop)
    try:
        end = outcome(first)
    finally:
        event.remove(Engine, "before_cursor_execute", stop)
    assert ends, f"there was no statement like {at}, or the second waits for the first"
    return end, ends[0]


def test_of_two_edits_of_one_data_set_the_later_is_refused(
    servers: tuple[JobManager, JobManager],
) -> None:
    ana, ben = servers
    base = ana.save_dataset("support", "hard", CASES[0]).digest
    late, early = meanwhile(
        lambda: ana.save_dataset("support", "hard", CASES[1], expected=base),
        r"INSERT INTO \S*datasets",
        lambda: ben.save_dataset("support", "hard", CASES[2], expected=base),
    )
    assert isinstance(late, OverrideConflictError), late
    assert not isinstance(early, Exception), early
    assert [row.author for row in ana.dataset_history("support", "hard")] == ["ben", "ana"]
    assert ana.dataset("support", "hard").text == CASES[2]


def test_the_same_question_at_once_is_one_request(servers: tuple[JobManager, JobManager]) -> None:
    ana, ben = servers
    write(ana, "night", "Be kind.")
    ana.protect("support", TAG)
    numbers = meanwhile(
        lambda: asked(lambda: ana.promote("support", "triage", "night", to=TAG)),
        r"INSERT INTO \S*requests\b",
        lambda: asked(lambda: ben.promote("support", "triage", "night", to=TAG)),
    )
    assert numbers == (1, 1)
    assert [request.by for request in ana.requests("support")] == ["ben"]


def test_two_who_approve_at_once_move_the_tag_once(servers: tuple[JobManager, JobManager]) -> None:
    ana, ben = servers
    write(ana, "night", "Be kind.")
    ana.protect("support", TAG)
    number = asked(lambda: ana.acting_for("eve").promote("support", "triage", "night", to=TAG))
    late, early = meanwhile(
        lambda: ana.approve(number), r"SELECT.*requests.*FOR UPDATE", lambda: ben.approve(number)
    )
    assert isinstance(late, JobConflictError), late
    assert "is done already" in str(late)
    assert not isinstance(early, Exception), early
    assert body(ana) == "Be kind."
    steps = [entry.what for entry in ana.request(number).entries]
    assert steps == [RequestStep.ASKED, RequestStep.APPROVED, RequestStep.DONE]
    assert len(ana.projects["support"].store().history(**PROMPT, tag=TAG)) == 1


def test_a_tag_that_becomes_protected_is_not_moved(servers: tuple[JobManager, JobManager]) -> None:
    ana, ben = servers
    write(ana, "night", "Be kind.")
    late, early = meanwhile(
        lambda: ana.promote("support", "triage", "night", to=TAG),
        r"SELECT.*tags.*FOR UPDATE",
        lambda: ben.protect("support", TAG),
    )
    assert isinstance(late, ProtectedTagError), late
    assert early is None
    assert body(ana) is None


def test_of_two_promotions_from_one_revision_the_later_is_refused(
    servers: tuple[JobManager, JobManager],
) -> None:
    ana, ben = servers
    for tag, text in ((TAG, "Old."), ("night", "Be kind."), ("day", "Be brief.")):
        write(ana, tag, text)
    present = ana.projects["support"].store().current(**PROMPT, tag=TAG)
    assert present is not None
    expected = {NAME: present.id}
    late, early = meanwhile(
        lambda: ana.promote("support", "triage", "night", to=TAG, expected=expected),
        r"SELECT.*tags.*FOR UPDATE",
        lambda: ben.promote("support", "triage", "day", to=TAG, expected=expected),
    )
    assert isinstance(late, OverrideConflictError), late
    assert not isinstance(early, Exception), early
    assert body(ana) == "Be brief."


def test_of_two_who_delete_a_job_the_later_finds_none(
    servers: tuple[JobManager, JobManager],
) -> None:
    ana, ben = servers
    job = ana.cancel(ana.create("support", "triage", {}).id)
    late, early = meanwhile(
        lambda: ana.delete(job.id), r"SELECT.*jobs.*FOR UPDATE", lambda: ben.delete(job.id)
    )
    assert isinstance(late, JobNotFoundError), late
    assert early is None


@sqlite_first
@pytest.mark.parametrize("before_the_move", [True, False])
def test_a_job_is_deleted_while_its_winner_is_applied(
    servers: tuple[JobManager, JobManager], before_the_move: bool
) -> None:
    ana, ben = servers
    job = finished(ana)
    applied, deleted = meanwhile(
        lambda: ana.apply(job.id),
        r"SELECT.*tags.*FOR UPDATE" if before_the_move else r"UPDATE \S*jobs",
        lambda: ben.delete(job.id),
        begin=1 if before_the_move else 2,
    )
    assert deleted is None
    assert not isinstance(applied, Exception), applied
    assert body(ana) is not None
