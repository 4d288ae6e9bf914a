"""What happened during a rollout, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import HexDigest
from promptgraft.targets.spending import Spending
from promptgraft.text import joined

_NO_PARTS: Mapping[str, HexDigest] = FrozenMap()


@attrs.frozen(kw_only=True)
class Step:
    """One step of a rollout: a node of a graph was asked, or did something.

    Attributes:
        id: its place in the flow, such as ``3``, or ``4.1.2`` for the second step of the first
            branch of the fourth; equal flows give equal ids with any number of threads.
        node: the node.
        kind: ``prompt``, or ``function`` for a node without a text.
        after: ids of the steps that it follows; empty for the first.
        input: what it was given, as text, clipped.
        output: what came of it, as text, clipped; empty when it failed.
        error: why it failed, in one line; empty when it did not.
        parts: the parts that it was made with, by name: the SHA-256 of their texts.
        tools: the tools that it called, each in one line.
        spent: what its calls of models took.
    """

    id: str
    node: str
    kind: str
    after: tuple[str, ...] = ()
    input: str = attrs.field(default="", converter=joined)
    output: str = attrs.field(default="", converter=joined)
    error: str = attrs.field(default="", converter=joined)
    parts: Mapping[str, HexDigest] = _NO_PARTS
    tools: tuple[str, ...] = ()
    spent: tuple[Spending, ...] = ()
