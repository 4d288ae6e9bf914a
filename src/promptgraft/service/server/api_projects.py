"""API handlers for projects: structure of prompts; moves of tags, and the requests for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import attrs

from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict.checks import STRING, TEXT, Kind
from promptgraft.ground.strict.kinds import Key, named, record
from promptgraft.overrides import RevisionedStore
from promptgraft.overrides.differences import parts_json
from promptgraft.overrides.parts import plain_lists
from promptgraft.project import Project
from promptgraft.project.describing import describe
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import beside
from promptgraft.service.jobs import JobNotFoundError
from promptgraft.service.jobs.approvals import ApprovalNeededError, MoveKind, MoveRequest
from promptgraft.service.jobs.promoting import Expected, TaggedRevision, held, tags_of
from promptgraft.service.server.calls import LARGEST_POSITION, ApiCall, ApiReply, natural, reply
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import ApiCaller, Scope
from promptgraft.service.server.views import Headline
from promptgraft.targets.prompts import address_of


@attrs.frozen(kw_only=True)
class TagTarget:
    """The body of a request that moves a tag; ``to`` is empty for the job's tag."""

    to: str = ""
    expected: Expected | None = None


@attrs.frozen(kw_only=True)
class _Rollback:
    revisions: Mapping[str, str] | None = None
    expected: Expected | None = None


PROMOTION: Kind[TagTarget] = record(
    TagTarget,
    {
        "to": Key(TEXT, "The tag that gets what this one holds.", required=True),
        "expected": Key(named(STRING), "Revisions that `to` must point at now, by their prompts."),
    },
)
ROLLBACK: Kind[_Rollback] = record(
    _Rollback,
    {
        "revisions": Key(named(STRING), "Ids by prompt; by default the parents of current ones."),
        "expected": Key(named(STRING), "Revisions that the tag must point at now, by prompt."),
    },
)


@attrs.frozen(kw_only=True)
class _DatasetText:
    text: str
    expected: str | None = None


DATASET_TEXT: Kind[_DatasetText] = record(
    _DatasetText,
    {
        "text": Key(STRING, "The cases, a JSON object per line.", required=True),
        "expected": Key(STRING, "Digest that its latest revision must have; empty for none."),
    },
)


def project_of(call: ApiCall, name: str | None = None) -> Project:
    """Return a project, by default the one in the path."""
    name = call.project(call.path["project"] if name is None else name)
    if name not in call.manager.projects:
        raise ApiProblem(404, f"there is no project `{name}`")
    return call.manager.projects[name]


def prompt_of(call: ApiCall) -> ProjectPrompt:
    """Return the prompt or graph in the path."""
    project, name = project_of(call), call.path["prompt"]
    if name not in project.names:
        raise ApiProblem(
            404, f"the project has no prompt `{name}`; there: {', '.join(project.names)}"
        )
    # Loading a prompt may run Python of the project.
    with beside(project.folder):
        return project.prompt(name)


def _tagged(call: ApiCall) -> tuple[RevisionedStore, list[TaggedRevision]]:
    """Return the store, and what the tag in the path holds."""
    store = project_of(call).store()
    return store, held(store, prompt_of(call), call.path["tag"])


# Projects


def list_projects(call: ApiCall) -> ApiReply:
    """Return the projects that the caller sees, with their prompts."""
    return reply(
        {
            "projects": [
                {"name": name, "prompts": list(project.names)}
                for name, project in call.manager.projects.items()
            ]
        }
    )


def show_structure(call: ApiCall) -> ApiReply:
    """Return the structure of a prompt or graph: nodes, edges, and parts."""
    prompt_shown = prompt_of(call)
    prompts: dict[str, Json] = {
        address_of(prompt): {
            "tools": [tool.name for tool in prompt.descriptor.tools],
            "output_fields": [field.name for field in prompt.descriptor.output_fields],
        }
        for prompt in prompt_shown.prompts
    }
    return reply({**describe(prompt_shown).as_json(), "prompts": prompts})


# Data sets


def list_datasets(call: ApiCall) -> ApiReply:
    """Return the data sets of a project, without their texts."""
    project_of(call)
    rows: list[Json] = [attrs.asdict(row) for row in call.manager.datasets(call.path["project"])]
    return reply({"datasets": rows})


def show_dataset(call: ApiCall) -> ApiReply:
    """Return a data set with its text: the latest revision, or one by its digest."""
    project_of(call)
    which = call.path["name"]
    if "revision" in call.query:
        which = f"{which}@{call.query['revision']}"
    return reply(attrs.asdict(call.manager.dataset(call.path["project"], which)))


