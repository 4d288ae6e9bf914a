"""Descriptions of graphs: nodes, edges, and the parts of their prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from promptgraft.evals.types import Step
from promptgraft.ground.serde import Json, digest_json, unstructure

Edge = tuple[str, str]
"""A pair of node names: the second follows the first."""


@attrs.frozen(kw_only=True)
class PartDescription:
    """A part of a node's prompt.

    Attributes:
        id: its name in runs, such as ``support/tickets/route#section rules``; ``#instruction``
            where the prompt has only one section that may change.
        type: what it is: ``section``, ``tool``, ``output field`` and so on.
        text: its text in the source.
        may_change: whether runs change it.
    """

    id: str
    type: str
    text: str
    may_change: bool

    @property
    def chars(self) -> int:
        """The length of its text."""
        return len(self.text)


@attrs.frozen(kw_only=True)
class NodeDescription:
    """A node of a graph.

    Attributes:
        id: the names of graph and node: ``support/tickets/route``.
        kind: ``prompt``, ``graph``, or ``function`` for a node without a text.
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

    @property
    def entry(self) -> tuple[str, ...]:
        """The nodes that begin: no edge leads to them; empty if no edge is known."""
        ends = {end for _, end in self.edges}
        begins = tuple(node.id for node in self.nodes if node.id not in ends)
        return begins if self.edges or len(self.nodes) == 1 else ()

    @property
    def structure_id(self) -> str:
        """A digest of nodes, parts with their texts, and declared edges: equal for equal graphs."""
        edges: list[Json] = [list(edge) for edge in self.edges] if self.declared else []
        return digest_json([self.name, unstructure(self.nodes), edges])

    def as_json(self) -> dict[str, Json]:
        """Return the description as plain data."""
        plain = unstructure(self)
        assert isinstance(plain, dict)  # noqa: S101 - a class becomes an object
        return {"structure_id": self.structure_id, "entry": list(self.entry), **plain}


def edges_of(traces: Iterable[Sequence[Step]]) -> tuple[Edge, ...]:
    """Return the edges that were taken, as node names, in order of first use."""
    edges: dict[Edge, None] = {}
    for steps in traces:
        nodes = {step.id: step.node for step in steps}
        edges |= dict.fromkeys(
            (nodes[before], step.node) for step in steps for before in step.after if before in nodes
        )
    return tuple(edges)
