"""Texts of others inside a prompt: shown literally, whatever they hold."""

from __future__ import annotations

import re


def fenced(text: str) -> str:
    """Return ``text`` between fences that are longer than any run of backticks in it."""
    longest = max(map(len, re.findall(r"`+", text))) if "`" in text else 0
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
