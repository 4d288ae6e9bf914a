"""Where the text of a prompt stands, and how a winner gets back there."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs

from promptgraft.overrides import PromptOverride


@attrs.frozen
class FileChange:
    """One file as it is, and as it is to be.

    Attributes:
        path: the file.
        before: its whole text now: its bytes as UTF-8, line breaks and byte order mark kept.
        after: its whole text afterwards.
    """

    path: Path
    before: str
    after: str


@runtime_checkable
class PromptSource(Protocol):
    """The files that a prompt is written in, which can take a winner back."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the prompt is read from."""
        ...

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        """Return the changes that make the files say what ``override`` says; writes nothing.

        Raises:
            ConfigError: a part of the override cannot be written back.
        """
        ...
