"""What pages show of a job is the same however often it was looked at before."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files

import pytest
from msgspec import UnsetType
from sqlalchemy import Connection, update

from jobs.job_world import work_off
from promptgraft.search.events import CandidateAdded, Event
from promptgraft.service.jobs import Job, JobManager, Worker
from promptgraft.service.jobs.lines import JobLine, LineKind
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.server.views import JobViews


class Counting(JobManager):
    """Counts the events that are read."""

    read = 0

    def events(
        self, job: str, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, Event, bytes]]:
        found = super().events(job, after=after, limit=limit)
        self.read += len(found)
        return found


def test_no_event_is_read_twice(manager: JobManager, done: Job) -> None:
    counting, views = Counting(manager.database, projects=manager.projects), JobViews()
    first = views.of(counting, done)
    assert counting.read == len(manager.events(done.id, limit=5_000)) > 10
    assert views.of(counting, done) is first
    before = counting.read
    rows = JobRows(manager.database)
    manager.database.write(lambda at: rows.publish(at, done.number, "job_asked", what="look"))
    assert views.of(counting, done).lines[1:] == first.lines[:59]
    assert counting.read == before + 1


def test_a_view_is_that_of_a_first_look_at_any_moment(manager: JobManager) -> None:
    job = manager.create("support", "triage", {"budget": 120})
    views, seen = JobViews(), set[int]()

    def compare() -> None:
        found, anew = views.of(manager, job), JobViews().of(manager, job)
        assert found.last == anew.last
        assert (found.candidates, found.data.winner) == (anew.candidates, anew.data.winner)
        assert found.data.steps.rejections == anew.data.steps.rejections
        seen.add(len(found.candidates))

    for _ in range(4):
        claim = Worker(manager).claim()
        assert claim is not None
        manager.pause(job.id)
        Worker(manager).run_here(claim)
        compare()
        manager.change(job.id, {"note": "on"})
        manager.resume(job.id)
    work_off(manager)
    compare()
    assert len(seen) > 1


def test_what_a_replay_takes_back_is_gone(manager: JobManager, done: Job) -> None:
    views = JobViews()
    whole = views.of(manager, done)
    assert len(whole.candidates) > 1
    at, line = 0, b""
    for number, event, told in manager.events(done.id):
        if isinstance(event, CandidateAdded) and event.candidate == 1:
            break
        if not isinstance(event.number, UnsetType):
            at, line = number, told
    rows = JobRows(manager.database)

    def rewind(connection: Connection) -> None:
        rows.retract(connection, done.number, at)
        told = [(LineKind.REWOUND, b'{"event":"rewound"}'), (LineKind.NUMBERED, line)]
        rows.append(connection, done.number, [JobLine(*one) for one in told])

    manager.database.write(rewind)
    for view in (views.of(manager, done), JobViews().of(manager, done)):
        assert [one.candidate for one in view.candidates] == [0]


def test_only_the_jobs_that_were_looked_at_last_are_kept(manager: JobManager) -> None:
    jobs = [manager.create("support", "triage", {"note": f"{n}"}) for n in range(3)]
    views = JobViews(most=2)
    kept = [views.of(manager, job) for job in jobs]
    assert [views.of(manager, job) is one for job, one in zip(jobs[1:], kept[1:], strict=True)] == [
        True,
        True,
    ]
    assert views.of(manager, jobs[0]) is not kept[0]


@pytest.mark.parametrize("line", [b"{", b'{"event": 3}', b"\xff\xfe", b"[]"])
def test_a_damaged_event_is_one_line_among_those_that_can_be_read(
    manager: JobManager, done: Job, line: bytes
) -> None:
    whole = JobViews().of(manager, done)
    rows = JobRows(manager.database)
    manager.database.write(lambda at: rows.append(at, done.number, [JobLine(LineKind.JOB, line)]))
    for view in (JobViews().of(manager, done), JobViews().of(manager, done)):
        assert view.candidates == whole.candidates
        assert view.acts == whole.acts
        number, stand_in = view.lines[0]
        assert json.loads(stand_in) == {"event": "damaged", "fault": view.damage}
        assert f"event {number}" in view.damage


def test_candidates_up_to_a_damaged_one_are_shown(manager: JobManager, done: Job) -> None:
    whole = JobViews().of(manager, done)
    assert len(whole.candidates) > 1
    assert not whole.damage
    events = manager.database.tables.events
    (damaged,) = (
        number
        for number, event, _ in manager.events(done.id)
        if isinstance(event, CandidateAdded) and event.candidate == 1
    )
    here = (events.c.job == done.number, events.c.number == damaged)
    change = update(events).where(*here).values(line=b"{")
    manager.database.write(lambda connection: connection.execute(change))
    view = JobViews().of(manager, done)
    assert view.candidates == whole.candidates[:1]
    assert view.data.winner == 0
    assert f"event {damaged}" in view.damage


def test_whatever_may_scroll_is_reached_by_key_and_has_a_name() -> None:
    templates = [
        *files("promptgraft.service.server").joinpath("templates").iterdir(),
        *files("promptgraft.runs.report").joinpath("templates").iterdir(),
    ]
    boxes = [
        (template.name, box)
        for template in templates
        if template.name.endswith(".html")
        for text in [re.sub("{[{%].*?[}%]}", "", template.read_text("utf-8"))]
        for box in re.findall(r'<\w+ class="scroll\b[^>]*>', text)
    ]
    assert {"case.html", "jobs_table.html", "cases.html"} <= {name for name, _ in boxes}
    for name, box in boxes:
        assert 'tabindex="0"' in box, name
        assert re.search(r'role="(group|region)" aria-label(ledby)?="', box), name
