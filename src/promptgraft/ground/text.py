"""Formatting of texts, counts and figures for people, and splitting texts of any script into words.

Formatted texts contain nothing that a terminal would interpret. In scripts without spaces each
character is a word; accents, vowel signs and joiners belong to their word.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from subprocess import SubprocessError

from promptgraft.ground.secrets import of_environment, redact

# Control characters, marks that turn the direction of writing, line separators, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_FIGURE = re.compile(r"[-+$~]*[\d.,:/]+( %|%| s)?|none|unknown( price)?|")
_UNSAFE_OR_BREAK = re.compile(f"[\t\n]|{_UNSAFE.pattern}")
_MARKS = ("Mn", "Mc", "Me", "Cf")
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
)
"""Letters of scripts that put no spaces between words, for a character class."""
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_SPLIT_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")


def visible(text: str) -> str:
    """Return ``text`` with everything that a terminal would interpret escaped.

    Line breaks and tabs stay. The result cannot move the cursor, change colours or titles,
    overwrite a line, or reverse the direction of writing.
    """
    return _UNSAFE.sub(lambda match: spelled(match[0]), text)


def visible_line(text: str) -> str:
    """Like :func:`visible`, with line breaks and tabs escaped too."""
    return _UNSAFE_OR_BREAK.sub(lambda match: spelled(match[0]), text)


def spelled(character: str) -> str:
    r"""Return a character as an escape, such as ``\x1b``."""
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell command that fits into a line."""
    if text.isprintable():
        return shlex.quote(text)
    # Line ends would cut a printed command in two, and control characters would not be shown.
    escaped = (
        f"\\{char}"
        if char in "\\'"
        else char
        if char.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))
        for char in text
    )
    return f"$'{''.join(escaped)}'"


