"""A prompt of weakincentives, improved and kept in its own store: ``python desk.py``."""

import re
from dataclasses import dataclass
from typing import Any

from weakincentives.adapters.core import PromptResponse, ProviderAdapter
from weakincentives.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
)
from weakincentives.prompt.overrides import LocalPromptOverridesStore
from weakincentives.runtime.session import Session

import promptgraft as pg
from promptgraft.bridges.weakincentives import WeakIncentivesTarget

WORDS = {"billing": "invoice refund charge receipt", "support": "login password printer screen"}


@dataclass(frozen=True)
class Message:
    """What a customer wrote."""

    text: str


@dataclass(frozen=True)
class Found:
    """What the handbook says."""

    title: str


def search(params: Message, *, context: ToolContext) -> ToolResult[Found]:
    """Search the handbook."""
    del context
    return ToolResult.ok(Found(title=f"about {params.text}"))


SEARCH = Tool[Message, Found](name="search", description="Search.", handler=search)
RULES = MarkdownSection(title="Rules", key="rules", template="Billing: invoice.", tools=[SEARCH])
ASKED = MarkdownSection[Message](
    title="Message", key="message", template="$text", accepts_overrides=False
)
TEMPLATE = PromptTemplate(ns="desk", key="teams", sections=[RULES, ASKED])


class Desk(ProviderAdapter[object]):
    """Names a team by the words of the rules: plain Python, where another one asks a model."""

    def evaluate(self, prompt: Any, *, session: Any, **options: Any) -> Any:
        del session, options
        rules, _, message = prompt.render().text.partition("Message")
        known = set(re.findall(r"\w+", rules)) & set(message.split())
        team = "billing" if known else "support"
        return PromptResponse(prompt_name="teams", text=team, output=None)


def judge(example: pg.GepaExample, response: Any, session: Session) -> pg.RolloutFeedback:
    """Score the team, and say which word the rules lack."""
    del session
    right = response.text == example.label
    word = example.id.split()[-1]
    return pg.RolloutFeedback(float(right), "right" if right else f"rules lacks {word}")


def stand_in(asked: pg.RenderedPrompt[object]) -> str:
    """Reply as a reflection model might: with the text and the words that it lacks."""
    [text] = re.findall(r"part is: section rules\s+```\n(.*?)\n```", asked.text, re.DOTALL)
    lacking = dict.fromkeys(re.findall(r"rules lacks (\w+)", asked.text))
    return "\n".join(["```instruction", text, *lacking, "```"])


def cases(*openings: str) -> list[pg.GepaExample]:
    """Return messages, each with the team that has to answer it."""
    return [
        pg.GepaExample(f"{opening} {word}", (Message(f"{opening} {word}"),), team)
        for opening in openings
        for team, words in WORDS.items()
        for word in words.split()
    ]


def job() -> pg.OptimizationJob:
    """Return the run; another one would have a model in place of the stand-in."""
    store = LocalPromptOverridesStore(root_path=".")
    target = WeakIncentivesTarget(
        Prompt(TEMPLATE, overrides_store=store, overrides_tag="better"),
        Desk(),
        feedback_fn=judge,
        parts=["section rules"],
    )
    config = pg.GepaConfig(
        rollout_budget="light",
        minibatch_size=4,
        pareto_set_size=8,
        training_examples=cases("About my", "Again my"),
        additions=("blame", "shorten"),  # the stand-in knows questions on one text
        data=pg.Data(held_out=cases("Hello, my", "Please, my")),
    )
    context = pg.OptimizationContext(reflection_adapter=pg.ScriptedAdapter(stand_in))
    return pg.OptimizationJob(target, context, config)


if __name__ == "__main__":
    found = job().run()
    print(found.verdict, found.held_out.baseline_mean, "->", found.held_out.winner_mean)
