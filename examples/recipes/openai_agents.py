"""An agent of the OpenAI Agents SDK whose instructions are the text of a candidate."""

import os
from functools import cache

from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from promptgraft.agents import AgentCall

set_tracing_disabled(True)


@cache
def model() -> OpenAIChatCompletionsModel:
    """Return the one model, with one client, of all rollouts."""
    client = AsyncOpenAI(max_retries=0)
    return OpenAIChatCompletionsModel(model=os.environ["AGENT_MODEL"], openai_client=client)


async def answer(query: str, call: AgentCall) -> str:
    """Run an agent made of the texts of one candidate."""
    agent = Agent(name="desk", instructions=call.texts["system"], model=model())
    result = await Runner.run(agent, query)
    return str(result.final_output)
