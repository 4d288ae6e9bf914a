"""The tabs of a job, the order of the list, and jobs side by side."""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from html import unescape
from pathlib import Path

import attrs
import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, insert, update

from jobs.job_world import FILE, work_off, write_project
from promptgraft.evals.gains import gain
from promptgraft.runs.event_file import encoded
from promptgraft.search.events import RunEnded
from promptgraft.search.verdict import HeldOut, HiddenScores, RunVerdict
from promptgraft.service.jobs import Job, JobManager, JobState, Worker
from promptgraft.service.jobs.lines import encoded_plain
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.server.mirrors import Mirrors
from promptgraft.service.server.views import surety
from server.large_job import large_job
from server.serving import Client, served

TABS = ("candidates", "cases", "rounds", "texts", "cost")


def ended(manager: JobManager, **changes: object) -> Job:
    job = manager.create("support", "triage", {"budget": 60, **changes})
    work_off(manager)
    return manager.get(job.id)


def shown_sections(text: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', text)


def test_tabs_show_the_sections_of_the_file(client: Client, done: Job) -> None:
    with closing(client.browser()) as browser:
        file = browser.get(f"/jobs/{done.id}/report").text
        sections = [
            section
            for tab in TABS
            for section in shown_sections(browser.get(f"/jobs/{done.id}/{tab}").text)
        ]
    assert set(sections) | {"held-out", "verdict", "metrics"} == set(shown_sections(file))
    assert len(sections) == len(set(sections))
    assert f'href="{client.url}/jobs/{done.id}"' in file


def test_a_tab_without_content_says_what_comes_next(client: Client, manager: JobManager) -> None:
    job = manager.create("support", "triage", {"budget": 60})
    with closing(client.browser()) as browser:

        def says(words: str) -> list[str]:
            pages = {tab: browser.get(f"/jobs/{job.id}/{tab}").text for tab in TABS}
            return [tab for tab, page in pages.items() if words in page]

        assert says("waits for a worker") == [*TABS]
        manager.cancel(job.id)
        assert says("ended before it had anything") == [*TABS]


def test_there_are_no_other_tabs(client: Client, done: Job) -> None:
    with closing(client.browser()) as browser:
        assert browser.get(f"/jobs/{done.id}/frame.html").status_code == 404


def test_a_report_is_made_once_until_something_happens(
    manager: JobManager, done: Job, tmp_path: Path
) -> None:
    mirrors = Mirrors(tmp_path / "mirrors")
    with mirrors.report(manager, done) as first:
        pass
    with mirrors.report(manager, done) as second:
        assert second is first
    manager.fork(done.id)
    with mirrors.report(manager, done) as third:
        assert third is not first
        assert third.data.candidates == first.data.candidates


def test_a_report_waits_for_no_pages_which_an_archive_has_all_the_same(
    manager: JobManager, done: Job, tmp_path: Path
) -> None:
    def files(folder: Path) -> dict[str, int]:
        paths = (path for path in folder.rglob("*") if path.is_file())
        # A report says when it was written.
        return {
            f"{path.relative_to(folder)}": path.stat().st_size
            for path in paths
            if path.name not in ("report.html", "mirror.json")
        }

    mirrors = Mirrors(tmp_path / "mirrors")
    with mirrors.report(manager, done) as report:
        assert report.data.end.prompts
        assert report.data.end.verdict
    [folder] = (tmp_path / "mirrors").iterdir()
    assert not list((folder / "candidates").iterdir())
    assert not (folder / "report.html").exists()
    for _ in range(2):
        with (
            mirrors.of(manager, done) as run,
            Mirrors(tmp_path / "other").of(manager, done) as all_,
        ):
            assert files(run.path) == files(all_.path)
            assert run.report.exists()
    with mirrors.report(manager, manager.get(done.id)) as again:
        assert again.data == report.data


def test_a_deleted_job_leaves_nothing_in_the_folder_of_mirrors(
    manager: JobManager, tmp_path: Path
) -> None:
    jobs = [ended(manager) for _ in range(3)]
    folder = tmp_path / "mirrors"
    with served(manager, folder) as client:
        for job in jobs[:2]:
            assert client.get(f"/jobs/{job.id}/archive").status == 200
        assert len(list(folder.iterdir())) == 2
        # By this server at once, and by others when a further job is looked at.
        assert client.ask("DELETE", f"/api/v1/jobs/{jobs[0].id}").status == 204
        assert len(list(folder.iterdir())) == 1
        manager.delete(jobs[1].id)
        assert client.get(f"/jobs/{jobs[2].id}/archive").status == 200
        [left] = folder.iterdir()
        assert left.name.endswith(jobs[2].id[:8])


def test_old_mirrors_make_room_for_new_ones(manager: JobManager, tmp_path: Path) -> None:
    mirrors = Mirrors(tmp_path / "mirrors", most=2)
    jobs = [ended(manager) for _ in range(3)]
    for job in (jobs[0], jobs[1], jobs[0], jobs[2]):
        with mirrors.of(manager, job) as folder:
            assert folder.config.exists()
    names = {path.name[-8:] for path in (tmp_path / "mirrors").iterdir()}
    assert names == {jobs[0].id[:8], jobs[2].id[:8]}
    with mirrors.report(manager, jobs[1]) as report:
        assert report.data.candidates


def test_the_winner_has_an_answer_to_each_case_that_it_has_a_score_on(
    manager: JobManager, done: Job, tmp_path: Path
) -> None:
    with Mirrors(tmp_path / "mirrors").report(manager, done) as report:
        data = report.data
    assert data.winner
    for number in (0, data.winner):
        scores = zip(data.case_ids, data.candidates[number].scores, strict=True)
        scored = {case for case, score in scores if score is not None}
        assert {case for at, case in data.answers.seen if at == number} >= scored


def test_a_job_shows_how_long_it_has_been_under_way(client: Client, manager: JobManager) -> None:
    job = manager.create("support", "triage", {"budget": 60, "store": False})

    def time_shown(browser: httpx.Client) -> list[str]:
        pages = [browser.get(f"/jobs/{job.id}").text, browser.get("/").text]
        marks = [r'Time</dt><dd class="figure">(.*?)</dd>', r'data-label="Time">(\d.*? min|–)<']
        return [
            found[1]
            for mark, page in zip(marks, pages, strict=True)
            if (found := re.search(mark, page))
        ]

    with closing(client.browser()) as browser:
        assert time_shown(browser) == ["–", "–"]
        assert Worker(manager, name="w").claim() is not None
        attempts = manager.database.tables.attempts
        early = update(attempts).values(started=attempts.c.started - 7_500)
        manager.database.write(partial(Connection.execute, statement=early))
        assert time_shown(browser) == ["2 h 5 min", "2 h 5 min"]


def test_rounds_of_a_job_are_those_of_its_events(client: Client, manager: JobManager) -> None:
    job = large_job(manager, candidates=4, cases=5)
    rounds = client.get(f"/jobs/{job.id}/rounds").rows("rounds")
    assert [row["round"] for row in rounds] == [1, 2, 3]
    for number, row in enumerate(rounds, 1):
        assert row["decided"] == "accepted"
        assert row["candidate"] == number
        assert row["tried"] == [0.0, 1.0]
        [patch] = row["patches"] if isinstance(row["patches"], list) else []
        assert isinstance(patch, dict)
        assert patch["text"] == f"Choose a queue. {number}"


def test_the_last_round_says_why_no_other_begins(client: Client, manager: JobManager) -> None:
    changes = {"algorithm": "gradient", "tuning": {"max_rounds": 1}, "budget": 300}
    job = manager.create("support", "triage", changes)
    work_off(manager)
    [only] = client.get(f"/jobs/{job.id}/rounds").rows("rounds")
    assert only["stop"] == "1 round made, as many as max_rounds allows"
    assert isinstance(only["trained"], float)
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{job.id}/rounds").text
    assert f"The search ended here: {only['stop']}." in page
    assert f"training cases: {only['trained']:.3f}" in page


def test_jobs_are_ordered_by_each_column(client: Client, manager: JobManager) -> None:
    jobs = [manager.create("support", name, {}) for name in ("triage", "other", "triage")]
    table = manager.database.tables.jobs
    gains = {jobs[0].id: b"-0.25", jobs[1].id: b"0.5", jobs[2].id: b"null"}
    for at, job in enumerate(jobs):
        status = b'{"verdict": "", "gain": %s}' % gains[job.id]
        change = update(table).where(table.c.id == job.id).values(status=status, spent=10 - at)
        manager.database.write(partial(Connection.execute, statement=change))
        times = {"worker": "w", "answers": 0, "error": b"", "started": 1.0, "ended": 5.0 + at}
        attempt = insert(manager.database.tables.attempts).values(job=job.number, number=1, **times)
        manager.database.write(partial(Connection.execute, statement=attempt))

    def order(sort: str, **more: int) -> list[int]:
        query = "&".join(f"{name}={value}" for name, value in {"sort": sort, **more}.items())
        with closing(client.browser()) as browser:
            found = re.findall(r'name="job" value="(\w+)"', browser.get(f"/?{query}").text)
        return [[job.id for job in jobs].index(id_) for id_ in found]

    assert order("created") == [2, 1, 0]
    assert order("-created") == [0, 1, 2]
    assert order("gain") == [1, 0, 2]
    assert order("-gain") == [0, 1, 2]
    assert order("cost") == [0, 1, 2]
    assert order("time") == [2, 1, 0]
    assert order("-prompt") == [1, 2, 0]
    assert order("verdict") == [2, 1, 0]
    assert order("gain", offset=1) == [0, 2]
    with closing(client.browser()) as browser:
        assert browser.get("/?sort=secret").status_code == 422


def test_three_jobs_are_compared_side_by_side(client: Client, manager: JobManager) -> None:
    jobs = [ended(manager, seed=seed) for seed in (1, 2, 3)]
    query = "&".join(f"job={job.id}" for job in jobs)
    with closing(client.browser()) as browser:
        page = browser.get(f"/compare?{query}").text
        for job in jobs:
            assert f"/jobs/{job.id}" in page
        heads = re.findall(r"<th scope=\"col\" class=\"n\">([^<]+)</th>", page)
        assert heads == ["A", "B", "C"] * 2
        assert page.count('<path class="best line') == 3
        assert "A to B" in page
        assert "A to C" in page
        for ids in ("", jobs[0].id, ",".join([jobs[0].id] * 9)):
            assert browser.get(f"/compare?job={ids}").status_code == 422


def test_a_case_has_its_answers_and_its_history_over_jobs(
    client: Client, manager: JobManager
) -> None:
    first, second = ended(manager), ended(manager, seed=5)
    other = manager.create("support", "other", {"budget": 60})
    work_off(manager)
    with closing(client.browser()) as browser:
        cases = browser.get(f"/jobs/{second.id}/cases").text
        links = re.findall(r'href="(/jobs/\w+/case\?id=\w+)"', cases)
        page = browser.get(links[0]).text
        assert f"/jobs/{first.id}/case" in page
        assert other.id not in page
        assert re.findall(r"<h4>([\w ]+\w)", page) == ["Input", "Expected", "Your prompt", "Winner"]
        label = {"b": "billing", "l": "login"}[links[0].partition("=")[2][0]]
        assert f'<h4>Expected</h4><div class="text">{label}</div>' in page
        assert browser.get(f"/jobs/{first.id}/case?id=none").status_code == 404


@pytest.mark.parametrize("verdict", [RunVerdict.GAMED, RunVerdict.IMPROVED, RunVerdict.NOT_SHOWN])
def test_only_what_is_proven_is_praised_and_signs_of_gaming_are_named(
    client: Client, manager: JobManager, done: Job, verdict: RunVerdict
) -> None:
    ids = tuple(f"u{n}" for n in range(20))
    held_out = HeldOut(
        ids=ids,
        baseline_scores=(0.0,) * 20,
        winner_scores=(1.0,) * 20,
        hidden=(
            HiddenScores(metric="<i>", baseline_scores=(1.0,) * 20, winner_scores=(0.0,) * 20),
        ),
        signs=("it names <b>cases</b> of the training set",),
    )
    rewrite_end(manager, done, held_out, verdict)
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{done.id}").text
        report = browser.get(f"/jobs/{done.id}/report").text
    is_proven = verdict is RunVerdict.IMPROVED
    assert f'<span class="badge {"good" if is_proven else "mark"}">{verdict}</span>' in page
    assert ('<div class="card good">' in page) == is_proven
    assert ('class="card wide good"' in report) == is_proven
    assert ('class="delta up proven"' in report) == is_proven
    for text in (
        "It names &lt;b&gt;cases&lt;/b&gt; of the training set.",
        "the hidden metric `&lt;i&gt;`",
    ):
        assert (text in page) == (verdict is RunVerdict.GAMED)


def end_of(manager: JobManager, job: Job) -> tuple[int, RunEnded]:
    """Return the end of a run and its number among the events."""
    return next(
        (number, event)
        for number, event, _ in manager.events(job.id)
        if isinstance(event, RunEnded)
    )


def rewrite_end(manager: JobManager, job: Job, held_out: HeldOut, verdict: RunVerdict) -> None:
    """Give the end of a run other figures."""
    number, end = end_of(manager, job)
    end = replace(end, held_out=held_out, verdict=verdict)
    status = attrs.evolve(job.status, verdict=str(verdict), gain=1.0, gain_low=0.5, gain_high=1.0)
    events, jobs = manager.database.tables.events, manager.database.tables.jobs
    for statement in (
        update(events)
        .where(events.c.job == job.number, events.c.number == number)
        .values(line=encoded(end).encode()),
        update(jobs).values(status=encoded_plain(attrs.asdict(status))),
    ):
        manager.database.write(partial(Connection.execute, statement=statement))


@pytest.mark.parametrize("verdict", RunVerdict)
def test_every_verdict_says_what_to_do_next(
    client: Client, manager: JobManager, verdict: RunVerdict
) -> None:
    job = manager.create("support", "triage", {"budget": 60})
    assert says_next(client, job) == ""  # a worker has the next step
    status = encoded_plain(attrs.asdict(attrs.evolve(job.status, verdict=str(verdict))))
    ended = update(manager.database.tables.jobs).values(state="completed", status=status)
    manager.database.write(partial(Connection.execute, statement=ended))
    assert says_next(client, job).endswith(".")


@pytest.mark.parametrize("state", ["paused", "failed", "cancelled"])
def test_a_job_that_stopped_says_what_to_do_next(
    client: Client, manager: JobManager, state: str
) -> None:
    job = manager.create("support", "triage", {"budget": 60})
    stopped = update(manager.database.tables.jobs).values(state=state)
    manager.database.write(partial(Connection.execute, statement=stopped))
    assert says_next(client, job).endswith(".")


def set_row(manager: JobManager, **values: object) -> None:
    """Write columns of every job, with what its status says under `status`."""
    change = update(manager.database.tables.jobs).values(values)
    manager.database.write(partial(Connection.execute, statement=change))


def overview(client: Client, job: Job) -> str:
    with closing(client.browser()) as browser:
        page = unescape(browser.get(f"/jobs/{job.id}").text)
    return " ".join(re.sub(r"<[^>]*>", "", page).split())


def test_the_overview_says_in_plain_words_what_became_of_a_job(
    client: Client, manager: JobManager, done: Job
) -> None:
    before = manager.create("support", "triage")
    manager.cancel(before.id)
    assert "It was cancelled before it began, and cost nothing." in overview(client, before)
    assert "No new text was better" not in overview(client, before)
    status = encoded_plain(attrs.asdict(attrs.evolve(done.status, verdict="not improved")))
    for state, ended in (("cancelled", 1.0), ("paused", None)):
        why = b"metric failed; at `baseline/0` of the run"
        set_row(manager, state=state, ended=ended, reason=why, status=status)
        shown = overview(client, done)
        assert "before it began" not in shown
        assert "failed; while testing your prompt" in shown
        assert ("Metric failed; while" in shown) is (state == "paused")
    status = encoded_plain(attrs.asdict(attrs.evolve(done.status, unstored="it is not tested")))
    why = b"cost: max_cost: 0.015 of 0.012 US dollars are used"
    set_row(manager, state="paused", ended=None, reason=why, status=status)
    shown = overview(client, done)
    assert "The cost limit is reached: 0.015 of 0.012 US dollars are used." in shown
    assert "There is nothing to apply" not in shown
    set_row(manager, state="paused", ended=None, reason=b"tickets.csv:3: bad", status=status)
    assert "tickets.csv:3: bad." in overview(client, done)
    assert "Tickets" not in overview(client, done)


def test_a_winner_that_is_not_proven_has_changed_nothing(
    client: Client, manager: JobManager, done: Job
) -> None:
    for verdict, title in (
        (RunVerdict.IMPROVED, "What changed"),
        (RunVerdict.NOT_SHOWN, "What the winner would change"),
    ):
        status = attrs.evolve(done.status, verdict=str(verdict))
        set_row(manager, status=encoded_plain(attrs.asdict(status)))
        assert title in overview(client, done)
    with closing(client.browser()) as browser:
        jobs = unescape(browser.get("/").text)
    assert "What the verdicts mean" in jobs
    assert f"<dt>{RunVerdict.NOT_SHOWN}</dt><dd>Better on the cases that chose it;" in jobs


REFUSING = """
import attrs
from promptgraft.adapters.offline import OfflineAdapter

class Refusing(OfflineAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        response = super().evaluate(prompt, session=session, deadline=deadline)
        return attrs.evolve(response, text="I cannot help with that.", output=None)

MODEL = Refusing()
"""


def test_where_no_text_was_better_that_is_said(tmp_path: Path) -> None:
    file = FILE.replace("  judges:", "  reflection: {python: own.py:MODEL}\n  judges:")
    path = write_project(tmp_path / "support", file=file)
    path.with_name("own.py").write_text(REFUSING)
    with (
        closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path})) as manager,
        served(manager, tmp_path / "mirrors") as client,
        closing(client.browser()) as browser,
    ):
        job = manager.create("support", "triage", {"store": False})
        work_off(manager)
        shown = overview(client, job)
        candidates = browser.get(f"/jobs/{job.id}/candidates").text
        paused = manager.get(job.id)
        verdict = attrs.evolve(paused.status, verdict=RunVerdict.NOT_IMPROVED)
        set_row(manager, state="completed", status=encoded_plain(attrs.asdict(verdict)))
        ended = overview(client, job)
    assert "Reflection failed: 5 steps gave no usable proposal" in shown
    assert "No new text was better than yours yet, of 10 rewrites" in shown
    assert "Remove the cause, or raise the limit that stopped it below" in shown
    assert ended.count("the prompt stays as it is") == 1
    assert "What became of each rewrite" in ended
    assert "unparsable reply</th><td>the reply did not have the required form</td>" in candidates


