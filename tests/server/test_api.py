"""The API over HTTP: what it does, what it refuses, and in which words."""

from __future__ import annotations

import asyncio
import html
import io
import json
import re
import tarfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from sqlalchemy import update
from starlette.types import Message

from jobs.job_world import FILE, work_off, write_project
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json
from promptgraft.service.jobs import Job, JobManager, JobState, Worker
from promptgraft.service.jobs.client import JobClient
from promptgraft.service.jobs.lines import JobLine, LineKind, encoded_plain
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.server import Scope, TokenStore, make_app
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.calls import Route
from promptgraft.service.server.problems import problem_of
from server.serving import Client, served


def submitted(client: Client, **changes: object) -> str:
    body = {"project": "support", "prompt": "triage", "changes": changes}
    answer = client.post("/jobs", body)
    assert answer.status == 201, answer
    return str(answer.document["id"])


def test_a_job_from_submitting_to_its_report(client: Client, manager: JobManager) -> None:
    body = {"project": "support", "prompt": "triage", "changes": {"budget": 120, "note": "n"}}
    made = client.post("/jobs", body)
    job = str(made.document["id"])
    assert (made.status, made.headers["location"]) == (201, f"/api/v1/jobs/{job}")
    assert client.get(f"/jobs/{job}/result").detail == (
        f"job {job} is queued; there is no result yet"
    )
    assert client.get(f"/jobs/{job}/report").status == 409
    work_off(manager)
    shown = client.get(f"/jobs/{job[:6]}")
    assert (shown.at("state"), shown.at("progress")) == ("completed", 100.0)
    assert len(shown.rows("tries")) == 1
    result = client.get(f"/jobs/{job}/result").document
    assert {"verdict", "parts", "ledger"} <= result.keys()
    assert "parts" not in client.get(f"/jobs/{job}/result", detail="short").document
    candidates = client.get(f"/jobs/{job}/candidates").document["candidates"]
    assert isinstance(candidates, list)
    one = client.get(f"/jobs/{job}/candidates/1").document
    assert one == candidates[1]
    assert "rules" in str(one["texts"])
    short = client.get(f"/jobs/{job}/candidates", detail="short").document["candidates"]
    assert "texts" not in json.dumps(short)
    assert len(client.get(f"/jobs/{job}/rollouts", limit=100).rows("rollouts")) > 20
    assert "<!doctype html>" in client.get(f"/jobs/{job}/report").text.lower()
    packed = client.http.get(
        f"{client.url}/api/v1/jobs/{job}/archive",
        headers={"Authorization": f"Bearer {client.token}"},
    )
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        names = {Path(one).name for one in archive.getnames()}
    assert {"journal.jsonl", "events.jsonl", "result.json", "report.html"} <= names


def test_the_same_key_gives_the_same_job(client: Client) -> None:
    body: Json = {"project": "support", "prompt": "triage"}
    first = client.post("/jobs", body, Idempotency_Key="k1")
    again = client.post("/jobs", body, Idempotency_Key="k1")
    assert (first.status, again.status) == (201, 200)
    assert first.document["id"] == again.document["id"]
    other = {"project": "support", "prompt": "other"}
    assert client.post("/jobs", other, Idempotency_Key="k1").status == 409


def test_a_client_gets_the_fields_that_it_names(client: Client) -> None:
    job = submitted(client)
    assert client.get(f"/jobs/{job}", fields="state,id").document == {"state": "queued", "id": job}
    assert client.get("/jobs", fields="id").rows("jobs") == [{"id": job}]
    assert client.get(f"/jobs/{job}", fields="").at("id") == job
    refused = client.get(f"/jobs/{job}", fields="stat")
    assert (refused.status, refused.detail) == (
        422,
        "fields: there is no `stat` (did you mean `state`?)",
    )


def test_a_client_may_wait_for_the_end(client: Client, manager: JobManager) -> None:
    stopping = threading.Event()

    def work() -> None:
        while not stopping.wait(0.05):
            work_off(manager)

    thread = threading.Thread(target=work)
    thread.start()
    body: Json = {"project": "support", "prompt": "triage", "changes": {"budget": 60}}
    answer = client.post("/jobs", body, Prefer="wait=30")
    stopping.set()
    thread.join()
    assert (answer.status, answer.document["state"]) == (201, "completed")


