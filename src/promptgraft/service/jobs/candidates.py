"""Winners of jobs as candidates: under a tag of their own, until somebody applies them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from promptgraft.overrides import OverrideAddress, PromptOverride, Provenance, RevisionedStore
from promptgraft.overrides.base_store import BasePromptOverridesStore, Change, Changes
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.store import DEFAULT_TAG


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
