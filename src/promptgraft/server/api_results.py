"""What the API says of what came of jobs: results, candidates, rollouts, reports."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from promptgraft.journal.records import decode_record
from promptgraft.runs import RunFolder
from promptgraft.runs.report.page import write_report
from promptgraft.search.events import CandidateAdded
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
    found = [_candidate(one, short=_is_short(call)) for one in call.view.candidates]
    return reply({"candidates": found})


def show_candidate(call: Call) -> Reply:
    """Return one candidate of a job with its texts."""
    return reply(_candidate(candidate_of(call), short=False))


def candidate_of(call: Call) -> CandidateAdded:
    """Return the candidate that the path names."""
    candidates = {f"{one.candidate}": one for one in call.view.candidates}
    found = candidates.get(call.path["number"])
    if found is None:
        raise Problem(404, f"the job has {len(candidates)} candidates, numbered from 0")
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
    with mirrored(call) as folder, folder.held():
        if not _is_newer(folder.report, folder.events):
            write_report(folder)
        content = folder.report.read_bytes()
    return Reply(content=content, media="text/html; charset=utf-8")


def _is_newer(page: Path, events: Path) -> bool:
    return page.exists() and page.stat().st_mtime_ns > events.stat().st_mtime_ns


def show_archive(call: Call) -> Reply:
    """Return the run directory of a job as one compressed archive."""
    packed = io.BytesIO()
    with (
        mirrored(call) as folder,
        tarfile.open(fileobj=packed, mode="w:gz") as archive,
    ):
        archive.add(folder.path, arcname=folder.id, filter=_plain_file)
    named = {"Content-Disposition": f'attachment; filename="{folder.id}.tar.gz"'}
    return Reply(content=packed.getvalue(), media="application/gzip", headers=named)


def _plain_file(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name.endswith(".lock") else entry


@contextmanager
def mirrored(call: Call) -> Iterator[RunFolder]:
    """Give the run directory of a job as it is now; one at a time, whoever asks."""
    job = call.job
    if not job.attempts:
        raise Problem(409, f"job {job.id} was never begun; there is nothing to show yet")
    with call.mirroring:
        yield RunFolder(call.manager.mirror(job.id, call.mirrors))
