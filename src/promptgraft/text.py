"""Texts, counts and figures as people read them; nothing that a screen would obey."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

# Control characters, marks that turn the direction of writing, line separators, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_FIGURE = re.compile(r"[-+$~]*[\d.,:]+( %|%| s)?|none|unknown( price)?|")
_UNSAFE_OR_BREAK = re.compile(f"[\t\n]|{_UNSAFE.pattern}")
_SPLIT_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


def visible(text: str) -> str:
    """Return ``text`` with everything that a terminal would obey spelled out.

    Line breaks and tabs stay. What is spelled out cannot move the cursor, change colours or
    titles, overwrite a line, or turn the direction of writing.
    """
    return _UNSAFE.sub(lambda match: spelled(match[0]), text)


def visible_line(text: str) -> str:
    """Return ``text`` as one line: as :func:`visible`, line breaks and tabs spelled out too."""
    return _UNSAFE_OR_BREAK.sub(lambda match: spelled(match[0]), text)


def spelled(character: str) -> str:
    r"""Return a character as an escape, such as ``\x1b``."""
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def counted(number: int, noun: str) -> str:
    """Return ``1 section`` or ``3 sections``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(names: Iterable[str]) -> str:
    """Return the names in back-ticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def moment(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def score(value: float | None, *, estimated: bool = False) -> str:
    """Return a score as tables show it, with ``~`` when it is estimated."""
    return "none" if value is None else f"{'~' if estimated else ''}{value:.3f}"


def difference(
    before: float | None, after: float | None, *, estimated: tuple[bool, bool] = (False, False)
) -> str:
    """Return how much a score rose or fell, with ``~`` when that is estimated.

    Nothing where only the first score is: that is from a few examples, the other one from all.
    """
    if before is None or after is None or estimated == (True, False):
        return ""
    return f"{'~' if any(estimated) else ''}{after - before:+.3f}"


def change(
    before: float | None, after: float | None, *, estimated: tuple[bool, bool] = (False, False)
) -> str:
    """Return two scores and their difference, marked as above: ``0.500 -> ~0.750 (~+0.250)``."""
    gained = difference(before, after, estimated=estimated)
    scores = f"{score(before, estimated=estimated[0])} -> {score(after, estimated=estimated[1])}"
    return f"{scores} ({gained})" if gained else scores


def dollars(amount: Decimal | None) -> str:
    """Return an amount of US dollars; small ones with four digits after the point."""
    if amount is None:
        return "unknown price"
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: ``8 s``, ``3 min 20 s``, ``1 h``."""
    whole = max(0, int(seconds))
    units = [(whole // 3600, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    while len(units) > 1 and not units[0][0]:
        units.pop(0)
    told = [f"{number} {unit}" for number, unit in units[:2] if number]
    return " ".join(told) or "0 s"


def short_count(number: int) -> str:
    """Return a large number in few characters: ``9,500``, ``24k``, ``1.5M``."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1e6:.1f}M" if number >= 999_500 else f"{number / 1e3:.0f}k"


def figure_columns(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether it has nothing but figures; the head does not count."""
    return [
        any(column) and all(map(_FIGURE.fullmatch, column)) for column in zip(*rows, strict=True)
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows, the first of them the head, as lines in which columns stand below each other.

    Figures stand to the right. The last column takes no padding.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = figure_columns(rows[1:]) or [False] * len(widths)
    return [
        "  ".join(
            f"{cell:>{width}}" if figures else f"{cell:{width}}"
            for cell, width, figures in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def joined(text: str) -> str:
    """Return ``text`` with the two halves of a character joined.

    Streams cut characters in halves. JSON joins them, and a replay must see what was seen.
    """
    return text if text.isascii() else _SPLIT_PAIR.sub(_join, text)


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")
