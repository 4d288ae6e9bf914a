"""A graph that answers tickets, and a world in which each of its texts lacks a word."""

from __future__ import annotations

import re
from typing import Any

import attrs

from promptgraft import (
    GepaConfig,
    GepaExample,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.graphs import Graph, Node, Run
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol

WANTED = {"router": "desk", "facts": "number", "tone": "sorry", "writer": "please"}


@attrs.frozen
class Ticket:
    text: str


def template(key: str) -> PromptTemplate[Any]:
    sections = [
        MarkdownSection(title="Rules", key="rules", template=f"Say {key}."),
        MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),
    ]
    return PromptTemplate[Any](ns="support/tickets", key=key, sections=sections)


def answer(run: Run, ticket: Ticket) -> str:
    desk = run.ask("router", ticket)
    facts, tone = run.together(
        lambda branch: branch.ask("facts", Ticket(f"{desk} {ticket.text}")),
        lambda branch: branch.ask("tone", ticket),
    )
    return str(run.ask("writer", Ticket(f"{desk} {facts} {tone}")))


GRAPH = Graph("support/tickets", flow=answer, nodes=[Node(name, template(name)) for name in WANTED])


def bound(rendered: RenderedPrompt[Any]) -> dict[str, str]:
    return {
        segment.placeholder: segment.text
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    }


def work(rendered: RenderedPrompt[Any]) -> str:
    """Say the words of the rules, and the writer also what it is given."""
    [rules] = [one.text for one in rendered.sections if one.path == ("rules",)]
    given = bound(rendered)["text"] if rendered.key == "writer" else ""
    return f"{rules} {given}".strip()


def propose(rendered: RenderedPrompt[Any]) -> str:
    """Add the word that the part lacks, if an example asks for it."""
    given = bound(rendered)
    node = re.search(r"tickets/(\w+)#|section (rules)", given["part"])
    key = (node[1] if node and node[1] else None) or "writer"
    text = given["current"].partition("\n")[2].rpartition("\n")[0]
    word = WANTED[key] if WANTED[key] in given["examples"] else "hm"
    return f"```instruction\n{text} {word}\n```"


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    lacking = [word for word in WANTED.values() if word not in response.text.split()]
    return RolloutFeedback(
        score=1 - len(lacking) / len(WANTED), feedback=f"say {', '.join(lacking)}"
    )


def settings(**changes: Any) -> GepaConfig:
    given: dict[str, Any] = {
        "training_examples": [
            GepaExample(id=f"t{number}", params=(Ticket(f"ticket {number}"),))
            for number in range(9)
        ],
        "pareto_set_size": 3,
        "minibatch_size": 3,
        "rollout_budget": 90,
        "feedback_fn": judge,
        "keep_anyway": True,
        **changes,
    }
    return GepaConfig(**given)


def context(task: Any = work, **changes: Any) -> OptimizationContext:
    adapter = task if hasattr(task, "evaluate") else ScriptedAdapter(task, identity="worker")
    return OptimizationContext(
        adapter,
        **{"reflection_adapter": ScriptedAdapter(propose, identity="teacher"), **changes},
    )


def prompt(key: str) -> Prompt[Any]:
    return Prompt(template(key))
