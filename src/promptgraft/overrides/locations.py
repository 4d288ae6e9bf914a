"""Where a local store stands in a project, and which documents stand in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from promptgraft.errors import ConfigError, InvalidIdentifierError, StoreError
from promptgraft.overrides.store import OverrideAddress
from promptgraft.serde import shown

FOLDER = Path(".promptgraft", "overrides")
"""Where a store keeps its files, below its root."""


def find_root(root_path: str | os.PathLike[str] | None) -> Path:
    """Return the folder named, or the root of the project around the current folder.

    That is the nearest folder upwards that holds ``.promptgraft``, not looking above a
    repository; without one the root of the repository, or else the current folder.

    Raises:
        ConfigError: ``root_path`` is no folder, or the project cannot be searched.
    """
    try:
        root = _project_root() if root_path is None else Path(os.path.realpath(root_path))
        if root.is_dir():
            return root
    except OSError as error:
        wanted = "the folder of the project" if root_path is None else shown(root_path)
        raise ConfigError(f"root_path: cannot read {wanted}: {error.strerror}") from error
    raise ConfigError(f"root_path: expected a folder, found none at {root}; create it first")


def _project_root() -> Path:
    start = Path.cwd()
    for folder in (start, *start.parents):
        if (folder / FOLDER.parts[0]).is_dir() or (folder / ".git").exists():
            return folder
    return start


def addresses_in(root: Path) -> tuple[OverrideAddress, ...]:
    """Return the address of every document below ``root``, sorted, by its name alone.

    Raises:
        StoreError: a folder cannot be read.
    """
    folder = root / FOLDER
    found = (_address(document.relative_to(folder)) for document in _documents(folder))
    return tuple(sorted(address for address in found if address))


def _documents(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise StoreError(
                f"cannot list override folder {error.filename}: {error.strerror}; make it readable"
            ) from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if name.endswith(".json"))


def _address(document: Path) -> OverrideAddress | None:
    ns, key = document.parent.parent.as_posix(), document.parent.name
    with contextlib.suppress(InvalidIdentifierError):
        return OverrideAddress(ns, key, document.name.removesuffix(".json"))
    return None
