"""What callers send holds values only: no code, path, variable or address of theirs is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import work_off
from promptgraft.algorithms import algorithm
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import PATH, TEXT, Kind
from promptgraft.ground.strict.kinds import Key, either, listed, named, record
from promptgraft.ground.strict.nodes import Source
from promptgraft.project.format_search import settings_of
from promptgraft.service.jobs import JobManager, JobState
from server.serving import Client

ALGORITHMS = ("gepa", "gradient")
PLANTED = "Path(__file__).with_name('ran').write_text('')"


def setting(place: tuple[str, ...], value: str) -> dict[str, Json]:
    """Return settings that give a value at a place."""
    made: Json = value
    for name in reversed(place):
        made = [made] if name == "*" else {name: made}
    assert isinstance(made, dict)
    return made


STOP_FILE = ("limits", "stoppers", "*", "stop_file", "path")
PLACES = [
    *((name, (function,)) for name in ALGORITHMS for function in algorithm(name).functions),
    *((name, STOP_FILE) for name in ALGORITHMS),
]


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_setting_that_reaches_outside_is_read_from_trusted_sources_only(
    name: str, place: tuple[str, ...]
) -> None:
    given = setting(place, "a.py:b")
    trusted, strange = Source.of(given), Source.of(given, is_trusted=False)
    assert settings_of(name).read(trusted.root) is not None
    assert settings_of(name).read(strange.root) is None
    (fault,) = strange.faults
    assert fault.startswith(f"{'.'.join(place).replace('.*', '[0]')}: names ")


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_code_and_paths_of_callers_are_refused_unseen(
    client: Client, tmp_path: Path, name: str, place: tuple[str, ...]
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(f"from pathlib import Path\n{PLANTED}\ndef f(*_): {PLANTED}\n")
    stop = tmp_path / "stop"
    stop.touch()
    spec = str(stop) if place[-1] == "path" else f"{planted}:f"
    changes: dict[str, Json] = {"algorithm": name, "tuning": setting(place, spec)}
    body: dict[str, Json] = {"project": "support", "prompt": "triage", "changes": changes}
    job = client.manager.create("support", "triage")
    client.manager.cancel(job.id)
    for path, sent in (("/plans", body), ("/jobs", body), (f"/jobs/{job.id}/fork", changes)):
        answer = client.post(path, sent)
        assert answer.status == 422, path
        assert str(tmp_path) not in answer.text
    assert client.ask("PATCH", f"/api/v1/jobs/{job.id}", changes).status in (409, 422)
    assert stop.exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("spec", ["os:environ", "${HOME}", "https://example.org/x:y"])
def test_a_refusal_says_where_such_a_setting_belongs(shared: Client, spec: str) -> None:
    sent = {
        "project": "support",
        "prompt": "triage",
        "changes": {"tuning": {"trace_formatter": spec}},
    }
    answer = shared.post("/plans", sent)
    assert answer.detail == (
        "trace_formatter: names Python code, which only the project file may; set it there"
    )


def test_the_settings_of_the_project_itself_stay_in_force(client: Client) -> None:
    project = client.manager.projects["support"]
    (project.folder / "shown.py").write_text("def shown(record): return 'trace'\n")
    path = project.folder / "promptgraft.yaml"
    path.write_text(
        path.read_text().replace(
            "{rollout_budget", "{trace_formatter: shown.py:shown, rollout_budget"
        )
    )
    manager = JobManager(client.manager.database, projects={"support": path})
    tuned = manager.projects["support"].tuned({"minibatch_size": 2})
    assert tuned.config.optimizer.settings["trace_formatter"] == "shown.py:shown"
    assert tuned.config.optimizer.settings["minibatch_size"] == 2


def test_plans_need_the_scope_to_submit(client: Client) -> None:
    from promptgraft.service.server import Scope, TokenStore

    token = TokenStore(client.manager.database).create("reader", [Scope.READ])
    sent = {"project": "support", "prompt": "triage"}
    answer = client.ask("POST", "/api/v1/plans", sent, token=token)
    assert (answer.status, answer.detail) == (
        403,
        "this needs the scope `submit`; the token has read",
    )


def rewrite(manager: JobManager, job: str, **values: object) -> None:
    """Write columns of a job past the manager, as an earlier version or another program may."""
    jobs = manager.database.tables.jobs
    manager.database.write(
        lambda at: at.execute(sqlalchemy.update(jobs).where(jobs.c.id == job).values(values))
    )


def test_a_row_that_names_code_ends_its_job_and_runs_nothing(
    client: Client, tmp_path: Path
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(f"from pathlib import Path\n{PLANTED}\ndef f(*_): return ''\n")
    job = client.manager.create("support", "triage")
    tuning = {"tuning": {"trace_formatter": f"{planted}:f"}}
    rewrite(client.manager, job.id, request=json.dumps(tuning).encode())
    assert client.get("/jobs").status == 200
    assert work_off(client.manager) == 1
    ended = client.manager.get(job.id)
    assert ended.state is JobState.FAILED
    assert "only the project file may" in ended.reason
    assert not (tmp_path / "ran").exists()


def test_a_row_with_the_name_of_another_folder_is_not_mirrored(
    client: Client, tmp_path: Path
) -> None:
    job = client.manager.create("support", "triage", {"dry_run": True})
    work_off(client.manager)
    rewrite(client.manager, job.id, prompt="../../outside")
    answer = client.get(f"/jobs/{job.id}/archive")
    assert answer.status == 422
    assert "lower-case letters" in answer.detail
    assert not list(tmp_path.glob("**/outside*"))


class TestSourcesThatAreNotTrusted:
    """Kinds of every form refuse what reaches outside, and nothing else."""

    KIND: Kind[dict[str, object]] = record(
        dict,
        {
            "title": Key(TEXT),
            "path": Key(PATH),
            "all": Key(listed(PATH)),
            "by_name": Key(named(PATH)),
            "one": Key(either("a text or a list", (str, TEXT), (list, listed(PATH)))),
            "inner": Key(record(dict, {"path": Key(PATH, required=True)})),
            "free": Key(record(dict, {"path": Key(PATH), "title": Key(TEXT)})),
        },
    )

    @pytest.mark.parametrize(
        "refused",
        [
            {"path": "x"},
            {"all": ["x"]},
            {"by_name": {"a": "x"}},
            {"one": ["x"]},
            {"inner": {"path": "x"}},
            {"free": {"path": "x"}},
        ],
        ids=lambda one: next(iter(one)),
    )
    def test_what_reaches_outside_is_refused_at_its_place(self, refused: dict[str, Json]) -> None:
        trusted, strange = Source.of(refused), Source.of(refused, is_trusted=False)
        assert self.KIND.read(trusted.root) is not None
        assert self.KIND.read(strange.root) is None
        (fault,) = strange.faults
        assert fault.startswith(next(iter(refused)))
        assert fault.endswith(
            "names a file or a folder, which only the project file may; set it there"
        )

    def test_values_are_read_as_before(self) -> None:
        given: dict[str, Json] = {"title": "a", "one": "b", "free": {"title": "c"}}
        source = Source.of(given, is_trusted=False)
        assert self.KIND.read(source.root) == given
        assert source.faults == ()
