"""How often and how long a call is tried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import attrs
import pytest

from promptgraft.adapters.calling.faults import Fault
from promptgraft.adapters.calling.retrying import CallTime, RetryPolicy, retry
from promptgraft.errors import (
    ConfigError,
    PermanentProviderError,
    RateLimitedError,
    TransientProviderError,
)
from promptgraft.runtime.deadline import Deadline
from promptgraft.testing import FakeClock

DOWN = Fault(error=TransientProviderError, what="HTTP 503", retried=True)
GONE = Fault(error=PermanentProviderError, what="HTTP 401")
POLICY = RetryPolicy(attempts=4, wait_initial=0.001, wait_max=0.002)


def limited(wait: float) -> Fault:
    return Fault(error=RateLimitedError, what="HTTP 429", retried=True, wait=wait)


@attrs.define
class Tries:
    """Calls a list of outcomes one after the other, and notes what was announced."""

    outcomes: list[str | Fault]
    policy: RetryPolicy = POLICY
    deadline: Deadline | None = None
    clock: FakeClock = attrs.field(factory=FakeClock)
    each: Callable[[CallTime], None] = lambda _: None
    sent: int = 0
    announced: list[tuple[float, str]] = attrs.field(factory=list)

    def run(self) -> str | Fault:
        time = CallTime(self.policy, self.clock, self.deadline)

        async def send() -> str | Fault:
            self.sent += 1
            self.each(time)
            return self.outcomes.pop(0)

        return asyncio.run(
            retry(
                send,
                policy=self.policy,
                time=time,
                announce=lambda seconds, why: self.announced.append((seconds, why)),
            )
        )

    def fault(self) -> Fault:
        fault = self.run()
        assert isinstance(fault, Fault)
        return fault


def test_it_tries_until_there_is_an_answer() -> None:
    tries = Tries([DOWN, limited(0.001), DOWN, "hello"])
    assert tries.run() == "hello"
    assert tries.sent == 4
    assert tries.announced == []


def test_it_gives_up_after_the_last_attempt_and_says_so() -> None:
    tries = Tries([DOWN] * 9)
    assert tries.fault().what == "HTTP 503 (request 4 of 4)"
    assert tries.sent == 4


def test_what_does_not_pass_is_not_tried_again() -> None:
    tries = Tries([GONE, "hello"])
    assert tries.fault() == GONE
    assert tries.sent == 1


@pytest.mark.parametrize(
    ("wait", "deadline", "reason"),
    [
        (3600.0, None, "the provider says to come back in 3600 s, max_retry_after is 60 s"),
        (20.0, 15.0, "the provider says to come back in 20 s, 15.0 s are left of the run"),
        (20.0, None, "the provider says to come back in 20 s, 10.0 s are left of the call's 10 s"),
    ],
)
def test_a_wait_that_is_too_long_is_not_begun(
    wait: float, deadline: float | None, reason: str
) -> None:
    clock = FakeClock()
    tries = Tries(
        [limited(wait), "hello"],
        clock=clock,
        policy=attrs.evolve(POLICY, timeout=10.0),
        deadline=None if deadline is None else Deadline.after(deadline, clock=clock),
    )
    assert tries.fault().what == f"HTTP 429 (not tried again: {reason})"
    assert tries.sent == 1
    assert tries.announced == []


def test_the_time_of_requests_counts_and_that_of_queues_does_not() -> None:
    policy = attrs.evolve(POLICY, timeout=10.0)
    clock = FakeClock()

    def queue(time: CallTime) -> None:
        clock.advance(8)
        time.exclude(8)

    assert Tries([DOWN, DOWN, "hello"], policy=policy, clock=clock, each=queue).run() == "hello"

    slow = Tries([DOWN] * 3, policy=policy, clock=clock, each=lambda _: clock.advance(5.1))
    assert "0.0 s are left of the call's 10 s" in slow.fault().what
    assert slow.sent == 2


def test_a_wait_that_looks_like_a_hang_is_announced_and_ends_with_the_task() -> None:
    tries = Tries([limited(20.0)], policy=RetryPolicy())

    async def impatient() -> None:
        time = CallTime(tries.policy, tries.clock, None)
        announced = asyncio.Event()

        async def send() -> str | Fault:
            return limited(20.0)

        def announce(seconds: float, why: str) -> None:
            tries.announced.append((seconds, why))
            announced.set()

        task = asyncio.create_task(retry(send, policy=tries.policy, time=time, announce=announce))
        await announced.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(impatient())
    assert tries.announced == [
        (20.0, "rate limited; the provider says to come back in 20 s"),
    ]


def test_errors_that_are_no_faults_pass_through_at_once() -> None:
    def fail(_: CallTime) -> None:
        raise LookupError("ours")

    tries = Tries([], each=fail)
    with pytest.raises(LookupError, match="ours"):
        tries.run()
    assert tries.sent == 1


def test_waits_grow_up_to_a_bound_and_differ() -> None:
    policy = RetryPolicy(wait_initial=1.0, wait_max=8.0)
    for sent, most in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (10_000, 8.0)]:
        waits = [policy.backoff(sent) for _ in range(20)]
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attempts": 0}, "RetryPolicy: attempts: expected an integer of at least 1, found 0"),
        ({"wait_initial": 0.0}, "RetryPolicy: wait_initial: expected seconds above 0, found 0.0"),
        ({"timeout": float("nan")}, "RetryPolicy: timeout: expected seconds above 0, found nan"),
        ({"timeout": float("inf")}, "RetryPolicy: timeout: expected seconds above 0, found inf"),
        (
            {"wait_max": 90.0},
            "expected wait_initial <= wait_max <= max_retry_after, found 0.5, 90 and 60",
        ),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RetryPolicy(**changes)
    assert str(caught.value) == message


def test_retries_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("stamina")
    logger.propagate = False  # pytest listens at the root
    try:
        Tries([DOWN, "hello"]).run()
    finally:
        logger.propagate = True
    assert capfd.readouterr() == ("", "")
