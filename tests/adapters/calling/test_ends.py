"""How a process ends that has talked to a provider over HTTP."""

from __future__ import annotations

import subprocess
import sys

from servers.behaviour import says
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

PROGRAM = f"""
import sys
from promptgraft import MarkdownSection, OpenAIAdapter, Prompt, PromptTemplate, Session

PROMPT = Prompt(PromptTemplate(ns="a", key="b", sections=[
    MarkdownSection(title="Task", key="task", template="Say hello."),
]))

def ask():
    model = OpenAIAdapter({MODEL!r}, api_key={KEY!r}, base_url=sys.argv[1])
    print(model.evaluate(PROMPT, session=Session()).text)

ask()
"""


def test_a_process_ends_once_the_connections_of_a_dropped_adapter_are_closed() -> None:
    with LoopbackServer(OpenAIChat(), brain=says("hi")) as server:
        command = [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM, server.base_url]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("hi\n", "")
