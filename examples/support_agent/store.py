"""Where the third text is kept: a file that stands in for a prompt service."""

import json
from pathlib import Path

FILE = Path(__file__).parent / "data" / "service.json"


class Tone:
    """Reads and writes one text; both may be ``async``."""

    async def read(self) -> str:
        """Return the text that is in force."""
        return str(json.loads(FILE.read_text("utf-8"))["tone"])

    async def write(self, text: str) -> None:
        """Put a text in its place."""
        FILE.write_text(json.dumps({"tone": text}) + "\n", "utf-8")


SOURCES = {"tone": Tone()}
