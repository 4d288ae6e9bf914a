"""The graph that a broken project file names."""

from __future__ import annotations

from promptgraft import MarkdownSection, PromptTemplate
from promptgraft.graphs import Graph, Node, Run

RULES = MarkdownSection(title="Rules", key="rules", template="- billing: money")
TICKET = MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False)
TRIAGE = PromptTemplate[str](ns="broken", key="asked", sections=(RULES, TICKET))

DESK = Graph("desk", nodes=[Node("triage", TRIAGE)], flow=lambda run, text: desk(run, text))


def desk(run: Run, text: str) -> object:
    """Return the queue of a ticket."""
    return run.ask("triage", text)
