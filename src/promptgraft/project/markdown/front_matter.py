"""What stands above the text of a prompt: its names, its answer, the files beside it."""

from __future__ import annotations

from typing import Any, Literal, get_origin

import attrs

from promptgraft.errors import ConfigError, PromptDefinitionError
from promptgraft.parts.body import BodySyntax, is_placeholder
from promptgraft.parts.validation import check_key, check_ns
from promptgraft.project.markdown.values import OUTPUT, Value, described, kind_of
from promptgraft.project.python_source import PythonSource, Wanted
from promptgraft.prompt.fields import Described
from promptgraft.prompt.output import check_output_type
from promptgraft.strict.checks import TEXT, Kind, one_of
from promptgraft.strict.kinds import checked, either, listed, record_of
from promptgraft.strict.nodes import Node

DEFAULT_NAME = "Answer"
_TEXT = "text"


@attrs.frozen(kw_only=True)
class FrontMatter:
    """What the front matter says; everything may be left out.

    Attributes:
        key: the key; empty for the file's name.
        placeholders: strings that a plain text must keep.
        output: what answers are; None where no object says it.
        tools: a file of tools beside this one; empty for none.
        examples: a file of worked examples beside this one; empty for none.
    """

    ns: str = "prompts"
    key: str = ""
    name: str | None = None
    syntax: str = BodySyntax.DOLLAR.value
    placeholders: tuple[str, ...] = ()
    output: Value | None = None
    tools: str = ""
    examples: str = ""

    def __attrs_post_init__(self) -> None:
        if self.placeholders and self.syntax != BodySyntax.PLAIN:
            raise ConfigError(
                "placeholders: expected only beside `syntax: plain`; the text spells those of "
                f"`{self.syntax}`"
            )


@attrs.frozen
class Answer:
    """What a prompt asks for: a type, and what is said of a choice."""

    type: Any = str
    choice: Described = attrs.field(factory=Described)


_EXPECTED = "`text`, an object with `choices` or `fields`, or `file.py:NAME`"


def _read_name(node: Node) -> None:
    if node.value != _TEXT and ":" not in str(node.value):
        node.expected(_EXPECTED)


_OUTPUT: Kind[Value] = either(_EXPECTED, (str, Kind(_read_name)), (dict, OUTPUT))


def _read_placeholder(node: Node) -> str | None:
    if isinstance(node.value, str) and is_placeholder(node.value):
        return node.value
    # Without quotation marks YAML takes `{query}` for an object.
    node.expected('printable text in quotation marks, such as `"{query}"`')
    return None


FRONT_MATTER: Kind[FrontMatter] = record_of(
    FrontMatter,
    special={
        "ns": checked(TEXT, check_ns),
        "key": checked(TEXT, lambda key: check_key(key, "key")),
        "name": TEXT,
        "syntax": one_of(*(str(one.value) for one in BodySyntax)),
        "placeholders": listed(Kind(_read_placeholder)),
        "output": _OUTPUT,
        "tools": TEXT,
        "examples": TEXT,
    },
)


_ANSWER: Wanted[object] = Wanted(
    what="output",
    expected="a class or a Literal of strings",
    plural="classes",
    read=lambda value: value if isinstance(value, type) or get_origin(value) is Literal else None,
)


def answer_of(output: Value | None, node: Node, python: PythonSource) -> Answer | None:
    """Return the type of answers; faults are noted at ``node``, and None returned."""
    if output is None:
        is_text = node.value in (None, _TEXT)
        return Answer() if is_text else _python_answer(node, python)
    if not output.choices and output.description:
        node.member("description").fault("expected a description only beside `choices`")
    if output.choices and output.fields is None and output.name:
        node.member("name").fault("expected a name only beside `fields`")
    if not output.choices and output.fields is None:
        node.expected(_EXPECTED)
        return None
    if output.fields is not None and not output.fields:
        node.member("fields").expected("at least one field")
        return None
    kind = kind_of(output, DEFAULT_NAME, node)
    return None if kind is None else Answer(kind, described(output))


def _python_answer(node: Node, python: PythonSource) -> Answer | None:
    kind = python.read(node, _ANSWER)
    if kind is None:
        return None
    try:
        check_output_type(kind, f"`{node.value}`")
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None
    return Answer(kind)