def test_pausing_resuming_changing_forking(client: Client, manager: JobManager) -> None:
    job = submitted(client, budget=90)
    claim = Worker(manager).claim()
    assert claim is not None
    assert client.post(f"/jobs/{job}/pause").document["wish"] == "pause"
    Worker(manager).run_here(claim)
    assert client.get(f"/jobs/{job}").document["state"] == "paused"
    changed = client.ask("PATCH", f"/api/v1/jobs/{job}", {"budget": 130})
    assert changed.at("changes", "budget") == 130
    assert client.post(f"/jobs/{job}/resume").status == 202
    work_off(manager)
    refused = client.post(f"/jobs/{job}/pause")
    assert (refused.status, refused.detail) == (
        409,
        f"job {job} is completed, which allows apply, fork, delete; not pause",
    )
    fork = client.post(f"/jobs/{job}/fork", {"budget": 140})
    assert (fork.status, fork.document["origin"]) == (201, job)
    assert client.post(f"/jobs/{fork.document['id']}/cancel").document["state"] == "cancelled"
    assert client.ask("DELETE", f"/api/v1/jobs/{job}").status == 204
    assert client.get(f"/jobs/{job}").status == 404


def test_who_did_what_is_in_the_events_and_on_the_page(client: Client, manager: JobManager) -> None:
    job = submitted(client, budget=90, tag="night")
    ci = TokenStore(manager.database).create("ci", ["submit", "approve"])
    claim = Worker(manager, name="w1").claim()
    assert claim is not None
    client.ask("POST", f"/api/v1/jobs/{job}/pause", token=ci)
    Worker(manager).run_here(claim)
    client.ask("PATCH", f"/api/v1/jobs/{job}", {"budget": 130}, token=ci)
    client.ask("POST", f"/api/v1/jobs/{job}/resume", token=ci)
    work_off(manager)
    tag = "/api/v1/projects/support/prompts/triage/tags/night"
    client.ask("POST", f"/api/v1/jobs/{job}/apply", token=ci)
    client.ask("POST", f"{tag}/promote", {"to": "prod"}, token=ci)
    client.ask("POST", f"{tag}/rollback", token=ci)
    fork = client.post(f"/jobs/{job}/fork").document["id"]
    client.post(f"/jobs/{fork}/cancel")
    lines = [*client.get(f"/jobs/{job}/events").rows("events")]
    told = [(one["what"], one["by"]) for one in lines if one["event"] == "job_asked"]
    assert told == [
        ("pause", "ci"),
        ("change", "ci"),
        ("resume", "ci"),
        ("apply", "ci"),
        ("promote", "ci"),
        ("rollback", "ci"),
        ("fork", "tests"),
    ]
    assert (lines[0]["event"], lines[0]["by"]) == ("job_queued", "tests")
    cancelled = client.get(f"/jobs/{fork}/events").rows("events")
    assert ("job_asked", "cancel", "tests") in [
        (one["event"], one.get("what"), one.get("by")) for one in cancelled
    ]
    with closing(client.browser()) as browser:
        page = re.sub("<[^>]+>", "", browser.get(f"/jobs/{job}/events").text)
    for line in (
        "submitted by tests",
        "asked to pause by ci",
        "applied to night by ci",
        "promoted to prod by ci",
    ):
        assert line in page
    assert "started by w1" in page


