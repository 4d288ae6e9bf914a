"""Protected tags move only when two people approve, whoever asks and by whichever way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobs.job_world import FILE, work_off, write_project
from promptgraft.errors import ConfigError, OverrideConflictError
from promptgraft.overrides import OverrideAddress
from promptgraft.project.python_source import beside
from promptgraft.service.database import Database, SqlPromptOverridesStore
from promptgraft.service.database.store import ProtectedTagError
from promptgraft.service.jobs import (
    ApprovalNeededError,
    Job,
    JobConflictError,
    JobManager,
    JobNotFoundError,
    MoveRequest,
)
from promptgraft.service.jobs.approvals import Approvals, RequestState, RequestStep
from promptgraft.testing.prompts import bodies

NAME = "support/triage"
TAG = "production"


# What is decided above SQL, whose statements the other tests ask of every database.
anywhere = pytest.mark.parametrize("kept_database", ["sqlite"], indirect=True, scope="module")


@pytest.fixture
def manager(database: Database, tmp_path: Path) -> JobManager:
    file = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
    path = write_project(tmp_path / "support", file=file)
    return JobManager(database, projects={"support": path})


def people(manager: JobManager) -> tuple[JobManager, JobManager, JobManager]:
    ana, ben, eve = (manager.acting_for(name) for name in ("ana", "ben", "eve"))
    return ana, ben, eve


def write(manager: JobManager, tag: str, body: str) -> None:
    project = manager.projects["support"]
    with beside(project.folder):
        prompt = project.prompt("triage").prompt
        project.store().set_section_override(prompt, path=("rules",), body=body, tag=tag)


def body(manager: JobManager, tag: str = TAG) -> str | None:
    """Return what a tag makes of the rules; None if it is as in the source."""
    revision = (
        manager.projects["support"].store().current(ns="support", prompt_key="triage", tag=tag)
    )
    return None if revision is None else bodies(revision.override).get(("rules",))


def asked(move: Callable[[], object]) -> int:
    with pytest.raises(ApprovalNeededError) as needed:
        move()
    return needed.value.request


def finished(manager: JobManager) -> Job:
    job = manager.create("support", "triage", {"tag": TAG, "budget": 75})
    work_off(manager)
    return manager.get(job.id)


def what(request: MoveRequest) -> list[tuple[str, str, str]]:
    return [(entry.by, str(entry.what), entry.comment) for entry in request.entries]


def test_a_winner_reaches_a_protected_tag_when_two_people_approve(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    job = finished(manager)
    ana.protect("support", TAG)
    number = asked(lambda: ana.apply(job.id))
    assert body(manager) is None
    request = manager.request(number)
    assert (request.state, request.approved_by, request.missing) == ("waiting", ("ana",), 1)
    assert (request.move.job, request.move.before) == (job.id, {NAME: ""})
    before, after = manager.moved_texts(request)
    assert before.keys() == after.keys()
    assert before != after
    assert [waiting.number for waiting in manager.requests("support")] == [number]
    # The same again is the same request, and no second approval.
    assert asked(lambda: ana.apply(job.id)) == number
    with pytest.raises(JobConflictError, match="somebody else has to"):
        ana.approve(number)
    done = ben.approve(number, comment="Ship it.")
    assert what(done) == [
        ("ana", "asked", ""),
        ("ben", "approved", "Ship it."),
        ("ben", "done", ""),
    ]
    assert done.state is RequestState.DONE
    (shown,) = after.values()
    assert body(manager) == shown
    project = manager.projects["support"]
    current = project.store().current(ns="support", prompt_key="triage", tag=TAG)
    assert current is not None
    assert f"request {number}, approved by ana and ben" in current.provenance.note
    assert b'"apply"' in manager.events(job.id)[-1][2]
    with pytest.raises(JobConflictError, match="is done already"):
        ben.approve(number)


@anywhere
def test_other_tags_and_projects_move_at_once(manager: JobManager) -> None:
    ana, *_ = people(manager)
    ana.protect("support", TAG)
    write(manager, "night", "Be kind.")
    ana.promote("support", "triage", "night", to="staging")
    assert body(manager, "staging") == "Be kind."
    ana.roll_back("support", "triage", "staging")
    assert body(manager, "staging") is None


@anywhere
def test_promotions_and_rollbacks_wait_too(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    write(manager, "night", "Be kind.")
    write(manager, TAG, "Be brief.")
    ana.protect("support", TAG)
    promotion = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    assert manager.moved_texts(manager.request(promotion)) == (
        {"section rules": "Be brief."},
        {"section rules": "Be kind."},
    )
    assert body(manager) == "Be brief."
    ben.approve(promotion)
    assert body(manager) == "Be kind."
    back = asked(lambda: ben.roll_back("support", "triage", TAG))
    assert body(manager) == "Be kind."
    ana.approve(back)
    assert body(manager) == "Be brief."
    source = asked(lambda: ben.roll_back("support", "triage", TAG))
    ana.approve(source)
    assert body(manager) is None


@anywhere
def test_a_promotion_that_would_be_refused_makes_no_request(manager: JobManager) -> None:
    ana, *_ = people(manager)
    ana.protect("support", TAG)
    write(manager, "night", "Be kind.")
    with pytest.raises(OverrideConflictError, match="expected revision 0000, found none"):
        ana.promote("support", "triage", "night", to=TAG, expected={NAME: "0000"})
    assert manager.requests("support") == []


@anywhere
def test_a_request_whose_tag_or_winner_changed_meanwhile_is_stale(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    write(manager, "night", "Be kind.")
    ana.protect("support", TAG)
    first = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    ana.unprotect("support", TAG)
    write(manager, TAG, "Somebody in between.")
    ana.protect("support", TAG)
    stale = manager.request(first)
    assert stale.state is RequestState.STALE
    assert "was at the source and is at" in stale.reason
    with pytest.raises(OverrideConflictError, match=f"request {first} is stale: tag `{TAG}`"):
        ben.approve(first)
    assert body(manager) == "Somebody in between."
    second = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    assert second != first
    write(manager, "night", "Be cruel.")
    with pytest.raises(OverrideConflictError, match="tag `night` of"):
        ben.approve(second)
    assert body(manager) == "Somebody in between."
    assert ben.decline(second, comment="It has changed.").state is RequestState.DECLINED


@anywhere
def test_who_writes_to_the_store_directly_moves_no_protected_tag(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    write(manager, TAG, "Be kind.")
    write(manager, "night", "Be brief.")
    ana.protect("support", TAG)
    store = SqlPromptOverridesStore(manager.database, project="support")
    address = OverrideAddress("support", "triage", TAG)
    for move in (
        lambda: write(manager, TAG, "Be cruel."),
        lambda: store.rollback(ns="support", prompt_key="triage", tag=TAG),
        lambda: store.delete(ns="support", prompt_key="triage", tag=TAG),
        lambda: store.mutate_all({address: lambda _: address.empty()}),
    ):
        with pytest.raises(ProtectedTagError, match="project `support` is protected and was"):
            move()
    assert body(manager) == "Be kind."
    # Other tags, and the same tag of other projects, are as free as before.
    write(manager, "night", "Be short.")
    for other in ("other", ""):
        elsewhere = SqlPromptOverridesStore(manager.database, project=other)
        elsewhere.mutate_all({address: lambda _: address.empty()})
        elsewhere.delete(ns="support", prompt_key="triage", tag=TAG)
    ben.approve(asked(lambda: ana.promote("support", "triage", "night", to=TAG)))
    assert body(manager) == "Be short."
    with pytest.raises(ProtectedTagError, match="is protected"):
        write(manager, TAG, "Be cruel.")


@anywhere
def test_who_asks_withdraws_and_others_decline_with_a_reason(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    write(manager, "night", "Be kind.")
    ana.protect("support", TAG)
    number = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    with pytest.raises(ConfigError, match="give the reason"):
        ben.decline(number, comment=" ")
    with pytest.raises(JobConflictError, match="only ana, who made request"):
        ben.withdraw(number)
    with pytest.raises(ConfigError, match="expected at most 2,000 characters, found 2,001"):
        ben.approve(number, comment="x" * 2_001)
    assert ana.withdraw(number, comment="Too early.").state is RequestState.WITHDRAWN
    with pytest.raises(JobConflictError, match="is withdrawn already"):
        ben.approve(number)
    again = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    assert again != number
    declined = ben.decline(again, comment="The test set is worn.")
    assert what(declined)[-1] == ("ben", "declined", "The test set is worn.")
    assert [request.number for request in manager.requests("support")] == [again, number]
    assert body(manager) is None
    with pytest.raises(JobNotFoundError, match="there is no request 999"):
        manager.request(999)


@anywhere
def test_who_has_no_name_asks_and_does_not_approve(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    write(manager, "night", "Be kind.")
    manager.protect("support", TAG)
    number = asked(lambda: manager.promote("support", "triage", "night", to=TAG))
    assert manager.request(number).missing == 2
    with pytest.raises(ConfigError, match="records need your name"):
        manager.approve(number)
    assert ana.approve(number).missing == 1
    assert body(manager) is None
    assert ben.approve(number).state is RequestState.DONE
    assert body(manager) == "Be kind."


def test_several_who_approve_at_once_move_the_tag_once(manager: JobManager) -> None:
    ana, *_ = people(manager)
    write(manager, "night", "Be kind.")
    ana.protect("support", TAG)
    number = asked(lambda: ana.promote("support", "triage", "night", to=TAG))

    def approve(name: str) -> str:
        try:
            return str(manager.acting_for(name).approve(number).state)
        except (JobConflictError, OverrideConflictError) as error:
            return type(error).__name__

    with ThreadPoolExecutor(4) as threads:
        states = list(threads.map(approve, ["ben", "eve", "dan", "kim"]))
    assert "done" in states
    store = manager.projects["support"].store()
    assert len(store.history(ns="support", prompt_key="triage", tag=TAG)) == 1
    steps = [entry.what for entry in manager.request(number).entries]
    assert steps.count(RequestStep.DONE) == 1


def test_a_request_that_is_declined_in_the_last_moment_moves_nothing(
    manager: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, ben, eve = people(manager)
    write(manager, "night", "Be kind.")
    ana.protect("support", TAG)
    number = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    declined = SqlPromptOverridesStore.mutate_all

    def decline_first(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        eve.decline(number, comment="Not today.")
        return declined(*given, **named)

    # Between the second approval and the move.
    monkeypatch.setattr(SqlPromptOverridesStore, "mutate_all", decline_first)
    with pytest.raises(JobConflictError, match="is declined already"):
        ben.approve(number)
    assert (manager.request(number).state, body(manager)) == ("declined", None)


@anywhere
def test_a_rollback_undoes_nothing_that_came_after_it_was_decided(
    manager: JobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("First.", "Second."):
        write(manager, TAG, text)
    roll_back = SqlPromptOverridesStore.rollback_all

    def write_first(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        write(manager, TAG, "Third.")
        return roll_back(*given, **named)

    monkeypatch.setattr(SqlPromptOverridesStore, "rollback_all", write_first)
    with pytest.raises(OverrideConflictError, match="was moved meanwhile"):
        manager.roll_back("support", "triage", TAG)
    assert body(manager) == "Third."
    with pytest.raises(OverrideConflictError, match="expected revision 00000000"):
        manager.roll_back("support", "triage", TAG, expected={NAME: "00000000"})


@anywhere
def test_an_approval_that_was_not_carried_out_is_tried_again(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    write(manager, "night", "Be kind.")
    ana.protect("support", TAG)
    number = asked(lambda: ana.promote("support", "triage", "night", to=TAG))
    # What a process leaves that dies between the approval and the move.
    Approvals(manager.database).enter(number, RequestStep.APPROVED, by="ben")
    waiting = manager.request(number)
    assert (waiting.state, waiting.missing, body(manager)) == ("waiting", 0, None)
    assert ben.approve(number).state is RequestState.DONE
    assert body(manager) == "Be kind."


def test_protection_is_recorded_and_ends(manager: JobManager) -> None:
    ana, ben, _ = people(manager)
    ana.protect("support", TAG)
    ben.protect("support", TAG)
    assert [(row.tag, row.by) for row in manager.protections("support")] == [(TAG, "ana")]
    ben.unprotect("support", TAG)
    assert manager.protections("support") == []
    with pytest.raises(ConfigError, match="is not protected; protected: none"):
        ben.unprotect("support", TAG)
    ben.protect("support", TAG)
    assert [(row.tag, row.by) for row in manager.protections("support")] == [(TAG, "ben")]
    rows = manager.database.tables.protections
    with manager.database.reading() as connection:
        ended = connection.execute(rows.select().order_by(rows.c.number)).all()
    assert [(row.author, row.ended_by) for row in ended] == [(b"ana", b"ben"), (b"ben", b"")]
    for tag in ("a/b", "candidate.0123456789ab", ""):
        with pytest.raises(Exception, match="tag"):
            ana.protect("support", tag)
