"""Two texts of an async function, improved: ``promptgraft optimize desk.py:job``."""

import asyncio
import re
from collections.abc import Mapping

import promptgraft as pg

TEXTS = {"router": "Billing: invoice", "writer": "Dear {name},"}
WORDS = {"billing": "invoice refund charge receipt", "support": "login password printer screen"}


async def answer(texts: Mapping[str, str], message: str) -> str:
    """Choose a team by the words of the router's text, and reply as the writer's says."""
    await asyncio.sleep(0)  # where another function would await its model
    known = set(re.findall(r"\w+", texts["router"])) & set(message.split())
    return f"{'billing' if known else 'support'}: {texts['writer'].replace('{name}', 'Ada')}"


DESK = pg.Texts(TEXTS, run=answer, placeholders=["{name}"])


def judge(
    example: pg.GepaExample, response: pg.PromptResponse[object], session: object
) -> pg.RolloutFeedback:
    """Score team and reply, and say what the texts lack."""
    del session
    word = example.id.split()[-1]
    faults = [] if response.text.startswith(str(example.label)) else [f"router lacks {word}"]
    faults += [] if "ticket" in response.text else ["writer lacks ticket"]
    return pg.RolloutFeedback(score=1 - len(faults) / 2, feedback="; ".join(faults) or "right")


def stand_in(asked: pg.RenderedPrompt[object]) -> str:
    """Reply as a reflection model might: with the text and the words that it lacks."""
    name, text = re.findall(r"part is: section (\w+)\s+```\n(.*?)\n```", asked.text, re.DOTALL)[0]
    lacking = dict.fromkeys(re.findall(rf"{name} lacks (\w+)", asked.text))
    return "\n".join(["```instruction", text, *lacking, "```"])


def cases(opening: str) -> list[pg.GepaExample]:
    """Return messages, each with the team that has to answer it."""
    named = {f"{opening} {word}": team for team in WORDS for word in WORDS[team].split()}
    return [pg.GepaExample(id=text, params=(text,), label=team) for text, team in named.items()]


def job() -> pg.OptimizationJob:
    """Return the run; another one would have a model in place of the stand-in."""
    config = pg.GepaConfig(
        rollout_budget="light",
        minibatch_size=4,
        pareto_set_size=8,
        training_examples=(*cases("About my"), *cases("Again my")),
        feedback_fn=judge,
        additions=("blame", "shorten"),  # the stand-in knows questions on one text
        data=pg.Data(held_out=(*cases("Hello, my"), *cases("Please, my"))),
    )
    context = pg.OptimizationContext(reflection_adapter=pg.ScriptedAdapter(stand_in))
    return pg.OptimizationJob(DESK, context, config)
