"""A client over HTTP does what the manager of the database does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from jobs.job_world import work_off
from promptgraft.errors import (
    ConfigError,
    DataFormatError,
    DeadlineExceededError,
    StoreError,
)
from promptgraft.service.jobs import (
    JobClient,
    JobFilter,
    JobManager,
    JobNotFoundError,
    JobState,
)
from promptgraft.service.jobs.preparing import job_json
from server.serving import Client
from servers.threaded import QuietHandler, ThreadedServer


@pytest.fixture
def remote(client: Client) -> Iterator[JobClient]:
    with closing(JobClient(client.url, token=client.token)) as made:
        yield made


def test_both_say_the_same_of_a_job(remote: JobClient, manager: JobManager) -> None:
    job = remote.create("support", "triage", {"budget": 90, "max_cost": "2.5", "note": "n"})
    assert remote.get(job.id[:8]) == manager.get(job.id) == job
    assert remote.result(job.id) is None
    with pytest.raises(DeadlineExceededError):
        remote.wait(job.id, timeout=0)
    work_off(manager)
    assert remote.wait(job.id).state is JobState.COMPLETED
    assert remote.list() == manager.list()
    assert remote.list(JobFilter(state="queued")) == []
    assert remote.list(before=job.number) == []
    assert remote.attempts(job.id) == manager.attempts(job.id)
    assert remote.result(job.id) == manager.result(job.id)
    ours, theirs = remote.events(job.id), manager.events(job.id, limit=500)
    assert [event for _, event, _ in ours] == [event for _, event, _ in theirs]
    assert remote.events(job.id, after=ours[-1][0]) == []


def test_faults_are_those_of_the_manager(remote: JobClient, client: Client) -> None:
    with pytest.raises(DataFormatError, match="budget: expected an integer from 1 to"):
        remote.create("support", "triage", {"budget": 0})
    with pytest.raises(DataFormatError, match="there is no project `no`"):
        remote.create("no")
    for job in ("../projects", "", "a/b", "ü"):
        with pytest.raises(JobNotFoundError):
            remote.get(job)
    with closing(JobClient(client.url, token="wrong-token")) as stranger:
        with pytest.raises(StoreError, match="send a token") as refused:
            stranger.list()
        assert "wrong-token" not in str(refused.value)
    with (
        closing(JobClient("http://127.0.0.1:9", token="t")) as nobody,
        pytest.raises(StoreError, match=r"server http://127.0.0.1:9 cannot be reached: Connect"),
    ):
        nobody.list()
    for address in ("jobs.example.org", "https://", "https://me:pass@jobs.example.org"):
        with pytest.raises(ConfigError, match="server: expected an address such as") as told:
            JobClient(address, token="t")
        assert "pass" not in str(told.value)


def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    class Elsewhere(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name of http.server
            asked.append(self.path)
            self.send_error(404)

    with ThreadedServer(Elsewhere) as elsewhere:

        class Redirecting(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802 - the same
                self.send_response(302)
                self.send_header("Location", f"{elsewhere.origin}{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()

        with (
            ThreadedServer(Redirecting) as server,
            closing(JobClient(server.origin, token="t")) as client,
            pytest.raises(StoreError, match="302"),
        ):
            client.list()
    assert asked == []


def test_a_token_is_not_sent_where_others_can_read_it() -> None:
    for address in ("http://jobs.example.org", "http://10.0.0.7:8400"):
        with pytest.raises(ConfigError, match="server: others could read the token on the way to"):
            JobClient(address, token="t")
    for address in ("https://jobs.example.org", "http://localhost:8400", "http://[::1]:8400"):
        JobClient(address, token="t").close()


def test_a_server_that_does_not_know_when_jobs_ended_has_none_deleted_that_run(
    remote: JobClient,
) -> None:
    job = remote.submit("support", "triage", {"budget": 60}).job
    page = json.dumps({"jobs": [job_json(job)]}).encode()

    class Earlier(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name of http.server
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    with ThreadedServer(Earlier) as server, closing(JobClient(server.origin, token="t")) as old:
        assert [one.id for one in old.list()] == [job.id]
        assert old.list(JobFilter(ended_by=10**10)) == []
