"""The stores of winners: folders, and those that installed packages open by URL."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.entry_points import load
from promptgraft.ground.environment import Secret
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import Check, Reach, check
from promptgraft.overrides.base_store import RevisionedStore
from promptgraft.overrides.local_store import LocalPromptOverridesStore
from promptgraft.overrides.revision_files import FOLDER
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.python_source import Surroundings

# A password that is a reference, `${NAME}`, is no secret.
_PASSWORD = re.compile(r"://[^/@\s]*:(?!\$\{)[^/@\s]+@")
STORE_GROUP = "promptgraft.stores"
"""The entry point group in which packages register stores by the scheme of their URLs."""


def _url(value: object) -> str | None:
    if not isinstance(value, str) or not ("://" in value or Secret(value).names):
        return None
    # The project file is shared and recorded in every run.
    return None if _PASSWORD.search(value) else value


STORE_URL: Check[str] = check(
    "the URL of a database such as `sqlite:///overrides.db`, or `${NAME}`",
    _url,
    {"type": "string"},
    hidden=True,
    mend="put a URL with a password into an environment variable and name that",
).reaching(Reach.ADDRESS)
"""The URL of a store in a database; a plain password is refused."""


@attrs.frozen(kw_only=True)
class StoreConfig:
    """The store that winners are written to and searches start from.

    Attributes:
        path: The folder that holds `.promptgraft`. If it is left out, jobs use their database.
        url: A database instead, such as `sqlite:///FILE` or `${DATABASE_URL}`.
        tag: The tag of winners.
    """

    path: str = "."
    url: str | None = None
    tag: str = DEFAULT_TAG


def database_store(url: str, folder: Path | None = None) -> RevisionedStore:
    """Return the store that a package opens at a URL.

    A package registers a function of the URL and of the folder that relative paths are below
    under the entry point group ``promptgraft.stores``, by the scheme of its URLs.

    Raises:
        ConfigError: no package opens such URLs, the URL is invalid, or a variable is not set.
    """
    plain = Secret(url).reveal()
    scheme = plain.partition(":")[0].partition("+")[0]
    offer = load(STORE_GROUP, scheme, noun="kind of store")
    if not callable(offer.value):
        raise offer.unfit("a function that opens a store")
    store = offer.value(plain, folder)
    if not isinstance(store, RevisionedStore):
        raise ConfigError(
            f"{offer.where}: expected to return a RevisionedStore, found {shown(store)}"
        )
    return store


def open_store(named: str | None) -> RevisionedStore:
    """Return the store that ``--store`` names: a folder, or the URL of a database.

    Without a name, return the store that the current folder belongs to.

    Raises:
        ConfigError: there is no such folder, or the URL is invalid.
    """
    if named is None:
        return LocalPromptOverridesStore()
    if "://" in named:
        return database_store(named)
    path = Path(named)
    # Users also name the folder `.promptgraft` itself.
    if path.name == FOLDER.parts[0]:
        path = path.parent
    if not path.is_dir():
        raise ConfigError(f"--store: expected a folder, found {named!r}; name one that exists")
    return LocalPromptOverridesStore(path)


def project_store(config: StoreConfig, folder: Path, around: Surroundings) -> RevisionedStore:
    """Return the store of a project.

    Raises:
        DataFormatError: its folder does not exist, or its URL is invalid; with the place in the
            file.
    """
    try:
        if config.url is not None:
            return database_store(config.url, folder)
        return LocalPromptOverridesStore(folder / config.path)
    except ConfigError as error:
        key = "path" if config.url is None else "url"
        why = str(error).removeprefix("root_path: ").removeprefix("url: ")
        raise around.refusal(("store", key), why) from error
