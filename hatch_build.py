"""Makes the README readable where its files are not: in a package index links lead nowhere.

Links to files become commands, and a picture becomes the text that its SVG has as description.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_TO_FILE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)#]+?)/?(?:#[^)]*)?\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!\w+:)([^)]+\.svg)\)")
_DESCRIPTION = re.compile(r"<desc>(.*?)</desc>", re.DOTALL)


class ReadmeHook(MetadataHookInterface):
    """Sets ``readme``; ``promptgraft docs`` prints the pages, which the wheel has."""

    def update(self, metadata: dict[str, object]) -> None:
        text = Path(self.root, "README.md").read_text("utf-8")
        described = _PICTURE.sub(lambda picture: self._described(picture[1]), text)
        linked = _TO_FILE.sub(r"\1 (`promptgraft docs \2`)", described)
        metadata["readme"] = {"content-type": "text/markdown", "text": linked}

    def _described(self, picture: str) -> str:
        description = _DESCRIPTION.search(Path(self.root, picture).read_text("utf-8"))
        return f"```text\n{unescape(description[1])}\n```" if description else ""
