"""Who may not: without a token, with a used code, along paths that lead elsewhere; and secrets."""

from __future__ import annotations

import gzip
import http.client
import json
from contextlib import closing
from pathlib import Path

import pytest

from black_box.service import said, serving
from jobs.job_world import work_off
from promptgraft.service.jobs import JobManager
from promptgraft.service.server import approvals, pages
from promptgraft.service.server.api import ROUTES
from server.serving import Client, asking, served

SECRET = "hunter2-planted-and-never-shown"
AGENT = """
version: 1
prompts: {helper: {files: {skill: skill.md}}}
agent:
  http:
    url: %s
    headers: {Authorization: "Bearer ${PLANTED}"}
    json: {query: "{query}", skill: "{texts.skill}"}
    answer: $.answer
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {reflection: {provider: offline}}
optimizer: {rollout_budget: 40, minibatch_size: 3}
"""


def test_no_route_answers_without_a_token(shared: Client) -> None:
    for prefix, table in (("/api/v1", ROUTES), ("", pages.ROUTES), ("", approvals.ROUTES)):
        for route in table:
            path = route.path
            for name in route.placeholders:
                path = path.replace(f"{{{name}}}", "x")
            for headers in ({}, {"Cookie": "promptgraft_session=guessed"}):
                answer = shared.ask(route.method, f"{prefix}{path}", token="", **headers)
                assert answer.status == 401, (route.method, path)


def test_a_code_lets_one_browser_in_once(shared: Client) -> None:
    code = shared.access.new_code()
    with asking(shared.url) as first, asking(shared.url) as second:
        entered = first.get("/login", params={"code": code})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert first.get("/").status_code == 200
        again = second.get("/login", params={"code": code})
        assert again.status_code == 401
        assert "used before" in again.json()["detail"]
        assert second.get("/").status_code == 401
        assert second.get("/login", params={"code": ""}).status_code == 401
        assert first.get("/").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../access.py",
        "/assets/..%2f..%2faccess.py",
        "/assets/%2e%2e/access.py",
        "/assets/frame.html",
        "/assets//etc/passwd",
        "/api/v1/jobs/..%2f..%2fetc%2fpasswd/archive",
        "/api/v1/jobs/%2fetc%2fpasswd/report",
        "/api/v1/projects/..%2fsupport/prompts/triage/structure",
        "/api/v1/projects/support/prompts/..%2f..%2fagent.py/tags",
        "/api/v1/projects/support/prompts/triage/tags/..%2f..%2f..%2fetc",
        "/api/v1/projects/support/prompts/triage/tags/%2fetc/history",
    ],
)
def test_no_path_leads_out(shared: Client, path: str) -> None:
    host, _, port = shared.url.removeprefix("http://").partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as connection:
        headers = {"Authorization": f"Bearer {shared.token}"}
        connection.request("GET", path, headers=headers)  # as it is: httpx would tidy it up
        answer = connection.getresponse()
        content = answer.read()
    assert answer.status in (404, 422), content
    assert json.loads(content)["status"] == answer.status


@pytest.mark.parametrize("to", ["../../etc", "/etc/passwd", "a/b", "", "..", "C:\\x", "x\0y"])
def test_no_tag_leads_out(shared: Client, to: str) -> None:
    shared.post("/jobs", {"project": "support", "prompt": "triage"})
    path = "/projects/support/prompts/triage/tags/latest/promote"
    assert shared.post(path, {"to": to}).status in (404, 422)
    changes = {"project": "support", "prompt": "triage", "changes": {"tag": to}}
    assert shared.post("/jobs", changes).status == 422


def test_a_planted_secret_is_found_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PLANTED", SECRET)
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "skill.md").write_text("Answer.")
    rows = [{"id": f"c{n}", "input": "x" * n, "expected": f"{n}"} for n in range(1, 25)]
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, rows)))
    told = []

    def brain(_: object, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        told.append(headers["Authorization"])
        return said({"error": f"wrong key {headers['Authorization']}"}, status=401)

    with serving(brain) as service:
        (folder / "promptgraft.yaml").write_text(AGENT % service.url)
        files = {"planted": folder / "promptgraft.yaml"}
        manager = JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=files)
        with closing(manager), served(manager, tmp_path / "mirrors") as client:
            made = client.post("/jobs", {"project": "planted", "prompt": "helper"})
            job = made.document["id"]
            work_off(manager)
            assert f"Bearer {SECRET}" in told
            paths = [f"/jobs/{job}{one}" for one in ("", "/events", "/rollouts", "/result")]
            paths += ["/projects", "/projects/planted/prompts/helper/structure", "/jobs"]
            seen = [client.get(path).text for path in paths]
            seen.append(client.get(f"/jobs/{job}/report").text)
            with closing(client.browser()) as browser:
                seen += [browser.get(path).text for path in ("/", f"/jobs/{job}", "/tags")]
                archive = browser.get(f"/api/v1/jobs/{job}/archive").content
            kept = [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
    whole = b"".join([*kept, gzip.decompress(archive), *(text.encode() for text in seen)])
    assert b"wrong key" in whole  # the error itself is shown
    assert SECRET.encode() not in whole
    assert SECRET not in caplog.text
