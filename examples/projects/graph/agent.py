"""Who gets a report: one prompt names the area, and the prompt of that area names the team."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from promptgraft import MarkdownSection, PromptTemplate
from promptgraft.evals.types import Answer, Case
from promptgraft.graphs import Graph, Node, Run

AREAS = {"streets": ("roads", "lighting"), "green": ("waste", "parks"), "homes": ("water", "noise")}


@attrs.frozen
class Report:
    """What the prompts are bound to."""

    text: str


def template(node: str, task: str, rules: str, answer: Any) -> PromptTemplate[Any]:
    """Return the prompt of a node; only its rules may change."""
    return PromptTemplate(
        ns="fernhill/reports",
        key=node,
        output_type=answer,
        sections=[
            MarkdownSection(title="Task", key="task", template=task, overridable=False),
            MarkdownSection(title="Rules", key="rules", template=rules),
            MarkdownSection(title="Report", key="report", template="$text", overridable=False),
        ],
    )


AREA = template(
    "area",
    "Residents of Fernhill write to their council. Name the area that a report is about.",
    "- streets: roads and street lights\n- green: bins and trees\n- homes: water and noise",
    Literal["streets", "green", "homes"],
)
STREETS = template(
    "streets",
    "Name the team that has to act.",
    "- roads: roads and pavements\n- lighting: street lights",
    Literal["roads", "lighting"],
)
GREEN = template(
    "green",
    "Name the team that has to act.",
    "- waste: bins and litter\n- parks: trees and playgrounds",
    Literal["waste", "parks"],
)
HOMES = template(
    "homes",
    "Name the team that has to act.",
    "- water: water and drains\n- noise: noise",
    Literal["water", "noise"],
)


def team_of(run: Run, report: str) -> str:
    """Answer with the name of the team."""
    area = run.ask("area", Report(report))
    return str(run.ask(area, Report(report)))


GRAPH = Graph(
    "fernhill/reports",
    flow=team_of,
    nodes=[
        Node("area", AREA),
        Node("streets", STREETS),
        Node("green", GREEN),
        Node("homes", HOMES),
    ],
    edges=[("area", "streets"), ("area", "green"), ("area", "homes")],
)


def right_area(case: Case, answer: Answer) -> tuple[bool, str]:
    """Judge the output of the node `area`."""
    [wanted] = [area for area, teams in AREAS.items() if case.expected in teams]
    return answer.text == wanted, f'expected "{wanted}", found "{answer.text}"'
