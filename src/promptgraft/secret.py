"""Texts with secrets in them, as files hold them: ``${NAME}`` is a variable of the environment."""

from __future__ import annotations

import os
import re

import attrs

from promptgraft.errors import ConfigError

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@attrs.frozen
class Secret:
    """A text as a file has it, with ``${NAME}`` in it: looked up only when it is needed."""

    written: str

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in order of appearance."""
        return tuple(dict.fromkeys(REFERENCE.findall(self.written)))

    def missing(self) -> tuple[str, ...]:
        """Return the variables that are not set, or empty."""
        return tuple(name for name in self.names if not os.environ.get(name))

    def reveal(self) -> str:
        """Return the plain text."""
        if missing := self.missing():
            raise ConfigError(f"the environment variable {missing[0]} is not set; export it first")
        return REFERENCE.sub(lambda match: os.environ[match[1]], self.written)
