"""Paths in messages for people who do not see the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def relative_paths(message: str, folders: Iterable[Path]) -> str:
    """Return a message with paths relative to the folders of projects."""
    names = {str(path) for folder in folders for path in (folder.absolute(), folder.resolve())}
    # The longest first: a project may be in the folder of another.
    for name in sorted(names, key=len, reverse=True):
        message = re.sub(rf"(?<![\w/.-]){re.escape(name)}/", "", message)
        message = re.sub(rf"(?<![\w/.-]){re.escape(name)}(?!\.?[\w-])", "the project", message)
    return message
