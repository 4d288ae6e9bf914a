"""Secrets: ``${NAME}`` in a project file stands for a variable of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import attrs

from promptgraft.errors import ConfigError
from promptgraft.serde import Json
from promptgraft.strict.checks import check
from promptgraft.strict.nodes import Node

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SENSITIVE = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
# What local servers are given that want some key, whatever it is.
NO_KEY = "none"


@attrs.frozen
class Secret:
    """A text with ``${NAME}`` in it; the plain secret is looked up only when it is needed.

    Attributes:
        written: the text as it stands in the file; it holds no secret.
    """

    written: str

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in order of appearance."""
        return tuple(dict.fromkeys(_REFERENCE.findall(self.written)))

    def missing(self, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
        """Return the variables that are not set, or empty."""
        return tuple(name for name in self.names if not environment.get(name))

    def reveal(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the plain text.

        Raises:
            ConfigError: a variable is not set.
        """
        if missing := self.missing(environment):
            raise ConfigError(f"the environment variable {missing[0]} is not set; export it first")
        return _REFERENCE.sub(lambda match: environment[match[1]], self.written)


def has_reference(text: str) -> bool:
    """Tell whether a text holds ``${NAME}``."""
    return _REFERENCE.search(text) is not None


def _key(value: object) -> Secret | None:
    fits = isinstance(value, str) and (value == NO_KEY or _REFERENCE.fullmatch(value))
    return Secret(str(value)) if fits else None


API_KEY = check(
    "`${NAME}`",
    _key,
    {"type": "string", "pattern": r"^(\$\{\w+\}|none)$"},
    hidden=True,
    mend=(
        "put the key into an environment variable and name that, or write "
        f"`{NO_KEY}` for a server that needs no key"
    ),
)
"""The API key of a model; a plain key is refused."""


def read_header(node: Node) -> Secret | None:
    """Return the value of a header; those that carry secrets must name a variable."""
    value = node.value
    name = str(node.path[-1])
    if not isinstance(value, str) or not value:
        node.fault("expected a text, found something else (not shown)")
        return None
    if _SENSITIVE.search(name) and not has_reference(value):
        node.fault(
            "expected `${NAME}` in it, found a plain text (not shown); put the secret into an "
            "environment variable and name that"
        )
        return None
    return Secret(value)


def refuse_references(root: Node, may_hold: Iterable[tuple[str | int, ...]]) -> None:
    """Note every ``${NAME}`` that stands where no secret may."""
    allowed = set(may_hold)
    todo: list[Node] = [root]
    while todo:
        node = todo.pop()
        if node.path in allowed:
            continue
        todo.extend((*node.members().values(), *node.items()))
        if isinstance(node.value, str) and (names := Secret(node.value).names):
            node.source.settle(
                node.path,
                f"`${{{names[0]}}}` is expanded only in `api_key` and `headers` of models; "
                "write the value itself",
            )


def secret_places(models: Json) -> Iterable[tuple[str | int, ...]]:
    """Yield the places in a project file that may hold ``${NAME}``."""
    top = models if isinstance(models, dict) else {}
    judges = top.get("judges")
    named = judges if isinstance(judges, dict) else {}
    for path in (*((name,) for name in top if name != "judges"), *(("judges", n) for n in named)):
        yield ("models", *path, "api_key")
        yield ("models", *path, "headers")
