"""Moves of tags as values: planned, compared with what is there now, and carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.errors import ConfigError, OverrideConflictError
from promptgraft.ground.serde import did_you_mean
from promptgraft.overrides import Revision, RevisionedStore
from promptgraft.overrides.revisioned import one_id
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.service.jobs import promoting
from promptgraft.service.jobs.approvals import MoveKind, TagMove
from promptgraft.targets.prompts import address_of


def revision_ids(store: RevisionedStore, subject: ProjectPrompt, tag: str) -> dict[str, str]:
    """Return the ids of the revisions that a tag points at, by prompt; empty ones for none."""
    present = {
        prompt: store.current_at(promoting.address(prompt, tag)) for prompt in subject.prompts
    }
    return {
        address_of(prompt): revision.id if revision else "" for prompt, revision in present.items()
    }


def promotion(
    store: RevisionedStore,
    subject: ProjectPrompt,
    move: TagMove,
    expected: promoting.Expected | None,
) -> TagMove:
    """Return a move of a tag to what ``source`` holds, as it is now; raises as `promoted` does."""
    _, present = promoting.promotable(store, subject, move.source, to=move.tag, expected=expected)
    before = {name: revision.id if revision else "" for name, revision in present.items()}
    there = revision_ids(store, subject, move.source)
    is_whole = move.kind is MoveKind.PROMOTE
    after = {name: id_ for name, id_ in there.items() if id_ or (is_whole and before[name])}
    return attrs.evolve(move, before=before, after=after)


def rollback(
    store: RevisionedStore,
    subject: ProjectPrompt,
    tag: str,
    revisions: Mapping[str, str] | None,
    *,
    project: str,
    expected: promoting.Expected | None = None,
) -> TagMove:
    """Return the move of a tag back to revisions, by default to the parents of those it has.

    Raises:
        OverrideConflictError: the tag does not point at ``expected``.
        ConfigError: ``revisions`` names a prompt that the tag does not hold.
        RevisionNotFoundError: the tag holds nothing, or not one revision with such an id.
    """
    rows = {row.name: row for row in promoting.held(store, subject, tag)}
    for name, revision_id in (expected or {}).items():
        now = rows[name].revision if name in rows else None
        promoting.check_present(now, revision_id, f"tag `{tag}` of `{name}`")
    for name in revisions or {}:
        if name not in rows:
            near = did_you_mean(name, list(rows))
            raise ConfigError(f"revisions: no prompt `{name}`{near}; there: {', '.join(rows)}")
    after = {}
    for name in rows if revisions is None else revisions:
        row, goal = rows[name], (revisions or {}).get(name)
        by_id = {str(revision.id): revision for revision in history(store, row.prompt, tag)}
        where = f"tag `{tag}` of prompt `{name}`"
        after[name] = one_id(by_id, goal, where) if goal else row.revision.parent or ""
    return TagMove(
        kind=MoveKind.ROLLBACK,
        project=project,
        prompt=subject.name,
        tag=tag,
        before=revision_ids(store, subject, tag),
        after=after,
    )


def history(store: RevisionedStore, prompt: Prompt[object], tag: str) -> Sequence[Revision]:
    """Return the revisions of a tag of a prompt, the oldest first."""
    descriptor = prompt.descriptor
    return store.history(ns=descriptor.ns, prompt_key=descriptor.key, tag=tag)


def stale_reason(store: RevisionedStore, subject: ProjectPrompt, move: TagMove) -> str:
    """Return what has changed since a move was planned; empty for nothing."""
    now = revision_ids(store, subject, move.tag)
    for name, id_ in move.before.items():
        if now.get(name) != id_:
            return (
                f"tag `{move.tag}` of `{name}` was at {_short(id_)} and is at "
                f"{_short(now.get(name, ''))} now"
            )
    there = revision_ids(store, subject, move.source) if move.source else dict(move.after)
    for name, id_ in move.after.items():
        if there.get(name) != id_:
            return (
                f"tag `{move.source}` of `{name}` was at {_short(id_)} and is at "
                f"{_short(there.get(name, ''))} now"
            )
    return ""


def _short(id_: str) -> str:
    return id_[:12] or "the source"


def carry_out(store: RevisionedStore, subject: ProjectPrompt, move: TagMove, *, note: str) -> None:
    """Move a tag.

    Raises:
        OverrideConflictError: something has changed since the move was planned, or the source of
            a part.
    """
    if reason := stale_reason(store, subject, move):
        raise OverrideConflictError(f"{reason}; ask again")
    if move.kind is not MoveKind.ROLLBACK:
        is_whole = move.kind is MoveKind.PROMOTE
        promoting.promoted(
            store,
            subject,
            move.source,
            to=move.tag,
            expected=move.before,
            note=note,
            whole=is_whole,
        )
        return
    names = {promoting.address(prompt, move.tag): address_of(prompt) for prompt in subject.prompts}
    store.rollback_all(
        # Without an id, to the parent: there is none, or the move would name it.
        {at: move.after[name] or None for at, name in names.items() if name in move.after},
        # Compared again inside of the transaction, because the tag was read before it.
        expected={at: move.before[name] for at, name in names.items() if name in move.after},
    )


def moved_texts(
    store: RevisionedStore, subject: ProjectPrompt, move: TagMove
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts before and after a move, by part; those of revisions that are kept."""

    def revisions(ids: Mapping[str, str], tag: str) -> dict[str, Revision | None]:
        return {
            name: next((row for row in history(store, prompt, tag) if row.id == ids[name]), None)
            for prompt in subject.prompts
            if (name := address_of(prompt)) in move.after
        }

    now = revisions(move.before, move.tag)
    return changed_texts(subject, now, revisions(move.after, move.source or move.tag))


def changed_texts(
    subject: ProjectPrompt,
    now: Mapping[str, Revision | None],
    then: Mapping[str, Revision | None],
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts that revisions of prompts, or their sources, make of each changed part."""
    source, before = texts_with(subject, now)
    more, after = texts_with(subject, then)
    sources = {**more, **source}
    return {**sources, **before}, {**sources, **after}


def texts_with(
    subject: ProjectPrompt, revisions: Mapping[str, Revision | None]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the source, and what revisions make of them, by part."""
    parts = [
        part
        for prompt in subject.prompts
        if (revision := revisions.get(address_of(prompt))) is not None
        for part in promoting.TaggedRevision(
            subject=subject, prompt=prompt, revision=revision
        ).parts
    ]
    return (
        {part.part: part.before or "" for part in parts},
        {part.part: part.after or "" for part in parts},
    )
