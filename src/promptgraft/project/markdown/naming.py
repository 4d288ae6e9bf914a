"""Names of fields and classes that are written in YAML and become Python."""

from __future__ import annotations

import keyword
import re

from promptgraft.ground.serde import shown
from promptgraft.ground.strict.nodes import Node

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
