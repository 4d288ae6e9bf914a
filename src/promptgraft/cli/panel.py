"""A panel on the terminal that shows how far a run is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from promptgraft.cli.progress import (
    Progress,
    brief,
    doing,
    mean_of,
    spent,
    waiting,
    warnings,
)
from promptgraft.clock import Clock
from promptgraft.runs import RunHistory
from promptgraft.search.notices import CallWaits, Event
from promptgraft.text import (
    counted,
    difference,
    dollars,
    duration,
    short_count,
    sparkline,
    visible_line,
)

_WIDEST = 76
_SECONDS_BETWEEN_FRAMES = 0.1
_SECONDS_BETWEEN_TICKS = 0.5
_ROWS = 7
_FRAME = 2
_MOST_EVENTS = 4
_BARS = 24


class PanelProgress(Progress):
    """Redraws a panel of fixed height on standard error, at most ten times a second.

    It leaves nothing behind but the warnings of the run's plan. So that the time advances, it
    is redrawn every ``tick`` seconds while nothing happens.
    """

    def __init__(
        self,
        title: str,
        *,
        console: Console | None = None,
        clock: Clock | None = None,
        tick: float | None = _SECONDS_BETWEEN_TICKS,
    ) -> None:
        super().__init__(clock, every=0)
        self._title = title
        self._console = console or Console(stderr=True, highlight=False, emoji=False)
        self._drawn = self._clock.monotonic()
        self._last: deque[str] = deque(maxlen=_MOST_EVENTS)
        self._tick = tick
        self._stopping = threading.Event()
        self._gone = False
        self._ticker = threading.Thread(target=self._tick_on, daemon=True)
        # Redrawn by hand, so that events and ticks together stay below ten frames a second.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._write(self._live.start)
        self._draw()
        if self._tick is not None:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._ticker.is_alive():
            self._ticker.join()
        self._write(self._live.stop)

    def on_line(self, line: Event) -> None:
        with self._lock:
            self.run.add(line)
            if said := brief(line, self.run):
                self._last.append(said)
            if shown := warnings(line):
                text = Text("\n".join(map(visible_line, shown)))
                self._write(lambda: self._console.print(text))
            self._draw_now_and_then()

    def say(self, what: str) -> None:
        with self._lock:
            self._last.append(what)
            self._draw()

    def _tick_on(self) -> None:
        while not self._stopping.wait(self._tick):
            with self._lock:
                self._draw_now_and_then()

    def _draw_now_and_then(self) -> None:
        if self._clock.monotonic() - self._drawn >= _SECONDS_BETWEEN_FRAMES:
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._clock.monotonic()
        self._write(lambda: self._live.update(self._render(), refresh=True))

    def _write(self, act: Callable[[], None]) -> None:
        """Write to the terminal unless it has gone; the run itself continues."""
        if self._gone:
            return
        try:
            act()
        except (OSError, SystemExit):  # rich ends the program over a closed pipe
            self._gone = True

    def _render(self) -> RenderableType:
        rows = Table.grid(padding=(0, 2), expand=True)
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(ratio=1, no_wrap=True, overflow="crop")
        rows.add_row("now", _text(doing(self.run), "bold"))
        rows.add_row("validation", self._scores())
        rows.add_row("rollouts", self._bar())
        rows.add_row("used", _text(_used(self.run)))
        rows.add_row("time", _text(self._time()))
        merged = f", {counted(self.run.merged, 'merge')}" if self.run.merged else ""
        proposals = f"{self.run.accepted} accepted, {len(self.run.rejections)} rejected{merged}"
        rows.add_row("proposals", _text(proposals))
        rows.add_row("calls", self._calls())
        room = self._console.height - _ROWS - _FRAME - 1
        last = list(self._last)[-max(1, min(room, _MOST_EVENTS)) :]
        for at in range(max(1, min(room, _MOST_EVENTS))):
            rows.add_row("last" if not at else "", _text(last[at] if at < len(last) else ""))
        # Beside the panel the terminal writes `^C`; in a line of its own it would stay.
        width = min(_WIDEST, self._console.width - len("^C "))
        # Cut here, because rich lets a long title break the frame, which takes six columns.
        title = _text(self._title[: max(0, width - 6)])
        return Panel(rows, title=title, title_align="left", border_style="dim", width=width)

    def _bar(self) -> RenderableType:
        budget, used = self.run.budget or 0, self.run.rollouts
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(
            total=max(1, budget), completed=used, complete_style="cyan", finished_style="cyan"
        )
        grid.add_row(bar, _text(f"{used:,}/{budget:,}"))
        return grid

    def _scores(self) -> Text:
        run = self.run
        if run.sides is None or run.means[0] is None:
            return _text("not known yet", "dim")
        baseline, best = run.sides
        text = _text(f"{mean_of(baseline)} -> {mean_of(best)}")
        gained = "" if any(run.estimated) else difference(*run.means)
        if gained:
            better = best.mean is not None and best.mean > (baseline.mean or 0)
            text.append(f" ({gained})", "green" if better else "")
        if not self._console.options.ascii_only:
            text.append(f"  {sparkline(run.curve, _BARS)}", "cyan")
        return text

    def _time(self) -> str:
        now = self._clock.now()
        passed = self.run.elapsed(now)
        limit = self.run.plan.max_seconds if self.run.plan else None
        shown = duration(passed) if limit is None else f"{duration(passed)} of {duration(limit)}"
        left = self.run.left(now)
        if left is None or (limit is not None and left > limit - passed):
            return shown
        return f"{shown}, at most about {_roughly(left)} left"

    def _calls(self) -> Text:
        run, now = self.run, self._clock.now()
        text = _text(f"{run.in_flight} in flight" if run.in_flight else "")
        if (wait := run.wait) is not None and run.is_waiting(now):
            seconds = wait.seconds
            if seconds is not None and isinstance(wait.time, datetime):
                seconds -= (now - wait.time).total_seconds()
            text.append(f"{'; ' if text else ''}{_said(wait, seconds)}", "yellow")
        return text


def _said(wait: CallWaits, seconds: float | None) -> str:
    return visible_line(waiting(wait.model, seconds, wait.reason))


def _used(run: RunHistory) -> str:
    plan = run.plan
    money = f" (max {dollars(plan.max_cost)})" if plan and plan.max_cost is not None else ""
    limit = f" of {short_count(plan.max_tokens)}" if plan and plan.max_tokens is not None else ""
    return f"{spent(run)}{money}, {short_count(run.tokens)}{limit} tokens"


def _roughly(seconds: float) -> str:
    """Round up, so that the figure does not flicker."""
    step = 60 if seconds > 120 else 10
    return duration((int(seconds) // step + 1) * step)


def _text(text: str, style: str = "") -> Text:
    # A Text is shown as it is; a string would be read as markup.
    return Text(visible_line(text), style, no_wrap=True, overflow="crop")
