"""Descriptions of graphs: nodes, edges, and the parts of their prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from promptgraft.evals.types import Step
from promptgraft.ground.serde import Json, unstructure

Edge = tuple[str, str]
"""A pair of node names: the second follows the first."""


@attrs.frozen(kw_only=True)
class PartDescription:
    """A part of a node's prompt.

    Attributes:
        id: its name in runs, such as ``support/tickets/route#section rules``; ``#instruction``
            where the prompt has only one section that may change.
        chars: length of its text in the source.
        may_change: whether runs change it.
    """

    id: str
    chars: int
    may_change: bool


@attrs.frozen(kw_only=True)
class NodeDescription:
    """A node of a graph.

    Attributes:
        id: the names of graph and node: ``support/tickets/route``.
        kind: ``prompt``, or ``function`` for a node without a text.
        prompt: ``namespace/key`` of its prompt; empty for a function.
        model: identity of its adapter; empty if the run provides the adapter.
        parts: its parts that may change, in the order of a run, then its other sections.
    """

    id: str
    kind: str
    prompt: str
    model: str
    parts: tuple[PartDescription, ...]


@attrs.frozen(kw_only=True)
class GraphDescription:
    """The structure of a graph.

    Attributes:
        name: the graph.
        nodes: its nodes, in order.
        edges: pairs of node ids: the declared edges, or those that were taken.
        declared: whether the edges are declared, so that no others may be taken.
    """

    name: str
    nodes: tuple[NodeDescription, ...]
    edges: tuple[Edge, ...]
    declared: bool

    def as_json(self) -> Json:
        """Return the description as plain data."""
        return unstructure(self)


def edges_of(traces: Iterable[Sequence[Step]]) -> tuple[Edge, ...]:
    """Return the edges that were taken, as node names, in order of first use."""
    edges: dict[Edge, None] = {}
    for steps in traces:
        nodes = {step.id: step.node for step in steps}
        edges |= dict.fromkeys(
            (nodes[before], step.node) for step in steps for before in step.after if before in nodes
        )
    return tuple(edges)
