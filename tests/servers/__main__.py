"""A loopback server in a process of its own.

Usage: ``python -m servers anthropic|openai|responses TEXT [BREAK [SECONDS]]``: prints its
``base_url``, says TEXT to everybody, after SECONDS, or breaks (a name of ``Break``, in any case),
and ends when its standard input does.
"""

from __future__ import annotations

import sys

from servers.behaviour import Behaviour, Break, always, says
from servers.loopback import LoopbackServer
from servers.provider import Provider


def main(name: str, text: str, breaks: str = "nowhere", seconds: str = "0") -> None:
    """Serve until standard input ends."""
    provider = _provider(name)
    script = always(Behaviour(breaks=Break[breaks.upper()], seconds=float(seconds)))
    with LoopbackServer(provider, brain=says(text), script=script) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


def _provider(name: str) -> Provider:
    # Each SDK takes more than a second to load.
    if name == "anthropic":
        from servers.anthropic_messages import AnthropicMessages

        return AnthropicMessages()
    if name == "responses":
        from servers.openai_responses import OpenAIResponses

        return OpenAIResponses()
    from servers.openai_chat import OpenAIChat

    return OpenAIChat()


if __name__ == "__main__":
    main(*sys.argv[1:])
