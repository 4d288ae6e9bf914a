"""Descriptions of graphs: nodes, edges, and the parts of their prompts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.adapters.base import adapter_identity
from promptgraft.evals.types import Step
from promptgraft.ground.serde import Json, unstructure
from promptgraft.overrides.parts.descriptors import section_part
from promptgraft.overrides.parts.entry import EffectiveParts
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.targets.part import View, named_in
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompts import address_of

if TYPE_CHECKING:
    from promptgraft.graphs.graph import Graph, Node

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


def describe(graph: Graph, traces: Iterable[Sequence[Step]] = ()) -> GraphDescription:
    """Return the description of a graph; see :meth:`Graph.describe`."""
    edges = edges_of(traces) if graph.edges is None else graph.edges
    unknown = [name for edge in edges for name in edge if name not in graph.node_names]
    return GraphDescription(
        name=graph.name,
        nodes=(
            *(_node(graph, node) for node in graph.nodes),
            *(
                NodeDescription(
                    id=f"{graph.name}/{name}", kind="function", prompt="", model="", parts=()
                )
                for name in dict.fromkeys(unknown)
            ),
        ),
        edges=tuple((f"{graph.name}/{start}", f"{graph.name}/{end}") for start, end in edges),
        declared=graph.edges is not None,
    )


def edges_of(traces: Iterable[Sequence[Step]]) -> tuple[Edge, ...]:
    """Return the edges that were taken, as node names, in order of first use."""
    edges: dict[Edge, None] = {}
    for steps in traces:
        nodes = {step.id: step.node for step in steps}
        edges |= dict.fromkeys(
            (nodes[before], step.node) for step in steps for before in step.after if before in nodes
        )
    return tuple(edges)


def _node(graph: Graph, node: Node) -> NodeDescription:
    prompt = node.prompt
    return NodeDescription(
        id=f"{graph.name}/{node.name}",
        kind="function" if prompt is None else "prompt",
        prompt="" if prompt is None else address_of(prompt),
        model="" if node.adapter is None else adapter_identity(node.adapter),
        parts=() if prompt is None else tuple(_parts(graph, prompt)),
    )


def _parts(graph: Graph, prompt: Prompt[object]) -> Iterator[PartDescription]:
    address, view = address_of(prompt), source_view(prompt.template)
    own_parts = [part for part in graph.parts if part.address == address]
    for part in own_parts:
        text = "" if part.is_new else part.part.text(view)
        yield PartDescription(id=part.name, chars=len(text), may_change=True)
    changing = {part.part for part in own_parts}
    for section in prompt.descriptor.sections:
        module = SectionModule(section.path)
        if module not in changing and (text := module.text(view)):
            name = named_in(address, section_part(section.path))
            yield PartDescription(id=name, chars=len(text), may_change=False)


def source_view(template: PromptTemplate[object]) -> View:
    """Return a view of a prompt without overrides, for reading its parts."""
    # The limits concern proposals, and none is made from this view.
    return View(
        template=template,
        parts=EffectiveParts.of_source(template.descriptor),
        max_part_chars=0,
        max_shown_chars=0,
        max_task_examples=0,
    )
