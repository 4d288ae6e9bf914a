"""Pages of data sets: the list, a data set with its cases and revisions, and edits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence

from markupsafe import escape

from promptgraft.errors import PromptgraftError
from promptgraft.ground.serde import Json
from promptgraft.runs.report.texts import changes_between
from promptgraft.service.jobs.datasets import DatasetRevision, lines_by_case
from promptgraft.service.server.api import MOST_DATASET_BODY_BYTES
from promptgraft.service.server.api_projects import project_of
from promptgraft.service.server.calls import ApiCall, ApiReply, Route
from promptgraft.service.server.forms import form_of
from promptgraft.service.server.pages import page_of, redirect
from promptgraft.service.server.problems import ApiProblem, problem_of
from promptgraft.service.server.tokens import Scope

_MOST_ROWS = 200
_MOST_COLUMNS = 8
_MOST_CHANGES = 50


def show_datasets(call: ApiCall) -> ApiReply:
    """List data sets, and show the form for a new one."""
    return _list(call, {})


def _list(call: ApiCall, form: Mapping[str, str], problem: ApiProblem | None = None) -> ApiReply:
    projects = list(call.manager.projects)
    text = call.query.get("text", "").lower()
    rows = [row for project in projects for row in call.manager.datasets(project)]
    return page_of(
        call,
        "datasets.html",
        problem.status if problem else 200,
        rows=[row for row in rows if text in f"{row.project}/{row.name}"],
        projects=projects,
        text=call.query.get("text", ""),
        # A form that did not come from this page may lack any field.
        form={"project": "", "name": "", **form, "text": escape(form.get("text", ""))},
        fault=problem,
    )


def show_dataset(call: ApiCall) -> ApiReply:
    """Show the cases of a data set, what its revision has changed, and its revisions."""
    project_of(call)
    project, name = call.path["project"], call.path["name"]
    history = call.manager.dataset_history(project, name)
    chosen = call.query.get("revision") or history[0].digest
    revision = call.manager.dataset(project, f"{name}@{chosen}")
    before = next((row for row in history if row.number < revision.number), None)
    columns, rows, matches = _table(revision, call.query.get("text", ""))
    changes = _changes(call, before, revision) if before else []
    form = {"project": project, "name": name, "expected": history[0].digest}
    return page_of(
        call,
        "dataset.html",
        dataset=revision,
        history=history,
        before=before,
        columns=columns,
        rows=rows,
        matches=matches,
        text=call.query.get("text", ""),
        changes=changes[:_MOST_CHANGES],
        has_more=len(changes) > _MOST_CHANGES,
        # Not with its control characters spelled out: it is sent back.
        form={**form, "text": escape(revision.text)},
        fault=None,
    )


def _table(
    revision: DatasetRevision, text: str
) -> tuple[Sequence[str], list[tuple[int, list[str]]], int]:
    """Return columns, numbered rows and the number of cases that contain a text."""
    lines = zip(itertools.count(1), revision.text.split("\n"), revision.rows, strict=False)
    found = [(number, row) for number, line, row in lines if text.lower() in line.lower()]
    names = dict.fromkeys(name for _, row in found[:_MOST_ROWS] for name in row)
    columns = list(names)[:_MOST_COLUMNS]
    rows = [(number, [_cell(row.get(name)) for name in columns]) for number, row in found]
    return columns, rows[:_MOST_ROWS], len(found)


def _cell(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _changes(call: ApiCall, before: DatasetRevision, after: DatasetRevision) -> list[object]:
    earlier = call.manager.dataset(before.project, f"{before.name}@{before.digest}")
    sides = [
        {f"case {id_}": line for id_, line in lines_by_case(side.text).items()}
        for side in (earlier, after)
    ]
    return list(itertools.islice(changes_between(*sides), _MOST_CHANGES + 1))


def save(call: ApiCall) -> ApiReply:
    """Save the data set in the form; where that fails, show the form as it was."""
    form = form_of(call)
    project, name = form.get("project", ""), form.get("name", "")
    try:
        call.manager.save_dataset(
            call.project(project),
            name,
            form.get("text", ""),
            # A form has no fields that are empty: a new data set expects none.
            expected=form.get("expected", ""),
        )
    except PromptgraftError as error:
        return _list(call, form, problem_of(error, call.manager.projects))
    return redirect(call, f"/datasets/{project}/{name}")


ROUTES: Sequence[Route] = (
    Route("GET /datasets", Scope.READ, show_datasets),
    Route("POST /datasets", Scope.SUBMIT, save, most_bytes=MOST_DATASET_BODY_BYTES),
    Route("GET /datasets/{project}/{name}", Scope.READ, show_dataset, is_heavy=True),
)
"""The pages of data sets."""
