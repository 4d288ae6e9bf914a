"""A panel on the terminal, redrawn while something goes on."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from promptgraft.clock import Clock, SystemClock
from promptgraft.text import visible_line

_WIDEST = 76
_SECONDS_BETWEEN_FRAMES = 0.1
SECONDS_BETWEEN_TICKS = 0.5


class LivePanel(ABC):
    """Rows in a frame on standard error, redrawn at most ten times a second, and gone at the end.

    So that the time advances, it is redrawn every ``tick`` seconds while nothing happens.
    """

    def __init__(
        self, title: str, *, console: Console | None, clock: Clock | None, tick: float | None
    ) -> None:
        self._title = title
        self._clock = clock or SystemClock()
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._lock = threading.RLock()
        self._drawn = self._clock.monotonic()
        self._tick = tick
        self._stopping = threading.Event()
        self._gone = False
        self._ticker = threading.Thread(target=self._tick_on, daemon=True)
        # Redrawn by hand, so that events and ticks together stay below ten frames a second.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    @abstractmethod
    def rows(self) -> Iterable[tuple[str, RenderableType]]:
        """Return the rows, each with its name."""

    def __enter__(self) -> Self:
        self.write(self._live.start)
        self.draw()
        if self._tick is not None:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join()
        self.write(self._live.stop)

    def draw(self) -> None:
        """Draw the panel now."""
        self._drawn = self._clock.monotonic()
        self.write(lambda: self._live.update(self._render(), refresh=True))

    def draw_now_and_then(self) -> None:
        """Draw the panel unless it was drawn a moment ago."""
        if self._clock.monotonic() - self._drawn >= _SECONDS_BETWEEN_FRAMES:
            self.draw()

    def write(self, act: Callable[[], None]) -> None:
        """Write to the terminal unless it has gone; what is shown continues."""
        if self._gone:
            return
        try:
            act()
        except (OSError, SystemExit):  # rich ends the program over a closed pipe
            self._gone = True

    def _tick_on(self) -> None:
        while not self._stopping.wait(self._tick):
            with self._lock:
                self.draw_now_and_then()

    def _render(self) -> RenderableType:
        rows = Table.grid(padding=(0, 2), expand=True)
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(ratio=1, no_wrap=True, overflow="crop")
        for name, what in self.rows():
            rows.add_row(name, what)
        # Beside the panel the terminal writes `^C`; in a line of its own it would stay.
        width = min(_WIDEST, self._console.width - len("^C "))
        # Cut here, because rich lets a long title break the frame, which takes six columns.
        title = line(self._title[: max(0, width - 6)])
        return Panel(rows, title=title, title_align="left", border_style="dim", width=width)


def bar(used: int, total: int) -> RenderableType:
    """Return how many of how many, as a bar and in figures."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    style = "cyan"
    shown = ProgressBar(
        total=max(1, total), completed=used, complete_style=style, finished_style=style
    )
    grid.add_row(shown, line(f"{used:,}/{total:,}"))
    return grid


def line(text: str, style: str = "") -> Text:
    """Return a text as one line; a string would be read as markup."""
    return Text(visible_line(text), style, no_wrap=True, overflow="crop")
