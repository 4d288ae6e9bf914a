"""Stores in databases, as projects and commands name them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from promptgraft.environment import Secret
from promptgraft.errors import ConfigError
from promptgraft.overrides.base_store import RevisionedStore
from promptgraft.overrides.local_store import LocalPromptOverridesStore
from promptgraft.overrides.revision_files import FOLDER
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.strict.checks import Check, check

if TYPE_CHECKING:
    from promptgraft.project.parts import Surroundings

_PASSWORD = re.compile(r"://[^/@\s]*:(?!\$\{)[^/@\s]+@")
_FILE = "sqlite:///"


def _url(value: object) -> str | None:
    if not isinstance(value, str) or not ("://" in value or Secret(value).names):
        return None
    return None if _PASSWORD.search(value) else value


STORE_URL: Check[str] = check(
    "the URL of a database such as `sqlite:///overrides.db`, or `${NAME}`",
    _url,
    {"type": "string"},
    hidden=True,
    mend="put a URL with a password into an environment variable and name that",
)
"""Where a store in a database is; a plain password is refused."""


@attrs.frozen(kw_only=True)
class StoreConfig:
    """Where winners are written, and where a search begins.

    Attributes:
        path: The folder that holds `.promptgraft`.
        url: A database in its place, such as `sqlite:///FILE` or `${DATABASE_URL}`.
        tag: The tag that a winner gets.
    """

    path: str = "."
    url: str | None = None
    tag: str = DEFAULT_TAG


def database_store(url: str, folder: Path | None = None) -> RevisionedStore:
    """Return the store in a database; a file of SQLite begins at ``folder``.

    Raises:
        ConfigError: the URL is none, a variable in it is not set, or the extra is missing.
    """
    plain = Secret(url).reveal()
    path = plain.removeprefix(_FILE)
    if folder is not None and path != plain and path and not path.startswith("/"):
        plain = f"{_FILE}{folder / path}"
    try:
        from promptgraft.database import SqlPromptOverridesStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'a store in a database needs {error.name}; run `pip install "promptgraft[server]"`'
        ) from None
    return SqlPromptOverridesStore(plain)


def open_store(named: str | None) -> RevisionedStore:
    """Return the store that ``--store`` names: the folder that holds it, or the URL of a database.

    Without a name it is the one that the current folder belongs to.

    Raises:
        ConfigError: there is no such folder, or the URL is none.
    """
    if named is None:
        return LocalPromptOverridesStore()
    if "://" in named:
        return database_store(named)
    path = Path(named)
    if path.name == FOLDER.parts[0]:
        path = path.parent
    if not path.is_dir():
        raise ConfigError(f"--store: expected a folder, found {named!r}; name one that exists")
    return LocalPromptOverridesStore(path)


def project_store(config: StoreConfig, folder: Path, around: Surroundings) -> RevisionedStore:
    """Return the store of a project.

    Raises:
        DataFormatError: its folder does not exist, or its URL is none; with the place in the file.
    """
    try:
        if config.url is not None:
            return database_store(config.url, folder)
        return LocalPromptOverridesStore(folder / config.path)
    except ConfigError as error:
        key = "path" if config.url is None else "url"
        why = str(error).removeprefix("root_path: ").removeprefix("url: ")
        raise around.refusal(("store", key), why) from error
