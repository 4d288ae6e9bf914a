"""The section ``agent`` of a project file: what is asked where no model answers the prompts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import attrs

from promptgraft.agents.adapter import DEFAULT_TURNS, OnAgentError
from promptgraft.agents.call import Agent
from promptgraft.agents.command import CommandAgent
from promptgraft.agents.http import HttpAgent
from promptgraft.agents.python import PythonAgent
from promptgraft.project.format_sections import HEADER
from promptgraft.project.python_source import REFERENCE, PythonSource, a_function, place_of
from promptgraft.strict.checks import ANYTHING, COUNT, TEXT, Kind, one_of
from promptgraft.strict.kinds import Key, Keys, keys_of, listed, named, record
from promptgraft.strict.nodes import Node


@attrs.frozen(kw_only=True)
class AgentConfig:
    """What answers in place of a model: exactly one of ``python``, ``http`` and ``command``.

    Attributes:
        make: makes the agent; with the options of the file.
        python: the function, for ``python``.
        on_agent_error: what becomes of a rollout whose agent failed.
        max_turns: turns that a conversation with a simulated user has at most.
    """

    make: Callable[..., Agent] = attrs.field(repr=False)
    python: str = ""
    on_agent_error: OnAgentError = "zero"
    max_turns: int = DEFAULT_TURNS

    def made(self, source: PythonSource) -> Agent:
        """Return the agent; it is not asked.

        Raises:
            ConfigError: it cannot be made.
        """
        if not self.python:
            return self.make(cwd=source.folder)
        place = place_of(self.python, "agent.python", base=source.folder)
        return self.make(function=source.load(place, a_function("agent.python")))


def _http(*, cwd: Path, **options: object) -> Agent:
    del cwd
    make: Callable[..., Agent] = HttpAgent
    return make(**options)


# Agents look variables up when they are asked, so that files can be read without secrets.
_TEXT_OF_SECRET: Kind[str] = Kind(
    lambda node: None if (found := HEADER.read(node)) is None else found.written, HEADER.schema
)


def _config(
    make: Callable[..., Agent],
    *,
    on_agent_error: OnAgentError = "zero",
    max_turns: int = DEFAULT_TURNS,
    python: str = "",
    http: Mapping[str, Any] | None = None,
    **options: object,
) -> AgentConfig:
    return AgentConfig(
        make=functools.partial(make, **options, **(http or {})),
        python=python,
        on_agent_error=on_agent_error,
        max_turns=max_turns,
    )


_COMMON: Keys = {
    "max_turns": Key(COUNT, "Turns of a conversation with a simulated user, at most; 8."),
    "on_agent_error": Key(
        one_of(*get_args(OnAgentError)), "What becomes of a rollout whose agent failed; `zero`."
    ),
}
_PYTHON = {
    "python": Key(REFERENCE, "A function `(query, call)`, plain or async.", required=True),
    **keys_of(PythonAgent, skip=("function",)),
}
_HTTP = keys_of(HttpAgent, special={"json": ANYTHING, "headers": named(_TEXT_OF_SECRET)})
_COMMAND = keys_of(
    CommandAgent,
    skip=("cwd",),
    special={"command": listed(TEXT, "a list of texts"), "env": named(_TEXT_OF_SECRET)},
)
_AGENTS: Mapping[str, tuple[Callable[..., Agent], Keys]] = {
    "python": (PythonAgent, _PYTHON),
    "http": (_http, {"http": Key(record(dict, _HTTP), "A service.", required=True)}),
    "command": (CommandAgent, _COMMAND),
}
_KINDS: Mapping[str, Kind[AgentConfig]] = {
    name: record(functools.partial(_config, make), {**keys, **_COMMON})
    for name, (make, keys) in _AGENTS.items()
}


def _read(node: Node) -> AgentConfig | None:
    kinds = [name for name in _KINDS if name in node.members()]
    if len(kinds) != 1:
        node.expected("an object with one of `python`, `http` and `command`")
        return None
    return _KINDS[kinds[0]].read(node)


AGENT: Kind[AgentConfig] = Kind(
    _read,
    {
        "description": "What is asked where no model answers the prompts.",
        "anyOf": [kind.schema for kind in _KINDS.values()],
    },
)
