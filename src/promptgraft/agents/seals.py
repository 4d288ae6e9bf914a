"""Seals of records of writes: only a record that was made here, by this user, is carried out.

A record in a folder says which files are to hold what. A folder may come from somebody else, with
such a record in it; so each record is signed with a key that is kept outside of all projects.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from promptgraft.errors import ConfigError
from promptgraft.ground.files import sync_folder, write_all
from promptgraft.ground.serde import Json, canonical_json

_KEY_BYTES = 32
_OWNER_ONLY, _OWNER_ONLY_FOLDER = 0o600, 0o700
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def seal_of(folder: Path, record: Mapping[str, Json]) -> str:
    """Return the seal of a record for a folder; makes the key if there is none yet.

    Raises:
        ConfigError: the key can be neither read nor made.
    """
    # With the real path: a record must not be carried out in another checkout.
    message = canonical_json([os.path.realpath(folder), dict(record)]).encode()
    return hmac.new(_key(), message, hashlib.sha256).hexdigest()


def is_sealed(folder: Path, record: Mapping[str, Json], seal: str) -> bool:
    """Return whether ``seal`` is the seal of a record for a folder."""
    return hmac.compare_digest(seal_of(folder, record).encode(), seal.encode())


def _key() -> bytes:
    base = os.environ.get("XDG_STATE_HOME") or str(Path("~", ".local", "state").expanduser())
    path = Path(base, "promptgraft", "seal.key")
    try:
        with contextlib.suppress(FileNotFoundError):
            return _complete(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY_FOLDER)
        _make(path)
        return _complete(path)
    except OSError as error:
        raise ConfigError(
            f"the key that signs records of writes cannot be kept in {path}: {error.strerror}; "
            "name a folder that is yours with the variable XDG_STATE_HOME"
        ) from None


def _complete(path: Path) -> bytes:
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(0, f"expected {_KEY_BYTES} bytes, found {len(key)}; delete it")
    return key


def _make(path: Path) -> None:
    """Make the key, unless another process is first."""
    temporary = f"{path}.{secrets.token_hex(4)}"
    descriptor = os.open(temporary, _NEW, _OWNER_ONLY)
    try:
        try:
            write_all(descriptor, secrets.token_bytes(_KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with contextlib.suppress(FileExistsError):
            # Unlike a rename, a link never replaces the key that another process has used already.
            os.link(temporary, path)
    finally:
        os.unlink(temporary)  # noqa: PTH108
    sync_folder(path.parent)
