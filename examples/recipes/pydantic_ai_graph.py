"""Two agents of pydantic-ai, one after the other, as a graph of two texts."""

import os
from functools import cache

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel

from promptgraft.graphs import Graph, step, text

TEXTS = {"reader": "Note what is reported.", "namer": "Name the team that takes care of it."}


@cache
def agent() -> Agent[str, str]:
    """Return the agent of all nodes; it depends on the name of the node."""
    made = Agent(OpenAIChatModel(os.environ["AGENT_MODEL"]), deps_type=str)

    @made.instructions
    def of_candidate(context: RunContext[str]) -> str:
        return text(context.deps)

    return made


async def ask(node: str, message: str) -> str:
    """Have a node answer, as a step."""
    with step(node, input=message) as one:
        one.output = said = (await agent().run(message, deps=node)).output
    return said


async def answer(message: str) -> str:
    """Answer with the texts of the candidate under way."""
    return await ask("namer", await ask("reader", message))


GRAPH = Graph.around(answer, name="recipes/pydantic-ai", texts=TEXTS)