def show_dataset_history(call: ApiCall) -> ApiReply:
    """Return the revisions of a data set, the newest first, without their texts."""
    project_of(call)
    history = call.manager.dataset_history(call.path["project"], call.path["name"])
    rows: list[Json] = [attrs.asdict(row) for row in history]
    return reply({"revisions": rows})


def save_dataset(call: ApiCall) -> ApiReply:
    """Save a data set as its latest revision, and return that without its text."""
    project_of(call)
    body = call.read(DATASET_TEXT)
    names = (call.path["project"], call.path["name"])
    saved = call.manager.save_dataset(*names, body.text, expected=body.expected)
    return reply(attrs.asdict(saved))


# Tags


def list_tags(call: ApiCall) -> ApiReply:
    """Return the tags of a prompt or graph with the revisions that they point at."""
    store, prompt = project_of(call).store(), prompt_of(call)
    rows: list[Json] = [
        {"tag": tag, "prompts": [_revision(row) for row in held(store, prompt, tag)]}
        for tag in tags_of(store, prompt)
    ]
    return reply({"tags": rows})


def show_tag(call: ApiCall) -> ApiReply:
    """Return what a tag holds, and its differences from the source."""
    _, rows = _tagged(call)
    prompts: list[Json] = [
        {
            **_revision(row),
            "entries": plain_lists(row.revision.override.entries()),
            "parts": parts_json(row.parts, checked=True),
        }
        for row in rows
    ]
    return reply({"tag": call.path["tag"], "prompts": prompts})


def show_history(call: ApiCall) -> ApiReply:
    """Return every revision of a tag, the oldest first."""
    store, tag, subject = project_of(call).store(), call.path["tag"], prompt_of(call)
    rows: list[Json] = [
        _revision(TaggedRevision(subject=subject, prompt=prompt, revision=revision))
        for prompt in subject.prompts
        for revision in store.history(
            ns=prompt.descriptor.ns, prompt_key=prompt.descriptor.key, tag=tag
        )
    ]
    return reply({"tag": tag, "revisions": rows})


def promote(call: ApiCall) -> ApiReply:
    """Promote what this tag holds to another tag; stale entries are refused."""
    promotion = call.read(PROMOTION)
    request = promote_to(call, promotion.to, promotion.expected)
    return _moved(call, promotion.to, request)


def promote_to(call: ApiCall, to: str, expected: Expected | None = None) -> int | None:
    """Promote the tag in the path to the tag ``to``, if that points at ``expected`` now.

    Returns:
        The number of the request that waits, if ``to`` is protected.
    """
    # Checked here, because the manager does not know what the caller may see.
    prompt_of(call)
    names = (call.path["project"], call.path["prompt"], call.path["tag"])
    return _request_of(lambda: call.manager.promote(*names, to=to, expected=expected))


def roll_back(call: ApiCall) -> ApiReply:
    """Point a tag at earlier revisions."""
    rollback = call.read(ROLLBACK)
    request = roll_back_to(call, rollback.revisions, rollback.expected)
    return _moved(call, call.path["tag"], request)


def roll_back_to(
    call: ApiCall, revisions: Mapping[str, str] | None = None, expected: Expected | None = None
) -> int | None:
    """Point the tag in the path at revisions, by default at parents, if it is at ``expected`` now.

    Returns:
        The number of the request that waits, if the tag is protected.
    """
    prompt_of(call)
    names = (call.path["project"], call.path["prompt"], call.path["tag"])
    return _request_of(lambda: call.manager.roll_back(*names, revisions, expected=expected))


def _request_of(move: Callable[[], object]) -> int | None:
    """Return the request that a move has made instead; None if the tag was moved."""
    try:
        move()
    except ApprovalNeededError as error:
        return error.request
    return None


def _moved(call: ApiCall, tag: str, request: int | None) -> ApiReply:
    """Return what a tag holds after a move, or still."""
    rows: list[Json] = [_revision(row) for row in held_now(call, tag)]
    document: Json = {"tag": tag, "prompts": rows, "request": request}
    return reply(document, 200 if request is None else 202)


def held_now(call: ApiCall, tag: str) -> list[TaggedRevision]:
    """Return what a tag of the prompt in the path holds, which may be nothing."""
    store, prompt = project_of(call).store(), prompt_of(call)
    return held(store, prompt, tag) if tag in tags_of(store, prompt) else []


def _revision(one: TaggedRevision) -> dict[str, Json]:
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


