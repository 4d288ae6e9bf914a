"""An agent that calls OpenAI's Chat Completions, or a compatible server."""

import os
from functools import cache

from openai import AsyncOpenAI

from promptgraft.adapters import Usage
from promptgraft.agents import AgentAnswer, AgentCall


@cache
def client() -> AsyncOpenAI:
    """Return the one client of all rollouts; their coroutines run in one event loop."""
    return AsyncOpenAI(max_retries=0)


async def answer(query: str, call: AgentCall) -> AgentAnswer:
    """Ask the model with the texts of one candidate."""
    reply = await client().chat.completions.create(
        model=os.environ["AGENT_MODEL"],
        messages=[
            {"role": "system", "content": call.texts["system"]},
            {"role": "user", "content": query},
        ],
    )
    used = reply.usage
    tokens = (0, 0) if used is None else (used.prompt_tokens, used.completion_tokens)
    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1])
    return AgentAnswer(text=reply.choices[0].message.content or "", usage=usage)
