"""Servers of the models of the run."""

from __future__ import annotations

from adapters.storm.storm_world import KEY, MODELS, reply
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import WELL, Answer, Asked, Behaviour, Script, always
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat


def brain(asked: Asked) -> Answer:
    """Answer as :func:`reply` does."""
    return Answer(text=reply(asked.model, "\n".join(asked.texts)))


class Weather:
    """A script that may change between runs, and counts whom it has left alone."""

    def __init__(self, script: Script = always(WELL)) -> None:  # noqa: B008 - without state
        self.script = script
        self.spared = 0

    def __call__(self, asked: Asked) -> Behaviour:
        behaviour = self.script(asked)
        self.spared += behaviour is WELL
        return behaviour


def served(sdk: str, weather: Weather, *, caching: bool = False) -> LoopbackServer:
    """Return a server of both models."""
    provider = AnthropicMessages() if sdk == "anthropic" else OpenAIChat()
    return LoopbackServer(
        provider, brain=brain, script=weather, key=KEY, models=MODELS, caching=caching
    )
