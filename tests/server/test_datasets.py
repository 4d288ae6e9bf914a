"""Data sets in the page and over HTTP: who may do what, hostile texts, sizes, jobs on them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from jobs.job_world import work_off, write_project
from promptgraft.service.jobs import JobManager
from promptgraft.service.jobs.datasets import MOST_DATASET_BYTES
from promptgraft.service.server import TokenStore
from runs.report_pages import HOSTILE
from server.serving import Client, asking, served


def cases(count: int, word: str = "password") -> str:
    rows = [
        {"id": f"n{n}", "input": f"my {word} {n} is lost", "expected": "login"}
        for n in range(count)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def browser(client: Client) -> Iterator[httpx.Client]:
    with closing(client.browser()) as browser:
        yield browser


def filled(page: str) -> dict[str, str]:
    """Return the hidden fields and the text of the form of a page."""
    form = page[page.index('<form class="stack wide"') :]
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    assert found is not None
    return {**fields, "text": html.unescape(found[1])}


def test_a_data_set_is_made_edited_compared_and_chosen_in_the_page(
    browser: httpx.Client, client: Client, manager: JobManager
) -> None:
    assert "No data sets yet" in browser.get("/datasets").text
    form = {"project": "support", "name": "hard", "text": cases(30)}
    made = browser.post("/datasets", data=form)
    assert (made.status_code, made.headers["location"]) == (303, "/datasets/support/hard")
    page = browser.get("/datasets/support/hard").text
    assert "Data set, revision 1: 30 cases" in page
    fields = filled(page)
    assert fields["text"] == cases(30)
    edited = fields["text"].replace("my password 3 is", "my key 3 is").replace("\n", "\r\n")
    assert browser.post("/datasets", data={**fields, "text": edited}).status_code == 303
    page = browser.get("/datasets/support/hard").text
    assert "revision 2: 30 cases" in page
    assert "<figcaption>case n3</figcaption>" in page
    assert re.search(r"<del>password</del>.*<ins>key</ins>", page)
    assert page.count("<figcaption>") == 1
    assert ">local<" in page or "by local" in page
    # Whoever still has the page of the first revision open loses nothing.
    late = browser.post("/datasets", data={**fields, "text": cases(31)})
    assert late.status_code == 409
    assert "was changed meanwhile" in late.text
    assert '<a href="/datasets/support/hard">open it as it is now</a>' in late.text
    assert '<h2 id="new-title">Edit support/hard</h2>' in late.text
    assert filled(late.text)["text"].strip() == cases(31).strip()
    earlier = re.findall(r"/datasets/support/hard\?revision=(\w{64})", page)[-1]
    assert "revision 1 of 2" in browser.get(f"/datasets/support/hard?revision={earlier}").text
    found = browser.get("/datasets/support/hard?text=KEY%203").text
    assert found.count('<tr><th scope="row" class="n">') == 1
    assert "my key 3 is lost" in found
    assert "No case contains" in browser.get("/datasets/support/hard?text=nowhere").text
    assert "/datasets/support/hard" in browser.get("/datasets?text=HAR").text
    assert "No data set matches" in browser.get("/datasets?text=soft").text
    new = browser.get(f"/new?dataset=hard@{earlier}").text
    assert f'value="hard@{earlier}"' in new
    plan = browser.post(
        "/new", data={"prompt": "support/triage", "dataset": "hard", "what": "plan"}
    )
    assert "test calls" in plan.text
    sent = browser.post(
        "/new", data={"prompt": "support/triage", "dataset": "hard", "budget": "90"}
    )
    [job] = manager.list()
    assert sent.headers["location"] == f"/jobs/{job.id}"
    work_off(manager)
    page = browser.get(sent.headers["location"]).text
    digest = manager.dataset("support", "hard").digest
    assert f"/datasets/support/hard?revision={digest}" in page
    report = browser.get(f"/jobs/{job.id}/cases").text
    assert "my key 3 is lost" in report or "my password" in report
    assert "the invoice" not in report
    record = client.get(f"/jobs/{job.id}").document
    assert record["changes"] == {"budget": 90, "dataset": f"hard@{digest}"}


def test_the_form_of_a_job_offers_the_data_sets(browser: httpx.Client, manager: JobManager) -> None:
    def offered() -> tuple[list[str], list[tuple[str, str]]]:
        page = browser.get("/new").text
        lists = re.findall(r'name="dataset"[^>]* list="(\w+)"', page)
        return lists, re.findall('<option value="(.*?)">(.*?)</option>', page)

    assert offered() == ([], [])
    for name in ("hard", "easy"):
        manager.save_dataset("support", name, cases(30))
    options = [("easy", "support, 30 cases"), ("hard", "support, 30 cases")]
    assert offered() == (["sets"], options)
    assert '<datalist id="sets">' in browser.get("/new").text


def test_hostile_texts_stay_texts(browser: httpx.Client, manager: JobManager) -> None:
    texts = [text for text in HOSTILE if text.isprintable()]
    rows = [{"id": text, "input": text, "expected": "login"} for text in HOSTILE]
    written = [json.dumps(row, ensure_ascii=False) for row in rows]
    lines = "".join(f"{line}\n" for line in written if not re.search("[\ud800-\udfff]", line))
    manager.save_dataset("support", "hostile", cases(3))
    manager.save_dataset("support", "hostile", lines)
    page = browser.get("/datasets/support/hostile").text
    for text in texts:
        if "<" in text:
            assert text not in page
    # What the form sends back is what was saved.
    assert manager.save_dataset("support", "hostile", filled(page)["text"]).number == 2
    for query in texts:
        found = browser.get("/datasets/support/hostile", params={"text": query})
        assert found.status_code == 200
        assert "<script>window" not in found.text
        assert browser.get("/new", params={"dataset": query}).status_code == 200
    refused = browser.post("/datasets", data={"project": "support", "name": "x", "text": texts[0]})
    assert refused.status_code == 422
    assert "<script>window" not in refused.text


def test_faults_name_their_lines_and_nothing_is_lost(browser: httpx.Client) -> None:
    text = cases(2) + '{"id": "n9", "input": 5, "expected": "login"}\n[]\n{"id":\n'
    answer = browser.post("/datasets", data={"project": "support", "name": "hard", "text": text})
    assert answer.status_code == 422
    assert "data set hard: line 4: expected an object" in answer.text
    assert "data set hard: line 5, not JSON at character 7: Expecting value" in answer.text
    assert filled(answer.text)["text"].strip() == text.strip()
    for name in ("", "A B", "../x", "<b>"):
        form = {"project": "support", "name": name, "text": cases(2)}
        answer = browser.post("/datasets", data=form)
        assert answer.status_code == 422
        assert "name of a data set" in answer.text
    # Forms that did not come from the page lack fields.
    for stray in ({"expected": "a1"}, {"project": "support"}, {"name": "hard", "expected": "a1"}):
        assert browser.post("/datasets", data=stray).status_code == 422
    assert browser.get("/datasets/support/..%2f..").status_code == 404
    assert browser.get("/datasets/support/none").status_code == 404
    assert browser.get("/datasets/none/hard").status_code == 404


def test_a_large_data_set_arrives_and_a_larger_one_is_refused(
    client: Client, browser: httpx.Client
) -> None:
    row = {"input": "é" * 5_000, "expected": "login"}
    rows = [{"id": f"n{n}", **row} for n in range(95)]
    large = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    assert 900_000 < len(large.encode()) < MOST_DATASET_BYTES
    path = "/projects/support/datasets/large"
    answer = client.ask("PUT", f"/api/v1{path}", {"text": large})
    assert answer.status == 200, answer.detail
    assert browser.get("/datasets/support/large").status_code == 200
    answer = client.ask("PUT", f"/api/v1{path}", {"text": cases(200, "x" * 10_000)})
    assert answer.status == 422
    assert "expected at most 1,000,000 bytes" in answer.detail
    answer = client.ask("PUT", f"/api/v1{path}", {"text": "x" * 5_000_000})
    assert answer.status == 413
    # All other bodies stay small.
    assert client.post("/jobs", {"project": "x" * 300_000}).status == 413


def test_tokens_see_and_save_what_they_may(tmp_path: Path) -> None:
    projects = {name: write_project(tmp_path / name) for name in ("support", "sales")}
    manager = JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)
    with closing(manager), served(manager, tmp_path / "mirrors") as client:
        for project in projects:
            manager.save_dataset(project, "hard", cases(30, project))
        tokens = TokenStore(manager.database)
        reader = tokens.create("reader", ["read"], ["sales"])
        writer = tokens.create("writer", ["read", "submit"], ["sales"])
        body = {"text": cases(31)}
        sales, support = (f"/api/v1/projects/{name}/datasets" for name in ("sales", "support"))
        for token, is_writer in ((reader, False), (writer, True)):
            assert client.ask("GET", sales, token=token).rows("datasets")[0]["name"] == "hard"
            for path in ("", "/hard", "/hard/history"):
                assert client.ask("GET", f"{support}{path}", token=token).status in (404, 422)
            status = 200 if is_writer else 403
            assert client.ask("PUT", f"{sales}/hard", body, token=token).status == status
            denied = client.ask("PUT", f"{support}/hard", body, token=token).status
            assert denied in ((404, 422) if is_writer else (403,))
            with asking(client.url) as browser:
                browser.post("/login", data={"token": token})
                page = browser.get("/datasets").text
                assert "support" not in page
                assert ("New data set" in page) == is_writer
                assert ("Edit the cases" in browser.get("/datasets/sales/hard").text) == is_writer
                assert browser.get("/datasets/support/hard").status_code in (404, 422)
                form = {"project": "support", "name": "mine", "text": cases(3)}
                assert browser.post("/datasets", data=form).status_code in (403, 404, 422)
        assert client.ask("GET", f"{support}/hard").document["author"] == ""
        [latest, _] = client.ask("GET", f"{sales}/hard/history").rows("revisions")
        assert latest["author"] == "writer"
        job = {"project": "sales", "prompt": "triage", "changes": {"dataset": "hard"}}
        assert client.ask("POST", "/api/v1/jobs", job, token=writer).status == 201
        other = {**job, "changes": {"dataset": "mine"}}
        answer = client.ask("POST", "/api/v1/jobs", other, token=writer)
        assert answer.status == 404
        assert "no data set `mine`; there: hard" in answer.detail
