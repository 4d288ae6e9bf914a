"""Live panels on the terminal for runs and evaluations."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Self, TypedDict, Unpack

from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli import progress
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.text import (
    difference,
    dollars,
    duration,
    score,
    short_count,
    visible_line,
)
from promptgraft.runs import RunHistory
from promptgraft.search.events import Event

_WIDEST = 76
_SECONDS_BETWEEN_FRAMES = 0.1
SECONDS_BETWEEN_TICKS = 0.5
_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return at most ``width`` values, including the first and the last, as a row of bars.

    Empty if all values are equal.
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high or width < 2:
        return ""
    count = min(width, len(values))
    sampled = (values[round(at * (len(values) - 1) / (count - 1))] for at in range(count))
    return "".join(
        _BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in sampled
    )


class Drawn(TypedDict, total=False):
    """Options of a panel: where it is drawn, and when."""

    console: Console | None
    clock: Clock | None
    tick: float | None


class LivePanel(ABC):
    """A framed table on standard error that is redrawn in place and removed at the end.

    It is redrawn at most ten times a second, and every ``tick`` seconds while nothing happens, so
    that the time advances.
    """

    def __init__(
        self,
        title: str,
        *,
        console: Console | None = None,
        clock: Clock | None = None,
        tick: float | None = SECONDS_BETWEEN_TICKS,
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
        # Refreshed explicitly, so that events and ticks together stay below ten frames a second.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    @abstractmethod
    def rows(self) -> Iterable[tuple[str, RenderableType]]:
        """Return the name and the content of each row."""

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

    def draw_if_due(self) -> None:
        """Draw the panel unless it was drawn within the last tenth of a second."""
        if self._clock.monotonic() - self._drawn >= _SECONDS_BETWEEN_FRAMES:
            self.draw()

    def write(self, act: Callable[[], None]) -> None:
        """Call ``act``, which writes to the terminal; stop writing once the terminal is gone."""
        if self._gone:
            return
        try:
            act()
        except (OSError, SystemExit):  # rich ends the program over a closed pipe
            self._gone = True

    def _tick_on(self) -> None:
        while not self._stopping.wait(self._tick):
            with self._lock:
                self.draw_if_due()

    def _render(self) -> RenderableType:
        rows = Table.grid(padding=(0, 2), expand=True)
        rows.add_column(style="dim", no_wrap=True)
        rows.add_column(ratio=1, no_wrap=True, overflow="crop")
        for name, what in self.rows():
            rows.add_row(name, what)
        # Leave room for the `^C` that terminals echo: on a line of its own it would remain.
        width = min(_WIDEST, self._console.width - len("^C "))
        # rich lets a long title break the frame, which itself takes six columns.
        title = line(self._title[: max(0, width - 6)])
        return Panel(rows, title=title, title_align="left", border_style="dim", width=width)


def bar(used: int, total: int) -> RenderableType:
    """Return a progress bar with its figures."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    style = "cyan"
    progress_bar = ProgressBar(
        total=max(1, total), completed=used, complete_style=style, finished_style=style
    )
    grid.add_row(progress_bar, line(f"{used:,}/{total:,}"))
    return grid


def line(text: str, style: str = "") -> Text:
    """Return plain text as one line; rich would parse a string as markup."""
    return Text(visible_line(text), style, no_wrap=True, overflow="crop")


# Lines: of the rows above the last events, and of the frame.
_ROWS = 7
_FRAME = 2
_MOST_EVENTS = 4
_CURVE = 24


