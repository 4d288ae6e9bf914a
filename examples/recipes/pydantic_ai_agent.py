"""A pydantic-ai agent whose instructions are the text of a candidate."""

import os
from functools import cache

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel

from promptgraft.adapters import Usage
from promptgraft.agents import AgentAnswer, AgentCall


@cache
def agent() -> Agent[AgentCall, str]:
    """Return the agent; what differs by candidate is looked up in each run."""
    made = Agent(OpenAIChatModel(os.environ["AGENT_MODEL"]), deps_type=AgentCall)

    @made.instructions
    def of_candidate(context: RunContext[AgentCall]) -> str:
        return context.deps.texts["system"]

    return made


async def answer(query: str, call: AgentCall) -> AgentAnswer:
    """Run the agent with the texts of one candidate."""
    result = await agent().run(query, deps=call)
    used = result.usage
    usage = Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens)
    return AgentAnswer(text=result.output, usage=usage)
