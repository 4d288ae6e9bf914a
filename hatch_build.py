"""Turns the README's links to files into commands: in a package index they would lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_TO_FILE = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#]+?)/?(?:#[^)]*)?\)")


class ReadmeHook(MetadataHookInterface):
    """Sets ``readme``; ``promptgraft docs`` prints the pages, which the wheel has."""

    def update(self, metadata: dict[str, object]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        linked = _TO_FILE.sub(r"\1 (`promptgraft docs \2`)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": linked}