def test_what_is_on_a_tab_is_linked_where_there_is_more_than_one_part(
    client: Client, done: Job
) -> None:
    with closing(client.browser()) as browser:
        texts, rounds = (browser.get(f"/jobs/{done.id}/{tab}").text for tab in ("texts", "rounds"))
    assert '<a href="#whole">The winner&#39;s prompt</a>' in texts
    assert "On this page" not in rounds


def says_next(client: Client, job: Job) -> str:
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{job.id}").text
    found = re.search(r'<p class="lead">[^<]+\. <span class="quiet">(.*?)</span></p>', page)
    return found[1] if found else ""


def test_comments_are_kept_with_what_they_are_about(client: Client, done: Job) -> None:
    with closing(client.browser()) as browser:

        def say(text: str, about: str = "") -> str:
            form = {"what": "comment", "text": text, "about": about}
            answer = browser.post(f"/jobs/{done.id}", data=form)
            return str(answer.headers.get("location", answer.status_code))

        assert say("<b>ship it</b>\r\nnow") == f"/jobs/{done.id}#comments"
        assert say("too long", "candidate 1") == f"/jobs/{done.id}/candidates/1#comments"
        where = say("a typo", "case l11")
        assert where == f"/jobs/{done.id}/case?id=l11#comments"
        assert say("  ") == "422"
        assert say("x" * 2_001) == "422"
        whole = browser.get(f"/jobs/{done.id}").text
        assert "&lt;b&gt;ship it&lt;/b&gt;\nnow" in whole
        assert whole.count('<article class="comment">') == 3
        of_case = browser.get(where).text
        assert "a typo" in of_case
        assert of_case.count('<article class="comment">') == 1
        assert "commented" in browser.get(f"/jobs/{done.id}/events").text
    events = client.get(f"/jobs/{done.id}/events", limit=500).rows("events")
    texts = [row["text"] for row in events if row["event"] == "job_commented"]
    assert texts == ["<b>ship it</b>\nnow", "too long", "a typo"]


