"""What the API does with stores: tags, their histories, promotion and rollback."""

from __future__ import annotations

import attrs

from promptgraft.errors import OverrideConflictError
from promptgraft.jobs import JobFilter, JobState
from promptgraft.jobs.interface import LARGEST_PAGE
from promptgraft.overrides import (
    OverrideAddress,
    PromptOverride,
    Revision,
    RevisionedStore,
)
from promptgraft.overrides.base_store import Change
from promptgraft.overrides.codec import plain_entries
from promptgraft.overrides.resolution import PartDiff, diff_override, parts_json
from promptgraft.project import Project
from promptgraft.project.parts import ProjectPrompt
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


def prompt_of(call: Call) -> ProjectPrompt:
    """Return the prompt or the graph that the path names."""
    project, name = project_of(call), call.path["prompt"]
    if name not in project.names:
        raise Problem(404, f"the project has no prompt `{name}`; there: {', '.join(project.names)}")
    with beside(project.folder):
        return project.prompt(name)


@attrs.frozen(kw_only=True)
class Held:
    """What a tag holds for one prompt; a graph has several.

    Attributes:
        prompt: the prompt.
        address: where its overrides are.
        revision: what the tag points at.
    """

    prompt: Prompt[object]
    address: OverrideAddress
    revision: Revision

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How that differs from the source."""
        return diff_override(self.prompt, self.revision.override)

    @property
    def stale(self) -> list[str]:
        """The parts whose source has changed since."""
        return [part.part for part in self.parts if part.state is not None]


def _address(prompt: Prompt[object], tag: str) -> OverrideAddress:
    return OverrideAddress(prompt.descriptor.ns, prompt.descriptor.key, tag)


def held(store: RevisionedStore, found: ProjectPrompt, tag: str) -> list[Held]:
    """Return what a tag holds for a prompt, or for each prompt of a graph; empty for nothing."""
    places = [(prompt, _address(prompt, tag)) for prompt in found.prompts]
    return [
        Held(prompt=prompt, address=address, revision=revision)
        for prompt, address in places
        if (revision := store.current_at(address)) is not None
    ]


def tags_of(store: RevisionedStore, found: ProjectPrompt) -> list[str]:
    """Return the tags that hold something for a prompt or a graph, sorted."""
    own = {(one.descriptor.ns, one.descriptor.key) for one in found.prompts}
    return sorted({one.tag for one in store.addresses() if (one.ns, one.prompt_key) in own})


def _named(call: Call) -> tuple[RevisionedStore, list[Held]]:
    """Return what the tag holds that the path names."""
    store, tag = project_of(call).store(), call.path["tag"]
    found = held(store, prompt_of(call), tag)
    if not found:
        raise Problem(404, f"tag `{tag}` of `{prompt_of(call).address}` holds nothing")
    return store, found


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
    places = [(prompt, _address(prompt, tag)) for prompt in prompt_of(call).prompts]
    rows: list[Json] = [
        _revision(Held(prompt=prompt, address=at, revision=one))
        for prompt, at in places
        for one in store.history(ns=at.ns, prompt_key=at.prompt_key, tag=tag)
    ]
    return reply({"tag": tag, "revisions": rows})


def promote(call: Call) -> Reply:
    """Let another tag hold what this one holds; stale entries are refused."""
    asked = call.read(PROMOTION)
    return promote_to(call, asked.to, asked.expected)


def promote_to(call: Call, to: str, expected: str | None) -> Reply:
    """Let the tag ``to`` hold what another one holds, if it points at ``expected`` now."""
    store, found = _named(call)
    targets = {one.address: attrs.evolve(one.address, tag=to) for one in found}
    present = {target: store.current_at(target) for target in targets.values()}
    if expected is not None:
        _check_expected(expected, list(present.values()))
    if stale := [part for one in found for part in one.stale]:
        raise Problem(409, f"the source has changed since: {', '.join(stale)} would not apply")

    def change(one: Held) -> Change:
        target = targets[one.address]
        before = present[target]
        seen = before.override if before else target.empty()

        def replace(there: PromptOverride) -> PromptOverride:
            if expected is not None and there != seen:
                raise OverrideConflictError(f"tag `{to}` has changed meanwhile; look at it")
            return attrs.evolve(one.revision.override, tag=to)

        return replace

    note = f"promoted from {call.path['tag']} by {call.caller.name}"
    provenance = attrs.evolve(found[0].revision.provenance, note=note)
    store.mutate_all({targets[one.address]: change(one) for one in found}, provenance=provenance)
    _noted(call, found, "promote", to)
    return _now(call, store, to)


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
    for one in found:
        at = one.address
        store.rollback(ns=at.ns, prompt_key=at.prompt_key, tag=at.tag, revision=revision)
    _noted(call, found, "rollback", call.path["tag"])
    return _now(call, store, call.path["tag"])


def _now(call: Call, store: RevisionedStore, tag: str) -> Reply:
    rows: list[Json] = [_revision(one) for one in held(store, prompt_of(call), tag)]
    return reply({"tag": tag, "prompts": rows})


def _check_expected(expected: str, present: list[Revision | None]) -> None:
    if len(present) > 1:
        raise Problem(422, "expected: a graph has a revision for each prompt; leave it out")
    found = present[0].id if present[0] else ""
    if not (expected == found or (len(expected) >= 4 and found.startswith(expected))):
        raise Problem(409, f"expected revision {expected[:12]}, found {found[:12] or 'none'}")


def _noted(call: Call, found: list[Held], what: str, tag: str) -> None:
    """Let the job say who moved its winner, as far as it is among the latest."""
    runs = {one.revision.provenance.run_id for one in found}
    where = JobFilter(
        state=JobState.COMPLETED, project=call.path["project"], prompt=call.path["prompt"]
    )
    jobs = call.manager.list(where, limit=LARGEST_PAGE)
    for job in jobs:
        if (call.manager.result(job.id) or {}).get("run_id") in runs:
            call.manager.note(job.id, what, tag=tag)
            return


def _revision(one: Held) -> dict[str, Json]:
    revision = one.revision
    return {
        "prompt": f"{one.address.ns}/{one.address.prompt_key}",
        "id": revision.id,
        "number": revision.number,
        "parent": revision.parent,
        "time": revision.time.isoformat(),
        "run_id": revision.provenance.run_id,
        "note": revision.provenance.note,
    }
