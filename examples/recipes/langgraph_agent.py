"""A LangGraph of two nodes, each with a text of its own."""

import os
from functools import cache, partial
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from openai import AsyncOpenAI

from promptgraft.agents import AgentCall


class State(TypedDict, total=False):
    """What the nodes hand on; the texts of the candidate travel along."""

    texts: dict[str, str]
    query: str
    draft: str
    reply: str


client = cache(partial(AsyncOpenAI, max_retries=0))  # one for all rollouts


async def ask(text: str, said: str) -> str:
    """Ask the model with a text of the candidate."""
    reply = await client().chat.completions.create(
        model=os.environ["AGENT_MODEL"],
        messages=[{"role": "system", "content": text}, {"role": "user", "content": said}],
    )
    return reply.choices[0].message.content or ""


async def route(state: State) -> State:
    """Think about the team."""
    return {"draft": await ask(state["texts"]["router"], state["query"])}


async def write(state: State) -> State:
    """Write the reply."""
    return {"reply": await ask(state["texts"]["system"], state["query"])}


@cache
def graph() -> CompiledStateGraph:  # type: ignore[type-arg]
    """Return the graph, which is built once: it holds no text of a candidate."""
    made = StateGraph(State)
    made.add_node("route", route)
    made.add_node("write", write)
    made.add_edge(START, "route")
    made.add_edge("route", "write")
    made.add_edge("write", END)
    return made.compile()


async def answer(query: str, call: AgentCall) -> str:
    """Run the graph with the texts of one candidate."""
    state = await graph().ainvoke({"texts": dict(call.texts), "query": query})
    return str(state["reply"])
