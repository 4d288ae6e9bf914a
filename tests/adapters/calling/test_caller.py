"""One call of a model, from the budget to the ledger."""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from adapters.calling.endpoints import (
    DOWN,
    EXPECTED,
    HELLO,
    LIMITED,
    PRICE,
    SECRET,
    USAGE,
    Hanging,
    Scripted,
    call,
    caller_of,
    error,
    received,
)
from promptgraft.adapters.base import NO_USAGE, CallWaiting, ModelCalled
from promptgraft.adapters.calling.caller import Bill
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.turns import NothingReceivedError, Received
from promptgraft.errors import (
    BudgetExhaustedError,
    ConfigError,
    DeadlineExceededError,
    PermanentProviderError,
    PromptgraftError,
    PromptTooLongError,
    RateLimitedError,
    RejectedRequestError,
    RunCancelledError,
    TransientProviderError,
)
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.session import NOTHING, Budget, Charge, EventBus, Session


def test_a_call_that_was_given_up_reserves_nothing_more() -> None:
    budget, expected = Budget(max_tokens=10), Charge(tokens=10)
    bill = Bill(budget, expected)
    assert bill.close(model="m", seconds=0.0, fault="broken off").requests == 0
    with pytest.raises(asyncio.CancelledError):
        bill.begin()
    budget.reserve(expected)


PAID = Charge(cost=PRICE, tokens=42)


class WatchedBudget(Budget):
    """A budget that remembers what was set aside and has not been settled."""

    def __init__(self, max_tokens: int = 10**9) -> None:
        super().__init__(max_tokens=max_tokens)
        self.outstanding: list[Charge] = []

    def reserve(self, expected: Charge) -> None:
        super().reserve(expected)
        self.outstanding.append(expected)

    def settle(self, expected: Charge, actual: Charge) -> None:
        super().settle(expected, actual)
        if expected != NOTHING:
            self.outstanding.remove(expected)


class Ledger:
    """A session, what it was told, and the budget that it pays from."""

    def __init__(self, *, max_tokens: int = 10**9) -> None:
        self.waits: list[CallWaiting] = []
        self.bus = EventBus()
        self.bus.subscribe(CallWaiting, self.waits.append)
        self.budget = WatchedBudget(max_tokens)
        self.session = Session(bus=self.bus, budget=self.budget)

    @property
    def called(self) -> ModelCalled:
        (one,) = self.session.select_all(ModelCalled)
        return one

    def assert_settled(self, paid: Charge) -> None:
        assert self.budget.paid == paid
        assert self.budget.outstanding == []


def test_an_answer_is_returned_paid_and_reported() -> None:
    ledger = Ledger()
    endpoint = Scripted()

    assert call(caller_of(endpoint), ledger.session) == "hello"

    assert endpoint.bodies == [{}]
    called = ledger.called
    assert called.seconds > 0
    assert called == ModelCalled(
        model="m", requests=1, usage=USAGE, cost=PRICE, seconds=called.seconds
    )
    ledger.assert_settled(PAID)


def test_an_unknown_price_stays_unknown() -> None:
    ledger = Ledger()
    call(caller_of(Scripted()), ledger.session, price=None)
    assert ledger.called.cost is None
    ledger.assert_settled(Charge(tokens=42))


def test_every_retry_is_reserved_and_counted_and_only_the_answer_is_paid() -> None:
    ledger = Ledger()
    before: list[list[Charge]] = []
    endpoint = Scripted(
        [DOWN, NothingReceivedError("reset")],
        on_send=lambda: before.append(list(ledger.budget.outstanding)),
    )

    assert call(caller_of(endpoint), ledger.session) == "hello"

    assert ledger.called.requests == 3
    assert ledger.called.fault == ""
    assert before == [[EXPECTED]] * 3
    ledger.assert_settled(PAID)


def test_a_service_that_never_answered_is_not_asked_as_often_by_later_calls() -> None:
    endpoint = Scripted([*[DOWN] * 3, *[DOWN] * 2, HELLO, *[DOWN] * 3])
    caller = caller_of(endpoint)
    for requests in (3, 2):
        ledger = Ledger()
        with pytest.raises(TransientProviderError):
            call(caller, ledger.session)
        assert ledger.called.requests == requests

    assert call(caller, Ledger().session) == "hello"

    ledger = Ledger()
    with pytest.raises(TransientProviderError):
        call(caller, ledger.session)
    assert ledger.called.requests == 3


def test_a_service_that_limits_calls_is_asked_as_often_by_later_calls() -> None:
    caller = caller_of(Scripted([LIMITED] * 6))
    for _ in range(2):
        ledger = Ledger()
        with pytest.raises(RateLimitedError):
            call(caller, ledger.session)
        assert ledger.called.requests == 3


