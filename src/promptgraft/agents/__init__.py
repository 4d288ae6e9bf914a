"""Agents that can only be called: their texts, how these reach them, and what they answer."""

from promptgraft.agents.agent import BlackBox
from promptgraft.agents.call import Agent, AgentAnswer, AgentCall, Delivery, PastTurn
from promptgraft.agents.command import CommandAgent
from promptgraft.agents.http import HttpAgent
from promptgraft.agents.python import PythonAgent

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentCall",
    "BlackBox",
    "CommandAgent",
    "Delivery",
    "HttpAgent",
    "PastTurn",
    "PythonAgent",
]