def test_candidates_are_compared_side_by_side(client: Client, manager: JobManager) -> None:
    job = large_job(manager, candidates=6, cases=5, text="Choose <b>a queue</b>.")
    at = f"/jobs/{job.id}/compare"
    with closing(client.browser()) as browser:
        tab = browser.get(f"/jobs/{job.id}/candidates").text
        assert f'method="get" action="{at}"' in tab
        assert 'name="candidate" value="' in tab
        assert "compare-candidates" not in browser.get(f"/jobs/{job.id}/report").text
        assert f'action="{at}"' in browser.get(f"/jobs/{job.id}/candidates/3").text
        two = browser.get(f"{at}?candidate=1&candidate=4").text
        assert "From candidate #1 to #4, by word" in two
        assert "<del>1</del><ins>4</ins>" in two.replace("\n", "")
        assert "<b>a queue" not in two
        assert two.count("<tr data-outcome=") == 5
        assert "#4 − #1" in two
        four = browser.get(f"{at}?candidate=1&candidate=4&candidate=0&candidate=5").text
        assert four.count("<h3>#1 to #") == 3
        assert set(re.findall(r'data-outcome="(\w+)"', four)) <= {"changed", "same"}
        for wrong in ("", "?candidate=1", "?candidate=1&candidate=1", "?candidate=1&candidate=6"):
            assert browser.get(f"{at}{wrong}").status_code == 422
        waiting = manager.create("support", "triage")
        answer = browser.get(f"/jobs/{waiting.id}/compare?candidate=0&candidate=1")
        assert answer.status_code == 422


