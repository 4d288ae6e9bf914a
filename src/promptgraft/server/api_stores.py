"""What the API does with stores: tags, their histories, promotion and rollback."""

from __future__ import annotations

import attrs

from promptgraft.errors import OverrideConflictError
from promptgraft.overrides import (
    OverrideAddress,
    PromptOverride,
    Revision,
    RevisionedStore,
)
from promptgraft.overrides.codec import plain_entries
from promptgraft.overrides.resolution import diff_override, parts_json
from promptgraft.project import Project
from promptgraft.project.python_source import beside
from promptgraft.prompt.template import Prompt
from promptgraft.serde import Json
from promptgraft.server.calls import Call, Reply, reply
from promptgraft.server.problems import Problem
from promptgraft.strict.checks import STRING, TEXT, Kind
from promptgraft.strict.kinds import Key, record


@attrs.frozen(kw_only=True)
class _Promotion:
    to: str
    expected: str | None = None


@attrs.frozen(kw_only=True)
class _Rollback:
    revision: str | None = None


PROMOTION: Kind[_Promotion] = record(
    _Promotion,
    {
        "to": Key(TEXT, "The tag that gets what this one holds.", required=True),
        "expected": Key(STRING, "The revision that `to` points at now; refused if it does not."),
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


def prompt_of(call: Call) -> Prompt[object]:
    """Return the prompt that the path names."""
    project, name = project_of(call), call.path["prompt"]
    if name not in project.names:
        raise Problem(404, f"the project has no prompt `{name}`; there: {', '.join(project.names)}")
    with beside(project.folder):
        return project.prompt(name).prompt


def _store(call: Call) -> tuple[RevisionedStore, OverrideAddress]:
    prompt = prompt_of(call).descriptor
    tag = call.path.get("tag", "latest")
    return project_of(call).store(), OverrideAddress(prompt.ns, prompt.key, tag)


def list_tags(call: Call) -> Reply:
    """Return the tags of a prompt with the revisions that they point at."""
    store, address = _store(call)
    tags = [
        one.tag
        for one in store.addresses()
        if (one.ns, one.prompt_key) == (address.ns, address.prompt_key)
    ]
    found = [(tag, _current(store, attrs.evolve(address, tag=tag))) for tag in tags]
    return reply({"tags": [{"tag": tag, **_revision(one)} for tag, one in found if one]})


def show_tag(call: Call) -> Reply:
    """Return what a tag holds, and how that differs from the source."""
    store, address = _store(call)
    revision = _current(store, address)
    if revision is None:
        raise Problem(
            404, f"tag `{address.tag}` of `{address.ns}/{address.prompt_key}` holds nothing"
        )
    parts = diff_override(prompt_of(call), revision.override)
    return reply(
        {
            "tag": address.tag,
            **_revision(revision),
            "entries": plain_entries(revision.override),
            "parts": parts_json(parts, checked=True),
        }
    )


def show_history(call: Call) -> Reply:
    """Return every revision of a tag, the oldest first."""
    store, address = _store(call)
    found = store.history(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
    return reply({"tag": address.tag, "revisions": [_revision(one) for one in found]})


def promote(call: Call) -> Reply:
    """Let another tag hold what this one holds; stale entries are refused."""
    asked = call.read(PROMOTION)
    return promote_to(call, asked.to, asked.expected)


def promote_to(call: Call, to: str, expected: str | None) -> Reply:
    """Let the tag ``to`` hold what another one holds, if it points at ``expected`` now."""
    store, address = _store(call)
    source = _current(store, address)
    if source is None:
        raise Problem(404, f"tag `{address.tag}` holds nothing that could be promoted")
    target = attrs.evolve(address, tag=to)
    present = _current(store, target)
    _check_expected(expected, present)
    parts = diff_override(prompt_of(call), source.override)
    stale = [part.part for part in parts if part.state is not None]
    if stale:
        raise Problem(409, f"the source has changed since: {', '.join(stale)} would not apply")
    wanted = attrs.evolve(source.override, tag=to)

    def replace(found: PromptOverride) -> PromptOverride:
        if expected is not None and found != (present.override if present else found):
            raise OverrideConflictError(f"tag `{to}` has changed meanwhile; look at it")
        return wanted

    note = f"promoted from {address.tag} by {call.caller.name}"
    store.mutate(target, replace, provenance=attrs.evolve(source.provenance, note=note))
    current = _current(store, target)
    return reply({"tag": to, **(_revision(current) if current else {})})


def roll_back(call: Call) -> Reply:
    """Point a tag at an earlier revision."""
    return roll_back_to(call, call.read(ROLLBACK).revision)


def roll_back_to(call: Call, revision: str | None) -> Reply:
    """Point a tag at a revision, by default at the parent of the present one."""
    store, address = _store(call)
    found = store.rollback(
        ns=address.ns, prompt_key=address.prompt_key, tag=address.tag, revision=revision
    )
    return reply({"tag": address.tag, **(_revision(found) if found else {"id": None})})


def _check_expected(expected: str | None, present: Revision | None) -> None:
    if expected is None:
        return
    found = present.id if present else ""
    if not (expected == found or (len(expected) >= 4 and found.startswith(expected))):
        raise Problem(409, f"expected revision {expected[:12]}, found {found[:12] or 'none'}")


def _current(store: RevisionedStore, address: OverrideAddress) -> Revision | None:
    return store.current(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)


def _revision(one: Revision) -> dict[str, Json]:
    return {
        "id": one.id,
        "number": one.number,
        "parent": one.parent,
        "time": one.time.isoformat(),
        "run_id": one.provenance.run_id,
        "note": one.provenance.note,
    }
