"""Where the demo keeps its winner: under a tag of a local store, in the place of what was there."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from promptgraft.cli.stored import open_store, override_file
from promptgraft.errors import ConfigError, StoreError
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PromptDescriptor,
    PromptOverride,
    Provenance,
    Revision,
)
from promptgraft.overrides.checks import checked_entry


@attrs.frozen(kw_only=True)
class Kept:
    """Where the winner is to be kept, and what became of it.

    Attributes:
        store: where.
        descriptor: the prompt that it is a winner for.
        tag: the tag that shall hold it.
        revision: what the tag points at now; None when nothing was written.
        problem: why the store refused; empty when it did not.
    """

    store: LocalPromptOverridesStore
    descriptor: PromptDescriptor
    tag: str
    revision: Revision | None = None
    problem: str = ""

    @property
    def address(self) -> OverrideAddress:
        """Prompt and tag."""
        return OverrideAddress(self.descriptor.ns, self.descriptor.key, self.tag)

    @property
    def path(self) -> Path:
        """The file that holds what the tag points at."""
        return override_file(self.store, self.address)


def place_for(descriptor: PromptDescriptor, tag: str, folder: str | None) -> Kept:
    """Return where a winner is to be kept, after a look at whether it can be.

    Raises:
        ConfigError: the folder cannot be made.
        StoreError: the store cannot be used.
    """
    kept = Kept(store=_open_store(folder), descriptor=descriptor, tag=tag)
    if not os.access(kept.store.root_path, os.W_OK):
        raise StoreError(
            f"the store's folder {kept.store.root_path} cannot be written; "
            "name another with --store"
        )
    # Changes nothing, but takes the lock and reads what is there.
    kept.store.mutate(kept.address, lambda present: present)
    return kept


def keep(kept: Kept, winner: PromptOverride, *, provenance: Provenance) -> Kept:
    """Let the tag hold ``winner`` and nothing else, in one write; a refusal is in the result."""
    store, address = kept.store, kept.address

    def replace(_: PromptOverride) -> PromptOverride:
        return winner.holding(checked_entry(kept.descriptor, entry) for entry in winner.entries())

    try:
        store.mutate(address, replace, provenance=provenance)
        revision = store.current(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
    except StoreError as error:
        return attrs.evolve(kept, problem=str(error))
    return attrs.evolve(kept, revision=revision)


def _open_store(folder: str | None) -> LocalPromptOverridesStore:
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--store: folder {folder!r} cannot be made: {error.strerror}; name another one"
            ) from error
    return open_store(folder)
