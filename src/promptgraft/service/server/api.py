"""The API: handlers for jobs and their results, and the table of all routes."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs

from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.checks import STRING, TEXT, Kind
from promptgraft.ground.strict.kinds import Key, named, record
from promptgraft.journal.records import decode_record
from promptgraft.project.origins import moved_origin
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import read_document
from promptgraft.search.events import CandidateAdded
from promptgraft.service.jobs import Job, JobFilter, JobState
from promptgraft.service.jobs.approvals import ApprovalNeededError, ProtectedTag
from promptgraft.service.jobs.datasets import MOST_DATASET_BYTES, DatasetRevision
from promptgraft.service.jobs.preparing import job_json
from promptgraft.service.jobs.types import JOB_CHANGES, JobChanges
from promptgraft.service.server.api_projects import (
    COMMENT,
    DATASET_TEXT,
    PROMOTION,
    ROLLBACK,
    TagTarget,
    approve_request,
    decline_request,
    held_now,
    list_datasets,
    list_projects,
    list_protections,
    list_requests,
    list_tags,
    project_of,
    promote,
    protect_tag,
    roll_back,
    save_dataset,
    show_dataset,
    show_dataset_history,
    show_history,
    show_request,
    show_structure,
    show_tag,
    unprotect_tag,
    withdraw_request,
)
from promptgraft.service.server.calls import (
    LARGEST_POSITION,
    ApiCall,
    ApiReply,
    Route,
    natural,
    reply,
)
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.replies import (
    Applied,
    CandidateList,
    CandidateReply,
    DatasetHistory,
    DatasetList,
    EventPage,
    JobPage,
    JobReply,
    JobResult,
    JobWithAttempts,
    MovedTag,
    Plan,
    ProjectList,
    ProtectionList,
    RequestList,
    RequestReply,
    RequestWithTexts,
    RolloutPage,
    RoundList,
    Structure,
    TagContents,
    TagHistory,
    TagList,
    WorkerList,
)
from promptgraft.service.server.tokens import Scope

_logger = logging.getLogger("promptgraft.service.server")
_LONGEST_WAIT = 3_600
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


def make_plan(call: ApiCall) -> ApiReply:
    """Return what a job could use, without submitting it."""
    submission = call.read(_SUBMISSION)
    project_of(call, submission.project)
    plan = call.manager.plan(submission.project, submission.prompt, submission.changes)
    return reply({"line": plan.line, **plan.as_json()})


def create_job(call: ApiCall) -> ApiReply:
    """Submit a job; with an idempotency key that was used before, return the job it made."""
    submission = call.read(_SUBMISSION)
    job = call.manager.submit(
        call.project(submission.project),
        submission.prompt,
        submission.changes,
        key=call.headers.get("idempotency-key"),
    )
    location = f"{call.visit.base}/api/v1/jobs/{job.job.id}"
    answer = reply(job_json(job.job), 201 if job.is_new else 200, Location=location)
    return attrs.evolve(answer, job=job.job.id, seconds=_preference(call))


def _preference(call: ApiCall) -> float:
    name, _, value = call.headers.get("prefer", "").partition("=")
    if name.strip() != "wait":
        return 0.0
    return float(min(_LONGEST_WAIT, natural(value.strip()) or 0))


def list_jobs(call: ApiCall) -> ApiReply:
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
        ended_by=call.integer("ended_by", 0, least=0, most=10**11) or None,
    )
    jobs = call.manager.list(
        where,
        before=call.integer("cursor", 0, least=0, most=10**11) or None,
        limit=limit,
        projects=call.caller.projects,
    )
    # A number and not an offset: new jobs at the top do not move the pages.
    following = f"{jobs[-1].number}" if len(jobs) == limit else None
    rows: list[Json] = [_fields(call, job_json(job)) for job in jobs]
    return reply({"jobs": rows, "next": following})


def _fields(call: ApiCall, document: dict[str, Json]) -> dict[str, Json]:
    """Return the fields of a document that the parameter ``fields`` names; all without it."""
    names = [name for name in call.query.get("fields", "").split(",") if name]
    for name in names:
        if name not in document:
            near = did_you_mean(name, list(document))
            raise ApiProblem(422, f"fields: there is no `{name[:40]}`{near}")
    return {name: document[name] for name in names} if names else document


def list_workers(call: ApiCall) -> ApiReply:
    """Return the workers of projects that the caller sees, with their last sign of life."""
    workers: list[Json] = [
        {
            **attrs.asdict(worker),
            "projects": list(worker.projects),
            "avoids": dict(worker.avoids),
            "avoids_dry": dict(worker.avoids_dry),
        }
        for worker in call.manager.workers(projects=call.caller.projects)
    ]
    return reply({"workers": workers})


def show_job(call: ApiCall) -> ApiReply:
    """Return a job with its attempts, and whether a worker has its project."""
    job = call.job
    attempts: list[Json] = [attrs.asdict(attempt) for attempt in call.manager.attempts(job.id)]
    lacking = call.manager.no_worker(job.id)
    return reply(_fields(call, {**job_json(job), "tries": attempts, "no_worker": lacking}))


def change_job(call: ApiCall) -> ApiReply:
    """Change the limits of a job; a running job applies them when it is resumed."""
    return reply(job_json(call.manager.change(call.job.id, call.object())))


def delete_job(call: ApiCall) -> ApiReply:
    """Delete a job that has ended, with its answers and events."""
    job = call.job
    call.manager.delete(job.id)
    call.mirrors.forget(job.id)
    # The events that record who did what are deleted with the job.
    _logger.warning("job %s was deleted by %s", job.id, call.caller.name)
    return ApiReply(status=204)


def pause_job(call: ApiCall) -> ApiReply:
    """Ask a running job to pause after its step."""
    return reply(job_json(call.manager.pause(call.job.id)), 202)


def resume_job(call: ApiCall) -> ApiReply:
    """Let a paused job continue."""
    return reply(job_json(call.manager.resume(call.job.id)), 202)


def cancel_job(call: ApiCall) -> ApiReply:
    """End a job for good."""
    return reply(job_json(call.manager.cancel(call.job.id)), 202)


def fork_job(call: ApiCall) -> ApiReply:
    """Submit a job that starts with the answers of this one."""
    job = call.manager.fork(call.job.id, call.object())
    return reply(job_json(job), 201, Location=f"{call.visit.base}/api/v1/jobs/{job.id}")


_APPLICATION: Kind[TagTarget] = record(
    TagTarget,
    {
        "to": Key(TEXT, "The tag that gets the winner; by default that of the job."),
        "expected": Key(named(STRING), "Revisions that the tag must point at now, by prompt."),
    },
)


def apply_winner(call: ApiCall) -> ApiReply:
    """Point a tag at the winner of a job, which is only a candidate before."""
    application = call.read(_APPLICATION)
    job = call.job
    tag, request = application.to or job.tag, None
    try:
        now = call.manager.apply(job.id, to=application.to or None, expected=application.expected)
    except ApprovalNeededError as error:
        of_prompt = attrs.evolve(call, path={"project": job.project, "prompt": job.prompt})
        now = {row.name: row.revision.id for row in held_now(of_prompt, tag)}
        request = error.request
    prompts: list[Json] = [{"prompt": name, "id": id_} for name, id_ in now.items()]
    document: Json = {"tag": tag, "prompts": prompts, "request": request}
    return reply(document, 200 if request is None else 202)


def list_events(call: ApiCall) -> ApiReply:
    """Return events of a job after a number; as a stream if server-sent events are accepted."""
    after = call.integer("after", 0, least=0, most=LARGEST_POSITION)
    limit = call.integer("limit", 100, least=1, most=500)
    events = call.manager.events(call.job.id, after=after, limit=limit)
    lines: list[Json] = [{"number": number, **json.loads(line)} for number, _, line in events]
    return reply({"events": lines, "last": events[-1][0] if events else after})


# Results


def show_result(call: ApiCall) -> ApiReply:
    """Return the result of a job; ``detail=short`` leaves out texts and the ledger."""
    job = call.job
    result = call.manager.result(job.id)
    if result is None:
        raise ApiProblem(409, f"job {job.id} is {job.state}; there is no result yet")
    if _is_short(call):
        for name in ("parts", "ledger", "winner", "held_out"):
            result.pop(name, None)
    return reply(_fields(call, result))


def _is_short(call: ApiCall) -> bool:
    detail = call.query.get("detail", "all")
    if detail not in ("all", "short"):
        raise ApiProblem(422, f"detail: expected `all` or `short`, found {detail[:40]!r}")
    return detail == "short"


def list_candidates(call: ApiCall) -> ApiReply:
    """Return the candidates of a job; ``detail=short`` leaves out texts and scores."""
    candidates = [
        _candidate(candidate, short=_is_short(call)) for candidate in call.view.candidates
    ]
    return reply({"candidates": candidates})


def show_candidate(call: ApiCall) -> ApiReply:
    """Return one candidate of a job with its texts."""
    return reply(_candidate(candidate_of(call), short=False))


def candidate_of(call: ApiCall) -> CandidateAdded:
    """Return the candidate in the path."""
    candidates = {f"{candidate.candidate}": candidate for candidate in call.view.candidates}
    candidate = candidates.get(call.path["number"])
    if candidate is None:
        raise ApiProblem(404, f"the job has {len(candidates)} candidates, numbered from 0")
    return candidate


def _candidate(one: CandidateAdded, *, short: bool) -> Json:
    plain: dict[str, Json] = {
        "candidate": one.candidate,
        "step": one.step,
        "parents": list(one.parents),
        "changed": one.changed,
        "mean": one.mean,
        "estimated": one.estimated,
    }
    if not short:
        plain |= {"texts": dict(one.texts), "scores": list(one.scores)}
    return plain


def list_rounds(call: ApiCall) -> ApiReply:
    """Return the rounds of a job, or the steps of its search: failures, blame, patches, outcome."""
    return reply({"rounds": [round_.as_json() for round_ in call.view.data.steps.rounds]})


def list_rollouts(call: ApiCall) -> ApiReply:
    """Return recorded rollouts of a job, in the order of their recording."""
    after = call.integer("after", 0, least=0, most=LARGEST_POSITION)
    limit = call.integer("limit", 20, least=1, most=100)
    short = _is_short(call)
    rollouts: list[Json] = []
    last = after
    for position, line in call.manager.lines(call.job.id, after=after, limit=limit):
        last = position
        record_ = decode_record(line)
        if record_.kind == "rollout" and isinstance(record_.answer, dict):
            answer = dict(record_.answer)
            if short:
                for name in (
                    "inputs_repr",
                    "output_repr",
                    "expected_repr",
                    "tool_trace_repr",
                    "steps",
                ):
                    answer.pop(name, None)
            rollouts.append({"position": position, "key": record_.key, **answer})
    return reply({"rollouts": rollouts, "last": last})


def show_report(call: ApiCall) -> ApiReply:
    """Return the report of a job as one HTML page."""
    job = started(call)
    with call.mirrors.report(call.manager, job) as report:
        content = report.file(f"{call.visit.origin}/jobs/{job.id}")
    return ApiReply(content=content.encode(), media="text/html; charset=utf-8")


def show_archive(call: ApiCall) -> ApiReply:
    """Return the run directory of a job as one compressed archive."""
    packed = io.BytesIO()
    with mirrored(call) as folder, tarfile.open(fileobj=packed, mode="w:gz") as archive:
        config = json.dumps(moved_origin(read_document(folder.config)), indent=1).encode()
        entry = tarfile.TarInfo(f"{folder.id}/{folder.config.name}")
        entry.size, entry.mtime = len(config), folder.config.stat().st_mtime
        archive.addfile(entry, io.BytesIO(config))
        archive.add(folder.path, arcname=folder.id, filter=lambda file: _plain_file(file, entry))
    named = {"Content-Disposition": f'attachment; filename="{folder.id}.tar.gz"'}
    return ApiReply(content=packed.getvalue(), media="application/gzip", headers=named)


def _plain_file(file: tarfile.TarInfo, config: tarfile.TarInfo) -> tarfile.TarInfo | None:
    # Keep the accounts of the server, and the folder of the project, out of the archive.
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return None if file.name == config.name or file.name.endswith(".lock") else file


@contextmanager
def mirrored(call: ApiCall) -> Iterator[RunFolder]:
    """Give the up-to-date run directory of a job, to one request at a time."""
    with call.mirrors.of(call.manager, started(call)) as folder:
        yield folder


def started(call: ApiCall) -> Job:
    """Return the job in the path.

    Raises:
        Problem: 409: it has not started.
    """
    job = call.job
    if not job.attempts:
        raise ApiProblem(409, f"job {job.id} has not started; there is nothing to show yet")
    return job


_STRING: Mapping[str, Json] = {"type": "string"}
_KEY: Mapping[str, Json] = {"type": "string", "maxLength": 200, "pattern": "^[!-~]*$"}
_AFTER: Mapping[str, Json] = {"type": "integer", "minimum": 0, "default": 0}
_EVENTS: Mapping[str, Mapping[str, Json]] = {
    "after": _AFTER,
    "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
}
_TAGS = "/projects/{project}/prompts/{prompt}/tags"
_DATASETS = "/projects/{project}/datasets"
_PROTECTIONS = "/projects/{project}/protections"
MOST_DATASET_BODY_BYTES = 4 * MOST_DATASET_BYTES
"""Size of a body with a data set, whose characters are escaped."""

R, S, A = Scope.READ, Scope.SUBMIT, Scope.APPROVE


ROUTES: Sequence[Route] = (
    Route("GET /projects", R, list_projects, reply=ProjectList),
    Route("GET /projects/{project}/prompts/{prompt}/structure", R, show_structure, reply=Structure),
    Route("POST /plans", S, make_plan, body=_SUBMISSION, reply=Plan),
    Route(
        "POST /jobs",
        S,
        create_job,
        reply=JobReply,
        headers={"Idempotency-Key": _KEY, "Prefer": _STRING},
        body=_SUBMISSION,
        statuses=(200, 201),
    ),
    Route(
        "GET /jobs",
        R,
        list_jobs,
        reply=JobPage,
        query={
            "state": {"enum": [str(state) for state in JobState]},
            **dict.fromkeys(("project", "prompt", "tag", "text"), _STRING),
            **dict.fromkeys(("since", "ended_by"), _AFTER),
            "cursor": _AFTER,
            "limit": _SMALL,
            "fields": _STRING,
        },
    ),
    Route("GET /workers", R, list_workers, reply=WorkerList),
    Route("GET /jobs/{job}", R, show_job, query={"fields": _STRING}, reply=JobWithAttempts),
    Route("PATCH /jobs/{job}", S, change_job, body=JOB_CHANGES, reply=JobReply),
    Route("DELETE /jobs/{job}", S, delete_job, statuses=(204,)),
    Route("POST /jobs/{job}/pause", S, pause_job, reply=JobReply, statuses=(202,)),
    Route("POST /jobs/{job}/resume", S, resume_job, reply=JobReply, statuses=(202,)),
    Route("POST /jobs/{job}/cancel", S, cancel_job, reply=JobReply, statuses=(202,)),
    Route("POST /jobs/{job}/fork", S, fork_job, body=JOB_CHANGES, reply=JobReply, statuses=(201,)),
    Route(
        "POST /jobs/{job}/apply",
        A,
        apply_winner,
        body=_APPLICATION,
        reply=Applied,
        statuses=(200, 202),
    ),
    Route(
        "GET /jobs/{job}/events",
        R,
        list_events,
        query=_EVENTS,
        headers={"Last-Event-ID": _AFTER},
        reply=EventPage,
    ),
    Route(
        "GET /jobs/{job}/result",
        R,
        show_result,
        query={"detail": _DETAIL, "fields": _STRING},
        reply=JobResult,
    ),
    Route(
        "GET /jobs/{job}/candidates",
        R,
        list_candidates,
        query={"detail": _DETAIL},
        reply=CandidateList,
    ),
    Route("GET /jobs/{job}/candidates/{number}", R, show_candidate, reply=CandidateReply),
    Route("GET /jobs/{job}/rounds", R, list_rounds, reply=RoundList),
    Route(
        "GET /jobs/{job}/rollouts",
        R,
        list_rollouts,
        reply=RolloutPage,
        query={"after": _AFTER, "limit": _SMALL, "detail": _DETAIL},
    ),
    Route("GET /jobs/{job}/report", R, show_report, media="text/html", is_heavy=True),
    Route("GET /jobs/{job}/archive", R, show_archive, media="application/gzip", is_heavy=True),
    Route(f"GET {_DATASETS}", R, list_datasets, reply=DatasetList),
    Route(
        f"GET {_DATASETS}/{{name}}",
        R,
        show_dataset,
        query={"revision": _STRING},
        reply=DatasetRevision,
    ),
    Route(f"GET {_DATASETS}/{{name}}/history", R, show_dataset_history, reply=DatasetHistory),
    Route(
        f"PUT {_DATASETS}/{{name}}",
        S,
        save_dataset,
        body=DATASET_TEXT,
        most_bytes=MOST_DATASET_BODY_BYTES,
        reply=DatasetRevision,
    ),
    Route(f"GET {_TAGS}", R, list_tags, reply=TagList),
    Route(f"GET {_TAGS}/{{tag}}", R, show_tag, reply=TagContents),
    Route(f"GET {_TAGS}/{{tag}}/history", R, show_history, reply=TagHistory),
    Route(
        f"POST {_TAGS}/{{tag}}/promote",
        A,
        promote,
        body=PROMOTION,
        reply=MovedTag,
        statuses=(200, 202),
    ),
    Route(
        f"POST {_TAGS}/{{tag}}/rollback",
        A,
        roll_back,
        body=ROLLBACK,
        reply=MovedTag,
        statuses=(200, 202),
    ),
    Route(f"GET {_PROTECTIONS}", R, list_protections, reply=ProtectionList),
    Route(f"PUT {_PROTECTIONS}/{{tag}}", Scope.ADMIN, protect_tag, reply=ProtectedTag),
    Route(f"DELETE {_PROTECTIONS}/{{tag}}", Scope.ADMIN, unprotect_tag, statuses=(204,)),
    Route("GET /requests", R, list_requests, query={"limit": _SMALL}, reply=RequestList),
    Route("GET /requests/{number}", R, show_request, reply=RequestWithTexts),
    Route(
        "POST /requests/{number}/approve", None, approve_request, body=COMMENT, reply=RequestReply
    ),
    Route(
        "POST /requests/{number}/decline", None, decline_request, body=COMMENT, reply=RequestReply
    ),
    Route(
        "POST /requests/{number}/withdraw", None, withdraw_request, body=COMMENT, reply=RequestReply
    ),
)
"""All operations of the API, below ``/api/v1``."""
