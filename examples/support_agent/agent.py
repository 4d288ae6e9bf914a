"""A support agent of two steps, router and writer; it reads words where another awaits a model."""

import asyncio
import re
from collections import Counter

from promptgraft.agents import AgentCall


async def answer(query: str, call: AgentCall) -> str:
    """Answer a message with the texts of one candidate, ``call.texts``."""
    team = await route(call.texts["router"], query)
    reply = await write(call.texts["writer"], team)
    return f"Team: {team}\n{reply}\n{call.texts['tone'].splitlines()[-1]}"


async def route(rules: str, message: str) -> str:
    """Return the team whose line has the most words of the message."""
    await asyncio.sleep(0)
    said, known = set(re.findall(r"[a-z]+", message.lower())), Counter[str]()
    for team, words in re.findall(r"(?m)^- (\w+): (.*)$", rules.lower()):
        known[team] += len(said & set(re.findall(r"[a-z]+", words)))
    [(best, count)] = known.most_common(1) or [("nobody", 0)]
    return best if count else "nobody"


async def write(rules: str, team: str) -> str:
    """Return a reply that keeps to the writer's rules."""
    await asyncio.sleep(0)
    asked = rules.lower()
    opening = "Thank you for your message." if "thank" in asked else "Hello."
    promise = " We answer within a day." if "within a day" in asked else ""
    return f"{opening} Our {team} team looks after it.{promise}"
