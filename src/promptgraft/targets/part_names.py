"""Names of the parts of a graph: one name in runs, on pages and in messages."""

from __future__ import annotations

from collections.abc import Collection

from promptgraft.targets.part import named_in, prompt_of

INSTRUCTION = "instruction"
"""The label of a part of a graph that is the only one of its prompt, if it is a section."""


def name_among(names: Collection[str], address: str, part: str) -> str:
    """Return what a run calls a part that it changes, given the names of all of its parts."""
    full = named_in(address, part)
    label = named_in(address, INSTRUCTION)
    if full in names or not any(map(prompt_of, names)):
        return full if full in names else part
    return label if label in names else full
