"""The agent of a project file, its texts and their delivery, and BAML functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from promptgraft.agents.defaults import DEFAULT_TURNS, OnAgentError
from promptgraft.errors import ConfigError
from promptgraft.ground.strict.checks import PATH, TEXT, Kind, Reach, one_of
from promptgraft.ground.strict.kinds import either, listed, named, record_of
from promptgraft.ground.strict.nodes import Node
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project.python_source import FUNCTION, REFERENCE, PythonSource

if TYPE_CHECKING:
    from promptgraft.agents.call import Agent

NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"
"""The pattern of names of prompts and texts, for the JSON Schema."""


@attrs.frozen(kw_only=True)
class FileConfig:
    """A file that holds a text of an agent.

    Attributes:
        path: The file.
        frozen: By default the lines between `---` at its beginning, which programs read, never
            change if there are any. `front_matter` requires them; `none` lets them change.
        at: Where the text is in a file of JSON or YAML, such as `$.predict.instructions`.
    """

    path: str
    frozen: Literal["front_matter", "none"] | None = None
    at: str | None = None


@attrs.frozen(kw_only=True)
class TextsConfig:
    """The texts of an agent: the names of `files` and of `callbacks` are those of the texts.

    Attributes:
        files: By name: a file, or its `path` with `frozen` or `at`.
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
    special={"baml": PATH, "function": TEXT, "tests": listed(TEXT, "a list of tests")},
    about="A function of a BAML project.",
)


_OF_PROMPTS = frozenset(
    ("path", "file", "markdown", "template", "text", "output", "tools", "params")
)
"""Keys that users may expect of a prompt, which stand in its file."""


def _read_texts(node: Node) -> TextsConfig | BamlConfig | None:
    keys = node.members().keys()
    if keys & _OF_PROMPTS and not keys & {"files", "callbacks", "baml"}:
        node.expected(
            "the file of a prompt, such as `prompts/triage.md`, with `output` and `tools` in its "
            "front matter, or the texts of an agent in `files` or `callbacks`"
        )
        return None
    return _BAML.read(node) if "baml" in keys else TEXTS.read(node)


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
