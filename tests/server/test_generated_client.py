"""A client that openapi-python-client generates from the document, asking the real server."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from promptgraft.service.jobs import Job, JobManager
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.calls import openapi
from server.serving import Client

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openapi_python_client") is None, reason="no openapi-python-client"
)

# The only media type that the generator does not know.
CONFIGURATION = '{"content_type_overrides": {"application/gzip": "application/octet-stream"}}'

ASKING = """
import json, sys
from generated import AuthenticatedClient
from generated.api.default import (
    cancel_job, create_job, list_candidates, list_events, list_jobs, list_rollouts, list_rounds,
    make_plan, show_archive, show_job, show_report, show_result, show_structure,
)
from generated.models import CreateJobBody, JobChanges, JobFields, MakePlanBody
from generated.types import File

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
done = sys.argv[3]
job = show_job.sync(done, client=client)
result = show_result.sync(done, client=client)
assert (job.state, job.tries[0].worker) == ("completed", "here")
assert result.scores.pareto.best == job.status.best == result.means[result.best]
assert result.prompt == "support/triage"
assert list_rounds.sync(done, client=client).rounds[0].patches[0].text
assert list_candidates.sync(done, client=client).candidates[0].texts.additional_properties
assert list_rollouts.sync(done, client=client).rollouts[0].feedback is not None
events = list_events.sync(done, client=client).events
assert [event.event for event in events][:2] == ["job_queued", "job_started"]
structure = show_structure.sync("support", "triage", client=client)
assert structure.nodes[0].parts[0].text == "Choose a queue."
assert make_plan.sync(
    client=client, body=MakePlanBody(project="support", prompt="triage")
).roles[0].role == "task"
chosen = list_jobs.sync(client=client, fields="id,state").jobs
assert isinstance(chosen[0], JobFields) and chosen[0].to_dict().keys() == {"id", "state"}
assert "<html" in show_report.sync(done, client=client)
assert isinstance(show_archive.sync(done, client=client), File)
body = CreateJobBody(project="support", prompt="triage", changes=JobChanges(budget=90, note="n"))
new = create_job.sync(client=client, body=body)
assert (new.changes.budget, new.changes.note) == (90, "n")
assert cancel_job.sync(new.id, client=client).state == "cancelled"
problem = show_job.sync("ffffffff", client=client)
print(json.dumps([new.id, problem.status, problem.detail]))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package `generated`."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_text(json.dumps(openapi(ROUTES)))
    (folder / "configuration.json").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"]
    files = ["--path", "openapi.json", "--config", "configuration.json", "--meta", "none"]
    # It formats what it wrote with ruff, from the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [*command, *files, "--output-path", "generated"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.thorough
def test_a_generated_client_reads_every_document(
    package: Path, client: Client, manager: JobManager, done: Job
) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASKING, client.url, client.token, done.id],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    new, status, detail = json.loads(asked.stdout)
    assert manager.get(new).state == "cancelled"
    assert (status, detail[:30]) == (404, "no job has an id that begins w")


@pytest.mark.thorough
def test_a_generated_function_is_there_for_each_operation(package: Path) -> None:
    made = {path.stem for path in (package / "generated/api/default").glob("*.py")}
    assert made - {"__init__"} == {route.handler.__name__ for route in ROUTES}
