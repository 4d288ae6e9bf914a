"""How a project file describes an agent: a function in Python, a service or a command.

Imported for projects that have an agent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import attrs

from promptgraft.agents.adapter import MAX_CALL_COST
from promptgraft.agents.call import Agent
from promptgraft.agents.command import CommandAgent
from promptgraft.agents.defaults import DEFAULT_TURNS, OnAgentError
from promptgraft.agents.http import HttpAgent
from promptgraft.agents.python import PythonAgent
from promptgraft.errors import ConfigError
from promptgraft.ground.strict import checks
from promptgraft.ground.strict.kinds import Key, Keys, either, keys_of, listed, named, record
from promptgraft.ground.strict.nodes import Node
from promptgraft.project.format_agents import AgentConfig
from promptgraft.project.format_models import HEADER
from promptgraft.project.python_source import REFERENCE


def _http(*, project: Path, copied: Path, **options: object) -> Agent:
    del project, copied
    make: Callable[..., Agent] = HttpAgent
    return make(**options)


@attrs.frozen(kw_only=True)
class EnvConfig:
    """The environment of a command.

    Attributes:
        only: names of the variables that it gets of those of promptgraft; None for all but keys.
        variables: further variables with their values.
    """

    only: tuple[str, ...] | None = None
    variables: Mapping[str, str] = attrs.field(factory=dict, repr=False)


_COPY = "{folder}"


def _command(
    *, project: Path, copied: Path, env: EnvConfig | None = None, cwd: str = "", **options: object
) -> Agent:
    make: Callable[..., Agent] = CommandAgent
    env = env or EnvConfig()
    is_copy = cwd == _COPY
    folder = copied if is_copy else _inside(project, cwd)
    return make(cwd=folder, in_copy=is_copy, env=dict(env.variables), only=env.only, **options)


def _inside(project: Path, folder: str) -> Path:
    """Return a folder of the project in which a command starts.

    Raises:
        ConfigError: it is not a folder, or outside of the project, also by a link.
    """
    path = project / folder
    if not path.resolve().is_relative_to(project.resolve()):
        raise ConfigError(
            f"cwd: expected a folder in the project, found {folder}, which leads outside of it"
        )
    if not path.is_dir():
        raise ConfigError(f"cwd: expected a folder in the project, found none at {path}")
    return path


def _read_header(node: Node) -> str | None:
    # Kept as written: agents read the variables when they are called, not when the file is read.
    header = HEADER.read(node)
    return None if header is None else header.written


_TEXT_OF_SECRET: checks.Kind[str] = checks.Kind(_read_header, HEADER.schema, reach=HEADER.reach)


def _config(
    make: Callable[..., Agent],
    *,
    on_agent_error: OnAgentError = "zero",
    max_turns: int = DEFAULT_TURNS,
    max_call_cost: Decimal | None = None,
    python: str = "",
    http: Mapping[str, Any] | None = None,
    **options: object,
) -> AgentConfig:
    return AgentConfig(
        make=functools.partial(make, **options, **(http or {})),
        python=python,
        on_agent_error=on_agent_error,
        max_turns=max_turns,
        max_call_cost=max_call_cost,
    )


_COMMON: Keys = {
    "max_call_cost": Key(
        MAX_CALL_COST,
        "The most US dollars that one call can cost: what a call counts that reports no cost, or "
        "whose answer is lost because the run was killed.",
    ),
    "max_turns": Key(
        checks.COUNT, "The most turns of a conversation with a simulated user; 8 by default."
    ),
    "on_agent_error": Key(
        checks.one_of(*get_args(OnAgentError)),
        "The result of a failed call of the agent; by default `zero`.",
    ),
}
_PYTHON = {
    "python": Key(REFERENCE, "A function `(query, call)`, plain or async.", required=True),
    **keys_of(PythonAgent, skip=("function",)),
}
_HTTP = keys_of(
    HttpAgent,
    special={
        "json": attrs.evolve(checks.ANYTHING, reach=checks.Reach.VARIABLE),
        "headers": named(_TEXT_OF_SECRET),
    },
)
_ADDRESS = _HTTP["url"].kind.reaching(checks.Reach.ADDRESS)
_COMMAND_TEXT = checks.TEXT.reaching(checks.Reach.COMMAND)
_NAMES = listed(
    checks.ENVIRONMENT_NAME.reaching(checks.Reach.VARIABLE),
    "a list of names of environment variables",
)


def _read_env(node: Node) -> EnvConfig | None:
    if not isinstance(node.value, dict):
        node.expected("variables by name, and in `only` the names of those to pass on")
        return None
    members = dict(node.members())
    named_only = members.pop("only", None)
    only = None if named_only is None else _NAMES.read(named_only)
    variables = {name: _TEXT_OF_SECRET.read(member) for name, member in members.items()}
    if not node.is_right():
        return None
    values = {name: value for name, value in variables.items() if value is not None}
    return EnvConfig(only=None if only is None else tuple(only), variables=values)


_ENV: checks.Kind[EnvConfig] = checks.Kind(
    _read_env,
    {
        "type": "object",
        "properties": {"only": _NAMES.schema},
        "additionalProperties": _TEXT_OF_SECRET.schema,
    },
    reach=checks.Reach.VARIABLE,
)
_CWD: checks.Kind[str] = either(
    '`{folder: PATH}`, a folder of the project, or the text "{folder}", the copy of the delivery',
    (str, checks.one_of(_COPY)),
    (
        dict,
        record(
            lambda *, folder: folder,
            {"folder": Key(checks.PATH, 'in quotes, "{folder}" is the copy', required=True)},
        ),
    ),
)
_COMMAND = {
    **keys_of(
        CommandAgent,
        skip=("cwd", "in_copy", "only"),
        special={
            "command": listed(_COMMAND_TEXT, "a list of texts"),
            "stdin": _COMMAND_TEXT,
            "env": _ENV,
        },
    ),
    "cwd": Key(_CWD, "Where the command starts; by default in the folder of the project."),
}
_AGENTS: Mapping[str, tuple[Callable[..., Agent], Keys]] = {
    "python": (PythonAgent, _PYTHON),
    "http": (
        _http,
        {
            "http": Key(
                record(dict, {**_HTTP, "url": attrs.evolve(_HTTP["url"], kind=_ADDRESS)}),
                "A service.",
                required=True,
            )
        },
    ),
    "command": (_command, _COMMAND),
}
_KINDS: Mapping[str, checks.Kind[AgentConfig]] = {
    name: record(functools.partial(_config, make), {**keys, **_COMMON})
    for name, (make, keys) in _AGENTS.items()
}


def _read(node: Node) -> AgentConfig | None:
    kinds = [name for name in _KINDS if name in node.members()]
    if len(kinds) != 1:
        node.expected("an object with one of `python`, `http` and `command`")
        return None
    return _KINDS[kinds[0]].read(node)


AGENT: checks.Kind[AgentConfig] = checks.Kind(
    _read,
    {
        "description": "What is asked where no model answers the prompts.",
        "anyOf": [kind.schema for kind in _KINDS.values()],
    },
    reach=checks.Reach.ADDRESS,
)
