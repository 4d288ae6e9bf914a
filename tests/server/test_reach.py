"""What callers send holds values only: no code, path, variable or address of theirs is used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from jobs.job_world import work_off
from promptgraft.algorithms import algorithm
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import PATH, TEXT, Kind, Reach
from promptgraft.ground.strict.kinds import Key, either, listed, named, record, values_only
from promptgraft.ground.strict.nodes import Source
from promptgraft.project.format_search import TUNING, settings_of
from promptgraft.service.jobs import JobManager, JobState
from promptgraft.service.server.api import ROUTES
from server.serving import Client

ALGORITHMS = ("gepa", "gradient")
PLANTED = "Path(__file__).with_name('ran').write_text('')"


def reaching(
    kind: Kind[Any], place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Reach]]:
    """Yield the places below a kind that reach outside."""
    if kind.reach is not None:
        yield place, kind.reach
    for name, part in kind.parts.items():
        yield from reaching(part, (*place, name))


def opaque(kind: Kind[Any], place: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the places of values that a kind takes as they are."""
    if not kind.parts and kind.schema in ({}, {"type": "object"}, {"type": "array"}):
        yield ".".join(place)
    for name, part in kind.parts.items():
        yield from opaque(part, (*place, name))


def setting(place: tuple[str, ...], value: str) -> dict[str, Json]:
    """Return settings that give a value at a place."""
    made: Json = value
    for name in reversed(place):
        made = [made] if name == "*" else {name: made}
    assert isinstance(made, dict)
    return made


PLACES = [(name, place) for name in ALGORITHMS for place, _ in reaching(settings_of(name))]


def test_no_request_body_has_a_value_that_reaches_outside() -> None:
    bodies = [(route.at, route.body) for route in ROUTES if route.body is not None]
    assert len(bodies) >= 5
    for at, body in bodies:
        assert list(reaching(body)) == [], at
        # The settings of a search depend on its algorithm, and are read by the test below.
        assert {name.rpartition(".")[2] for name in opaque(body)} <= {"tuning"}, at


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_settings_of_a_search_are_read_without_what_reaches_outside(name: str) -> None:
    assert algorithm(name)
    assert {reach for _, reach in reaching(settings_of(name))} == {Reach.CODE, Reach.FILE}
    assert list(reaching(values_only(settings_of(name)))) == []
    assert list(opaque(values_only(settings_of(name)))) == []


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


class TestValuesOnly:
    """Kinds of every form lose what reaches outside, and nothing else."""

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
        trusted, strange = Source.of(refused), Source.of(refused)
        assert self.KIND.read(trusted.root) is not None
        assert values_only(self.KIND).read(strange.root) is None
        (fault,) = strange.faults
        assert fault.startswith(next(iter(refused)))
        assert fault.endswith(
            "names a file or a folder, which only the project file may; set it there"
        )

    def test_values_are_read_as_before(self) -> None:
        given: dict[str, Json] = {"title": "a", "one": "b", "free": {"title": "c"}}
        source = Source.of(given)
        assert values_only(self.KIND).read(source.root) == given
        assert source.faults == ()

    def test_its_schema_does_not_offer_them(self) -> None:
        properties = values_only(self.KIND).schema["properties"]
        assert isinstance(properties, dict)
        assert list(properties) == ["title", "one", "free"]
        assert "stop_file" not in json.dumps(TUNING.schema)
