"""Agents that can only be called: their texts, how these reach them, and what they answer."""

from promptgraft.agents.agent import BlackBox
from promptgraft.agents.call import Agent, AgentAnswer, AgentCall, Delivery, PastTurn
from promptgraft.agents.python import PythonAgent

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentCall",
    "BlackBox",
    "Delivery",
    "PastTurn",
    "PythonAgent",
]
