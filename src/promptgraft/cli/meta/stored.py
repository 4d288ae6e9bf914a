"""Meta-prompts in a store, and what is told of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.cli.stored import override_file
from promptgraft.overrides import LocalPromptOverridesStore, PartDiff, Revision, diff_override
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.project.meta_prompts import SHIPPED, Template


@attrs.frozen(kw_only=True)
class StoredMeta:
    """A meta-prompt as a store has it.

    Attributes:
        template: the shipped one.
        store: the store.
        current: what the store holds for it; None for nothing.
    """

    template: Template
    store: LocalPromptOverridesStore
    current: Revision | None

    @property
    def name(self) -> str:
        """The meta-prompt, without its namespace."""
        return self.template.key

    @property
    def address(self) -> OverrideAddress:
        """Prompt and tag."""
        return OverrideAddress(self.template.ns, self.template.key, DEFAULT_TAG)

    @property
    def prompt(self) -> str:
        """The prompt as other commands name it."""
        return f"{self.template.ns}/{self.template.key}"

    @property
    def file(self) -> str:
        """The file that holds the overrides."""
        return str(override_file(self.store, self.address))

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How it differs from the shipped one."""
        return diff_override(self.template, self.current.override if self.current else None)

    @property
    def stale(self) -> tuple[PartDiff, ...]:
        """The overrides that are not applied: the shipped text has changed since."""
        return tuple(part for part in self.parts if part.state is not None)


def stored_metas(
    store: LocalPromptOverridesStore, names: Sequence[str] = ()
) -> tuple[StoredMeta, ...]:
    """Return the meta-prompts of these names, by default all, in the order they ship in."""
    return tuple(
        StoredMeta(
            template=template,
            store=store,
            current=store.current(ns=template.ns, prompt_key=template.key, tag=DEFAULT_TAG),
        )
        for name, template in SHIPPED.items()
        if not names or name in names
    )
