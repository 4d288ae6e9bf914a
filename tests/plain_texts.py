"""Texts of files as they come: any line ends, byte order marks, templates of other tools."""

from __future__ import annotations

import random
from collections.abc import Iterator

QUERY = "{query}"
_WORDS = (
    "word", "two words", "", "", " ", "\t", "$HOME", "$$", "${x}", "$query", "{{ y }}",
    "{% if x %}", "{# n #}", QUERY, "```", "````text", "---", "# head", "\\", "\\# no",
    "\x0c", "\x0b", "\x00", "\x85", "\u2028", "\ufeff", "é", "e\u0301", "😀", "𝒳",
    "<<ctx>>", "%s", "{0}",
)  # fmt: skip
_ENDS = ("\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\n\r")


def plain_texts(count: int, *, seed: str) -> Iterator[str]:
    """Yield the texts of many files; most have line ends of one kind."""
    chance = random.Random(seed)
    for _ in range(count):
        ends = _ENDS if chance.random() < 0.3 else (chance.choice(_ENDS[:3]),)
        parts = ["\ufeff"] if chance.random() < 0.2 else []
        if chance.random() < 0.2:
            parts.append(f"---{ends[0]}ns: a{ends[0]}---{ends[0]}")
        for _ in range(chance.randrange(8)):
            parts += chance.choices(_WORDS, k=chance.randrange(4))
            parts.append(chance.choice(ends))
        if chance.random() < 0.5:
            parts += chance.choices(_WORDS, k=chance.randrange(1, 3))
        yield "".join(parts)