def test_a_client_that_leaves_is_no_fault_of_the_server(
    client: Client, manager: JobManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(manager, access=client.access, mirrors=tmp_path / "left")
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", client.url.removeprefix("http://").encode())]
    headers.append((b"authorization", f"Bearer {client.token}".encode()))
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 80)}

    async def ask() -> None:
        await app(scope, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 408
    assert "fault" not in caplog.text


def test_who_deleted_a_job_is_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    job = submitted(client)
    client.post(f"/jobs/{job}/cancel")
    assert client.ask("DELETE", f"/api/v1/jobs/{job}").status == 204
    assert f"job {job} was deleted by tests" in caplog.messages


def test_pages_of_jobs_have_a_cursor(client: Client) -> None:
    jobs = [submitted(client, note=f"{n}") for n in range(5)]
    first = client.get("/jobs", limit=2)
    second = client.get("/jobs", limit=2, cursor=first.at("next"))
    third = client.get("/jobs", limit=2, cursor=second.at("next"))
    found = [one["id"] for page in (first, second, third) for one in page.rows("jobs")]
    assert found == jobs[::-1]
    assert third.at("next") is None


QUEUE = {
    "id": "output field Queue",
    "type": "output field",
    "text": '{\n  "description": "",\n  "value billing": "",\n  "value login": ""\n}',
}


def test_projects_structures_and_plans(client: Client) -> None:
    assert client.get("/projects").document == {
        "projects": [{"name": "support", "prompts": ["triage", "other"]}]
    }
    structure = client.get("/projects/support/prompts/triage/structure")
    (node,) = structure.rows("nodes")
    assert (node["id"], node["kind"]) == ("support/triage", "prompt")
    assert node["parts"] == [
        {"id": "section rules", "type": "section", "text": "Choose a queue.", "may_change": True},
        {**QUEUE, "may_change": True},
        {"id": "section ticket", "type": "section", "text": "$text", "may_change": False},
    ]
    assert (structure.at("edges"), structure.at("entry")) == ([], ["support/triage"])
    again = client.get("/projects/support/prompts/triage/structure")
    other = client.get("/projects/support/prompts/other/structure")
    assert again.at("structure_id") == structure.at("structure_id") != other.at("structure_id")
    plan = client.post("/plans", {"project": "support", "prompt": "triage"}).document
    assert "150" in str(plan["line"])
    assert plan["rollouts"]


@pytest.mark.parametrize("path", ["rules", "ticket"])
def test_what_is_shown_may_be_opened_in_a_request(client: Client, path: str) -> None:
    tuning = {"targets": {"visibility": [path]}}
    sent = {"project": "support", "prompt": "triage", "changes": {"tuning": tuning}}
    answer = client.post("/plans", sent)
    if path == "rules":
        assert answer.document["rollouts"]
    else:
        assert answer.status == 422
        assert "`ticket` cannot be hidden, because it has the placeholder `$text`" in answer.detail


def test_tags_are_promoted_and_rolled_back(client: Client, manager: JobManager) -> None:
    job = submitted(client, tag="night")
    work_off(manager)
    tags = "/projects/support/prompts/triage/tags"
    assert client.get(f"{tags}/night").status == 404
    candidate = f"candidate.{job[:12]}"
    (holds,) = client.get(f"{tags}/{candidate}").rows("prompts")
    assert client.get(f"/jobs/{job}").at("status", "revisions") == {"support/triage": holds["id"]}
    read = TokenStore(manager.database).create("read", ["read", "submit"])
    assert client.ask("POST", f"/api/v1/jobs/{job}/apply", token=read).status == 403
    applied = client.post(f"/jobs/{job}/apply", {"expected": {"support/triage": ""}})
    assert applied.at("tag") == "night"
    (night,) = client.get(f"{tags}/night").rows("prompts")
    assert applied.rows("prompts") == [{"prompt": "support/triage", "id": night["id"]}]
    again = client.post(f"/jobs/{job}/apply")
    assert again.status == 409
    assert again.detail.endswith(f"expected revision none, found {str(night['id'])[:12]}")
    nothing = client.get(f"{tags}/prod").detail
    assert nothing.startswith("tag `prod` of `support/triage` holds nothing; ")
    moved = client.post(f"{tags}/night/promote", {"to": "prod"})
    assert [one["number"] for one in moved.rows("prompts")] == [1]
    wrong = client.post(
        f"{tags}/night/promote", {"to": "prod", "expected": {"support/triage": "0000"}}
    )
    assert wrong.status == 409
    said = "tag `prod` of `support/triage`: expected revision 0000, found "
    assert wrong.detail.startswith(said)
    history = client.get(f"{tags}/prod/history").rows("revisions")
    origin = f"the winner of job {job}"
    assert [one["note"] for one in history] == [f"promoted from night by tests, {origin}"]
    assert client.post(f"{tags}/prod/rollback", {}).rows("prompts") == []
    assert [one["tag"] for one in client.get(tags).rows("tags")] == [candidate, "night"]


# What is refused

_JOB: dict[str, Json] = {"project": "support", "prompt": "triage"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("GET", "/nothing", None, 404, "nothing found at this path"),
        ("PUT", "/jobs", None, 405, "Method Not Allowed"),
        ("GET", "/jobs/abcd", None, 404, "no job has an id that begins with `abcd`"),
        ("POST", "/jobs", b"{", 400, "body:1:2: Expecting property name"),
        ("POST", "/jobs", b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", 400, "nested more than 32"),
        ("POST", "/jobs", b" " * 300_000, 413, "body: expected at most 262,144 bytes"),
        ("POST", "/jobs", [], 422, "expected an object"),
        ("POST", "/jobs", {}, 422, "project"),
        ("POST", "/jobs", {**_JOB, "x": 1}, 422, "x: unknown key"),
        ("POST", "/jobs", {**_JOB, "project": 3}, 422, "project: expected a text, found 3"),
        ("POST", "/jobs", {**_JOB, "project": "no"}, 422, "there is no project `no`"),
        (
            "POST",
            "/jobs",
            {**_JOB, "changes": {"budget": "x"}},
            422,
            "changes.budget: expected an integer from 1 to 1,000,000,000, found 'x'",
        ),
        ("POST", "/jobs", {**_JOB, "changes": {"budget": 2}}, 422, "rollout_budget"),
        ("GET", "/jobs?limit=0", None, 422, "limit: expected an integer from 1 to 100, found '0'"),
        ("GET", "/jobs?state=x", None, 422, "state: expected one of queued"),
        ("GET", "/projects/no/prompts/x/structure", None, 404, "there is no project `no`"),
        ("GET", "/projects/support/prompts/x/structure", None, 404, "has no prompt `x`"),
        ("GET", "/projects/support/prompts/triage/tags/No!", None, 422, "tag: expected"),
    ],
)
def test_mistakes_are_problem_documents(
    shared: Client, method: str, path: str, body: object, status: int, detail: str
) -> None:
    answer = shared.ask(method, f"/api/v1{path}", body)
    assert (answer.status, detail in answer.detail) == (status, True), answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.document["status"] == status
    assert "\n" not in answer.detail


def test_another_media_type_is_refused(client: Client) -> None:
    answer = client.ask("POST", "/api/v1/jobs", b"a=b", Content_Type="text/plain")
    assert (answer.status, answer.detail) == (415, "expected application/json, found text/plain")


def test_a_database_that_is_away_is_said(
    client: Client, manager: JobManager, tmp_path: Path
) -> None:
    (tmp_path / "jobs.db").rename(tmp_path / "away.db")
    manager.close()
    (tmp_path / "jobs.db").mkdir()
    answer = client.get("/jobs")
    assert (answer.status, answer.headers.get("retry-after")) == (503, "5")
    assert client.ask("GET", "/readyz").status == 503
    assert client.ask("GET", "/healthz").status == 200


# Access


def test_without_a_token_nothing_is_said(client: Client) -> None:
    for token in ("", "wrong", client.token[:-1]):
        answer = client.ask("GET", "/api/v1/jobs", token=token)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert client.ask("GET", "/", token="").status == 401
    assert client.ask("GET", "/metrics", token="").status == 401


SCOPED = [route for route in ROUTES if route.scope is not None]
"""The others take one of several scopes: tests/server/test_approvals.py."""


@pytest.mark.parametrize("route", SCOPED, ids=lambda one: f"{one.method} {one.path}")
def test_every_route_needs_its_scope(shared: Client, route: Route) -> None:
    others = [scope for scope in Scope if scope is not route.scope]
    tokens = TokenStore(shared.manager.database)
    token = tokens.create("less", others)
    path = route.path.replace("{job}", "abcd1234").replace("{number}", "0")
    for name in ("project", "prompt", "tag"):
        path = path.replace(f"{{{name}}}", "x")
    answer = shared.ask(route.method, f"/api/v1{path}", {} if route.body else None, token=token)
    tokens.revoke("less")
    assert answer.status == 403
    assert answer.detail.startswith(f"this needs the scope `{route.scope}`; the token has ")


def test_a_token_sees_only_its_projects(client: Client, manager: JobManager) -> None:
    job = submitted(client)
    token = TokenStore(manager.database).create("narrow", list(Scope), ["elsewhere"])
    assert client.ask("GET", "/api/v1/jobs", token=token).document["jobs"] == []
    assert client.ask("GET", f"/api/v1/jobs/{job}", token=token).status == 404
    assert client.ask("GET", "/api/v1/projects", token=token).document == {"projects": []}
    body = {"project": "support", "prompt": "triage"}
    assert client.ask("POST", "/api/v1/jobs", body, token=token).status == 422


def test_a_token_for_an_empty_list_of_projects_is_not_made(manager: JobManager) -> None:
    tokens = TokenStore(manager.database)
    with pytest.raises(ConfigError, match="name at least one"):
        tokens.create("nothing", [Scope.READ], [])
    assert tokens.named("nothing") is None


def test_a_row_that_an_earlier_version_wrote_for_all_projects_stays_for_all(
    client: Client, manager: JobManager
) -> None:
    job, tokens = submitted(client), TokenStore(manager.database)
    token, table = (
        tokens.create("old", [Scope.READ], ["elsewhere"]),
        manager.database.tables.signing_in.tokens,
    )
    assert client.ask("GET", f"/api/v1/jobs/{job}", token=token).status == 404
    row = update(table).where(table.c.name == "old").values(projects=b"[]")
    manager.database.write(lambda connection: connection.execute(row))
    assert client.ask("GET", f"/api/v1/jobs/{job}", token=token).status == 200
    new = tokens.create("new", [Scope.READ])
    assert client.ask("GET", f"/api/v1/jobs/{job}", token=new).status == 200


def test_a_revoked_token_is_worth_nothing(client: Client, manager: JobManager) -> None:
    tokens = TokenStore(manager.database)
    token = tokens.create("gone", ["read"])
    assert client.ask("GET", "/api/v1/jobs", token=token).status == 200
    tokens.revoke("gone")
    assert client.ask("GET", "/api/v1/jobs", token=token).status == 401


def test_only_the_digest_of_a_token_is_kept(client: Client, tmp_path: Path) -> None:
    client.get("/jobs")
    kept = b"".join(one.read_bytes() for one in tmp_path.glob("jobs.db*"))
    assert client.token.encode() not in kept


def test_another_host_or_origin_is_refused(client: Client) -> None:
    host = client.ask("GET", "/api/v1/jobs", Host="evil.example")
    assert host.status == 403
    assert host.detail.startswith("host: this server is not known as 'evil.example'; a proxy must")
    origin = client.ask("POST", "/api/v1/jobs", {}, Origin="https://evil.example")
    assert (origin.status, "comes from another site" in origin.detail) == (403, True)
    for odd in ("http://[", "null", "//", client.url.removeprefix("http://")):
        assert client.ask("GET", "/api/v1/jobs", Origin=odd).status == 403, odd
    same = client.ask("GET", "/api/v1/jobs", Origin=client.url)
    assert same.status == 200


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"note": "\ud800"}, "note: expected characters, found half of a surrogate pair"),
        ({"dataset": "\ud800"}, "dataset: expected characters"),
        ({"budget": 10**18}, "budget: expected an integer from 1 to 1,000,000,000"),
        ({"tuning": {"optimizer": {"\udfff": 1}}}, "tuning.optimizer: expected characters"),
    ],
)
def test_what_cannot_be_kept_is_a_fault_of_the_client(
    client: Client, changes: dict[str, Json], fault: str
) -> None:
    answer = client.post("/jobs", {**_JOB, "changes": changes})
    assert (answer.status, answer.detail.startswith(f"changes.{fault}")) == (422, True), answer
    job = client.post("/jobs", _JOB).document["id"]
    answer = client.ask("PATCH", f"/api/v1/jobs/{job}", changes)
    assert (answer.status, answer.detail.startswith(fault)) == (422, True), answer


