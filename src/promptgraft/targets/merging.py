"""Three-way merge of overrides, part by part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

import attrs

from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.descriptors import SectionPath
from promptgraft.parts.entry import Entry
from promptgraft.targets.replies import fresh_key


def merged_entries(
    ancestor: PromptOverride, better: PromptOverride, other: PromptOverride
) -> tuple[Entry, ...]:
    """Return the entries of a merge: each part as the side has it that changed it.

    A part that both changed is taken from ``better``, one that neither changed from the
    ancestor; a part that a side went back on is changed too.
    """
    before, best, rest = (_by_key(override) for override in (ancestor, better, other))
    merged: list[Entry] = []
    for key in dict.fromkeys([*before, *best, *rest]):
        chosen = rest.get(key) if best.get(key) == before.get(key) else best.get(key)
        if chosen is not None:
            merged.append(chosen)
    return tuple(merged)


def without_clashes(
    base: PromptOverride,
    onto: PromptOverride,
    child: PromptOverride,
    taken: Callable[[SectionPath], Collection[str]],
) -> PromptOverride:
    """Return a child with each of its new examples under a key that no other one has.

    A new example that ``onto`` has already, under whatever key, is left out.

    Args:
        base: what both were made from.
        onto: what the child is merged with.
        child: the child.
        taken: returns the keys that a new example of a section of ``onto`` cannot have.
    """
    known, held = base.added_task_examples, onto.added_task_examples
    contents = {attrs.evolve(one, example_key="") for one in held.values()}
    changed = child
    for path, added in child.added_task_examples.items():
        if path in known or held.get(path) == added:
            continue
        if attrs.evolve(added, example_key="") in contents:
            changed = changed.without(added)
        elif path in held:
            keys = {*taken(path[:-1])}
            keys.update(one[-1] for one in changed.added_task_examples if one[:-1] == path[:-1])
            renamed = attrs.evolve(added, example_key=fresh_key(added.example_key, keys))
            changed = changed.without(added).with_entries([renamed])
    return changed


def _by_key(override: PromptOverride) -> dict[tuple[type, Hashable], Entry]:
    return {(type(entry), entry.key): entry for entry in override.entries()}
