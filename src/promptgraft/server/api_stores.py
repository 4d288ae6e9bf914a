"""What the API does with stores: tags, their histories, promotion and rollback."""

from __future__ import annotations

import attrs

from promptgraft.jobs.promoting import Expected, Held, address, held, tags_of
from promptgraft.overrides import RevisionedStore
from promptgraft.overrides.codec import plain_entries
from promptgraft.overrides.resolution import parts_json
from promptgraft.project import Project
from promptgraft.project.parts import ProjectPrompt
from promptgraft.project.python_source import beside
from promptgraft.serde import Json
from promptgraft.server.calls import Call, Reply, reply
from promptgraft.server.problems import Problem
from promptgraft.strict.checks import STRING, TEXT, Kind
from promptgraft.strict.kinds import Key, named, record


@attrs.frozen(kw_only=True)
class _Promotion:
    to: str
    expected: Expected | None = None


@attrs.frozen(kw_only=True)
class _Rollback:
    revision: str | None = None


PROMOTION: Kind[_Promotion] = record(
    _Promotion,
    {
        "to": Key(TEXT, "The tag that gets what this one holds.", required=True),
        "expected": Key(named(STRING), "Revisions that `to` must point at now, by their prompts."),
    },
)
ROLLBACK: Kind[_Rollback] = record(
    _Rollback, {"revision": Key(STRING, "Its id; by default the parent of the present one.")}
)


def project_of(call: Call) -> Project:
    """Return the project that the path names."""
    name = call.project(call.path["project"])
    if name not in call.manager.projects:
        raise Problem(404, f"there is no project `{name}`")
    return call.manager.projects[name]


def prompt_of(call: Call) -> ProjectPrompt:
    """Return the prompt or the graph that the path names."""
    project, name = project_of(call), call.path["prompt"]
    if name not in project.names:
        raise Problem(404, f"the project has no prompt `{name}`; there: {', '.join(project.names)}")
    with beside(project.folder):
        return project.prompt(name)


def _named(call: Call) -> tuple[RevisionedStore, list[Held]]:
    """Return what the tag holds that the path names."""
    store = project_of(call).store()
    return store, held(store, prompt_of(call), call.path["tag"])


def list_tags(call: Call) -> Reply:
    """Return the tags of a prompt or graph with the revisions that they point at."""
    store, found = project_of(call).store(), prompt_of(call)
    rows: list[Json] = [
        {"tag": tag, "prompts": [_revision(one) for one in held(store, found, tag)]}
        for tag in tags_of(store, found)
    ]
    return reply({"tags": rows})


def show_tag(call: Call) -> Reply:
    """Return what a tag holds, and how that differs from the source."""
    _, found = _named(call)
    prompts: list[Json] = [
        {
            **_revision(one),
            "entries": plain_entries(one.revision.override),
            "parts": parts_json(one.parts, checked=True),
        }
        for one in found
    ]
    return reply({"tag": call.path["tag"], "prompts": prompts})


def show_history(call: Call) -> Reply:
    """Return every revision of a tag, the oldest first."""
    store, tag = project_of(call).store(), call.path["tag"]
    rows: list[Json] = [
        _revision(Held(prompt=prompt, revision=one))
        for prompt in prompt_of(call).prompts
        for one in store.history(ns=prompt.descriptor.ns, prompt_key=prompt.descriptor.key, tag=tag)
    ]
    return reply({"tag": tag, "revisions": rows})


def promote(call: Call) -> Reply:
    """Let another tag hold what this one holds; stale entries are refused."""
    asked = call.read(PROMOTION)
    return promote_to(call, asked.to, asked.expected)


def promote_to(call: Call, to: str, expected: Expected | None = None) -> Reply:
    """Let the tag ``to`` hold what another one holds, if it points at ``expected`` now."""
    prompt_of(call)
    names = (call.path["project"], call.path["prompt"], call.path["tag"])
    call.manager.promote(*names, to=to, expected=expected)
    return _now(call, to)


def roll_back(call: Call) -> Reply:
    """Point a tag at an earlier revision."""
    return roll_back_to(call, call.read(ROLLBACK).revision)


def roll_back_to(call: Call, revision: str | None) -> Reply:
    """Point a tag at a revision, by default at the parent of the present one.

    Of a graph every prompt that the tag holds something for goes to the parent of its own.
    """
    store, found = _named(call)
    if revision is not None and len(found) > 1:
        raise Problem(422, "revision: a graph has one for each prompt; leave it out")
    tag = call.path["tag"]
    for one in found:
        at = address(one.prompt, tag)
        store.rollback(ns=at.ns, prompt_key=at.prompt_key, tag=tag, revision=revision)
    names = {"project": call.path["project"], "prompt": call.path["prompt"], "tag": tag}
    call.manager.note_winner(found, "rollback", **names)
    return _now(call, tag)


def _now(call: Call, tag: str) -> Reply:
    store, found = project_of(call).store(), prompt_of(call)
    rows: list[Json] = []
    if tag in tags_of(store, found):
        rows += [_revision(one) for one in held(store, found, tag)]
    return reply({"tag": tag, "prompts": rows})


def _revision(one: Held) -> dict[str, Json]:
    revision = one.revision
    return {
        "prompt": one.name,
        "id": revision.id,
        "number": revision.number,
        "parent": revision.parent,
        "time": revision.time.isoformat(),
        "run_id": revision.provenance.run_id,
        "note": revision.provenance.note,
    }
