"""Text in the form in which a journal gives it back."""

from __future__ import annotations

import re

_SPLIT_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


def joined(text: str) -> str:
    """Return ``text`` with the two halves of a character joined.

    Streams cut characters in halves. JSON joins them, and a replay must see what was seen.
    """
    return text if text.isascii() else _SPLIT_PAIR.sub(_join, text)


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")