def counted(number: int, noun: str) -> str:
    """Return ``1 section`` or ``1,200 sections``."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def number_or_unknown(number: int | None) -> str:
    """Return ``1,200``, or ``unknown`` for None."""
    return "unknown" if number is None else f"{number:,}"


def cases_of_split(number: int, split: str) -> str:
    """Return ``60 test cases``, or ``all 240 cases``."""
    return f"all {counted(number, 'case')}" if split == "all" else counted(number, f"{split} case")


def listed(names: Iterable[str]) -> str:
    """Return the names in back-ticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def common_beginning(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many items two sequences begin with in common."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def moment(time: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def score(value: float | None, *, estimated: bool = False) -> str:
    """Return a score as tables show it, with ``~`` when it is estimated."""
    return "none" if value is None else f"{'~' if estimated else ''}{value:.3f}"


def difference(
    before: float | None, after: float | None, *, estimated: tuple[bool, bool] = (False, False)
) -> str:
    """Return the change of a score, with ``~`` if it is estimated.

    Empty if only the first is estimated: then the two were measured on different examples.
    """
    if before is None or after is None or estimated == (True, False):
        return ""
    return f"{'~' if any(estimated) else ''}{after - before:+.3f}"


def change(
    before: float | None, after: float | None, *, estimated: tuple[bool, bool] = (False, False)
) -> str:
    """Return two scores and their difference, such as ``0.500 -> ~0.750 (~+0.250)``."""
    gained = difference(before, after, estimated=estimated)
    scores = f"{score(before, estimated=estimated[0])} -> {score(after, estimated=estimated[1])}"
    return f"{scores} ({gained})" if gained else scores


_IDENTITY = re.compile(r"(?:graph .* on )?([a-z]\w*)/\d+(?: ([^\s=]+))?(?: host=(\S+))?(?: .*)?")


def model_in_words(identity: str) -> str:
    """Return the name that users know for the model of an adapter; other texts stay as they are.

    ``openai/1 small host=127.0.0.1:8000 effort='low'`` is ``small at 127.0.0.1:8000``.
    """
    match = _IDENTITY.fullmatch(identity)
    if match is None:
        return identity
    provider, model, host = match.groups()
    return f"{model or provider} at {host}" if host else model or provider


def dollars(amount: Decimal | None) -> str:
    """Return an amount of US dollars; below 10 cents with four decimals."""
    if amount is None:
        return "unknown price"
    return f"${amount:,.2f}" if amount * 10 >= 1 or not amount else f"${amount:.4f}"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: ``8 s``, ``3 min 20 s``, ``1 h``, ``7 d``."""
    whole = max(0, int(seconds))
    hours = [(whole // 86_400, "d"), (whole // 3600 % 24, "h")]
    units = [*hours, (whole // 60 % 60, "min"), (whole % 60, "s")]
    while len(units) > 1 and not units[0][0]:
        units.pop(0)
    parts = [f"{number} {unit}" for number, unit in units[:2] if number]
    return " ".join(parts) or "0 s"


def fewer_tokens(share: float) -> str:
    """Return ``the same score with 20% fewer tokens`` for a share of 0.2."""
    return f"the same score with {share:.0%} fewer tokens"


def short_count(number: int) -> str:
    """Return a large number in few characters: ``9,500``, ``24k``, ``1.5M``."""
    if number < 10_000:
        return f"{number:,}"
    # From 999,500 on, thousands would be rounded to `1000k`.
    return f"{number / 1e6:.1f}M" if number >= 999_500 else f"{number / 1e3:.0f}k"


def figure_columns(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether it holds only figures; ``rows`` without the head."""
    return [
        any(column) and all(map(_FIGURE.fullmatch, column)) for column in zip(*rows, strict=True)
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows, the first being the head, as aligned lines; figures are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = figure_columns(rows[1:]) or [False] * len(widths)
    return [
        "  ".join(
            f"{cell:>{width}}" if figures else f"{cell:{width}}"
            for cell, width, figures in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def message_of(error: BaseException) -> str:
    """Return the message of an exception without secrets, with what a failed program printed."""
    try:
        message = redact(str(error), of_environment())
    # The class is the user's: its `__str__` may raise anything, or return no text.
    except Exception as second:  # noqa: BLE001
        return f"(its message cannot be read: `__str__` raised {type(second).__name__})"
    if isinstance(error, SubprocessError):
        printed = getattr(error, "stderr", None) or getattr(error, "output", None) or ""
        text = printed.decode(errors="replace") if isinstance(printed, bytes) else str(printed)
        text = redact(text.strip(), of_environment())  # cut later: half of one would not be found
        message += f" It printed: {clip(text, 500)}" if text else ""
    return message


def raised(error: BaseException) -> str:
    """Return the type and the message of an exception, without secrets."""
    return ": ".join(filter(None, (type(error).__name__, message_of(error))))


def fenced(text: str) -> str:
    """Return ``text`` in a code fence longer than any run of backticks in it."""
    fence = "`" * (1 + max([2, *map(len, re.findall(r"`+", text))]))
    return f"{fence}\n{text}\n{fence}"


def code_span(line: str) -> str:
    """Return a line as a span of code, between more backticks than it has in a row."""
    ticks = "`" * (1 + max(map(len, re.findall(r"`+", line)), default=0))
    # A space on both sides is not part of the code.
    space = " " if "`" in (line[:1], line[-1:]) else ""
    return f"{ticks}{space}{line}{space}{ticks}"


_SHORTEST_LINE = 120
"""Characters that show both ends of a line beside the note between them."""


def clip(text: str, limit: int, *, around: str = "\n") -> str:
    """Shorten ``text`` to ``limit`` characters: its head and tail, and a note between them.

    The note is enclosed in ``around``, and dropped if there is no room for it.
    """
    if len(text) <= limit:
        return text
    note = f"{around}[… {len(text) - limit} of {len(text)} characters left out …]{around}"
    room = limit - len(note) - 2
    if room < 2:
        return text[:limit]
    # The note takes room itself, so count again what is really left out.
    note = f"{around}[… {len(text) - room} of {len(text)} characters left out …]{around}"
    head = (room + 1) // 2
    return text[:head] + note + text[len(text) - (room - head) :]


def on_one_line(text: str) -> str:
    """Return a text with each run of white space, line breaks included, as one space."""
    return " ".join(text.split())


def clip_line(text: str, limit: int) -> str:
    """Shorten a text to one line of ``limit`` characters, as :func:`clip` does."""
    return clip(" ".join(text.split()), limit, around=" ")


def clip_lines(text: str, limit: int) -> str:
    """Shorten the longest lines of ``text`` until it has ``limit`` characters, so that each stays.

    A text of too many lines is clipped as a whole.
    """
    if len(text) <= limit:
        return text
    lines = text.split("\n")
    left, share = limit - len(lines) + 1, 0
    for place, length in enumerate(sorted(map(len, lines))):
        share = left // (len(lines) - place)
        if length > share:
            break
        left -= length
    if share < _SHORTEST_LINE:
        return clip(text, limit)
    return "\n".join(clip(line, share, around=" ") for line in lines)


def words_in(text: str) -> list[str]:
    """Return the words of a text unchanged, in linear time."""
    return _pattern(text).findall(text)


def folded_words(text: str) -> list[str]:
    """Return the words of a text without case, accents and marks, in linear time."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return [word for word in map(_folded, words_in(text)) if word]


def folded_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each of the :func:`folded_words`."""
    matches = _pattern(text).finditer(text)
    return [match.span() for match in matches if text.isascii() or _folded(match[0])]


def pieces_in(text: str) -> list[str]:
    """Split a text into words, line ends, other space and single characters."""
    return _piece_pattern().findall(text)


def is_spaced(text: str) -> bool:
    """Return whether a text holds no character of a script without spaces."""
    return text.isascii() or _spaceless_pattern().search(text) is None


@lru_cache(maxsize=1 << 12)
def _folded(word: str) -> str:
    if word.isascii():
        return word.lower()
    # Filtered before the decomposition too, because NFKD sorts a run of marks in quadratic time.
    bare = "".join(filter(str.isalnum, word))
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", bare))).casefold()


def _pattern(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else _word_pattern()


@cache
def _spaceless_pattern() -> re.Pattern[str]:
    return re.compile(f"[{SPACELESS}]")


@cache
def _word_pattern() -> re.Pattern[str]:
    letter = f"[^\\W_{SPACELESS}]"
    return re.compile(f"[{SPACELESS}]|{letter}(?:{letter}|[{_mark_ranges()}])*")


@cache
def _piece_pattern() -> re.Pattern[str]:
    return re.compile(rf"{_word_pattern().pattern}|\n|[^\S\n]+|.", re.DOTALL)


def _mark_ranges() -> str:
    """Return accents, vowel signs, joiners and soft hyphens as a character class."""
    points = itertools.chain(range(0x80, 0x1F000), range(0xE0000, 0xE01F0))
    codes = [point for point in points if unicodedata.category(chr(point)) in _MARKS]
    ranges = []
    for _, group in itertools.groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        row = [code for _, code in group]
        ranges.append(f"\\U{row[0]:08x}-\\U{row[-1]:08x}")
    return "".join(ranges)


def joined(text: str) -> str:
    """Return ``text`` with split surrogate pairs joined.

    Streams may split a character; JSON joins it, and a replay must see the same text.
    """
    return text if text.isascii() else _SPLIT_PAIR.sub(_join, text)


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")
