"""Retries of a call: the policy is ours, the loop is stamina's."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs

from promptgraft.adapters.calling.faults import Fault
from promptgraft.errors import ConfigError
from promptgraft.ground.clock import Clock
from promptgraft.ground.strict.checks import COUNT, SECONDS
from promptgraft.runtime.deadline import Deadline

T = TypeVar("T")
Announce = Callable[[float, str], None]
"""Announces a wait: its seconds, and the reason."""

# stamina logs each retry as a warning, which Python prints to standard error if no handler is set.
logging.getLogger("stamina").addHandler(logging.NullHandler())

ANNOUNCED_WAIT = 2.0
"""Seconds above which a wait is announced, because it looks like a hang."""


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Attempts and waits of a call. Durations are in seconds.

    Attributes:
        attempts: most requests for one call, at least 1.
        wait_initial: wait before the second request; doubled for each further one.
        wait_max: longest wait between requests unless the provider asks for more; at most
            ``max_retry_after``.
        max_retry_after: longest wait that a provider may ask for; a call that would have to wait
            longer is given up at once.
        timeout: wall time of a whole call, including waits between requests but not waits for a
            free slot.

    Raises:
        ConfigError: a value is out of range.
    """

    attempts: int = attrs.field(default=8, validator=COUNT)
    wait_initial: float = attrs.field(default=0.5, validator=SECONDS)
    wait_max: float = attrs.field(default=30.0, validator=SECONDS)
    max_retry_after: float = attrs.field(default=60.0, validator=SECONDS)
    timeout: float = attrs.field(default=600.0, validator=SECONDS)

    def __attrs_post_init__(self) -> None:
        if not self.wait_initial <= self.wait_max <= self.max_retry_after:
            raise ConfigError(
                "expected wait_initial <= wait_max <= max_retry_after, found "
                f"{self.wait_initial:g}, {self.wait_max:g} and {self.max_retry_after:g}"
            )

    def backoff(self, sent: int) -> float:
        """Return the seconds to wait after ``sent`` requests, between half and all of the step."""
        # The exponent is bounded because a large one overflows a float.
        step = min(self.wait_max, self.wait_initial * 2.0 ** min(sent - 1, 60))
        # Jitter keeps calls that failed together from coming back together.
        return step * random.uniform(0.5, 1.0)


_IN_DOUBT = 2  # attempts; the call before has waited for about a minute


@attrs.define(eq=False)
class Availability:
    """Whether a service has ever answered; if not, it is asked less after a call was given up."""

    _answers: bool | None = None

    def note(self, *, answered: bool) -> None:
        """Note how a call has ended: answered, or given up."""
        self._answers = answered or self._answers is True

    def bounded(self, policy: RetryPolicy) -> RetryPolicy:
        """Return the policy, with fewer attempts as long as there was no answer."""
        if self._answers is not False:
            return policy
        return attrs.evolve(policy, attempts=min(_IN_DOUBT, policy.attempts))


class CallTime:
    """The remaining time of one call."""

    def __init__(self, policy: RetryPolicy, clock: Clock, deadline: Deadline | None) -> None:
        self._policy = policy
        self._clock = clock
        self._deadline = deadline
        self._started = clock.monotonic()
        self._queued = 0.0

    @property
    def total(self) -> float:
        return self._clock.monotonic() - self._started

    @property
    def left_of_call(self) -> float:
        """Seconds until the policy's timeout, never negative."""
        return max(0.0, self._policy.timeout - (self.total - self._queued))

    @property
    def left_of_run(self) -> float:
        """Seconds until the deadline, never negative; infinite without one."""
        return math.inf if self._deadline is None else self._deadline.remaining

    def check_run(self) -> None:
        """Raise ``LimitReachedError`` if the run was stopped or has no time left."""
        if self._deadline is not None:
            self._deadline.check()

    def exclude(self, seconds: float) -> None:
        """Exclude the wait for a slot from the time of the call."""
        self._queued += seconds

    def refusal(self, wait: float) -> str:
        """Return why a wait of so many seconds is too long; empty if it is not."""
        if wait > self._policy.max_retry_after:
            return f"max_retry_after is {self._policy.max_retry_after:g} s"
        if wait >= self.left_of_run:
            return f"{self.left_of_run:.1f} s are left of the run"
        if wait >= self.left_of_call:
            return f"{self.left_of_call:.1f} s are left of the call's {self._policy.timeout:g} s"
        return ""


class _RefusedError(Exception):
    """Carries a fault through stamina's loop, which retries on exceptions only."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


def _unless_refused(outcome: T | Fault) -> T:
    if isinstance(outcome, Fault):
        raise _RefusedError(outcome)
    return outcome


async def retry(
    send: Callable[[], Awaitable[T | Fault]],
    *,
    policy: RetryPolicy,
    time: CallTime,
    announce: Announce,
) -> T | Fault:
    """Call ``send`` until it succeeds or fails for good, and return the outcome.

    A fault that was retried says in ``what`` why the retries ended.
    """
    first = await send()
    if not isinstance(first, Fault) or not first.retried:
        return first  # the common case, which stamina would make a third slower
    import stamina

    # The loop below starts with the outcome that is already known instead of sending again.
    sent, end, first_end = 0, "", [first]
    before: Fault | None = None

    def wait_after(error: Exception) -> bool | float:
        """Return the seconds to wait before the next request, or False."""
        nonlocal sent, end, before
        if not isinstance(error, _RefusedError) or not error.fault.retried:
            return False
        sent += 1
        if error.fault.shape and error.fault == before:
            end = " (the same twice, not tried again)"
            return False
        before = error.fault
        if sent >= policy.attempts:
            end = f" (request {sent} of {policy.attempts})"
            return False
        told_wait = error.fault.wait or 0.0
        wait = max(told_wait, policy.backoff(sent))
        next_try = f"the next try would be in {wait:.1f} s"
        if told_wait >= wait:
            next_try = f"the provider says to come back in {told_wait:g} s"
        if refusal := time.refusal(wait):
            end = f" (not tried again: {next_try}, {refusal})"
            return False
        if wait > ANNOUNCED_WAIT:
            announce(
                wait, f"{'rate limited' if error.fault.limited else error.fault.what}; {next_try}"
            )
        return wait

    # stamina's own timeout would count the wait for a slot, which `time` excludes.
    attempts = stamina.retry_context(on=wait_after, attempts=policy.attempts, timeout=None)
    try:
        async for attempt in attempts:
            with attempt:
                return _unless_refused(first_end.pop() if first_end else await send())
    except _RefusedError as error:
        fault = error.fault
    return attrs.evolve(fault, what=f"{fault.what}{end}")