BREAKING = """
CALLS = []

def judge(case, answer):
    CALLS.append(case.id)
    if len(CALLS) > 20:
        raise ValueError("broken")
    return True, "it holds"
"""


def test_a_failed_job_has_estimates_and_no_result(tmp_path: Path) -> None:
    """Scores on a few cases, which a job had when it stopped, are no result of it."""
    metrics = "[{name: exact}, {name: holds, kind: python, function: 'metric.py:judge'}]"
    path = write_project(tmp_path / "a", file=FILE.replace("[{name: exact}]", metrics))
    (path.parent / "metric.py").write_text(BREAKING)
    manager = JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"a": path})
    with closing(manager), served(manager, tmp_path / "mirrors") as client:
        job = manager.create("a", "triage", {"budget": 150})
        other = manager.create("a", "triage", {"budget": 150, "seed": 3})
        work_off(manager)
        assert manager.get(job.id).state is JobState.FAILED
        with closing(client.browser()) as browser:
            page = browser.get(f"/jobs/{job.id}").text
            compared = browser.get(f"/compare?job={job.id}&job={other.id}").text
    assert "Best text so far, not tested" in page
    assert "What changed" not in page
    assert '"charts single provisional"' in page
    assert "against test calls: an estimate" in page
    assert re.search(r"<dt>Validation</dt><dd class=\"quiet\">~0\.\d+ → ~1\.000 ", page)
    assert "has not ended" not in compared
    assert "A failed: " in compared
    assert '<th scope="row">verdict</th><td class="n">failed</td>' in compared


