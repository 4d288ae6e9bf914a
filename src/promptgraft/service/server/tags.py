"""The page of tags: what they hold, and the buttons that move them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.overrides import Revision, RevisionedStore
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.runs.report.texts import changes_between
from promptgraft.service.jobs.promoting import TaggedRevision, held, tags_of
from promptgraft.service.jobs.tag_moves import changed_texts, history, texts_with
from promptgraft.service.jobs.types import CANDIDATE_PREFIX
from promptgraft.service.server import api_projects
from promptgraft.service.server.calls import ApiCall, ApiReply, Route
from promptgraft.service.server.forms import form_of
from promptgraft.service.server.pages import page_of, prompts_of, redirect
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import Scope


def show_tags(call: ApiCall) -> ApiReply:
    """Show the tags of all prompts with their histories."""
    rows = [
        _tag_row(call, project, prompt, tag)
        for project, prompts in prompts_of(call).items()
        for prompt in prompts
        for tag in tags_of(*_stored(call, project, prompt))
        # Candidates are on the pages of their jobs.
        if not tag.startswith(CANDIDATE_PREFIX)
    ]
    projects = list(prompts_of(call))
    protections = [row for name in projects for row in call.manager.protections(name)]
    protected = {(row.project, row.tag) for row in protections}
    for row in rows:
        row["is_protected"] = (row["project"], row["tag"]) in protected
    return page_of(call, "tags.html", rows=rows, projects=projects, protections=protections)


def _stored(call: ApiCall, project: str, prompt: str) -> tuple[RevisionedStore, ProjectPrompt]:
    stored_call = attrs.evolve(call, path={"project": project, "prompt": prompt})
    return api_projects.project_of(stored_call).store(), api_projects.prompt_of(stored_call)


def _tag_row(call: ApiCall, project: str, prompt: str, tag: str) -> dict[str, object]:
    """Return what a tag holds and changes, and the versions of each prompt in it."""
    store, subject = _stored(call, project, prompt)
    rows = held(store, subject, tag)
    before, after = texts_with(subject, {row.name: row.revision for row in rows})
    return {
        "project": project,
        "prompt": prompt,
        "tag": tag,
        "held": [(row, history(store, row.prompt, tag)[::-1]) for row in rows],
        "stale": [part for row in rows for part in row.stale],
        "changes": list(changes_between(before, after)),
    }


def _confirm(call: ApiCall, form: Mapping[str, str]) -> ApiReply:
    """Show what a rollback would change, and ask whether it should."""
    names = {name: form.get(name, "") for name in ("project", "prompt", "tag")}
    store, subject = _stored(call, names["project"], names["prompt"])
    rows = held(store, subject, names["tag"])
    tag = names["tag"]
    targets = {row.name: _target(row, history(store, row.prompt, tag), form) for row in rows}
    now = {row.name: row.revision for row in rows}
    changes = changes_between(*changed_texts(subject, now, targets))
    chosen = {name: form.get(name, "") for name in ("name", "revision")}
    fields = {**names, **chosen, "now": _pointed(rows)}
    return page_of(
        call,
        "roll_back.html",
        200,
        fields=fields,
        rows=rows,
        targets=targets,
        changes=list(changes),
        is_protected=call.manager.is_protected(names["project"], tag),
    )


def _target(
    row: TaggedRevision, versions: Sequence[Revision], form: Mapping[str, str]
) -> Revision | None:
    """Return what a prompt would be rolled back to; None for its source."""
    wanted = form.get("revision")
    if wanted and row.name != form.get("name"):
        return row.revision
    goal = wanted or row.revision.parent
    target = next((revision for revision in versions if revision.id == goal), None)
    if wanted and target is None:
        raise ApiProblem(404, f"revision: `{row.name}` has no revision {wanted[:12]}")
    return target


def _pointed(rows: Sequence[TaggedRevision]) -> str:
    """Return what a tag points at, to notice that somebody else has moved it."""
    return ",".join(row.revision.id for row in rows)


def move_tag(call: ApiCall) -> ApiReply:
    """Promote a tag, or roll it back after a look at what that changes."""
    form = form_of(call)
    path = {name: form.get(name, "") for name in ("project", "prompt", "tag")}
    tag_call = attrs.evolve(call, path=path)
    if form.get("what") == "promote":
        request = api_projects.promote_to(tag_call, form.get("to", ""))
    elif form.get("what") == "rollback":
        name, revision = form.get("name", ""), form.get("revision")
        if "now" not in form:
            return _confirm(tag_call, form)
        store, stored_rows = _stored(call, path["project"], path["prompt"])
        rows = held(store, stored_rows, path["tag"])
        if form["now"] != _pointed(rows):
            raise ApiProblem(409, f"tag `{path['tag']}` was moved meanwhile; look at it again")
        revisions = {name: revision} if revision else None
        expected = {row.name: row.revision.id for row in rows}
        request = api_projects.roll_back_to(tag_call, revisions, expected)
    else:
        raise ApiProblem(422, "what: expected promote or rollback")
    return redirect(call, "/tags" if request is None else f"/approvals/{request}")


ROUTES: Sequence[Route] = (
    Route("GET /tags", Scope.READ, show_tags),
    Route("POST /tags", Scope.APPROVE, move_tag),
)
"""The page of tags."""
