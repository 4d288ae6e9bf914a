"""Webhooks: signed events of jobs, at least once, in order, to a real receiver."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import sqlite_first, work_off, write_project
from programs import Programs
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager
from promptgraft.service.jobs.webhooks import MOST_ATTEMPTS, WebhookSender, read_webhooks

SECRET = "s3cret-of-at-least-16-characters"


class Receiver(ThreadingHTTPServer):
    """Keeps what it gets, and answers with the statuses that are put in; then with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.strayed: list[str] = []
        self.statuses: list[int] = []
        self.came = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"

    @property
    def events(self) -> list[dict[str, object]]:
        return [json.loads(body) for _, body in self.got]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.server.came.set()
        self.server.may_answer.wait(30)
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.strayed.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def file(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPS_SECRET", SECRET)
    path = tmp_path / "webhooks.yaml"
    path.write_text(f"ops: {{url: '{receiver.url}', secret: '${{OPS_SECRET}}'}}\n")
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def manager(database: Database, project: Path) -> Iterator[JobManager]:
    yield JobManager(database, projects={"support": project})
    schema = database.tables.schema
    database.write(lambda connection: connection.execute(schema.update().values(hooks="")))


def send_all(sender: WebhookSender) -> None:
    """Send until nothing is left, as if the pauses between attempts were over at once."""
    for _ in range(100):
        make_due(sender)
        if not sender.deliver():
            return
    raise AssertionError("it does not end")


def make_due(sender: WebhookSender) -> None:
    outbox = sender.database.tables.outbox
    sender.database.write(lambda connection: connection.execute(outbox.update().values(due=0.0)))


@sqlite_first
def test_events_arrive_signed_and_in_order_although_the_receiver_fails_first(
    manager: JobManager, receiver: Receiver, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = manager.create("support", "triage", {"budget": 60})
    sender = WebhookSender(manager.database, read_webhooks(file))
    manager.cancel(before.id)
    job = manager.create("support", "triage", {"budget": 60, "store": False})
    work_off(manager)
    receiver.statuses += [500, 302, 429]
    with caplog.at_level(logging.DEBUG):
        send_all(sender)
    assert not sender.deliver()
    assert SECRET not in caplog.text
    assert receiver.strayed == []
    ids = [headers["Promptgraft-Delivery"] for headers, _ in receiver.got]
    assert len(set(ids)) == len(ids) - 3  # each failure was sent again under its id
    for headers, body in receiver.got:
        time, _, made = headers["Promptgraft-Signature"].removeprefix("t=").partition(",v1=")
        said = hmac.new(SECRET.encode(), f"{time}.".encode() + body, hashlib.sha256)
        assert hmac.compare_digest(made, said.hexdigest())
    told = {name: [e for e in receiver.events if e["job"] == name] for name in (before.id, job.id)}
    # What was told before there was a webhook is not sent.
    assert {e["event"] for e in told[before.id]} == {"job_cancelled", "job_asked"}
    numbers = [e["number"] for e in told[job.id]]
    assert numbers == sorted(numbers, key=lambda number: int(str(number)))
    kinds = [str(e["event"]) for e in told[job.id]]
    assert list(dict.fromkeys(kinds)) == ["job_queued", "job_started", "job_completed"]
    assert told[job.id][-1]["state"] == "completed"
    assert told[job.id][-1]["project"] == "support"


@sqlite_first
def test_a_delivery_never_has_the_id_of_another(
    manager: JobManager, receiver: Receiver, file: Path
) -> None:
    sender = WebhookSender(manager.database, read_webhooks(file))
    for _ in range(2):
        manager.create("support", "triage", {"budget": 60})
        send_all(sender)
    first, second = (headers["Promptgraft-Delivery"] for headers, _ in receiver.got)
    assert first != second


@sqlite_first
def test_an_older_event_of_a_job_is_waited_for(
    manager: JobManager, receiver: Receiver, file: Path
) -> None:
    sender = WebhookSender(manager.database, read_webhooks(file))
    job = manager.create("support", "triage")
    manager.cancel(job.id)
    other = manager.create("support", "triage")
    receiver.statuses.append(503)
    while sender.deliver():
        pass
    # The first of the job is due again later; those behind it wait, another job does not.
    assert [(e["job"], e["event"]) for e in receiver.events] == [
        (job.id, "job_queued"),
        (other.id, "job_queued"),
    ]


@sqlite_first
def test_what_never_arrives_is_given_up_and_the_reason_kept(
    manager: JobManager, receiver: Receiver, file: Path
) -> None:
    sender = WebhookSender(manager.database, read_webhooks(file))
    job = manager.create("support", "triage")
    receiver.statuses += [500] * MOST_ATTEMPTS
    send_all(sender)
    assert len(receiver.got) == MOST_ATTEMPTS
    last = json.loads(manager.events(job.id)[-1][2])
    assert (last["event"], last["hook"], last["reason"]) == (
        "webhook_failed",
        "ops",
        f"given up after {MOST_ATTEMPTS} attempts; the last: answered 500",
    )


SENDING = """
import sys
from promptgraft.service.database import Database
from promptgraft.service.jobs.webhooks import WebhookSender, read_webhooks
WebhookSender(Database(sys.argv[1]), read_webhooks(sys.argv[2])).deliver()
"""


@pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True)
def test_a_sender_that_is_killed_has_sent_it_at_least_once(
    manager: JobManager, receiver: Receiver, file: Path, programs: Programs
) -> None:
    sender = WebhookSender(manager.database, read_webhooks(file))
    manager.create("support", "triage")
    receiver.may_answer.clear()
    command = ("-c", SENDING, manager.database.secret_url, str(file))
    with programs.started(*command):
        assert receiver.came.wait(60)
    receiver.may_answer.set()
    assert not sender.deliver()  # it may still be on its way
    send_all(sender)
    ids = [headers["Promptgraft-Delivery"] for headers, _ in receiver.got]
    assert len(ids) == 2
    assert len(set(ids)) == 1


def test_without_webhooks_nothing_is_kept(manager: JobManager, tmp_path: Path, file: Path) -> None:
    manager.create("support", "triage")
    WebhookSender(manager.database, read_webhooks(file))
    file.write_text("{}\n")
    WebhookSender(manager.database, read_webhooks(file))
    manager.create("support", "triage")
    outbox = manager.database.tables.outbox
    with manager.database.reading() as connection:
        assert connection.scalar(sqlalchemy.select(sqlalchemy.func.count(outbox.c.id))) == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ops: {url: 'http://example.org/', secret: '${OPS_SECRET}'}", "ops.url: expected an a"),
        (
            "ops: {url: 'https://e.org/', secret: plain-text-secret}",
            "ops.secret: expected `${NAME}",
        ),
        ("ops: {url: 'https://e.org/', secret: '${NOT_SET}'}", "variable NOT_SET, found 0"),
        ("ops: {url: 'https://e.org/', secrets: '${OPS_SECRET}'}", "secrets: unknown key"),
        ("[]", "expected an object with webhooks by their names"),
    ],
)
def test_mistakes_in_the_file_are_named(file: Path, text: str, line: str) -> None:
    file.write_text(f"{text}\n")
    with pytest.raises((ConfigError, DataFormatError)) as refused:
        read_webhooks(file)
    assert line in str(refused.value)
    assert "plain-text-secret" not in str(refused.value)


def test_a_worker_sends_what_its_jobs_tell(
    receiver: Receiver,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    programs: Programs,
) -> None:
    write_project(tmp_path / "support")
    monkeypatch.chdir(tmp_path / "support")
    monkeypatch.setenv("PROMPTGRAFT_JOBS", "sqlite:///jobs.db")
    monkeypatch.setenv("PROMPTGRAFT_WEBHOOKS", str(file))
    assert run(["worker", "--until-idle"]) == 0  # from now on events are kept
    assert run(["jobs", "submit", "triage", "--budget", "60"]) == 0
    with programs.started("-m", "promptgraft", "worker") as process:
        for _ in range(1_200):
            if any(e["event"] == "job_completed" for e in receiver.events):
                break
            receiver.came.clear()
            receiver.came.wait(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    kinds = [e["event"] for e in receiver.events]
    assert kinds == ["job_queued", "job_started", "job_completed"]
