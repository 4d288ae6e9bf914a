"""A panel on the terminal that shows how far a run is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

from rich.console import Console, RenderableType
from rich.text import Text

from promptgraft.cli.live import SECONDS_BETWEEN_TICKS, LivePanel, bar, line
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

_ROWS = 7
_FRAME = 2
_MOST_EVENTS = 4
_BARS = 24


class PanelProgress(LivePanel, Progress):
    """Shows a run in a panel of fixed height; it leaves only the warnings of the plan behind."""

    def __init__(
        self,
        title: str,
        *,
        console: Console | None = None,
        clock: Clock | None = None,
        tick: float | None = SECONDS_BETWEEN_TICKS,
    ) -> None:
        Progress.__init__(self, clock, every=0)
        LivePanel.__init__(self, title, console=console, clock=clock, tick=tick)
        self._last: deque[str] = deque(maxlen=_MOST_EVENTS)

    def on_line(self, line: Event) -> None:
        with self._lock:
            self.run.add(line)
            if said := brief(line, self.run):
                self._last.append(said)
            if shown := warnings(line):
                text = Text("\n".join(map(visible_line, shown)))
                self.write(lambda: self._console.print(text))
            self.draw_now_and_then()

    def say(self, what: str) -> None:
        with self._lock:
            self._last.append(what)
            self.draw()

    def rows(self) -> Iterator[tuple[str, RenderableType]]:
        run = self.run
        yield "now", line(doing(run), "bold")
        yield "validation", self._scores()
        yield "rollouts", bar(run.rollouts, run.budget or 0)
        yield "used", line(_used(run))
        yield "time", line(self._time())
        merged = f", {counted(run.merged, 'merge')}" if run.merged else ""
        yield (
            "proposals",
            line(f"{run.accepted} accepted, {len(run.rejections)} rejected{merged}"),
        )
        yield "calls", self._calls()
        room = max(1, min(self._console.height - _ROWS - _FRAME - 1, _MOST_EVENTS))
        last = list(self._last)[-room:]
        for at in range(room):
            yield "" if at else "last", line(last[at] if at < len(last) else "")

    def _scores(self) -> Text:
        run = self.run
        if run.sides is None or run.means[0] is None:
            return line("not known yet", "dim")
        baseline, best = run.sides
        text = line(f"{mean_of(baseline)} -> {mean_of(best)}")
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
        text = line(f"{run.in_flight} in flight" if run.in_flight else "")
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
