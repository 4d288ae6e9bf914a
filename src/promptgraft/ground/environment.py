"""The environment: optional packages that extras install, and secrets in variables."""

from __future__ import annotations

import os
import re

import attrs

from promptgraft.errors import MissingHereError


def check_package(package: str, at_least: str, *, extra: str, what: str) -> None:
    """Check that ``package`` is installed in version ``at_least`` or newer.

    Raises:
        MissingHereError: it is not; the message says what needs it and how to install it.
    """
    from importlib import metadata  # loads much of the standard library, for few runs

    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        version = "none"
    if version == "none" or _numbers(version) < _numbers(at_least):
        raise MissingHereError(
            f"{what} needs `{package}` {at_least} or newer, found {version}; "
            f'run `pip install --upgrade "promptgraft[{extra}]"`'
        )


def _numbers(version: str) -> tuple[int, ...]:
    # Without the local part, as in `2.1.0+cpu`.
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@attrs.frozen
class Secret:
    """A text with references ``${NAME}`` to environment variables, resolved only when needed."""

    written: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables, in order of appearance."""
        return tuple(dict.fromkeys(REFERENCE.findall(self.written)))

    def missing(self) -> tuple[str, ...]:
        """Return the variables that are unset or empty."""
        return tuple(name for name in self.names if not os.environ.get(name))

    def reveal(self) -> str:
        """Return the text with the values of the variables."""
        if missing := self.missing():
            raise MissingHereError(
                f"the environment variable {missing[0]} is not set; export it first"
            )
        return REFERENCE.sub(lambda match: os.environ[match[1]], self.written)
