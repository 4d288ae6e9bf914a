"""The lines that ``docs/console.md`` lists, and those among printed ones that it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "console.md"
_BLOCKS = re.compile(r"(?ms)^## ([^\n]+\?)$.*?^```text\n(.*?)^```$")
_TEXTS = {"…": ".*", "NAME": r"\S+", "N": r"(?:[-+~]*[\d,./]+|none|unknown)"}
_VARYING = re.compile(r"…|\bNAME\b|\bN\b")
_AS_THEY_ARE = {"export", "render", "docs", "completion"}
_DOCUMENTS = {"--json", "--help", "-h", "--schema", "--step"}

# What the code of jobs, added commands and the servers of tests print.
_OTHERS = (
    "made",
    "a job may print",
    "judging",
    "shelved ",
    "Traceback (most",
    "ConnectionResetError: ",
)


def listed_lines() -> Iterator[tuple[str, str]]:
    """Yield each line of the page with the question that it answers."""
    for question, block in _BLOCKS.findall(PAGE.read_text("utf-8")):
        for line in block.splitlines():
            yield question, line


@cache
def _pattern() -> re.Pattern[str]:
    lines = {line for _, line in listed_lines()}
    return re.compile("|".join(map(_regex, sorted(lines))))


def _regex(line: str) -> str:
    return _VARYING.sub(lambda varying: _TEXTS[varying.group()], re.escape(line))


def unlisted(arguments: Sequence[str], printed: str) -> list[str]:
    """Return the lines that a command has printed and the page does not list."""
    if not arguments or _AS_THEY_ARE & {*arguments} or _DOCUMENTS & {*arguments}:
        return []
    return [
        line
        for line in printed.splitlines()
        # What is indented, and a diff, belongs to the line above.
        if line and not line.startswith((" ", "+", "-", "@@", "\\", "diff "))
        if not line.startswith(_OTHERS) and not _pattern().fullmatch(" ".join(line.split()))
    ]