def test_the_gain_says_what_makes_it_significant(
    client: Client, manager: JobManager, done: Job
) -> None:
    """An interval that includes 0 under the word improved would contradict it."""
    _, end = end_of(manager, done)
    assert end.held_out is not None
    assert end.held_out.gain is not None
    proof = end.held_out.gain
    with closing(client.browser()) as browser:
        page = unescape(browser.get(f"/jobs/{done.id}").text)
    assert f"{surety(proof)}." in page
    assert f"Probably between {proof.low:+.3f} and {proof.high:+.3f}; {proof.cases} cases" in page


@pytest.mark.parametrize(
    ("befores", "afters", "words"),
    [
        ([0.0] * 30, [1.0] * 12 + [0.0] * 18, "12 better, 0 worse, 18 the same; more than chance"),
        ([1.0] * 12 + [0.0] * 18, [0.0] * 30, "0 better, 12 worse, 18 the same; more than chance"),
        ([0.0] * 30, [1.0] * 2 + [0.0] * 28, "28 the same; that may be chance; about"),
        ([0.0] * 3, [1.0] * 3, "that may be chance; 3 cases cannot tell, use 6 or more, better 50"),
        ([0.0] * 30, [0.0] * 30, "0 better, 0 worse, 30 the same; that may be chance"),
        ([0.0] * 12, [1.0] + [0.01] * 11, "% sure, counted by cases)"),
    ],
)
def test_whether_a_gain_may_be_chance_is_said_without_terms_of_statistics(
    befores: list[float], afters: list[float], words: str
) -> None:
    before, after = (
        {f"{n}": [score] for n, score in enumerate(scores)} for scores in (befores, afters)
    )
    said = surety(gain(before, after))
    assert words in said
    assert not re.search(r"significan|p [<=]|interval", said)