def test_too_many_requests_are_slowed_down(manager: JobManager, tmp_path: Path) -> None:
    seconds = [0.0]
    with served(manager, tmp_path / "mirrors", now=lambda: seconds[0]) as client:
        statuses = [client.get("/projects").status for _ in range(42)]
        assert statuses == [200] * 40 + [429] * 2
        assert client.get("/projects").headers["retry-after"] == "1"
        seconds[0] = 1.0
        assert [client.get("/projects").status for _ in range(21)] == [200] * 20 + [429]


# Streams


def stream(client: Client, job: str, last: int = 0, most: int = 10_000) -> list[tuple[int, str]]:
    """Return numbers and kinds of the events that a stream brings, until it ends."""
    found: list[tuple[int, str]] = []
    headers = {"Authorization": f"Bearer {client.token}", "Accept": "text/event-stream"}
    if last:
        headers["Last-Event-ID"] = f"{last}"
    url = f"{client.url}/api/v1/jobs/{job}/events"
    with client.http.stream("GET", url, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        number = 0
        for line in answer.iter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                found.append((number, json.loads(line[6:])["event"]))
                if len(found) >= most:
                    break
    return found


def test_a_stream_brings_every_event_once_and_ends(client: Client, manager: JobManager) -> None:
    job = submitted(client, budget=90)
    found: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: found.extend(stream(client, job)))
    thread.start()
    work_off(manager)
    thread.join(60)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert (found[0][1], found[-1][1]) == ("job_queued", "job_completed")


