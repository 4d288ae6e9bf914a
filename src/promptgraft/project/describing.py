"""The structure of a prompt or graph of a project, by the names that runs use."""

from __future__ import annotations

from promptgraft.graphs.describing import GraphDescription, NodeDescription, PartDescription
from promptgraft.graphs.graph import Graph
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.settings import PARTS, known_targets, part_of
from promptgraft.prompt.texts import takes_cases
from promptgraft.targets.part import View
from promptgraft.targets.part_kinds import SectionModule


def describe(prompt: ProjectPrompt) -> GraphDescription:
    """Describe a graph; a prompt, or the texts of an agent, as a graph of one node."""
    if isinstance(prompt.graph, Graph):
        return prompt.graph.describe()
    descriptor, view = prompt.prompt.descriptor, View.of_source(prompt.prompt.template)
    open_parts = [
        part_of(kind, value)
        for kind, values in known_targets(descriptor).items()
        if kind in PARTS
        for value in values.values()
    ]
    closed_parts = [SectionModule(s.path) for s in descriptor.sections if not s.overridable]
    parts = tuple(
        PartDescription(
            id=part.name, type=part.kind, text=part.text(view), may_change=part in open_parts
        )
        for part in (*open_parts, *closed_parts)
    )
    kind = "agent" if takes_cases(prompt.prompt) else "prompt"
    name = prompt.address
    node = NodeDescription(id=name, kind=kind, prompt=name, model="", parts=parts)
    return GraphDescription(name=name, nodes=(node,), edges=(), declared=True)
