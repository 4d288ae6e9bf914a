"""Every operation of the OpenAPI document against the real server: no mistake of a client is a 500.

``PROMPTGRAFT_EXAMPLES`` says how many requests each operation gets.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from jobs.job_world import FILE, work_off, write_project
from programs import keeping_bytecode
from promptgraft.service.jobs import JobManager
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.calls import Route, openapi
from server.serving import Client, served

EXAMPLES = int(os.environ.get("PROMPTGRAFT_EXAMPLES", "6"))
SEED = 20
FORM = {"Content_Type": "application/x-www-form-urlencoded"}
JOB = b'{"project": "support", "prompt": "triage"}'


@pytest.fixture(scope="module")
def schema() -> Any:
    """The document as schemathesis reads it, which only this module takes the time to import."""
    with keeping_bytecode():
        return importlib.import_module("schemathesis").openapi.from_dict(openapi(ROUTES))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, list[str]]]:
    root = tmp_path_factory.mktemp("operations")
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 60, keep_anyway: true")
    project = write_project(root / "support", file=file)
    manager = JobManager(f"sqlite:///{root}/jobs.db", projects={"support": project})
    hours = itertools.count(0.0, 3600.0)
    with (
        closing(manager),
        served(manager, root / "mirrors", now=lambda: next(hours)) as found,
    ):
        done = manager.create("support", "triage", {"tag": "night"})
        work_off(manager)
        manager.save_dataset("support", "hard", '{"input": "a", "expected": "login"}')
        others = [manager.create("support", "triage", {"note": f"{n}"}) for n in range(2)]
        manager.cancel(others[0].id)
        yield found, [done.id, *(job.id for job in others)]


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
@pytest.mark.thorough
def test_whatever_is_asked_is_answered_as_documented(
    asked: tuple[Client, list[str]], schema: Any, route: Route
) -> None:
    client, jobs = asked
    checks = importlib.import_module("schemathesis.specs.openapi.checks")
    operation = schema[f"/api/v1{route.path}"][route.method]
    known = {
        "job": jobs[1:] if route.method == "DELETE" else jobs,
        "project": ["support"],
        "prompt": ["triage"],
        "tag": ["night"],
        "number": ["0", "1"],
        "name": ["hard"],
    }

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        for name in route.placeholders:
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(known[name]))
        case.call_and_validate(
            base_url=client.url,
            headers={"Authorization": f"Bearer {client.token}"},
            timeout=30,
            # A project that is none, or too small a budget: right by the schema alone.
            excluded_checks=[checks.positive_data_acceptance],
        )

    ask()


FIELDS = (
    "what",
    "prompt",
    "project",
    "tag",
    "to",
    "revision",
    "budget",
    "seed",
    "max_cost",
    "note",
    "name",
    "expected",
)
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["support/triage", "support", "triage", "night", "plan", "change", "promote"]),
    st.sampled_from(["\u00b2", "--5", "9" * 5_000, "1e999", "NaN", "\0", "\ud800"]),
)
PAGES = (
    "/",
    "/new",
    "/datasets",
    "/datasets/support/hard",
    "/tags",
    "/workers",
    "/compare",
    "/live/table",
    "/jobs/{job}",
    "/jobs/x",
    "/api/v1/jobs",
    "/api/v1/jobs/{job}",
    "/api/v1/jobs/{job}/rollouts",
    "/api/v1/tags",
)


@seed(SEED)
@settings(
    max_examples=EXAMPLES * 8,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    page=st.sampled_from(PAGES),
    method=st.sampled_from(["GET", "POST"]),
    fields=st.dictionaries(
        st.sampled_from([*FIELDS, "cursor", "state", "text", "job", "sort", "offset"]), VALUES
    ),
)
def test_no_form_is_a_fault(
    asked: tuple[Client, list[str]], page: str, method: str, fields: dict[str, str]
) -> None:
    client, jobs = asked
    given_ = urlencode(fields, errors="replace").encode()
    path = page.replace("{job}", jobs[2])
    if method == "GET":
        answer = client.ask("GET", f"{path}?{given_.decode()}")
    else:
        form = "application/x-www-form-urlencoded"
        answer = client.ask("POST", path, given_, Content_Type=form)
    assert answer.status in (200, 303, 400, 404, 405, 409, 415, 422), answer


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/new", b"&".join(b"a%d=1" % n for n in range(90)), FORM, 400),
        ("POST", "/new", b"what=plan&prompt=support/triage&budget=%C2%B2", FORM, 422),
        ("POST", "/api/v1/jobs", JOB, {"Prefer": "wait=" + "9" * 5_000}, 201),
        ("POST", "/api/v1/jobs", JOB, {"Idempotency_Key": "k" * 300}, 422),
        ("GET", "/api/v1/jobs?text=%00", None, {}, 400),
        ("GET", "/api/v1/jobs/%00%00%00%00", None, {}, 400),
        ("GET", "/api/v1/jobs/abcd/candidates/99999999999999999999", None, {}, 404),
        ("POST", "/api/v1/jobs", b'{"project": "support", "prompt": "\\ud800"}', {}, 422),
        ("POST", "/api/v1/jobs", b'\xff{"project": "support"}', {}, 400),
    ],
)
def test_odd_requests_are_refused_in_one_line(
    asked: tuple[Client, list[str]],
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
) -> None:
    answer = asked[0].ask(method, path, body, **headers)
    assert answer.status == status, answer
    assert "\n" not in answer.detail