APPROVERS = frozenset({Scope.APPROVE, Scope.ADMIN})
"""Scopes of which one is needed to decide on a request."""


@attrs.frozen(kw_only=True)
class _Comment:
    comment: str = ""


COMMENT: Kind[_Comment] = record(
    _Comment, {"comment": Key(STRING, "What to say; needed to decline.")}
)


def list_protections(call: ApiCall) -> ApiReply:
    """Return the protected tags of a project."""
    rows: list[Json] = [
        attrs.asdict(row) for row in call.manager.protections(call.project(call.path["project"]))
    ]
    return reply({"protections": rows})


def protect_tag(call: ApiCall) -> ApiReply:
    """Protect a tag of a project: it is moved only when two people approve."""
    project, tag = call.project(call.path["project"]), call.path["tag"]
    call.manager.protect(project, tag)
    (row,) = (row for row in call.manager.protections(project) if row.tag == tag)
    return reply(attrs.asdict(row))


def unprotect_tag(call: ApiCall) -> ApiReply:
    """End the protection of a tag."""
    call.manager.unprotect(call.project(call.path["project"]), call.path["tag"])
    return ApiReply(status=204)


def list_requests(call: ApiCall) -> ApiReply:
    """Return requests to move protected tags, the newest first."""
    limit = call.integer("limit", 20, least=1, most=100)
    rows: list[Json] = [request_json(request) for request in visible_requests(call, limit)]
    return reply({"requests": rows})


def visible_requests(call: ApiCall, limit: int) -> list[MoveRequest]:
    """Return the latest requests of the projects that the caller sees."""
    return list(call.manager.requests(*call.manager.projects, limit=limit))


def show_request(call: ApiCall) -> ApiReply:
    """Return a request with the texts that it changes, and the verdict on them."""
    request = request_of(call)
    before, after = call.manager.moved_texts(request)
    texts: list[Json] = [
        {"part": part, "before": before[part], "after": text}
        for part, text in after.items()
        if before[part] != text
    ]
    head = headline_of(call, request)
    # The verdict on the winner that a rollback takes back does not speak for the rollback.
    verdict = head.sentence if head and request.move.kind is not MoveKind.ROLLBACK else ""
    return reply({**request_json(request), "texts": texts, "verdict": verdict})


def headline_of(call: ApiCall, request: MoveRequest) -> Headline | None:
    """Return the verdict of the job whose winner is moved or taken back; None if unknown."""
    try:
        return Headline.of(call.manager.get(request.move.job)) if request.move.job else None
    except JobNotFoundError:  # jobs may be removed meanwhile
        return None


def approve_request(call: ApiCall) -> ApiReply:
    """Approve a request, which moves its tag if that was the last approval."""
    return _decided(call, lambda number, text: call.manager.approve(number, comment=text))


def decline_request(call: ApiCall) -> ApiReply:
    """Decline a request, and say why."""
    return _decided(call, lambda number, text: call.manager.decline(number, comment=text))


def withdraw_request(call: ApiCall) -> ApiReply:
    """Withdraw one's own request."""
    return _decided(call, lambda number, text: call.manager.withdraw(number, comment=text))


def _decided(call: ApiCall, decide: Callable[[int, str], MoveRequest]) -> ApiReply:
    check_approver(call.caller)
    request = request_of(call)
    return reply(request_json(decide(request.number, call.read(COMMENT).comment)))


def check_approver(caller: ApiCaller) -> None:
    """Require a scope that decides on requests.

    Raises:
        Problem: 403: the caller has none.
    """
    if not caller.scopes & APPROVERS:
        raise ApiProblem(
            403,
            f"this needs the scope `approve` or `admin`; the token has {caller.roles or 'none'}",
        )


def request_of(call: ApiCall) -> MoveRequest:
    """Return the request in the path.

    Raises:
        JobNotFoundError: there is none, or the caller cannot see its project.
    """
    number = natural(call.path["number"])
    if number is not None and number <= LARGEST_POSITION:
        with contextlib.suppress(JobNotFoundError):
            request = call.manager.request(number)
            if call.caller.sees(request.move.project):
                return request
    raise JobNotFoundError(
        f"there is no request {call.path['number'][:40]}; `promptgraft jobs approvals list` shows "
        "all"
    )


def request_json(request: MoveRequest) -> dict[str, Json]:
    """Return a request as plain data."""
    plain = unstructure(request)
    assert isinstance(plain, dict)  # noqa: S101 - as of every attrs class
    return {
        **plain,
        "digest": request.move.digest,
        "approved_by": list(request.approved_by),
        "missing": request.missing,
    }
