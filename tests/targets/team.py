"""A router and a writer that answer tickets together; both are improved, from outside."""

from __future__ import annotations

from typing import Any

import attrs

from promptgraft import (
    Deadline,
    GepaConfig,
    GepaExample,
    MarkdownSection,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.adapters.base import answered
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.targets import Ask, Prompts

DESKS = ("billing", "repair", "travel")


@attrs.frozen
class Ticket:
    text: str


@attrs.frozen
class Draft:
    desk: str
    text: str


def _prompt(key: str, rules: str, ask: str) -> Prompt[Any]:
    sections = [
        MarkdownSection(title="Rules", key="rules", template=rules),
        MarkdownSection(title="Ask", key="ask", template=ask, overridable=False),
    ]
    return Prompt(PromptTemplate[Any](ns="team", key=key, sections=sections))


ROUTER = _prompt("router", "Name a desk.", "$text")
WRITER = _prompt("writer", "Answer.", "$desk: $text")


def reply(ask: Ask, ticket: Ticket) -> PromptResponse[object]:
    desk = ask("router", ticket).text
    return ask("writer", Draft(desk, ticket.text))


TEAM = Prompts({"writer": WRITER, "router": ROUTER}, run=reply, name="team/support")


def bound(rendered: RenderedPrompt[Any]) -> dict[str, str]:
    return {
        segment.placeholder: segment.text
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    }


def rules_of(rendered: RenderedPrompt[Any]) -> str:
    return next(one.text for one in rendered.sections if one.path == ("rules",))


def answer(rendered: RenderedPrompt[Any]) -> str:
    """Answer as far as the rules of the prompt go: each rule is a word."""
    rules, given = rules_of(rendered).split(), bound(rendered)
    if rendered.key == "router":
        return next((desk for desk in DESKS if desk in rules and desk in given["text"]), "nobody")
    tone = "please" if "politely" in rules else ""
    return f"{given['desk']} {tone}"


class Agent:
    """Answers in any process."""

    identity = "task"

    def evaluate(
        self, prompt: Prompt[Any], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[Any]:
        rendered = prompt.render(session)
        return answered(rendered, answer(rendered), session=session)


def propose(rendered: RenderedPrompt[Any]) -> str:
    """Add a word that the feedback asks for and the part lacks."""
    given = bound(rendered)
    words = DESKS if given["part"] == "team/router#section rules" else ("politely",)
    text = given["current"].partition("\n")[2].rpartition("\n")[0]
    asked = [word for word in words if word in given["examples"] and word not in text]
    return f"```instruction\n{text} {' '.join(asked[:1])}\n```"


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    said = response.text.split()
    score = (0.5 if example.label in said else 0.0) + (0.5 if "please" in said else 0.0)
    return RolloutFeedback(score=score, feedback=f"expected {example.label}, politely")


def settings(**changes: Any) -> GepaConfig:
    tickets = [
        GepaExample(id=f"t{number}", params=(Ticket(f"my {desk} case {number}"),), label=desk)
        for number, desk in enumerate(DESKS * 3)
    ]
    given: dict[str, Any] = {
        "training_examples": tickets,
        "pareto_set_size": 3,
        "minibatch_size": 3,
        "rollout_budget": 70,
        "feedback_fn": judge,
        "keep_anyway": True,
        **changes,
    }
    return GepaConfig(**given)


def context(**changes: Any) -> OptimizationContext:
    given = {"reflection_adapter": ScriptedAdapter(propose, identity="writer"), **changes}
    return OptimizationContext(Agent(), **given)


def job(**changes: Any) -> OptimizationJob:
    return OptimizationJob(TEAM, context(**changes), settings())