UNREADABLE = received(200, {"choices": []})


@pytest.mark.parametrize(
    ("answers", "kind", "requests", "message"),
    [
        ([DOWN] * 3, TransientProviderError, 3, "HTTP 503 api_error (request 3 of 3): down"),
        (
            [LIMITED] * 3,
            RateLimitedError,
            3,
            "HTTP 429 rate_limit_error (request 3 of 3): slow down",
        ),
        (
            [received(429, "", retry_after="3600")],
            RateLimitedError,
            1,
            (
                "HTTP 429 (not tried again: the provider says to come back in 3600 s, "
                "max_retry_after is 60 s): an empty body"
            ),
        ),
        (
            [received(401, error("authentication_error", "bad key"))],
            PermanentProviderError,
            1,
            "HTTP 401 authentication_error: bad key; check the API key",
        ),
        ([received(422, {"detail": "bad"})], RejectedRequestError, 1, "HTTP 422: bad"),
        (
            [received(400, error("x", "prompt is too long"))],
            PromptTooLongError,
            1,
            "HTTP 400 x: prompt is too long; shorten the prompt",
        ),
        (
            [UNREADABLE] * 2,
            TransientProviderError,
            2,
            (
                "unreadable answer (the same twice, not tried again): expected a text, found "
                "{'choices': []}"
            ),
        ),
        (
            [NothingReceivedError("reset")] * 3,
            TransientProviderError,
            3,
            "no answer (request 3 of 3): reset",
        ),
    ],
)
def test_a_call_that_is_given_up_raises_its_class_and_is_reported(
    answers: list[Received | NothingReceivedError],
    kind: type[PromptgraftError],
    requests: int,
    message: str,
) -> None:
    ledger = Ledger()
    with pytest.raises(kind) as caught:
        call(caller_of(Scripted(answers)), ledger.session)

    assert type(caught.value) is kind
    assert str(caught.value) == f"model `m`: {message}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    called = ledger.called
    assert (called.requests, called.usage, called.cost) == (requests, NO_USAGE, Decimal(0))
    assert called.fault == str(caught.value)
    ledger.assert_settled(NOTHING)


@pytest.mark.parametrize("seconds", ["3600", "86400"])
def test_a_pause_of_the_account_that_is_too_long_ends_other_calls_without_a_request(
    seconds: str,
) -> None:
    endpoint = Scripted([received(429, "", retry_after=seconds)])
    first, second = caller_of(endpoint), caller_of(Scripted(account=endpoint.account))
    with pytest.raises(RateLimitedError):
        call(first)
    ledger = Ledger()
    with pytest.raises(RateLimitedError) as caught:
        call(second, ledger.session)
    named = re.search(r"rate limited for another (\d+) s", str(caught.value))
    assert named is not None
    assert int(named[1]) == pytest.approx(int(seconds), abs=60)
    assert ledger.called.requests == 0


WORDS = f"key {SECRET} and sk-other-123456 in\n\x1b[1m {'long ' * 500}"


@pytest.mark.parametrize(
    "answer",
    [
        received(429, error(f"t-{SECRET}", WORDS), retry_after="30"),
        received(400, error(f"t-{SECRET}", WORDS)),
        received(500, WORDS),
        received(200, WORDS),
        received(200, {"odd": WORDS}),
        NothingReceivedError(WORDS),
    ],
)
def test_no_secret_is_in_any_message(answer: Received | NothingReceivedError) -> None:
    ledger = Ledger()
    cancellation = Cancellation()
    ledger.bus.subscribe(CallWaiting, lambda _: cancellation.set("seen"))
    with pytest.raises(PromptgraftError) as caught:
        call(
            caller_of(Scripted([answer] * 3)),
            ledger.session,
            deadline=Deadline(cancellation=cancellation),
        )
    for text in (str(caught.value), ledger.called.fault, *(wait.reason for wait in ledger.waits)):
        assert "secret" not in text.replace("[secret]", "")
        assert "sk-other" not in text
        assert len(text) <= 500
        assert text.isprintable()