def test_the_status_says_how_many_proposals_a_job_may_try(
    client: Client, manager: JobManager
) -> None:
    jobs = [submitted(client, budget=90), submitted(client, budget=90, max_iterations=2)]
    work_off(manager)
    own, limited = (client.get(f"/jobs/{job}").at("status", "max_iterations") for job in jobs)
    assert isinstance(own, int)
    assert (own > 2, limited) == (True, 2)


def test_the_page_of_a_job_does_not_count_steps_as_candidates(
    client: Client, manager: JobManager
) -> None:
    job = submitted(client, max_iterations=12)
    status = encoded_plain({"step": 13, "max_iterations": 12, "stage": "step"})
    change = update(manager.database.tables.jobs).values(state="running", status=status)
    manager.database.write(lambda connection: connection.execute(change))
    page = re.sub(r"<[^>]+>", "", client.ask("GET", f"/jobs/{job}").text)
    [line] = re.findall("at most 12.*", page)
    assert line.startswith("at most 12; steps without a new text do not count")


def test_a_stream_goes_on_where_it_was_cut(client: Client, done: Job) -> None:
    job = done.id
    whole = stream(client, job)
    for cut in (1, 7, len(whole) - 1):
        before = stream(client, job, most=cut)
        assert before + stream(client, job, last=before[-1][0]) == whole


