"""Records a command in a terminal, and draws what the terminal showed as SVG."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

import attrs
import pyte
from pyte.screens import Char

CHAR_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 18, 14
BACKGROUND, FOREGROUND, DIM = "#161b22", "#d9dfe6", "#8b949e"
COLORS: Mapping[str, str] = {
    "black": "#6e7681",
    "red": "#ff8e85",
    "green": "#63d076",
    "brown": "#e3b341",
    "blue": "#79b8ff",
    "magenta": "#d2a8ff",
    "cyan": "#6fd3dc",
    "white": FOREGROUND,
    "default": FOREGROUND,
}

# SVG joins spaces, so text is placed anew after each gap.
_WORDS = re.compile(r"\S+(?: \S+)*")

Row = tuple[tuple[str, str], ...]
"""One line of a terminal: pieces of text, each with its style as SVG attributes."""


@attrs.frozen
class Frame:
    """What a terminal showed from one moment on.

    Attributes:
        at: seconds since the command began.
        rows: its lines, from the top.
    """

    at: float
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        """Its lines without styles and without trailing space."""
        lines = ("".join(text for text, _ in row).rstrip() for row in self.rows)
        return "\n".join(lines).rstrip()


@attrs.frozen
class Recording:
    """A command that has run in a terminal.

    Attributes:
        columns: the width of the terminal.
        frames: every state that it showed, in order.
        transcript: all lines at the end, with those that had scrolled out at the top.
    """

    columns: int
    frames: tuple[Frame, ...]
    transcript: Frame


def record(command: Sequence[str], *, columns: int, lines: int, folder: Path) -> Recording:
    """Run a command in a terminal of this size, and keep what it shows.

    Raises:
        RuntimeError: it ended with another status than 0.
    """
    screen = pyte.HistoryScreen(columns, lines, history=10_000)
    stream = pyte.ByteStream(screen)
    frames = []
    for at, data in _output(command, columns, lines, folder):
        stream.feed(data)
        frames.append(Frame(at, _rows(_visible_lines(screen), columns)))
    scrolled = _rows(screen.history.top, columns)
    transcript = Frame(frames[-1].at, scrolled + frames[-1].rows)
    return Recording(columns, tuple(frames), transcript)


def _output(
    command: Sequence[str], columns: int, lines: int, folder: Path
) -> Iterator[tuple[float, bytes]]:
    """Yield what the command writes, with the seconds since it began."""
    begun = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines)}
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], list(command))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    while data := _read(terminal):
        yield time.monotonic() - begun, data
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise RuntimeError(f"`{' '.join(command)}` ended with {status}")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports the end of the child as an error
        return b""


def _visible_lines(screen: pyte.HistoryScreen) -> Iterator[Mapping[int, Char]]:
    return (screen.buffer[number] for number in range(screen.lines))


def _rows(lines: Iterable[Mapping[int, Char]], columns: int) -> tuple[Row, ...]:
    return tuple(_row([line[column] for column in range(columns)]) for line in lines)


def _row(chars: Sequence[Char]) -> Row:
    return tuple(
        ("".join(char.data for char in run), style) for style, run in groupby(chars, _style)
    )


def _style(char: Char) -> str:
    color = COLORS.get(char.fg, f"#{char.fg}")
    weight = ' font-weight="bold"' if char.bold else ""
    line = ' text-decoration="line-through"' if char.strikethrough else ""
    fill = "" if color == FOREGROUND else f' fill="{color}"'
    return f"{fill}{weight}{line}"


def draw(frames: Sequence[Frame], *, columns: int, title: str, hold: float = 6) -> str:
    """Return an SVG that shows the frames at their times, again and again.

    The last frame is shown for ``hold`` seconds. Viewers that do not animate, or whose users want
    less motion, show that frame only.
    """
    height = max(len(frame.rows) for frame in frames) * LINE_HEIGHT + 2 * MARGIN
    width = columns * CHAR_WIDTH + 2 * MARGIN
    end = frames[-1].at + hold
    groups = [f'<g id="f{number}">{_drawn(frame.rows)}</g>' for number, frame in enumerate(frames)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f"<desc>{escape(frames[-1].text)}</desc>\n"
        f"<style>\n{_animation(frames, end)}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>\n'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="14" fill="{FOREGROUND}">\n' + "\n".join(groups) + "\n</g>\n</svg>\n"
    )


def _animation(frames: Sequence[Frame], end: float) -> str:
    """Return the style sheet that shows each frame from its time to that of the next one."""
    if len(frames) == 1:
        return ""
    hidden = ", ".join(f"#f{number}" for number in range(len(frames) - 1))
    rules = [
        f"{hidden} {{ visibility: hidden }}",
        "@media (prefers-reduced-motion: no-preference) {",
    ]
    starts = [0.0, *(frame.at for frame in frames[1:]), end]
    for number in range(len(frames)):
        begin, stop = (f"{100 * at / end:.2f}%" for at in starts[number : number + 2])
        before = "" if number == 0 else "0% { visibility: hidden } "
        after = "" if number == len(frames) - 1 else f" {stop} {{ visibility: hidden }}"
        rules.append(
            f"@keyframes k{number} {{ {before}{begin} {{ visibility: visible }}{after} }}\n"
            f"#f{number} {{ animation: k{number} {end:.1f}s step-end infinite }}"
        )
    return "\n".join([*rules, "}", ""])


def _drawn(rows: Sequence[Row]) -> str:
    return "".join(_drawn_row(row, number) for number, row in enumerate(rows))


def _drawn_row(row: Row, number: int) -> str:
    """Return a line of text; each piece is as wide as its characters, in whatever font."""
    y = MARGIN + (number + 0.75) * LINE_HEIGHT
    pieces, column = [], 0
    for text, style in row:
        for word in _WORDS.finditer(text):
            x = MARGIN + (column + word.start()) * CHAR_WIDTH
            width = len(word[0]) * CHAR_WIDTH
            pieces.append(
                f'<tspan x="{x:.1f}" textLength="{width:.1f}"{style}>{escape(word[0])}</tspan>'
            )
        column += len(text)
    return f'<text y="{y:g}">{"".join(pieces)}</text>' if pieces else ""
