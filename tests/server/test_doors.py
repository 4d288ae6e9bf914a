"""What the server tells to whom, and what its pages offer and ask for."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import work_off, write_project
from promptgraft.service.jobs import JobManager
from promptgraft.service.server import Scope, TokenStore
from server.serving import Client, asking, served

MOST_AT_ONCE = 40


def test_readiness_tells_strangers_nothing_of_the_database(client: Client) -> None:
    client.manager.database.write(
        lambda at: at.execute(sqlalchemy.text("ALTER TABLE promptgraft_jobs RENAME TO elsewhere"))
    )
    answer = client.ask("GET", "/readyz", token="")
    assert (answer.status, answer.document) == (503, {"status": "unavailable"})


def test_totals_count_only_projects_that_the_token_may_see(tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    projects = {"support": path, "secret": path}
    manager = JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)
    with closing(manager), served(manager, tmp_path / "mirrors") as client:
        for project, count in (("support", 1), ("secret", 3)):
            for seed in range(count):
                manager.create(project, "triage", {"seed": seed})
        scopes = [Scope.READ, Scope.ADMIN]
        token = TokenStore(manager.database).create("team", scopes, ["support"])
        for page in ("/", "/live/table", "/workers"):
            text = client.ask("GET", page, token=token).text
            assert "1 queued" in text, page
            assert "4 queued" not in text, page
        gauges = client.ask("GET", "/metrics", token=token).text
        assert 'promptgraft_jobs{state="queued"} 1.0' in gauges


def test_who_guesses_tokens_is_slowed_down_and_others_are_not(
    manager: JobManager, tmp_path: Path
) -> None:
    with served(manager, tmp_path / "mirrors", now=lambda: 0.0) as client:
        answers = [
            client.ask("GET", "/api/v1/jobs", token=f"guess-{count}").status
            for count in range(MOST_AT_ONCE + 2)
        ]
        assert answers == [401] * MOST_AT_ONCE + [429] * 2
        assert client.get("/jobs").status == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/v1/jobs", "GET, HEAD, POST"),
        ("PUT", "/api/v1/jobs/abcd", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", "/api/v1/plans", "POST"),
        ("PUT", "/tags", "GET, HEAD, POST"),
    ],
)
def test_a_wrong_method_is_told_all_that_a_path_takes(
    shared: Client, method: str, path: str, allowed: str
) -> None:
    answer = shared.ask(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)


def buttons(page: str) -> set[str]:
    return set(re.findall(r'<button name="what" value="(\w+)"', page))


def test_a_page_offers_only_what_the_state_of_its_job_allows(client: Client) -> None:
    with closing(client.browser()) as browser:
        job = client.manager.create("support", "triage", {"dry_run": True, "budget": 60})
        assert buttons(browser.get(f"/jobs/{job.id}").text) == {"cancel", "change", "comment"}
        work_off(client.manager)
        assert buttons(browser.get(f"/jobs/{job.id}").text) == {"fork", "comment"}


def test_pages_link_to_a_new_job_for_those_who_may_submit_one(client: Client) -> None:
    tokens = TokenStore(client.manager.database)
    for scope, is_linked in ((Scope.READ, False), (Scope.SUBMIT, True)):
        token = tokens.create(f"with-{scope}", [Scope.READ, scope])
        with asking(client.url) as browser:
            browser.post("/login", data={"token": token})
            assert ('href="/new"' in browser.get("/tags").text) == is_linked


def test_the_page_of_a_job_that_has_ended_asks_for_nothing(client: Client) -> None:
    with closing(client.browser()) as browser:
        job = client.manager.create("support", "triage", {"dry_run": True, "budget": 60})
        assert "data-events" in browser.get(f"/jobs/{job.id}").text
        work_off(client.manager)
        page = browser.get(f"/jobs/{job.id}").text
        assert "data-events" not in page
        assert "data-every" not in page
        # A page that was open before closes its stream when it sees this.
        assert "data-ended" in browser.get(f"/jobs/{job.id}/live").text


def test_a_list_without_jobs_says_what_to_do_next(client: Client) -> None:
    with closing(client.browser()) as browser:
        assert "Submit the first one." in browser.get("/").text
        assert "A tag appears when the winner" in browser.get("/tags").text
        client.manager.create("support", "triage")
        none = browser.get("/?state=failed").text
        assert "No job matches." in none
        assert "Submit the first one." not in none
