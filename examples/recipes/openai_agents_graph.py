"""Two agents of the OpenAI Agents SDK, one after the other, as a graph of two texts."""

import os
from functools import cache

from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from promptgraft.graphs import Graph, step, text

set_tracing_disabled(True)
TEXTS = {"reader": "Note what is reported.", "namer": "Name the team that takes care of it."}


@cache
def model() -> OpenAIChatCompletionsModel:
    """Return the one model, with one client, of all answers."""
    client = AsyncOpenAI(max_retries=0)
    return OpenAIChatCompletionsModel(model=os.environ["AGENT_MODEL"], openai_client=client)


async def ask(node: str, message: str) -> str:
    """Have a node answer, as a step; its agent is made of the text of the candidate."""
    with step(node, input=message) as one:
        agent = Agent(name=node, instructions=text(node), model=model())
        one.output = said = str((await Runner.run(agent, message)).final_output)
    return said


async def answer(message: str) -> str:
    """Answer with the texts of the candidate under way."""
    return await ask("namer", await ask("reader", message))


GRAPH = Graph.around(answer, name="recipes/openai-agents", texts=TEXTS)
