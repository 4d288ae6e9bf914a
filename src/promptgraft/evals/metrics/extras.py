"""Libraries that some metrics need and not every installation has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from promptgraft.errors import ConfigError


@contextmanager
def wanted(library: str, metric: str) -> Iterator[None]:
    """Say how to install a library that an import in this block does not find.

    Raises:
        ConfigError: the library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"metric `{metric}` needs the library {library}, which is not installed; "
            'run `pip install "promptgraft[metrics]"`'
        ) from error
