"""What stands above the text of a prompt: its names, its answer, the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_origin

import attrs

from promptgraft.errors import ConfigError, PromptDefinitionError
from promptgraft.frozenmap import FrozenMap
from promptgraft.parts.body import BodySyntax, is_placeholder
from promptgraft.parts.validation import check_key, check_ns
from promptgraft.project.markdown.values import (
    FIELDS,
    OPTIONS,
    Options,
    Value,
    applied,
    check_name,
    class_of,
)
from promptgraft.project.python_source import PythonSource, Wanted
from promptgraft.prompt.fields import Described
from promptgraft.prompt.output import check_output_type
from promptgraft.strict.checks import TEXT, Kind, one_of
from promptgraft.strict.classes import record_of
from promptgraft.strict.kinds import checked, either, listed
from promptgraft.strict.nodes import Node

DEFAULT_NAME = "Answer"
_TEXT = "text"


@attrs.frozen(kw_only=True)
class Output:
    """What a prompt asks for, as the front matter says it.

    Attributes:
        reference: the Python type, ``file.py:NAME``; empty where YAML says it.
        choices: the options of a choice.
        description: what a choice is about.
        fields: the fields of an object.
        name: the name of an object's class.
    """

    reference: str = ""
    choices: Options = attrs.field(factory=FrozenMap[str, str])
    description: str = ""
    fields: Mapping[str, Value] | None = None
    name: str = ""


@attrs.frozen(kw_only=True)
class FrontMatter:
    """What the front matter says; everything may be left out.

    Attributes:
        ns: the namespace.
        key: the key; empty for the file's name.
        name: what people call it.
        syntax: how placeholders look.
        placeholders: strings that a plain text must keep.
        output: what answers are.
        tools: a file of tools beside this one; empty for none.
        examples: a file of worked examples beside this one; empty for none.
    """

    ns: str = "prompts"
    key: str = ""
    name: str | None = None
    syntax: str = BodySyntax.DOLLAR.value
    placeholders: tuple[str, ...] = ()
    output: Output = attrs.field(factory=Output)
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
    """What a prompt asks for.

    Attributes:
        type: what answers become.
        choice: what is said of an answer that is a choice.
    """

    type: Any = str
    choice: Described = attrs.field(factory=Described)


def _read_reference(node: Node) -> Output | None:
    if node.value == _TEXT:
        return Output()
    if isinstance(node.value, str) and ":" in node.value:
        return Output(reference=node.value)
    node.expected(_EXPECTED)
    return None


_EXPECTED = "`text`, an object with `choices` or `fields`, or `file.py:NAME`"
_OUTPUT: Kind[Output] = either(
    _EXPECTED,
    (str, Kind(_read_reference)),
    (
        dict,
        record_of(
            Output,
            skip=("reference",),
            special={"choices": OPTIONS, "description": TEXT, "fields": FIELDS, "name": TEXT},
        ),
    ),
)


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


def _as_type(value: object) -> object | None:
    is_choice = get_origin(value) is Literal
    return value if isinstance(value, type) or is_choice else None


_ANSWER: Wanted[object] = Wanted(
    what="output", expected="a class or a Literal of strings", plural="classes", read=_as_type
)


def answer_of(output: Output, node: Node, python: PythonSource) -> Answer | None:
    """Return the type of answers; faults are noted at ``node``, and None returned."""
    if output.reference:
        return _python_answer(node, python)
    if output.choices and output.fields is not None:
        node.fault("expected `choices` or `fields`, found both")
        return None
    if output.choices:
        if output.name:
            node.member("name").fault("expected a name only beside `fields`")
        meanings = {option: said for option, said in output.choices.items() if said}
        kind = applied(Literal, tuple(output.choices))
        return Answer(kind, Described(output.description, values=meanings))
    if output.description:
        node.member("description").fault("expected a description only beside `choices`")
    if output.fields is not None:
        if not output.fields:
            node.member("fields").expected("at least one field")
            return None
        if output.name:
            check_name(output.name, node.member("name"))
        made = class_of(output.fields, output.name or DEFAULT_NAME, node.member("fields"))
        return None if made is None else Answer(made)
    if isinstance(node.value, dict):
        node.expected(_EXPECTED)
        return None
    return Answer()


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