def test_a_long_wait_is_announced_and_a_cancellation_ends_it() -> None:
    ledger = Ledger()
    cancellation = Cancellation()
    ledger.bus.subscribe(CallWaiting, lambda _: cancellation.set("seen"))
    endpoint = Scripted([received(429, "", retry_after="20")])

    with pytest.raises(RunCancelledError):
        call(
            caller_of(endpoint, policy=RetryPolicy()),
            ledger.session,
            deadline=Deadline(cancellation=cancellation),
        )

    assert ledger.waits == [
        CallWaiting(
            model="m", seconds=20.0, reason="rate limited; the provider says to come back in 20 s"
        )
    ]
    assert ledger.called.requests == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_calls_that_hang_end_when_the_run_is_cancelled(deaf: bool) -> None:
    begun = threading.Semaphore(0)
    endpoint = Hanging(on_send=begun.release, deaf=deaf)
    caller = caller_of(endpoint)
    cancellation = Cancellation()
    ledgers = [Ledger() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        deadline = Deadline(cancellation=cancellation)
        calls = [pool.submit(call, caller, ledger.session, deadline=deadline) for ledger in ledgers]
        for _ in range(4):  # the limiter starts with four, the others wait for a place
            assert begun.acquire(timeout=5)
        cancellation.set("Ctrl+C")
        errors = [one.exception(5) for one in calls]

    assert all(isinstance(error, RunCancelledError) for error in errors)
    assert sorted(ledger.called.requests for ledger in ledgers) == [0, 0, 1, 1, 1, 1]
    for ledger in ledgers:
        assert ledger.called.fault == "cancelled: the run was stopped: Ctrl+C"
        ledger.assert_settled(NOTHING)


def test_a_deadline_ends_a_call_that_hangs_and_is_no_fault_of_the_provider() -> None:
    ledger = Ledger()
    with pytest.raises(DeadlineExceededError):
        call(caller_of(Hanging()), ledger.session, deadline=Deadline.after(0.05))
    assert ledger.called.requests == 1
    assert ledger.called.fault == "the deadline of the run has passed"
    ledger.assert_settled(NOTHING)


def test_a_request_that_the_deadline_cuts_short_is_no_fault_of_the_provider() -> None:
    late = NothingReceivedError("60 s", timed_out=True)
    with pytest.raises(DeadlineExceededError):
        call(caller_of(Scripted([late])), deadline=Deadline.after(20))


def test_a_request_that_takes_too_long_is_a_fault_of_the_provider() -> None:
    late = NothingReceivedError("nothing within 30 s", timed_out=True)
    with pytest.raises(TransientProviderError, match="no answer in time"):
        call(caller_of(Scripted([late] * 3)), deadline=Deadline.after(600))


def test_an_endpoint_that_ignores_its_time_is_broken_off() -> None:
    endpoint = Hanging()
    policy = RetryPolicy(attempts=1)
    with pytest.raises(TransientProviderError, match=r"nothing within 0\.01 s"):
        call(caller_of(endpoint, policy=policy, call_timeout=0.01))
    assert endpoint.broken_off == 1


def test_nothing_is_sent_when_time_is_up_or_the_run_is_cancelled() -> None:
    cancellation = Cancellation()
    cancellation.set("enough")
    endpoint = Scripted()
    ledger = Ledger()
    with pytest.raises(RunCancelledError):
        call(caller_of(endpoint), ledger.session, deadline=Deadline(cancellation=cancellation))
    assert endpoint.bodies == []
    assert ledger.called.requests == 0


def test_money_is_asked_for_before_every_request() -> None:
    ledger = Ledger(max_tokens=20)
    endpoint = Scripted([DOWN] * 3, on_send=lambda: ledger.budget.pay(Charge(tokens=15)))

    with pytest.raises(BudgetExhaustedError) as caught:
        call(caller_of(endpoint), ledger.session)

    assert caught.value.limit == "max_tokens"
    assert ledger.called.requests == 2
    assert ledger.called.fault == str(caught.value)
    ledger.assert_settled(Charge(tokens=30))


def test_errors_of_our_own_settle_and_report_too() -> None:
    def fail() -> None:
        raise LookupError("ours")

    ledger = Ledger()
    with pytest.raises(LookupError, match="ours"):
        call(caller_of(Scripted(on_send=fail)), ledger.session)
    assert ledger.called.requests == 1
    assert ledger.called.fault
    ledger.assert_settled(NOTHING)


class Counting:
    """Answers after a moment and counts how many requests it has at once."""

    account = "counting"
    secrets: tuple[str, ...] = ()
    blanked: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def send(self, body: JsonObject, *, seconds: float) -> Received:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return HELLO


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_requests_are_in_flight_than_the_option_allows(most: int) -> None:
    endpoint = Counting()
    caller = caller_of(endpoint, max_concurrency=most)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: call(caller), range(40))) == ["hello"] * 40
    assert endpoint.most == most


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"call_timeout": 0.0}, "call_timeout: expected seconds above 0, found 0.0"),
        (
            {"call_timeout": float("nan")},
            "call_timeout: expected seconds above 0, found nan",
        ),
        (
            {"max_concurrency": 0},
            "max_concurrency: expected an integer of at least 1, found 0",
        ),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        caller_of(Scripted(), **options)  # type: ignore[arg-type]
    assert str(caught.value) == f"Caller: {message}"
