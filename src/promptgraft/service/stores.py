"""The store in a database, which project files and ``--store`` name by its URL."""

from __future__ import annotations

from pathlib import Path

from promptgraft.errors import ConfigError
from promptgraft.overrides.revisioned import RevisionedStore

_FILE = "sqlite:///"
_IN_MEMORY = ("sqlite://", _FILE, f"{_FILE}:memory:")


def open_database(url: str, folder: Path | None) -> RevisionedStore:
    """Return the store in a database; a relative SQLite file is below ``folder``.

    A URL that ends with ``#PROJECT`` is that of the winners of this project's jobs.

    Raises:
        ConfigError: the URL is invalid, the database is one in memory, or the extra is missing.
    """
    url, _, project = url.partition("#")
    path = url.removeprefix(_FILE)
    if url in _IN_MEMORY:
        raise ConfigError(
            f"{url} is a database in memory, which is empty again in the next command; name a "
            "file, as in sqlite:///winners.db"
        )
    if folder is not None and path != url and path and not path.startswith("/"):
        # Relative to the project, as all paths in its file, and not to the current folder.
        url = f"{_FILE}{folder / path}"
    try:
        from promptgraft.service.database import SqlPromptOverridesStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'a store in a database needs {error.name}; run `pip install "promptgraft[server]"`'
        ) from None
    return SqlPromptOverridesStore(url, project=project)
