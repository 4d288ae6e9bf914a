"""The API: one table of routes, and what each of them does."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

import attrs

from promptgraft.graphs.describing import (
    GraphDescription,
    NodeDescription,
    PartDescription,
    source_view,
)
from promptgraft.jobs import JobFilter, JobState
from promptgraft.jobs.preparing import job_json, planned
from promptgraft.jobs.types import JOB_CHANGES, JobChanges
from promptgraft.parts.descriptors import section_part
from promptgraft.project.parts import ProjectPrompt
from promptgraft.prompt.texts import takes_cases
from promptgraft.serde import Json
from promptgraft.server.access import Scope
from promptgraft.server.api_results import (
    list_candidates,
    list_rollouts,
    show_archive,
    show_candidate,
    show_report,
    show_result,
)
from promptgraft.server.api_stores import (
    PROMOTION,
    ROLLBACK,
    list_tags,
    promote,
    prompt_of,
    roll_back,
    show_history,
    show_tag,
)
from promptgraft.server.calls import Call, Reply, Route, natural, reply
from promptgraft.server.problems import Problem
from promptgraft.strict.checks import TEXT, Kind
from promptgraft.strict.kinds import Key, record
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompts import address_of

_logger = logging.getLogger("promptgraft.server")
_LONGEST_WAIT = 60
_SMALL: Mapping[str, Json] = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
_DETAIL: Mapping[str, Json] = {"enum": ["all", "short"], "default": "all"}


@attrs.frozen(kw_only=True)
class _Submission:
    project: str
    prompt: str | None = None
    changes: JobChanges = attrs.field(factory=JobChanges)


_SUBMISSION: Kind[_Submission] = record(
    _Submission,
    {
        "project": Key(TEXT, "The project, as `projects` lists it.", required=True),
        "prompt": Key(TEXT, "The prompt; the only one of the project when it is left out."),
        "changes": Key(JOB_CHANGES, "What the job changes of the project."),
    },
)

# Projects and plans


def list_projects(call: Call) -> Reply:
    """Return the projects that the caller sees, with their prompts."""
    return reply(
        {
            "projects": [
                {"name": name, "prompts": list(project.names)}
                for name, project in call.manager.projects.items()
                if call.caller.sees(name)
            ]
        }
    )


def show_structure(call: Call) -> Reply:
    """Return what a prompt or graph is made of: nodes, edges, and parts."""
    found = prompt_of(call)
    described = _alone(found) if found.graph is None else found.graph.describe()
    prompts: dict[str, Json] = {
        address_of(prompt): {
            "tools": [tool.name for tool in prompt.descriptor.tools],
            "output_fields": [field.name for field in prompt.descriptor.output_fields],
        }
        for prompt in found.prompts
    }
    plain = described.as_json()
    return reply({**(plain if isinstance(plain, dict) else {}), "prompts": prompts})


def _alone(found: ProjectPrompt) -> GraphDescription:
    """Describe a prompt, or the texts of an agent, as a graph of one node."""
    prompt = found.prompt
    view = source_view(prompt.template)
    parts = tuple(
        PartDescription(
            id=section_part(one.path),
            chars=len(SectionModule(one.path).text(view)),
            may_change=one.overridable,
        )
        for one in prompt.descriptor.sections
    )
    kind = "agent" if takes_cases(prompt) else "prompt"
    node = NodeDescription(id=found.address, kind=kind, prompt=found.address, model="", parts=parts)
    return GraphDescription(name=found.address, nodes=(node,), edges=(), declared=True)


def make_plan(call: Call) -> Reply:
    """Return what a job could use, without a call and without a job."""
    asked = call.read(_SUBMISSION)
    name = call.project(asked.project)
    if name not in call.manager.projects:
        raise Problem(404, f"there is no project `{name}`")
    project = call.manager.projects[name]
    plan = planned(project, project.prompt(asked.prompt).name, asked.changes)
    return reply({"line": plan.line, **plan.as_json()})


# Jobs


def create_job(call: Call) -> Reply:
    """Submit a job; with an idempotency key that was used before, return that one."""
    asked = call.read(_SUBMISSION)
    made = call.manager.submit(
        call.project(asked.project),
        asked.prompt,
        asked.changes,
        key=call.headers.get("idempotency-key"),
    )
    location = f"/api/v1/jobs/{made.job.id}"
    answer = reply(job_json(made.job), 201 if made.is_new else 200, Location=location)
    return attrs.evolve(answer, job=made.job.id, seconds=_preference(call))


def _preference(call: Call) -> float:
    name, _, value = call.headers.get("prefer", "").partition("=")
    if name.strip() != "wait":
        return 0.0
    return float(min(_LONGEST_WAIT, natural(value.strip()) or 0))


def list_jobs(call: Call) -> Reply:
    """Return jobs, the newest first, and the cursor of the next page."""
    query = call.query
    limit = call.integer("limit", 20, least=1, most=100)
    project = query.get("project")
    if project is not None:
        call.project(project)
    names = ("state", "project", "prompt", "tag", "text")
    where = JobFilter(
        **{name: query.get(name) for name in names},
        since=call.integer("since", 0, least=0, most=10**11) or None,
    )
    jobs = call.manager.list(
        where,
        before=call.integer("cursor", 0, least=0, most=10**11) or None,
        limit=limit,
        projects=call.caller.projects,
    )
    following = f"{jobs[-1].number}" if len(jobs) == limit else None
    return reply({"jobs": [job_json(job) for job in jobs], "next": following})


def show_job(call: Call) -> Reply:
    """Return a job with its attempts."""
    job = call.job
    attempts: list[Json] = [attrs.asdict(one) for one in call.manager.attempts(job.id)]
    return reply({**job_json(job), "tries": attempts})


def change_job(call: Call) -> Reply:
    """Change the limits of a job; a running one takes them up when it is resumed."""
    return reply(job_json(call.manager.change(call.job.id, call.object())))


def delete_job(call: Call) -> Reply:
    """Remove a job that has ended, with all that is kept of it."""
    job = call.job
    call.manager.delete(job.id)
    # Its events, which say who did what, are gone with it.
    _logger.warning("job %s was deleted by %s", job.id, call.caller.name)
    return Reply(status=204)


def pause_job(call: Call) -> Reply:
    """Ask a running job to pause after its step."""
    return reply(job_json(call.manager.pause(call.job.id)), 202)


def resume_job(call: Call) -> Reply:
    """Let a paused job continue."""
    return reply(job_json(call.manager.resume(call.job.id)), 202)


def cancel_job(call: Call) -> Reply:
    """End a job for good."""
    return reply(job_json(call.manager.cancel(call.job.id)), 202)


def fork_job(call: Call) -> Reply:
    """Submit a job that begins with the answers of this one."""
    made = call.manager.fork(call.job.id, call.object())
    return reply(job_json(made), 201, Location=f"/api/v1/jobs/{made.id}")


def list_events(call: Call) -> Reply:
    """Return events of a job behind a number; as server-sent events where these are accepted."""
    after = call.integer("after", 0, least=0, most=10**11)
    limit = call.integer("limit", 100, least=1, most=500)
    events = call.manager.events(call.job.id, after=after, limit=limit)
    lines: list[Json] = [{"number": number, **json.loads(line)} for number, _, line in events]
    return reply({"events": lines, "last": events[-1][0] if events else after})


_STRING: Mapping[str, Json] = {"type": "string"}
_KEY: Mapping[str, Json] = {"type": "string", "maxLength": 200, "pattern": "^[!-~]*$"}
_AFTER: Mapping[str, Json] = {"type": "integer", "minimum": 0, "default": 0}
_EVENTS: Mapping[str, Mapping[str, Json]] = {
    "after": _AFTER,
    "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
}
_TAGS = "/projects/{project}/prompts/{prompt}/tags"

R, S, P = Scope.READ, Scope.SUBMIT, Scope.PROMOTE


ROUTES: Sequence[Route] = (
    Route("GET /projects", R, list_projects),
    Route("GET /projects/{project}/prompts/{prompt}/structure", R, show_structure),
    Route("POST /plans", R, make_plan, body=_SUBMISSION),
    Route(
        "POST /jobs",
        S,
        create_job,
        headers={"Idempotency-Key": _KEY, "Prefer": _STRING},
        body=_SUBMISSION,
        statuses=(200, 201),
    ),
    Route(
        "GET /jobs",
        R,
        list_jobs,
        query={
            "state": {"enum": [str(state) for state in JobState]},
            **dict.fromkeys(("project", "prompt", "tag", "text"), _STRING),
            "since": _AFTER,
            "cursor": _AFTER,
            "limit": _SMALL,
        },
    ),
    Route("GET /jobs/{job}", R, show_job),
    Route("PATCH /jobs/{job}", S, change_job, body=JOB_CHANGES),
    Route("DELETE /jobs/{job}", S, delete_job, statuses=(204,)),
    Route("POST /jobs/{job}/pause", S, pause_job, statuses=(202,)),
    Route("POST /jobs/{job}/resume", S, resume_job, statuses=(202,)),
    Route("POST /jobs/{job}/cancel", S, cancel_job, statuses=(202,)),
    Route("POST /jobs/{job}/fork", S, fork_job, body=JOB_CHANGES, statuses=(201,)),
    Route(
        "GET /jobs/{job}/events", R, list_events, query=_EVENTS, headers={"Last-Event-ID": _AFTER}
    ),
    Route("GET /jobs/{job}/result", R, show_result, query={"detail": _DETAIL}),
    Route("GET /jobs/{job}/candidates", R, list_candidates, query={"detail": _DETAIL}),
    Route("GET /jobs/{job}/candidates/{number}", R, show_candidate),
    Route(
        "GET /jobs/{job}/rollouts",
        R,
        list_rollouts,
        query={"after": _AFTER, "limit": _SMALL, "detail": _DETAIL},
    ),
    Route("GET /jobs/{job}/report", R, show_report, media="text/html"),
    Route("GET /jobs/{job}/archive", R, show_archive, media="application/gzip"),
    Route(f"GET {_TAGS}", R, list_tags),
    Route(f"GET {_TAGS}/{{tag}}", R, show_tag),
    Route(f"GET {_TAGS}/{{tag}}/history", R, show_history),
    Route(f"POST {_TAGS}/{{tag}}/promote", P, promote, body=PROMOTION),
    Route(f"POST {_TAGS}/{{tag}}/rollback", P, roll_back, body=ROLLBACK),
)
"""Everything that the API does, below ``/api/v1``."""
