"""Classes that are made from what a file says of a type."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.nodes import Node
from promptgraft.prompt.schema import schema_of


def made_class(
    attributes: Mapping[str, Any], name: str, node: Node, *, about: str = ""
) -> type | None:
    """Return an attrs class with these attributes; None, with faults noted, if there are any.

    ``about`` becomes its docstring, which schemas show.
    """
    if not node.is_right():
        return None
    new_class: type = attrs.make_class(name, dict(attributes), frozen=True, kw_only=True)
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


_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def check_name(name: str, node: Node) -> None:
    """Note a fault at ``node`` unless ``name`` is a valid Python name."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name == "self":
        node.fault(
            "expected a name that Python can use: letters, digits and `_`, beginning with a "
            f"letter, found {shown(name)}"
        )


def nested_name(owner: str, field: str) -> str:
    """Return the default name of the class of a field."""
    return f"{owner}{camel(field)}"


def camel(name: str) -> str:
    """Return a name in camel case: ``find_user`` becomes ``FindUser``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^a-zA-Z0-9]+", name))