def test_a_lost_critical_case_is_named_with_a_link(
    client: Client, manager: JobManager, done: Job
) -> None:
    ids = ("u1", "حالة ٢")
    held_out = HeldOut(
        ids=ids, baseline_scores=(1.0, 1.0), winner_scores=(1.0, 0.0), lost=("حالة ٢",)
    )
    rewrite_end(manager, done, held_out, RunVerdict.LOST_CRITICAL)
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{done.id}").text
        link = re.search(r"Worse on <a href=\"([^\"]+)\">حالة ٢</a>", page)
        assert link
        assert browser.get(link[1]).status_code == 200


def test_who_cancelled_a_job_is_on_its_page(client: Client, manager: JobManager) -> None:
    job = manager.create("support", "triage", {"budget": 60})
    assert client.post(f"/jobs/{job.id}/cancel").status == 202
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{job.id}").text
        assert "Cancelled by tests" in page
        assert "Change the limits" not in page
        jobs = manager.database.tables.jobs
        values = {"state": JobState.PAUSED, "reason": b"asked to pause"}
        manager.database.write(lambda connection: connection.execute(update(jobs).values(values)))
        rows = JobRows(manager.database)
        manager.database.write(
            lambda connection: rows.publish(
                connection, job.number, "job_asked", what="pause", by="ana"
            )
        )
        page = browser.get(f"/jobs/{job.id}").text
        assert "Paused by ana, 2" in page
        assert "sked to pause" not in page


