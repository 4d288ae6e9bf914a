"""What the tags of a project's prompts hold, and moving that to another tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.errors import ConfigError, OverrideConflictError, RevisionNotFoundError
from promptgraft.overrides import OverrideAddress, PromptOverride, Revision, RevisionedStore
from promptgraft.overrides.base_store import Change
from promptgraft.overrides.resolution import PartDiff, diff_override
from promptgraft.parts.validation import check_tag
from promptgraft.project.parts import ProjectPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.serde import did_you_mean
from promptgraft.targets.prompts import address_of

Expected = Mapping[str, str]
"""Revisions that a tag must point at, by the address of their prompt; empty for none."""


@attrs.frozen(kw_only=True)
class Held:
    """What a tag holds for one prompt; a graph has several.

    Attributes:
        prompt: the prompt.
        revision: what the tag points at.
    """

    prompt: Prompt[object]
    revision: Revision

    @property
    def name(self) -> str:
        """The prompt by its address, `namespace/key`."""
        return address_of(self.prompt)

    @property
    def parts(self) -> tuple[PartDiff, ...]:
        """How that differs from the source."""
        return diff_override(self.prompt, self.revision.override)

    @property
    def stale(self) -> list[str]:
        """The parts whose source has changed since."""
        return [part.part for part in self.parts if part.state is not None]


def address(prompt: Prompt[object], tag: str) -> OverrideAddress:
    """Return where a tag of a prompt is."""
    return OverrideAddress(prompt.descriptor.ns, prompt.descriptor.key, tag)


def tags_of(store: RevisionedStore, found: ProjectPrompt) -> list[str]:
    """Return the tags that hold something for a prompt or a graph, sorted."""
    own = {(one.descriptor.ns, one.descriptor.key) for one in found.prompts}
    return sorted({one.tag for one in store.addresses() if (one.ns, one.prompt_key) in own})


def held(store: RevisionedStore, found: ProjectPrompt, tag: str) -> list[Held]:
    """Return what a tag holds for a prompt, or for each prompt of a graph.

    Raises:
        RevisionNotFoundError: nothing.
    """
    rows = [
        Held(prompt=prompt, revision=revision)
        for prompt in found.prompts
        if (revision := store.current_at(address(prompt, tag))) is not None
    ]
    if not rows:
        raise RevisionNotFoundError(f"tag `{tag}` of `{found.address}` holds nothing")
    return rows


def promoted(
    store: RevisionedStore,
    rows: Sequence[Held],
    to: str,
    *,
    expected: Expected | None = None,
    note: str,
) -> None:
    """Let the tag ``to`` hold ``rows``, in one transaction.

    Raises:
        ConfigError: ``expected`` names a prompt that is not there, or ``to`` is no tag.
        OverrideConflictError: ``to`` points at something else than ``expected``, or the source
            of a part has changed since.
    """
    check_tag(to)
    names = [one.name for one in rows]
    for name in expected or {}:
        if name not in names:
            near = did_you_mean(name, names)
            raise ConfigError(f"expected: no prompt `{name}`{near}; there: {', '.join(names)}")
    if stale := [part for one in rows for part in one.stale]:
        raise OverrideConflictError(
            f"the source has changed since: {', '.join(stale)} would not apply"
        )
    changes: dict[OverrideAddress, Change] = {}
    for one in rows:
        target = address(one.prompt, to)
        wanted = None if expected is None else expected.get(one.name)
        changes[target] = _replacing(one, target, store.current_at(target), wanted)
    provenance = attrs.evolve(rows[0].revision.provenance, note=note)
    store.mutate_all(changes, provenance=provenance)


def _replacing(
    one: Held, target: OverrideAddress, present: Revision | None, wanted: str | None
) -> Change:
    """Return what puts the override of ``one`` in the place of a present revision."""
    found = present.id if present else ""
    is_met = wanted == found or (wanted and len(wanted) >= 4 and found.startswith(wanted))
    if wanted is not None and not is_met:
        raise OverrideConflictError(
            f"tag `{target.tag}` of `{one.name}`: expected revision {wanted[:12] or 'none'}, found "
            f"{found[:12] or 'none'}"
        )
    seen = present.override if present else target.empty()

    def replace(there: PromptOverride) -> PromptOverride:
        if wanted is not None and there != seen:
            raise OverrideConflictError(
                f"tag `{target.tag}` of `{one.name}` has changed meanwhile; look at it"
            )
        return attrs.evolve(one.revision.override, tag=target.tag)

    return replace
