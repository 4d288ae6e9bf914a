"""Packages that are needed for one thing only, and that an extra installs."""

from __future__ import annotations

import re
from importlib import metadata

from promptgraft.errors import ConfigError


def check_package(package: str, at_least: str, *, extra: str, what: str) -> None:
    """Do nothing where ``package`` is installed in this version or a newer one.

    Raises:
        ConfigError: it is not; names it, the version, and how to install it for ``what``.
    """
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        found = "none"
    if found == "none" or _numbers(found) < _numbers(at_least):
        raise ConfigError(
            f"{what} needs `{package}` {at_least} or newer, found {found}; "
            f'run `pip install --upgrade "promptgraft[{extra}]"`'
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))