def test_a_dry_run_says_that_it_is_one(client: Client, manager: JobManager) -> None:
    job = ended(manager, dry_run=True)
    with closing(client.browser()) as browser:
        assert "A dry run" in browser.get(f"/jobs/{job.id}").text
        assert ">dry run<" in browser.get("/").text


def test_events_are_shown_in_the_script_of_their_users(client: Client, manager: JobManager) -> None:
    job = manager.create("support", "triage", {"budget": 60})
    manager.comment(job.id, "شكرا")
    manager.comment(job.id, "long " * 200)
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{job.id}/events").text
    assert "شكرا" in page
    assert "characters left out …]" in page


def test_the_stage_of_a_job_is_said_in_the_words_of_its_users(
    client: Client, manager: JobManager, done: Job
) -> None:
    status = attrs.evolve(done.status, stage="child", step=4)
    going = update(manager.database.tables.jobs).values(
        state="running", ended=None, status=encoded_plain(attrs.asdict(status))
    )
    manager.database.write(partial(Connection.execute, statement=going))
    with closing(client.browser()) as browser:
        page = browser.get(f"/jobs/{done.id}").text
    assert "<dd>testing the new text, step 4" in page


@pytest.mark.parametrize(("state", "words"), [("paused", "is paused"), ("running", "goes on")])
def test_a_tab_says_whether_its_job_goes_on(
    client: Client, manager: JobManager, done: Job, state: str, words: str
) -> None:
    going = update(manager.database.tables.jobs).values(state=state, ended=None)
    manager.database.write(partial(Connection.execute, statement=going))
    with closing(client.browser()) as browser:
        assert f"The job {words}; this is what" in browser.get(f"/jobs/{done.id}/cases").text
