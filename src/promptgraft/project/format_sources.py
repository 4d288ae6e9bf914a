"""What a project file says of the texts of an agent: where they are kept, how it gets them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

import attrs

from promptgraft.errors import ConfigError
from promptgraft.parts.validation import check_key
from promptgraft.project.python_source import REFERENCE
from promptgraft.strict.checks import TEXT, Kind, one_of
from promptgraft.strict.kinds import either, listed, named, record_of
from promptgraft.strict.nodes import Node

NAME = "^[a-z0-9][a-z0-9_-]{0,63}$"
"""What names of prompts and texts look like, for the JSON Schema."""


@attrs.frozen(kw_only=True)
class FileConfig:
    """A file that holds a text of an agent.

    Attributes:
        path: The file.
        frozen: `front_matter` keeps the lines between `---` at its beginning as they are.
    """

    path: str
    frozen: Literal["front_matter"] | None = None


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
        tests: Which of its tests are cases, such as `ExtractReceipt::Short*`; by default all.
        inputs: Whether descriptions and aliases may change of types that its arguments have too.
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
    (dict, record_of(DeliveryConfig)),
)
_NAMED_FILES: Kind[dict[str, str | FileConfig]] = named(
    either("a file, or an object with `path`", (str, TEXT), (dict, record_of(FileConfig))),
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
        "baml": TEXT,
        "function": TEXT,
        "tests": listed(TEXT, "a list of tests"),
    },
    about="A function of a BAML project.",
)


def _read_texts(node: Node) -> TextsConfig | BamlConfig | None:
    return _BAML.read(node) if "baml" in node.members() else TEXTS.read(node)


TEXTS_OR_BAML: Kind[TextsConfig | BamlConfig] = Kind(
    _read_texts, {"anyOf": [TEXTS.schema, _BAML.schema]}
)
