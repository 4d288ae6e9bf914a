"""The agent of a project file with its texts and their delivery, and BAML functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import attrs

from promptgraft.agents.adapter import DEFAULT_TURNS, MAX_CALL_COST, OnAgentError
from promptgraft.agents.call import Agent
from promptgraft.agents.command import CommandAgent
from promptgraft.agents.http import HttpAgent
from promptgraft.agents.python import PythonAgent
from promptgraft.errors import ConfigError
from promptgraft.ground.strict.checks import (
    ANYTHING,
    COUNT,
    ENVIRONMENT_NAME,
    PATH,
    TEXT,
    Kind,
    Reach,
    one_of,
)
from promptgraft.ground.strict.kinds import (
    Key,
    Keys,
    either,
    keys_of,
    listed,
    named,
    record,
    record_of,
)
from promptgraft.ground.strict.nodes import Node
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project.format_models import HEADER
from promptgraft.project.python_source import FUNCTION, REFERENCE, PythonSource

NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"
"""The pattern of names of prompts and texts, for the JSON Schema."""


@attrs.frozen(kw_only=True)
class FileConfig:
    """A file that holds a text of an agent.

    Attributes:
        path: The file.
        frozen: By default the lines between `---` at its beginning, which programs read, never
            change if there are any. `front_matter` requires them; `none` lets them change.
    """

    path: str
    frozen: Literal["front_matter", "none"] | None = None


@attrs.frozen(kw_only=True)
class TextsConfig:
    """The texts of an agent: the names of `files` and of `callbacks` are those of the texts.

    Attributes:
        files: By name: a file, or its `path` with `frozen`.
        callbacks: Something in Python with `read()` and `write(text)`, or several by name.
        placeholders: Strings that must stay in the texts that hold them.
    """

    files: Mapping[str, str | FileConfig] = attrs.field(factory=dict)
    callbacks: str | None = None
    placeholders: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self.files and self.callbacks is None:
            raise ConfigError("expected `files`, `callbacks` or both, found neither")


@attrs.frozen(kw_only=True)
class BamlConfig:
    """A function of a BAML project, with its prompt, its output types and its tests.

    Attributes:
        baml: The folder of the BAML files.
        function: The function.
        tests: The tests to use as cases, such as `ExtractReceipt::Short*`; by default all.
        inputs: Whether descriptions and aliases of types that its arguments share may change.
    """

    baml: str
    function: str
    tests: tuple[str, ...] = ()
    inputs: bool = False


@attrs.frozen(kw_only=True)
class DeliveryConfig:
    """A copy of a folder for each rollout.

    Attributes:
        folder: The folder that is copied: all files of the texts are in it.
    """

    folder: str


DELIVERY: Kind[str | DeliveryConfig] = either(
    "`argument`, `request`, `folder`, `live`, or an object with `folder`",
    (str, one_of("argument", "request", "folder", "live")),
    (dict, record_of(DeliveryConfig, special={"folder": PATH})),
)
_FILE: Kind[FileConfig] = record_of(FileConfig, special={"path": PATH})
_NAMED_FILES: Kind[dict[str, str | FileConfig]] = named(
    either("a file, or an object with `path`", (str, PATH), (dict, _FILE)),
    "files by name",
    check=functools.partial(check_key, what="name of a text"),
    pattern=NAME,
)
TEXTS: Kind[TextsConfig] = record_of(
    TextsConfig,
    special={
        "files": _NAMED_FILES,
        "callbacks": REFERENCE,
        "placeholders": listed(TEXT, "a list of texts"),
    },
    about="The texts of an agent.",
    rules={"anyOf": [{"required": ["files"]}, {"required": ["callbacks"]}]},
)

_BAML: Kind[BamlConfig] = record_of(
    BamlConfig,
    special={
        "baml": PATH,
        "function": TEXT,
        "tests": listed(TEXT, "a list of tests"),
    },
    about="A function of a BAML project.",
)


def _read_texts(node: Node) -> TextsConfig | BamlConfig | None:
    return _BAML.read(node) if "baml" in node.members() else TEXTS.read(node)


TEXTS_OR_BAML: Kind[TextsConfig | BamlConfig] = Kind(
    _read_texts, {"anyOf": [TEXTS.schema, _BAML.schema]}, reach=Reach.FILE
)


@attrs.frozen(kw_only=True)
class AgentConfig:
    """The agent that answers in place of a model: ``python``, ``http`` or ``command``.

    Attributes:
        make: makes the agent with the options in the file.
        python: the function, for ``python``.
        on_agent_error: the result of a rollout whose agent failed.
        max_turns: the most turns of a conversation with a simulated user.
        max_call_cost: the most US dollars that one call can cost; None if that is not known.
    """

    make: Callable[..., Agent] = attrs.field(repr=False)
    python: str = ""
    on_agent_error: OnAgentError = "zero"
    max_turns: int = DEFAULT_TURNS
    max_call_cost: Decimal | None = None

    def made(self, source: PythonSource, copied: Path) -> Agent:
        """Make the agent, without calling it; ``copied`` is the folder that the delivery copies.

        Raises:
            ConfigError: it cannot be made.
        """
        if not self.python:
            return self.make(project=source.folder, copied=copied)
        return self.make(function=source.load(self.python, FUNCTION, "agent.python"))


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
    *,
    project: Path,
    copied: Path,
    env: EnvConfig | None = None,
    cwd: str = "",
    **options: object,
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


# Kept as written: agents read the variables when they are called, not when the file is read.
_TEXT_OF_SECRET: Kind[str] = Kind(
    lambda node: None if (found := HEADER.read(node)) is None else found.written,
    HEADER.schema,
    reach=HEADER.reach,
)


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
        "The most US dollars that one call can cost: what a call counts whose answer is lost "
        "because the run was killed.",
    ),
    "max_turns": Key(
        COUNT, "The most turns of a conversation with a simulated user; 8 by default."
    ),
    "on_agent_error": Key(
        one_of(*get_args(OnAgentError)),
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
        "json": attrs.evolve(ANYTHING, reach=Reach.VARIABLE),
        "headers": named(_TEXT_OF_SECRET),
    },
)
_ADDRESS = _HTTP["url"].kind.reaching(Reach.ADDRESS)
_COMMAND_TEXT = TEXT.reaching(Reach.COMMAND)
_NAMES = listed(
    ENVIRONMENT_NAME.reaching(Reach.VARIABLE), "a list of names of environment variables"
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


_ENV: Kind[EnvConfig] = Kind(
    _read_env,
    {
        "type": "object",
        "properties": {"only": _NAMES.schema},
        "additionalProperties": _TEXT_OF_SECRET.schema,
    },
    reach=Reach.VARIABLE,
)
_CWD: Kind[str] = either(
    '`{folder: PATH}`, a folder of the project, or the text "{folder}", the copy of the delivery',
    (str, one_of(_COPY)),
    (
        dict,
        record(
            lambda *, folder: folder,
            {"folder": Key(PATH, 'in quotes, "{folder}" is the copy', required=True)},
        ),
    ),
)
_COMMAND = {
    **keys_of(
        CommandAgent,
        skip=("cwd", "in_copy", "only"),
        special={"command": listed(_COMMAND_TEXT, "a list of texts"), "env": _ENV},
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
    reach=Reach.ADDRESS,
)
