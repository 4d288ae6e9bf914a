"""What a disk holds that keeps nothing but what it was told to keep."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft.clock import FakeClock
from promptgraft.overrides import LocalPromptOverridesStore, Revision
from promptgraft.testing.samples import PROMPT, RULES, TONE

ADDRESS = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
Step = Callable[[LocalPromptOverridesStore], object]


class Node:
    """A file or folder, apart from its name; ``durable`` is what a power loss leaves of it."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable


class ForgetfulDisk:
    """Follows the calls of this process and knows what a power loss would leave at the least.

    The bytes of a file survive if the file was synced, and a name if its folder was.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._names: dict[Path, Node] = {
            path: Node(path.read_bytes() if path.is_file() else b"") for path in root.rglob("*")
        }
        self._durable = dict(self._names)
        self.states: list[dict[Path, bytes]] = []
        for name in ("open", "mkdir", "fsync", "replace", "unlink"):
            patch.setattr(os, name, self._followed(getattr(os, name), getattr(self, f"_{name}")))

    def _followed[**P, T](
        self, call: Callable[P, T], follow: Callable[..., None]
    ) -> Callable[P, T]:
        raise NotImplementedError
