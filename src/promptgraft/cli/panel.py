"""A panel on the terminal that shows how far a run is."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from promptgraft.cli.progress import RunState, plan_lines
from promptgraft.cli.text import score, visible_line
from promptgraft.clock import Clock, SystemClock

_WIDEST = 76
_SECONDS_BETWEEN_FRAMES = 0.1


class PanelProgress:
    """Redraws a panel on standard error, at most ten times a second.

    It leaves nothing behind but the plan of the run.

    Args:
        state: what is shown.
        console: where it is drawn.
        clock: decides when to redraw, and the time that is shown.
    """

    def __init__(
        self, state: RunState, *, console: Console | None = None, clock: Clock | None = None
    ) -> None:
        self._state = state
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._clock = clock or SystemClock()
        self._started = self._drawn = self._clock.monotonic()
        # Redrawn by hand: a thread of its own would compete with the run for every frame.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def on_event(self, event: object) -> None:
        self._state.update(event)
        if lines := plan_lines(event):
            self._console.print(Text("\n".join(map(visible_line, lines))))
        if self._clock.monotonic() - self._drawn >= _SECONDS_BETWEEN_FRAMES:
            self._draw()

    def say(self, what: str) -> None:
        self._state.last = what
        self._draw()

    def _draw(self) -> None:
        self._drawn = self._clock.monotonic()
        self._live.update(self._render(), refresh=True)

    def _render(self) -> RenderableType:
        state = self._state
        rows = Table.grid(padding=(0, 2), expand=True)
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(ratio=1, no_wrap=True, overflow="crop")
        seconds = int(self._drawn - self._started)
        rows.add_row("step", _text(f"{state.step} after {seconds} s"))
        rows.add_row("rollouts", self._bar())
        rows.add_row("D_pareto", _text(self._scores()))
        rows.add_row("mutations", _text(f"{state.accepted} accepted, {state.rejected} rejected"))
        rows.add_row("last", _text(state.last))
        # Beside the panel the terminal writes `^C`; in a line of its own it would stay.
        width = min(_WIDEST, self._console.width - len("^C "))
        # Cut here, because rich lets a long title break the frame, which takes six columns.
        title = _text(state.title[: max(0, width - 6)])
        return Panel(rows, title=title, title_align="left", border_style="dim", width=width)

    def _bar(self) -> RenderableType:
        state = self._state
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=max(1, state.budget), completed=state.rollouts)
        grid.add_row(bar, _text(f"{state.rollouts}/{state.budget}"))
        return grid

    def _scores(self) -> str:
        state = self._state
        if state.baseline is None:
            return "evaluating the baseline"
        return f"{score(state.baseline)} -> {score(state.best)} ({state.gain})"


def _text(text: str) -> Text:
    # A Text is shown as it is; a string would be read as markup.
    return Text(visible_line(text), no_wrap=True, overflow="crop")
