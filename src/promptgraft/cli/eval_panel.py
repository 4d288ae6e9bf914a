"""A panel on the terminal that shows how far an evaluation is."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from rich.console import Console, RenderableType

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.eval_run import EvalProgress
from promptgraft.cli.live import SECONDS_BETWEEN_TICKS, LivePanel, bar, line
from promptgraft.cli.progress import waiting
from promptgraft.clock import Clock
from promptgraft.evals.attempt import Attempt
from promptgraft.text import dollars, duration, score, short_count, sparkline

_BARS = 24


class EvalPanel(LivePanel, EvalProgress):
    """Shows an evaluation of ``total`` answers in a panel, which leaves nothing behind."""

    def __init__(
        self,
        title: str,
        total: int,
        *,
        console: Console | None = None,
        clock: Clock | None = None,
        tick: float | None = SECONDS_BETWEEN_TICKS,
    ) -> None:
        LivePanel.__init__(self, title, console=console, clock=clock, tick=tick)
        self._began = self._clock.monotonic()
        self._total = total
        self._done = self._in_flight = self._tokens = 0
        self._cost: Decimal | None = Decimal(0)
        self._sum, self._means = 0.0, list[float]()
        self._wait = ""

    def begun(self) -> None:
        with self._lock:
            self._in_flight += 1
            self.draw_now_and_then()

    def ended(self, attempt: Attempt | None) -> None:
        with self._lock:
            self._in_flight -= 1
            self._done += 1
            self._wait = ""
            if attempt is not None:
                self._take(attempt)
            self.draw_now_and_then()

    def _take(self, attempt: Attempt) -> None:
        for call in (*attempt.task_calls, *attempt.judge_calls):
            self._tokens += call.usage.input_tokens + call.usage.output_tokens
            if self._cost is not None:
                self._cost = None if call.cost is None else self._cost + call.cost
        if attempt.outcome.score is not None:
            self._sum += attempt.outcome.score
            self._means.append(self._sum / (len(self._means) + 1))

    def waits(self, notice: CallWaiting) -> None:
        with self._lock:
            self._wait = waiting(notice.model, notice.seconds, notice.reason)
            self.draw()

    def rows(self) -> Iterator[tuple[str, RenderableType]]:
        curve = "" if self._console.options.ascii_only else sparkline(self._means, _BARS)
        mean = score(self._means[-1]) if self._means else "not known yet"
        yield "mean score", line(f"{mean}  {curve}")
        yield "answers", bar(self._done, self._total)
        yield "used", line(f"{self._spent()}, {short_count(self._tokens)} tokens")
        yield "time", line(self._time())
        flying = f"{self._in_flight} in flight" if self._in_flight else ""
        yield "calls", line("; ".join(filter(None, (flying, self._wait))))

    def _spent(self) -> str:
        """Return what is spent, and what all answers are expected to cost if they cost the like."""
        if not self._cost or self._done == self._total:
            return dollars(self._cost)
        return f"{dollars(self._cost)} of about {dollars(self._cost / self._done * self._total)}"

    def _time(self) -> str:
        passed = self._clock.monotonic() - self._began
        if not self._done or self._done == self._total:
            return duration(passed)
        left = passed / self._done * (self._total - self._done)
        return f"{duration(passed)}, about {duration(left)} left"
