"""``promptgraft describe``: what a graph is made of."""

from __future__ import annotations

import click

from promptgraft.cli.options import command, json_option, project_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.errors import ConfigError
from promptgraft.graphs.describing import GraphDescription
from promptgraft.project.origins import loaded_project


@command("describe", "describe", "describe support --json")
@click.argument("graph", metavar="[NAME]", required=False)
@project_option
@json_option
def describe_command(*, graph: str | None, project: str | None, as_json: bool) -> None:
    """List the nodes, edges and parts of a graph of the project.

    NAME is its name in the project. Parts have the names that runs, reports and settings use.
    Edges that are not declared are known only from the traces of a run.
    """
    with loaded_project(project) as found:
        chosen = found.prompt(graph)
        if chosen.graph is None:
            raise ConfigError(
                f"`{chosen.name}` is a prompt, no graph; `promptgraft export` prints it"
            )
        described = chosen.graph.describe()
    if as_json:
        print_json(described.as_json())
        return
    _print(described)


def _print(described: GraphDescription) -> None:
    screen = Screen()
    screen.line(described.name, bold=True)
    screen.line()
    screen.table(
        [
            ("node", "kind", "prompt", "model"),
            *(
                (node.id, node.kind, node.prompt or "-", node.model or "-")
                for node in described.nodes
            ),
        ]
    )
    screen.line()
    screen.table(
        [
            ("part", "characters", "may change"),
            *(
                (part.id, str(part.chars), "yes" if part.may_change else "no")
                for node in described.nodes
                for part in node.parts
            ),
        ]
    )
    screen.line()
    if described.declared:
        screen.line("edges:")
        screen.body("\n".join(f"{start} -> {end}" for start, end in described.edges))
    else:
        screen.line("edges: not declared; the flow may take any")
