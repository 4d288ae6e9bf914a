"""How a reflection replies."""

from __future__ import annotations

import re


def instruction_block(text: str) -> str:
    """Return ``text`` in one ``instruction`` block, its fence longer than any run inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}instruction\n{text}\n{fence}"
