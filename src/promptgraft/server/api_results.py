"""What the API says of what came of jobs: results, candidates, rollouts, reports."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from msgspec.structs import asdict

from promptgraft.jobs import JobState
from promptgraft.jobs.events import told
from promptgraft.journal.records import decode_record
from promptgraft.runs import RunFolder
from promptgraft.runs.report.page import write_report
from promptgraft.search.events import CandidateAdded, CandidateScored
from promptgraft.serde import Json
from promptgraft.server.calls import Call, Reply, reply
from promptgraft.server.problems import Problem


def show_result(call: Call) -> Reply:
    """Return what came of a job; ``detail=short`` leaves out texts and the ledger."""
    job = call.job
    found = call.manager.result(job.id)
    if found is None:
        raise Problem(409, f"job {job.id} is {job.state}; there is no result yet")
    if _is_short(call):
        for name in ("parts", "ledger", "winner", "held_out"):
            found.pop(name, None)
    return reply(found)


def _is_short(call: Call) -> bool:
    detail = call.query.get("detail", "all")
    if detail not in ("all", "short"):
        raise Problem(422, f"detail: expected `all` or `short`, found {detail[:40]!r}")
    return detail == "short"


def list_candidates(call: Call) -> Reply:
    """Return the candidates of a job; ``detail=short`` leaves out texts and scores."""
    found = [_candidate(one, short=_is_short(call)) for one in candidates_of(call)]
    return reply({"candidates": found})


def show_candidate(call: Call) -> Reply:
    """Return one candidate of a job with its texts."""
    candidates, given = candidates_of(call), call.path["number"]
    if not (given.isascii() and given.isdigit() and int(given) < len(candidates)):
        raise Problem(404, f"the job has {len(candidates)} candidates, numbered from 0")
    return reply(_candidate(candidates[int(given)], short=False))


def candidates_of(call: Call) -> list[CandidateAdded]:
    """Return the candidates of a job as they are now."""
    found: list[CandidateAdded] = []
    for _, event, _ in told(call.manager.database, call.job.number):
        if isinstance(event, CandidateAdded):
            found.append(event)
        elif isinstance(event, CandidateScored) and event.candidate < len(found):
            one = found[event.candidate]
            found[event.candidate] = type(one)(
                **{**asdict(one), "scores": event.scores, "mean": event.mean}
            )
    return found


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


def list_rollouts(call: Call) -> Reply:
    """Return recorded rollouts of a job, in the order of their recording."""
    after = call.integer("after", 0, least=0, most=10**11)
    limit = call.integer("limit", 20, least=1, most=100)
    short = _is_short(call)
    found: list[Json] = []
    last = after
    for position, line in call.manager.lines(call.job.id, after=after, limit=limit):
        last = position
        record_ = decode_record(line)
        if record_.kind == "rollout" and isinstance(record_.answer, dict):
            answer = dict(record_.answer)
            if short:
                for name in ("inputs_repr", "output_repr", "tool_trace_repr", "steps"):
                    answer.pop(name, None)
            found.append({"position": position, "key": record_.key, **answer})
    return reply({"rollouts": found, "last": last})


def show_report(call: Call) -> Reply:
    """Return the report of a job as one HTML page."""
    folder = RunFolder(_mirrored(call))
    with folder.held():
        page = folder.report if folder.report.exists() else write_report(folder)
        content = page.read_bytes()
    return Reply(content=content, media="text/html; charset=utf-8")


def show_archive(call: Call) -> Reply:
    """Return the run directory of a job as one compressed archive."""
    folder, packed = _mirrored(call), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name, filter=_plain_file)
    name = f'attachment; filename="{folder.name}.tar.gz"'
    return Reply(
        content=packed.getvalue(),
        media="application/gzip",
        headers={"Content-Disposition": name},
    )


def _plain_file(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name.endswith(".lock") else entry


def _mirrored(call: Call) -> Path:
    job = call.job
    if job.state is JobState.QUEUED and not job.attempts:
        raise Problem(409, f"job {job.id} was never begun; there is nothing to show yet")
    return call.manager.mirror(job.id, call.mirrors)
