"""The help desk of a bike hire: five prompts that sort a message together.

A router finds the desk. Three specialists, side by side, find out what is asked for, in what mood,
and how soon. A checker looks at the draft, and may send it back once: then the first specialist is
asked again, with the draft in view.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from promptgraft import Dataset, GepaExample, MarkdownSection, PromptTemplate
from promptgraft.evals.metrics import Exact
from promptgraft.graphs import Graph, Node, Run

HERE = Path(__file__).parent


@attrs.frozen
class Ticket:
    """What a node is given: what a rider wrote, perhaps with a draft."""

    text: str


class Desk(Enum):
    """Who takes care of it."""

    RIDES = "rides"
    PAYMENTS = "payments"
    MEMBERSHIP = "membership"


class Wish(Enum):
    """What the rider asks for."""

    REFUND = "refund"
    REPAIR = "repair"
    ADVICE = "advice"
    CANCEL = "cancel"


class Mood(Enum):
    """How the rider feels."""

    CALM = "calm"
    ANNOYED = "annoyed"
    FURIOUS = "furious"


class Haste(Enum):
    """How soon an answer is due."""

    NOW = "now"
    WEEK = "week"
    WHENEVER = "whenever"


class Check(Enum):
    """What becomes of a draft."""

    SEND = "send"
    AGAIN = "again"


def node(name: str, kind: type[Enum], task: str, rules: str) -> Node:
    """Return a node whose answer is one of a choice, and whose rules may change."""
    template = PromptTemplate[Any](
        ns="examples/desk",
        key=name,
        output_type=kind,
        sections=(
            MarkdownSection(title="Task", key="task", template=task, overridable=False),
            MarkdownSection(title="Rules", key="rules", template=rules),
            MarkdownSection(title="Message", key="message", template="$text", overridable=False),
        ),
    )
    return Node(name, template)


def sort_out(run: Run, ticket: Ticket) -> dict[str, str]:
    """Answer a message: the flow of the graph."""
    desk = run.ask("route", ticket)
    wish, mood, haste = run.together(
        lambda branch: branch.ask("wish", ticket),
        lambda branch: branch.ask("mood", ticket),
        lambda branch: branch.ask("haste", ticket),
    )
    draft = {"desk": desk.value, "wish": wish.value, "mood": mood.value, "haste": haste.value}
    seen = Ticket(f"{ticket.text}\n\nDraft: {draft}")
    if run.ask("check", seen) is Check.AGAIN:
        draft["wish"] = run.ask("wish", seen).value
        run.ask("check", Ticket(f"{ticket.text}\n\nDraft: {draft}"))
    return draft


GRAPH = Graph(
    "examples/desk",
    flow=sort_out,
    nodes=[
        node(
            "route",
            Desk,
            "Find the desk that takes care of the message.",
            "- rides: bikes\n- payments: money\n- membership: plans",
        ),
        node(
            "wish",
            Wish,
            "Find out what the rider asks for.",
            "- refund: money back\n- repair: fix it\n- advice: a question\n- cancel: no longer",
        ),
        node(
            "mood",
            Mood,
            "Find out how the rider feels.",
            "- calm: friendly\n- annoyed: not happy\n- furious: angry",
        ),
        node(
            "haste",
            Haste,
            "Find out how soon an answer is due.",
            "- now: at once\n- week: some days\n- whenever: no hurry",
        ),
        node(
            "check",
            Check,
            "Say whether the draft may be sent.",
            "- send: the draft fits the message\n- again: the draft fits worse than a scandal",
        ),
    ],
)

METRICS = [
    Exact(name=name, expected_path=name, answer_path=name)
    for name in ("desk", "wish", "mood", "haste")
]


def load_examples() -> list[GepaExample]:
    """Return the cases: what riders wrote, and what should come of it."""
    cases = Dataset.load(HERE / "cases.jsonl").cases
    return [
        GepaExample(id=case.id, params=(Ticket(str(case.input)),), label=case) for case in cases
    ]
