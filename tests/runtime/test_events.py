"""The bus tells everybody, in order, and nobody can break it."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from promptgraft.runtime import EventBus


def test_subscribers_are_told_in_the_order_in_which_they_subscribed() -> None:
    bus = EventBus()
    told: list[tuple[str, object]] = []
    bus.subscribe(int, lambda event: told.append(("first", event)))
    bus.subscribe(object, lambda event: told.append(("second", event)))
    bus.subscribe(int, lambda event: told.append(("third", event)))
    bus.publish(1)
    bus.publish("a")
    assert told == [("first", 1), ("second", 1), ("third", 1), ("second", "a")]


def test_an_event_is_also_one_of_its_base_classes() -> None:
    bus = EventBus()
    told: list[int] = []
    bus.subscribe(int, told.append)
    bus.publish(True)
    bus.publish(1.0)
    assert told == [True]


def test_a_subscription_ends_once_and_takes_no_other_with_it() -> None:
    bus = EventBus()
    told: list[str] = []

    def handler(event: str) -> None:
        told.append(event)

    first = bus.subscribe(str, handler)
    second = bus.subscribe(str, handler)
    bus.publish("a")
    first()
    first()
    bus.publish("b")
    assert told == ["a", "a", "b"]
    second()
    bus.publish("c")
    assert told == ["a", "a", "b"]


def test_a_handler_may_subscribe_and_unsubscribe_while_it_is_told() -> None:
    bus = EventBus()
    told: list[str] = []

    def once(event: str) -> None:
        told.append(f"once {event}")
        end()
        bus.subscribe(str, lambda later: told.append(f"later {later}"))

    end = bus.subscribe(str, once)
    bus.publish("a")
    bus.publish("b")
    assert told == ["once a", "later b"]


def test_a_failing_handler_is_logged_with_its_traceback_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = EventBus()
    told: list[str] = []

    def broken(event: str) -> None:
        raise ValueError(f"cannot take {event}")

    bus.subscribe(str, told.append)
    bus.subscribe(str, broken)
    bus.subscribe(str, told.append)
    with caplog.at_level(logging.ERROR, logger="promptgraft"):
        bus.publish("a")
        bus.publish("b")
    assert told == ["a", "a", "b", "b"]

    (record,) = caplog.records
    assert (record.name, record.levelno) == ("promptgraft", logging.ERROR)
    said = record.getMessage()
    assert ".broken` of str raised ValueError: cannot take a (" in said
    assert "test_events.py:" in said
    assert "in broken" in caplog.text
    assert "ValueError: cannot take a" in caplog.text


def test_an_interrupt_in_a_handler_is_not_swallowed() -> None:
    bus = EventBus()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    bus.subscribe(str, interrupted)
    with pytest.raises(KeyboardInterrupt):
        bus.publish("a")


def test_handlers_run_in_the_thread_that_publishes() -> None:
    bus = EventBus()
    threads: list[int] = []
    bus.subscribe(str, lambda _: threads.append(threading.get_ident()))
    bus.publish("a")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(bus.publish, "b").result()
        other = pool.submit(threading.get_ident).result()
    assert threads == [threading.get_ident(), other]
    assert other != threading.get_ident()


def test_threads_that_subscribe_at_once_are_all_told() -> None:
    bus = EventBus()
    told: list[int] = []
    start = threading.Barrier(8)

    def subscribe(number: int) -> None:
        start.wait()
        for _ in range(50):
            end = bus.subscribe(str, lambda _: told.append(-1))
            bus.subscribe(str, lambda _: told.append(number))
            end()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(subscribe, range(8)))
    bus.publish("a")
    assert sorted(told) == sorted(number for number in range(8) for _ in range(50))