class PanelProgress(LivePanel, progress.Progress):
    """A panel of fixed height for a run; at the end only the warnings of the plan remain."""

    def __init__(self, title: str, **drawn: Unpack[Drawn]) -> None:
        # Each event may draw; `draw_if_due` limits how often.
        progress.Progress.__init__(self, drawn.get("clock"), every=0)
        LivePanel.__init__(self, title, **drawn)
        self._last: deque[str] = deque(maxlen=_MOST_EVENTS)

    def on_line(self, line: Event) -> None:
        with self._lock:
            self.run.add(line)
            if brief_text := progress.brief(line, self.run):
                self._last.append(brief_text)
            if warning_text := progress.warnings(line):
                text = Text("\n".join(map(visible_line, warning_text)))
                self.write(lambda: self._console.print(text))
            self.draw_if_due()

    def say(self, what: str) -> None:
        with self._lock:
            self._last.append(what)
            self.draw()

    def rows(self) -> Iterator[tuple[str, RenderableType]]:
        run = self.run
        yield "now", line(progress.doing(run), "bold")
        yield "validation", self._scores()
        yield "test calls", bar(run.rollouts, run.budget or 0)
        yield "used", line(_used(run))
        yield "time", line(self._time())
        yield "rewrites", line(run.rewrites.short)
        yield "calls", self._calls()
        room = max(1, min(self._console.height - _ROWS - _FRAME - 1, _MOST_EVENTS))
        # Empty rows fill the room, so that the panel does not jump when events arrive.
        last = list(self._last)[-room:]
        for at in range(room):
            yield "" if at else "last", line(last[at] if at < len(last) else "")

    def _scores(self) -> Text:
        run = self.run
        if run.sides is None or run.means[0] is None:
            return line("not known yet", "dim")
        baseline, best = run.sides
        text = line(f"{progress.mean_of(baseline)} -> {progress.mean_of(best)}")
        gained = "" if any(run.estimated) else difference(*run.means)
        if gained:
            text.append(f" ({gained})")
        if not self._console.options.ascii_only:
            text.append(f"  {sparkline(run.curve, _CURVE)}", "cyan")
        return text

    def _time(self) -> str:
        now = self._clock.now()
        passed = self.run.elapsed(now)
        limit = self.run.plan.max_seconds if self.run.plan else None
        time_text = (
            duration(passed) if limit is None else f"{duration(passed)} of {duration(limit)}"
        )
        time_left = self.run.left(now)
        # The limit ends the run before that.
        if time_left is None or (limit is not None and time_left > limit - passed):
            return time_text
        return f"{time_text}, at most about {_roughly(time_left)} left"

    def _calls(self) -> Text:
        run, now = self.run, self._clock.now()
        text = line(f"{run.in_flight} in flight" if run.in_flight else "")
        if (wait := run.wait) is not None and run.is_waiting(now):
            seconds = wait.seconds
            if seconds is not None and isinstance(wait.time, datetime):
                seconds -= (now - wait.time).total_seconds()
            waiting_text = visible_line(progress.waiting(wait.model, seconds, wait.reason))
            text.append(f"{'; ' if text else ''}{waiting_text}", "yellow")
        return text


def _used(run: RunHistory) -> str:
    plan = run.plan
    money = f" (max {dollars(plan.max_cost)})" if plan and plan.max_cost is not None else ""
    limit = f" of {short_count(plan.max_tokens)}" if plan and plan.max_tokens is not None else ""
    return f"{progress.spent(run)}{money}, {short_count(run.tokens)}{limit} tokens"


def _roughly(seconds: float) -> str:
    """Return a duration, rounded up in coarse steps so that the figure does not flicker."""
    step = 60 if seconds > 120 else 10
    return duration((int(seconds) // step + 1) * step)


class EvalPanel(LivePanel, progress.EvalProgress):
    """A panel for an evaluation of ``total`` answers; nothing remains at the end."""

    def __init__(self, title: str, total: int, **drawn: Unpack[Drawn]) -> None:
        LivePanel.__init__(self, title, **drawn)
        self._began = self._clock.monotonic()
        self._total = total
        self._done = self._in_flight = self._tokens = 0
        self._cost: Decimal | None = Decimal(0)
        self._sum, self._means = 0.0, list[float]()
        self._wait = ""

    def begun(self) -> None:
        with self._lock:
            self._in_flight += 1
            self.draw_if_due()

    def ended(self, attempt: CaseAttempt | None) -> None:
        with self._lock:
            self._in_flight -= 1
            self._done += 1
            self._wait = ""
            if attempt is not None:
                self._record(attempt)
            self.draw_if_due()

    def _record(self, attempt: CaseAttempt) -> None:
        for call in (*attempt.task_calls, *attempt.judge_calls):
            self._tokens += call.usage.input_tokens + call.usage.output_tokens
            if self._cost is not None:
                self._cost = None if call.cost is None else self._cost + call.cost
        if attempt.outcome.score is not None:
            self._sum += attempt.outcome.score
            self._means.append(self._sum / (len(self._means) + 1))

    def waits(self, notice: CallWaiting) -> None:
        with self._lock:
            self._wait = progress.waiting(notice.model, notice.seconds, notice.reason)
            self.draw()

    def rows(self) -> Iterator[tuple[str, RenderableType]]:
        curve = "" if self._console.options.ascii_only else sparkline(self._means, _CURVE)
        mean = score(self._means[-1]) if self._means else "not known yet"
        yield "mean score", line(f"{mean}  {curve}")
        yield "answers", bar(self._done, self._total)
        yield "used", line(f"{self._spent()}, {short_count(self._tokens)} tokens")
        yield "time", line(self._time())
        flying = f"{self._in_flight} in flight" if self._in_flight else ""
        yield "calls", line("; ".join(filter(None, (flying, self._wait))))

    def _spent(self) -> str:
        """Return the cost so far, and the total cost projected from the answers so far."""
        if not self._cost or self._done == self._total:
            return dollars(self._cost)
        return f"{dollars(self._cost)} of about {dollars(self._cost / self._done * self._total)}"

    def _time(self) -> str:
        passed = self._clock.monotonic() - self._began
        if not self._done or self._done == self._total:
            return duration(passed)
        seconds_left = passed / self._done * (self._total - self._done)
        return f"{duration(passed)}, about {duration(seconds_left)} left"
