"""Black-box agents: their texts, how candidates are delivered, and what agents answer."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.agents.adapter import BlackBox
    from promptgraft.agents.call import Agent, AgentAnswer, AgentCall, Delivery, PastTurn
    from promptgraft.agents.command import CommandAgent
    from promptgraft.agents.delivery import FolderCopy, InCall
    from promptgraft.agents.http import HttpAgent
    from promptgraft.agents.live import LiveFiles
    from promptgraft.agents.python import PythonAgent
    from promptgraft.agents.sources import FileSource, Sources, TextFile, read_sources
    from promptgraft.agents.writing import CallbackSource

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentCall",
    "BlackBox",
    "CallbackSource",
    "CommandAgent",
    "Delivery",
    "FileSource",
    "FolderCopy",
    "HttpAgent",
    "InCall",
    "LiveFiles",
    "PastTurn",
    "PythonAgent",
    "Sources",
    "TextFile",
    "read_sources",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
