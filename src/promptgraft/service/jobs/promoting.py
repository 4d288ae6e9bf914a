"""Reading the tags of a project's prompts, and promoting from one tag to another.

The winner of a job is stored under a tag of its own, until somebody applies it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from promptgraft.errors import ConfigError, OverrideConflictError, RevisionNotFoundError
from promptgraft.ground.serde import did_you_mean
from promptgraft.overrides import (
    OverrideAddress,
    PromptOverride,
    Provenance,
    Revision,
    RevisionedStore,
)
from promptgraft.overrides.base_store import BasePromptOverridesStore, Change, Changes
from promptgraft.overrides.differences import PartDiff, diff_override
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.parts.validation import check_tag
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.targets.prompts import address_of

Expected = Mapping[str, str]
"""Revisions that a tag must point at, by the address of their prompt; an empty one for none."""


@attrs.frozen(kw_only=True)
class TaggedRevision:
    """The revision that a tag holds for one prompt; a graph has one for each prompt.

    Attributes:
        subject: the prompt or the graph that it is part of.
        revision: the revision that the tag points at.
    """

    subject: ProjectPrompt
    prompt: Prompt[object]
    revision: Revision

    @property
    def name(self) -> str:
        """The address of the prompt, `namespace/key`."""
        return address_of(self.prompt)

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """The parts that differ from the source, with their names in runs."""
        return tuple(
            attrs.evolve(part, part=self.subject.part_name(self.prompt, part.part))
            for part in diff_override(self.prompt, self.revision.override)
        )

    @property
    def stale(self) -> list[str]:
        """The parts whose source has changed since."""
        return [part.part for part in self.parts if part.state is not None]


def address(prompt: Prompt[object], tag: str) -> OverrideAddress:
    """Return the address of a tag of a prompt."""
    return OverrideAddress(prompt.descriptor.ns, prompt.descriptor.key, tag)


def tags_of(store: RevisionedStore, subject: ProjectPrompt) -> list[str]:
    """Return the tags that hold something for a prompt or a graph, sorted."""
    keys = {(prompt.descriptor.ns, prompt.descriptor.key) for prompt in subject.prompts}
    return sorted(
        {address.tag for address in store.addresses() if (address.ns, address.prompt_key) in keys}
    )


def held(store: RevisionedStore, subject: ProjectPrompt, tag: str) -> list[TaggedRevision]:
    """Return what a tag holds for a prompt, or for each prompt of a graph.

    Raises:
        RevisionNotFoundError: it holds nothing.
    """
    rows = [
        TaggedRevision(subject=subject, prompt=prompt, revision=revision)
        for prompt in subject.prompts
        if (revision := store.current_at(address(prompt, tag))) is not None
    ]
    if not rows:
        raise RevisionNotFoundError(
            f"tag `{tag}` of `{subject.address}` holds nothing; "
            "`promptgraft show` lists what is stored, `promptgraft jobs apply` stores a winner"
        )
    return rows


def promotable(
    store: RevisionedStore,
    subject: ProjectPrompt,
    tag: str,
    *,
    to: str,
    expected: Expected | None = None,
) -> tuple[list[TaggedRevision], dict[str, Revision | None]]:
    """Return what ``tag`` holds, and what ``to`` does, after a check that ``to`` may get it.

    Raises:
        ConfigError, RevisionNotFoundError, OverrideConflictError: as :func:`promoted`.
    """
    check_tag(to)
    names = [address_of(prompt) for prompt in subject.prompts]
    for name in expected or {}:
        if name not in names:
            near = did_you_mean(name, names)
            raise ConfigError(f"expected: no prompt `{name}`{near}; there: {', '.join(names)}")
    rows = held(store, subject, tag)
    # The target tag would claim a change that no prompt applies.
    if stale := [part for row in rows for part in row.stale]:
        raise OverrideConflictError(
            f"the source has changed since: {', '.join(stale)} would not apply"
        )
    present = {
        address_of(prompt): store.current_at(address(prompt, to)) for prompt in subject.prompts
    }
    for name, expected_id in (expected or {}).items():
        check_present(present[name], expected_id, f"tag `{to}` of `{name}`")
    return rows, present


def promoted(
    store: RevisionedStore,
    subject: ProjectPrompt,
    tag: str,
    *,
    to: str,
    expected: Expected | None = None,
    note: str,
    whole: bool = True,
) -> list[TaggedRevision]:
    """Promote what ``tag`` holds to the tag ``to`` in one transaction, and return it.

    A prompt of a graph for which ``tag`` holds nothing falls back to its source, or keeps what it
    has if ``tag`` is not the ``whole`` graph.

    Raises:
        ConfigError: ``expected`` names an unknown prompt, or ``to`` is not a valid tag.
        RevisionNotFoundError: ``tag`` holds nothing.
        OverrideConflictError: ``to`` does not point at ``expected``, or the source of a part has
            changed since.
    """
    rows, before = promotable(store, subject, tag, to=to, expected=expected)
    overrides = {row.name: attrs.evolve(row.revision.override, tag=to) for row in rows}
    changes: dict[OverrideAddress, Change] = {}
    for prompt in subject.prompts:
        name, target = address_of(prompt), address(prompt, to)
        if name in overrides or (whole and before[name] is not None):
            revision = before[name]
            present = revision.override if revision else target.empty()
            # Compared again inside of the transaction, because the tag was read before it.
            expected_override = present if name in (expected or {}) else None
            changes[target] = _replacing(overrides.get(name, target.empty()), expected_override)
    provenance = attrs.evolve(rows[0].revision.provenance, note=note)
    store.mutate_all(changes, provenance=provenance)
    return rows


def check_present(present: Revision | None, expected_id: str, where: str) -> None:
    """Check that a tag points at a revision, by its id or its beginning; empty for none.

    Raises:
        OverrideConflictError: it points at another.
    """
    present_id = present.id if present else ""
    # A prefix, as people copy it from a list; an empty one would match everything.
    is_prefix = len(expected_id) >= 4 and present_id.startswith(expected_id)
    if not (is_prefix or expected_id == present_id):
        raise OverrideConflictError(
            f"{where}: expected revision {expected_id[:12] or 'none'}, "
            f"found {present_id[:12] or 'none'}"
        )


def _replacing(override: PromptOverride, expected: PromptOverride | None) -> Change:
    """Return a change that replaces ``expected``, or anything if that is None, by ``override``."""

    def replace(present: PromptOverride) -> PromptOverride:
        if expected is not None and present != expected:
            where = f"tag `{present.tag}` of `{present.ns}/{present.prompt_key}`"
            raise OverrideConflictError(f"{where} was changed meanwhile; check it and try again")
        return override

    return replace


class CandidateStore(BasePromptOverridesStore):
    """Reads a live tag, and writes what that tag would hold to the tag of a candidate.

    Args:
        store: the store of the project.
        tag: the tag that the winner is written to, whatever tag a write names.

    Attributes:
        replaces: the revisions that the live tag pointed at when the winner was written, by the
            address of their prompt; an empty one for none.
    """

    def __init__(self, store: RevisionedStore, tag: str) -> None:
        self._store, self._tag = store, tag
        self.replaces: Mapping[str, str] = {}

    @property
    def revisions(self) -> dict[str, str]:
        """The revisions that hold the winner, by the address of their prompt."""
        return {
            _name(address): revision.id
            for address in self._store.addresses()
            if address.tag == self._tag
            and (revision := self._store.current_at(address)) is not None
        }

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        return self._store.resolve(descriptor, tag)

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        live = {address: self._store.current_at(address) for address in changes}
        # Computed from the live tag: a candidate holds all that the tag will hold once it is
        # applied, and not only what the job has changed.
        states = {
            address: change(revision.override if (revision := live[address]) else address.empty())
            for address, change in changes.items()
        }
        written = {
            attrs.evolve(address, tag=self._tag): _becoming(attrs.evolve(state, tag=self._tag))
            for address, state in states.items()
        }
        # An attempt that was interrupted after its write may have left another winner.
        discard_candidate(self._store, self._tag, keeping=written)
        self._store.mutate_all(written, provenance=provenance)
        self.replaces = {
            _name(address): revision.id if revision else "" for address, revision in live.items()
        }
        return states

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        self._store.delete(ns=ns, prompt_key=prompt_key, tag=self._tag)


def discard_candidate(
    store: RevisionedStore, tag: str, *, keeping: Collection[OverrideAddress] = ()
) -> None:
    """Remove what the tag of a candidate holds, except at the addresses in ``keeping``."""
    for address in store.addresses():
        if address.tag == tag and address not in keeping:
            store.delete(ns=address.ns, prompt_key=address.prompt_key, tag=tag)


def _becoming(state: PromptOverride) -> Change:
    return lambda _: state


def _name(address: OverrideAddress) -> str:
    return f"{address.ns}/{address.prompt_key}"
