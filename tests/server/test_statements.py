"""Every statement of the service on its database, explained: none reads a large table whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from sqlalchemy import event

from jobs.job_world import expire, work_off
from promptgraft.service.database import SqlPromptOverridesStore
from promptgraft.service.jobs import ApprovalNeededError, JobFilter, JobManager, Worker
from promptgraft.service.jobs.webhooks import Webhook, WebhookSender
from promptgraft.service.server import Scope, TokenStore, datasets, pages, signing_in
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.oidc import OidcUser
from promptgraft.testing.prompts import PROMPT, TONE
from server.serving import Client, asking

LARGE = ("jobs", "answers", "events", "attempts", "revisions", "outbox", "requests")
ALLOWED: Mapping[str, str] = {
    r"ORDER BY promptgraft_jobs\.number DESC": "a page reads jobs by number until it is full",
    r"GROUP BY promptgraft_jobs\.project": "metrics are sums over all jobs",
    r"GROUP BY promptgraft_jobs\.state": "so are the numbers of jobs in each state",
    r"UPDATE promptgraft_jobs SET lease=\?$": "these tests let all leases expire",
}
"""Statements that may read all rows, and why."""


@pytest.fixture
def statements(manager: JobManager) -> Iterator[set[str]]:
    """Collect the statements on the database, with placeholders."""
    engine = manager.database._engine
    found = set[str]()

    @event.listens_for(engine, "before_cursor_execute")
    def note(*arguments: object) -> None:
        found.add(str(arguments[2]))

    yield found
    event.remove(engine, "before_cursor_execute", note)


def use_everything(client: Client, manager: JobManager, folder: Path) -> None:
    """Run all that reads or writes the tables."""
    sender = WebhookSender(
        manager.database, {"ops": Webhook(url="http://127.0.0.1:9", secret="s" * 32)}
    )
    job = manager.create("support", "triage", {"budget": 60}, key="k")
    manager.create("support", "triage", {"budget": 60}, key="k")
    worker = Worker(manager, name="lost")
    assert worker.claim() is not None
    expire(manager)
    work_off(manager)
    values = {"job": job.id[:8], "project": "support", "prompt": "triage", "number": "0"}
    values |= {"tag": "latest", "part": "table", "tab": "cases", "name": "hard"}
    for text in ('{"input": "a"}', '{"input": "b"}'):
        manager.save_dataset("support", "hard", text)
    for prefix, table in (
        ("/api/v1", ROUTES),
        ("", pages.ROUTES),
        ("", datasets.ROUTES),
        ("", signing_in.ROUTES),
    ):
        for route in table:
            if route.method == "GET":
                query = f"job={job.id}&job={job.id}&candidate=0&candidate=1&id=l11"
                path = f"{prefix}{route.path.format(**values)}?{query}"
                assert client.ask("GET", path).status in (200, 404), path
    for path in ("/metrics", "/readyz"):
        assert client.ask("GET", path).status == 200
    manager.list(JobFilter(state="queued", project="support", since=1, text="x"), before=9)
    manager.list(projects=["support"])
    other = manager.create("support", "triage", {"priority": 3})
    for what in (manager.pause, manager.resume, manager.cancel):
        client.post(f"/jobs/{other.id}/{what.__name__}")
    fork = manager.fork(job.id)
    manager.change(fork.id, {"budget": 70})
    manager.apply(job.id)
    manager.promote("support", "triage", "latest", to="prod")
    manager.mirror(job.id, folder)
    Worker(manager, name="w").run(until_idle=True)
    sender.deliver()
    tokens = TokenStore(manager.database)
    token = tokens.create("ana", [Scope.READ])
    with asking(client.url) as browser:
        browser.post("/login", data={"token": token})
        browser.post("/login", data={"link": tokens.new_link("ana", seconds=60)})
        browser.post("/account", data={"what": "end-others"})
        browser.post("/logout")
    manager.protect("support", "prod")
    with pytest.raises(ApprovalNeededError) as needed:
        manager.promote("support", "triage", "latest", to="prod")
    number = needed.value.request
    for decide in (manager.acting_for("ana").approve, manager.acting_for("ben").approve):
        decide(number)
    for path in ("/approvals", f"/approvals/{number}", f"/api/v1/requests/{number}"):
        assert client.ask("GET", path).status == 200
    manager.waiting_for(job)
    manager.unprotect("support", "prod")
    sessions = client.access.sessions
    sessions.begin_login("state", "/")
    sessions.end_login("state")
    sessions.open_for(OidcUser(digest="d" * 64, name="ben", memberships=frozenset()), "")
    tokens.list()
    tokens.named("ana")
    tokens.revoke("ana")
    store = SqlPromptOverridesStore(manager.database)
    for body in ("kind", "brief"):
        store.set_section_override(PROMPT, path=TONE, body=body)
    (address,) = [at for at in store.addresses() if at.ns == PROMPT.descriptor.ns]
    names = {"ns": address.ns, "prompt_key": address.prompt_key, "tag": address.tag}
    store.history(**names)
    store.rollback(**names)
    store.delete(**names)
    manager.delete(job.id)


def plans(manager: JobManager, statements: Sequence[str]) -> dict[str, list[str]]:
    """Return the steps of SQLite's plan for each statement."""
    with manager.database.reading() as connection:
        return {
            text: [
                str(row[-1])
                for row in connection.exec_driver_sql(
                    f"EXPLAIN QUERY PLAN {text}", (1,) * text.count("?")
                ).all()
            ]
            for text in statements
        }


@pytest.mark.usefixtures("forked_jobs")
def test_no_statement_reads_all_rows_of_a_large_table(
    manager: JobManager, client: Client, statements: set[str], tmp_path: Path
) -> None:
    use_everything(client, manager, tmp_path / "runs")
    explained = [
        text for text in statements if text.startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))
    ]
    assert len(explained) > 80
    # Of every table there is a statement among them.
    names = {table.name for table in manager.database.tables.metadata.sorted_tables}
    assert {name for name in names if any(name in text for text in explained)} == names
    scanned = {
        text: step
        for text, steps in plans(manager, explained).items()
        for step in steps
        if re.match(rf"SCAN promptgraft_({'|'.join(LARGE)})\b", step)
        and not any(re.search(pattern, text) for pattern in ALLOWED)
    }
    assert scanned == {}
