"""Classes that are made from what a file says of a type."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.nodes import Node
from promptgraft.prompt.fields import Described
from promptgraft.prompt.schema import schema_of


def made_class(
    attributes: Mapping[str, Any], name: str, node: Node, *, about: str = ""
) -> type | None:
    """Return an attrs class with these attributes; None, with faults noted, if there are any.

    ``about`` becomes its docstring, which schemas show.
    """
    aliases: dict[str, str] = {}
    for attribute in attributes:
        if (other := aliases.setdefault(argument_name(attribute), attribute)) != attribute:
            node.fault(f"{shown(other)} and {shown(attribute)} are one name in Python; rename one")
    if not node.is_right():
        return None
    is_usual = all(map(_is_usual, attributes))
    new_class: type = attrs.make_class(
        name,
        dict(attributes),
        bases=(object,) if is_usual else (_OfAnyNames,),
        frozen=True,
        kw_only=True,
        eq=is_usual,
        repr=is_usual,
    )
    new_class.__doc__ = about or None
    try:
        schema_of(new_class)
    except PromptDefinitionError as error:
        node.fault(str(error))
        return None
    return new_class


def fitting(value: Json, kind: Any, node: Node) -> Any:
    """Convert plain data to a type; None, with faults noted at ``node``, if there are any."""
    try:
        return structure(value, kind, where="")
    except DataFormatError as error:
        for fault in error.faults:
            node.fault(fault.removeprefix(": ").removesuffix(" @ $"))
        return None


def applied(form: Any, arguments: tuple[Any, ...]) -> Any:
    """Return a generic type with arguments that are only known at run time."""
    return form[arguments]


def attribute(name: str, kind: Any, described: Described, default: object) -> Any:
    """Return an attribute of a class; Python passes it by :func:`argument_name`."""
    annotation = applied(Annotated, (kind, described))
    return attrs.field(type=annotation, default=default, alias=argument_name(name))


class _OfAnyNames:
    """Compares and shows an instance with attributes that code cannot name, such as ``from``."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


_USUAL_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_UNSAFE = re.compile(r"""['"\\]|[^\S ]""")
"""What must not stand in code that attrs and cattrs write around a name."""


def check_class_name(name: str, node: Node) -> None:
    """Note a fault at ``node`` unless a class can be called ``name``."""
    if not _is_usual(name):
        node.fault(
            "expected a name that Python can use: letters, digits and `_`, beginning with a "
            f"letter, found {shown(name)}"
        )


def _is_usual(name: str) -> bool:
    return bool(_USUAL_NAME.fullmatch(name)) and not keyword.iskeyword(name) and name != "self"


def check_name(name: str, node: Node) -> None:
    """Note a fault at ``node`` unless a class can have an attribute called ``name``."""
    if _UNSAFE.search(name) or not name.isprintable() or not name.strip():
        node.fault(
            f"expected a name without quotes, backslashes and line breaks, found {shown(name)}"
        )
    elif name.startswith("__"):
        node.fault(f"names that begin with `__` are Python's own, found {shown(name)}")


def argument_name(name: str) -> str:
    """Return the keyword by which Python passes a property: ``from_``, ``first_name``."""
    word = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))
    # A fraction, such as that of Tamil, is a `\w` and still part of no name.
    word = "".join(char if f"_{char}".isidentifier() else "_" for char in word)
    if not word.isidentifier():
        return f"_{word}"
    return word if not keyword.iskeyword(word) and word != "self" else f"{word}_"


def nested_name(owner: str, field: str) -> str:
    """Return the default name of the class of a field."""
    return f"{owner}{camel(field)}"


def camel(name: str) -> str:
    """Return a name in camel case: ``find_user`` becomes ``FindUser``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^a-zA-Z0-9]+", name))
