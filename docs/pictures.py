"""Draws the pictures of the pages, and fills in the figures of the demo: ``make pictures``.

The terminal is a real run of ``promptgraft demo``, and the figures in the README are its output.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import drawing
import terminal

README = Path(__file__).parents[1] / "README.md"
FOLDER = Path(__file__).parent / "pictures"
PROGRAM = str(Path(sys.executable).with_name("promptgraft"))
FIGURES = re.compile(r"(?s)(<!-- made by: make pictures -->\n```text\n).*?(```\n)")
"""The block of the README that has the figures of the demo."""

COLUMNS, LINES = 96, 26
PROMPT: terminal.Row = (("$ ", f' fill="{terminal.DIM}"'), ("make demo", ' fill="#ffffff"'))


def demo_picture() -> str:
    """Return the terminal of ``promptgraft demo``: its progress, then what it found."""
    with tempfile.TemporaryDirectory() as folder:
        recording = terminal.record(
            [PROGRAM, "demo", "--store", folder],
            columns=COLUMNS,
            lines=LINES,
            folder=Path(folder),
        )
    return terminal.draw(demo_frames(recording), columns=COLUMNS, title="make demo in a terminal")


def demo_frames(recording: terminal.Recording) -> list[terminal.Frame]:
    """Return the command, some states of the progress, and the summary from its top."""
    begun = terminal.Frame(0, (PROMPT,))
    running = [
        attrs.evolve(frame, rows=(PROMPT, *frame.rows[: LINES - 1]))
        for frame in recording.frames
        if frame.rows and frame.text.startswith("╭")
    ]
    rows = recording.transcript.rows
    top = next(number for number, row in enumerate(rows) if _text(row).startswith("examples/"))
    found = terminal.Frame(recording.transcript.at, (PROMPT, *rows[top : top + LINES - 1]))
    return [begun, *running[:: max(1, len(running) // 8)], found]


def _text(row: terminal.Row) -> str:
    return "".join(text for text, _ in row)


def layers_picture() -> str:
    """Return the drawing of the layers that ``specs/README.md`` lists."""
    page = (README.parent / "specs" / "README.md").read_text("utf-8")
    listed = page.partition("```text\n")[2].partition("```")[0]
    rows = [line.split() for line in listed.splitlines()]
    ground = ["errors, files, text, strict reading and other groundwork"]
    return drawing.layers([*rows[:-1], ground])


def demo_figures(summary: str) -> str:
    """Return the lines of the demo's summary that say what it gained, and for how much."""
    wanted = re.compile(r" +before |test |validation |cases |cost ")
    return "".join(line for line in summary.splitlines(keepends=True) if wanted.match(line))


def readme_with(figures: str, readme: str) -> str:
    """Return the README with these figures of the demo."""
    return FIGURES.sub(lambda block: f"{block[1]}{figures}{block[2]}", readme)


def main(names: Sequence[str]) -> None:
    """Draw the pictures with these names, or all; with all, fill in the README too."""
    pictures = {"demo": demo_picture, "gepa": drawing.gepa, "layers": layers_picture}
    FOLDER.mkdir(exist_ok=True)
    for name in names or pictures:
        (FOLDER / f"{name}.svg").write_text(pictures[name](), "utf-8")
    if not names:
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "demo", "--quiet", "--store", folder]
            ended = subprocess.run(command, capture_output=True, text=True, check=True)
        readme = README.read_text("utf-8")
        README.write_text(readme_with(demo_figures(ended.stdout), readme), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
