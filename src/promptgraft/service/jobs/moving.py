"""Moving the tags of projects: winners are applied and promoted, tags rolled back and protected."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NoReturn

import attrs
from sqlalchemy import Connection

from promptgraft.errors import ConfigError, OverrideConflictError
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.overrides import RevisionedStore
from promptgraft.overrides.parts.validation import check_tag
from promptgraft.project import Project
from promptgraft.project.python_source import beside
from promptgraft.service.database import Database
from promptgraft.service.database.store import approved_move
from promptgraft.service.jobs import tag_moves
from promptgraft.service.jobs.approvals import (
    ApprovalNeededError,
    Approvals,
    MoveKind,
    MoveRequest,
    ProtectedTag,
    RequestState,
    RequestStep,
    TagMove,
)
from promptgraft.service.jobs.interface import LARGEST_PAGE, Jobs
from promptgraft.service.jobs.promoting import (
    Expected,
    TaggedRevision,
    address,
    held,
    promoted,
)
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.jobs.types import (
    CANDIDATE_PREFIX,
    Job,
    JobConflictError,
    JobFilter,
    JobNotFoundError,
    JobState,
    check_applicable,
)

_DONE: Mapping[MoveKind, str] = {
    MoveKind.APPLY: "applied",
    MoveKind.PROMOTE: "promoted",
    MoveKind.ROLLBACK: "rolled back",
}


class TagMover(Jobs):
    """The part of a manager of jobs that moves tags, or asks for that if they are protected.

    Args:
        projects: the projects by name.
        by: who acts.
    """

    def __init__(self, database: Database, projects: Mapping[str, Project], by: str) -> None:
        self.database, self.projects = database, projects
        self._by, self._rows, self._approvals = by, JobRows(database), Approvals(database)

    def promote(
        self, project: str, prompt: str, tag: str, *, to: str, expected: Expected | None = None
    ) -> dict[str, str]:
        project_found = self._project(project)
        with beside(project_found.folder):
            subject, store = project_found.prompt(prompt), project_found.store()
            job = self._job_of(held(store, subject, tag), project, prompt)
            origin = f", the winner of job {job.id}" if job else ""
            return self._move(
                TagMove(kind=MoveKind.PROMOTE, project=project, prompt=prompt, tag=to, source=tag),
                job,
                expected,
                note=f"promoted from {tag}{self._signature}{origin}",
            )

    def apply(
        self, job: str, *, to: str | None = None, expected: Expected | None = None
    ) -> dict[str, str]:
        job_now = self.get(job)
        check_applicable(job_now)
        tag, project = to or job_now.tag, job_now.project
        if expected is None and tag == job_now.tag:
            expected = job_now.status.replaces
        move = TagMove(
            kind=MoveKind.APPLY,
            project=project,
            prompt=job_now.prompt,
            tag=tag,
            source=job_now.candidate_tag,
        )
        note = f"applied from job {job_now.id}{self._signature}"
        with beside(self._project(project).folder):
            return self._move(move, job_now, expected, note=note)

    def roll_back(
        self,
        project: str,
        prompt: str,
        tag: str,
        revisions: Mapping[str, str] | None = None,
        *,
        expected: Expected | None = None,
    ) -> None:
        """Point a tag at revisions of prompts, in one step; others stay.

        By default, every prompt that the tag holds goes back to the parent of its revision.

        Raises:
            OverrideConflictError: the tag does not point at ``expected``, as :meth:`promote`
                takes it, or is moved at the same moment.
            ConfigError: there is no such project or prompt, or the tag does not hold a prompt.
            RevisionNotFoundError: the tag holds nothing, or not one revision with such an id.
            ApprovalNeededError: the tag is protected; a request was made.
        """
        project_found = self._project(project)
        with beside(project_found.folder):
            subject, store = project_found.prompt(prompt), project_found.store()
            move = tag_moves.rollback(
                store, subject, tag, revisions, project=project, expected=expected
            )
            rows = [row for row in held(store, subject, tag) if row.name in move.after]
            job = self._job_of(rows, project, prompt)
            if self._approvals.is_protected(project, tag):
                self._ask(attrs.evolve(move, job=job.id if job else ""))
            tag_moves.carry_out(store, subject, move, note="")
        self._record_move(job, "rollback", tag=tag)

    @property
    def _signature(self) -> str:
        return f" by {self._by}" if self._by else ""

    def _move(
        self, move: TagMove, job: Job | None, expected: Expected | None, *, note: str
    ) -> dict[str, str]:
        """Point a tag at what another one holds; if it is protected, ask for that."""
        project = self._project(move.project)
        subject, store = project.prompt(move.prompt), project.store()
        if self._approvals.is_protected(move.project, move.tag):
            move = attrs.evolve(move, job=job.id if job else "")
            self._ask(tag_moves.promotion(store, subject, move, expected))
        names, is_whole = {"to": move.tag, "note": note}, move.kind is MoveKind.PROMOTE
        rows = promoted(store, subject, move.source, expected=expected, whole=is_whole, **names)
        self._record_move(job, str(move.kind), tag=move.tag)
        moved, now = {row.name for row in rows}, held(store, subject, move.tag)
        return {row.name: row.revision.id for row in now if is_whole or row.name in moved}

    def _record_move(self, job: Job | None, what: str, **details: Json) -> None:
        """Record who moved a winner in the events of its job, unless that was deleted meanwhile."""
        if job is not None:
            with contextlib.suppress(JobNotFoundError):
                self.database.write(
                    lambda connection: self._record(connection, job, what, **details)
                )

    def _job_of(self, rows: Sequence[TaggedRevision], project: str, prompt: str) -> Job | None:
        """Return the job that has found a winner, if that is among the latest 100."""
        where = JobFilter(state=JobState.COMPLETED, project=project, prompt=prompt)
        jobs = [job for job in self.list(where, limit=LARGEST_PAGE) if job.status.revisions]
        notes = " ".join(row.revision.provenance.note for row in rows)
        # Jobs that differ in their limits only have one run id, and may find one winner.
        for job in jobs:
            if job.id in notes:
                return job
        store = self._project(project).store()
        return next((job for job in jobs if _is_winner(rows, store, job)), None)

    # Protected tags

    def protections(self, project: str) -> Sequence[ProtectedTag]:
        self._project(project)
        return self._approvals.protected([project])

    def protect(self, project: str, tag: str) -> None:
        self._project(project)
        check_tag(tag)
        if tag.startswith(CANDIDATE_PREFIX):
            raise ConfigError(f"tag `{tag}` holds a candidate of a job, which nobody uses")
        self._approvals.protect(project, tag, by=self._by)

    def unprotect(self, project: str, tag: str) -> None:
        self._project(project)
        self._approvals.unprotect(project, tag, by=self._by)

    def request(self, number: int) -> MoveRequest:
        return self._compared(self._approvals.find(number))

    def requests(self, *projects: str, limit: int = LARGEST_PAGE) -> Sequence[MoveRequest]:
        return [self._compared(request) for request in self._approvals.page(projects, limit=limit)]

    def approve(self, number: int, *, comment: str = "") -> MoveRequest:
        request = self._waiting(number, "approve")
        if self._by not in request.approved_by:
            entry = RequestStep.APPROVED
            request = self._approvals.enter(number, entry, by=self._by, comment=comment)
        elif request.missing:
            raise JobConflictError(
                f"{self._by} has approved request {number} already; somebody else has to approve it"
            )
        if not request.missing:
            try:
                self._carry_out(request)
            except (JobConflictError, OverrideConflictError):
                # Somebody who has approved at the same moment may have moved it.
                if self._approvals.find(number).state is not RequestState.DONE:
                    raise
        return self.request(number)

    def decline(self, number: int, *, comment: str = "") -> MoveRequest:
        self._waiting(number, "decline", is_stale_too=True)
        if not comment.strip():
            raise ConfigError("comment: give the reason for declining")
        return self._approvals.enter(number, RequestStep.DECLINED, by=self._by, comment=comment)

    def withdraw(self, number: int, *, comment: str = "") -> MoveRequest:
        request = self._approvals.find(number)
        if request.by != self._by:
            asker = request.by or "somebody at the database"
            raise JobConflictError(
                f"only {asker}, who made request {number}, can withdraw it; decline it instead"
            )
        return self._approvals.enter(number, RequestStep.WITHDRAWN, by=self._by, comment=comment)

    def waiting_for(self, job: Job) -> Sequence[MoveRequest]:
        """Return the requests to use the winner of a job that wait, or are stale."""
        waiting = self._approvals.page([job.project], state=RequestState.WAITING)
        return [request for request in waiting if request.move.job == job.id]

    def is_protected(self, project: str, tag: str) -> bool:
        """Return whether a tag of a project is protected."""
        return self._approvals.is_protected(project, tag)

    def moved_texts(self, request: MoveRequest) -> tuple[dict[str, str], dict[str, str]]:
        """Return the texts before and after a request, by part; none if its prompt is gone."""
        move = request.move
        if (
            move.project not in self.projects
            or move.prompt not in self.projects[move.project].names
        ):
            return {}, {}
        project = self.projects[move.project]
        with beside(project.folder):
            return tag_moves.moved_texts(project.store(), project.prompt(move.prompt), move)

    def _ask(self, move: TagMove) -> NoReturn:
        """Ask for a move that has to be approved."""
        raise ApprovalNeededError.of(self._approvals.ask(move, by=self._by))

    def _waiting(self, number: int, what: str, *, is_stale_too: bool = False) -> MoveRequest:
        """Return a request that somebody with a name may decide on."""
        if not self._by:
            raise ConfigError(
                f"{what}: the records need your name; use the page, or --server with a token"
            )
        request = self.request(number)
        if request.state is RequestState.STALE and not is_stale_too:
            raise OverrideConflictError(f"request {number} is stale: {request.reason}; ask again")
        if request.state not in (RequestState.WAITING, RequestState.STALE):
            raise JobConflictError(f"request {number} is {request.state} already")
        return request

    def _compared(self, request: MoveRequest) -> MoveRequest:
        """Return a request that is stale if something has changed since it was made."""
        move = request.move
        if request.state is not RequestState.WAITING or move.project not in self.projects:
            return request
        project = self.projects[move.project]
        if move.prompt not in project.names:
            reason = f"the project has no prompt `{move.prompt}` any more"
        else:
            with beside(project.folder):
                reason = tag_moves.stale_reason(project.store(), project.prompt(move.prompt), move)
        if not reason:
            return request
        return attrs.evolve(request, state=RequestState.STALE, reason=reason)

    def _carry_out(self, request: MoveRequest) -> None:
        """Move the tag of a request that two people have approved."""
        move, people = request.move, " and ".join(request.approved_by)
        project = self._project(move.project)
        origin = f" from job {move.job}" if move.job else ""
        note = f"{_DONE[move.kind]}{origin}: request {request.number}, approved by {people}"
        record = partial(
            self._approvals.entered, number=request.number, what=RequestStep.DONE, by=self._by
        )
        with beside(project.folder), approved_move(self.database, record):
            tag_moves.carry_out(project.store(), project.prompt(move.prompt), move, note=note)
        # A store elsewhere does not record it.
        if self._approvals.find(request.number).state is RequestState.WAITING:
            self.database.write(record)
        with contextlib.suppress(JobNotFoundError):  # jobs may be removed meanwhile
            job = self.get(move.job or " ")
            self._record_move(job, str(move.kind), tag=move.tag, request=request.number)

    def _record(self, connection: Connection, job: Job, what: str, **details: Json) -> None:
        """Record who did what with a job."""
        self._rows.publish(connection, job.number, "job_asked", what=what, by=self._by, **details)

    def _project(self, name: str) -> Project:
        if name not in self.projects:
            names = ", ".join(self.projects) or "none"
            near = did_you_mean(name, list(self.projects))
            raise ConfigError(f"there is no project `{name}`{near}; there: {names}")
        return self.projects[name]


def _is_winner(rows: Sequence[TaggedRevision], store: RevisionedStore, job: Job) -> bool:
    """Return whether a revision holds what the candidate of a job does."""
    return any(
        (candidate := store.current_at(address(row.prompt, job.candidate_tag)))
        and row.revision.override == attrs.evolve(candidate.override, tag=row.revision.override.tag)
        for row in rows
    )