# The document


def test_the_document_is_valid_and_names_every_route(client: Client) -> None:
    answer = client.ask("GET", "/api/openapi.json", token="")
    validate(answer.document)
    for one in ROUTES:
        answer.at("paths", f"/api/v1{one.path}", one.method.lower())
    paths = answer.at("paths")
    assert isinstance(paths, dict)
    assert paths.keys() == {f"/api/v1{one.path}" for one in ROUTES}


def test_figures_are_for_operators(client: Client) -> None:
    submitted(client)
    answer = client.ask("GET", "/metrics")
    assert 'promptgraft_jobs{state="queued"} 1.0' in answer.text


def test_a_secret_in_an_error_reaches_nobody(client: Client, manager: JobManager) -> None:
    job = submitted(client)
    assert manager.get(job).state is JobState.QUEUED
    answer = client.ask("GET", "/api/v1/jobs", token="hunter2-hunter2")
    assert "hunter2" not in answer.text


def test_a_damaged_event_is_one_of_the_events_and_a_line_of_the_page(
    client: Client, manager: JobManager, done: Job
) -> None:
    job, number = done.id, done.number
    rows = JobRows(manager.database)
    damaged = [JobLine(LineKind.JOB, b"\xff{")]
    manager.database.write(lambda connection: rows.append(connection, number, damaged))
    last = client.get(f"/jobs/{job}/events", limit=500).rows("events")[-1]
    assert last["event"] == "damaged"
    assert f"event {last['number']}" in str(last["fault"])
    assert stream(client, job)[-1] == (last["number"], "damaged")
    with closing(JobClient(client.url, token=client.token)) as remote:
        assert remote.events(job)[-1][0] == last["number"]
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{job}")
    assert page.status_code == 200
    assert str(last["fault"])[:60] in html.unescape(page.text)


def test_no_answer_says_where_a_project_is_on_the_server(tmp_path: Path) -> None:
    path = write_project(tmp_path / "support", file=f"{FILE}store: {{path: .}}\n")
    projects = {"support": path}
    with (
        closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)) as manager,
        served(manager, tmp_path / "mirrors") as client,
        closing(client.browser()) as browser,
    ):
        job = submitted(client, budget=60)
        work_off(manager)
        packed = browser.get(f"/api/v1/jobs/{job}/archive").content
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = {
                entry.name.partition("/")[2]: file.read()
                for entry in archive
                if (file := archive.extractfile(entry))
            }
        assert [name for name in files if str(tmp_path).encode() in files[name]] == []
        assert json.loads(files["config.json"])["origin"]["path"] == "/exported/promptgraft.yaml"
        project = manager.projects["support"]
        prompt = project.prompt("triage").prompt
        project.store().set_section_override(prompt, path=("rules",), body="Be kind.", tag="prod")
        (override,) = path.parent.rglob("prod.json")
        override.write_text("{")
        api = client.get("/projects/support/prompts/triage/tags/prod").text
        page = browser.get("/tags", headers={"Accept": "text/html"}).text
        for text in (api, page):
            assert "override file .promptgraft/overrides/support/triage/prod.json:1:2: " in text
            assert str(tmp_path) not in text
        lines = [f"{path}:{line}: expected a number" for line in (3, 4)]
        problem = problem_of(DataFormatError.of(lines), manager.projects)
        expected = [f"promptgraft.yaml:{line}: expected a number" for line in (3, 4)]
        assert [problem.detail, *problem.faults] == expected
