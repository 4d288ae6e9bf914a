"""Sessions: an append-only log of typed events that leaks nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import attrs

from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.runtime import EventBus, Session, SessionProtocol


@attrs.frozen
class Asked:
    number: int


@attrs.frozen
class AskedTwice(Asked):
    pass


@attrs.frozen
class Answered:
    text: str


def test_events_are_kept_in_order_and_selected_by_type() -> None:
    session = Session()
    events = [Asked(1), Answered("a"), AskedTwice(2), Asked(1)]
    for event in events:
        session.dispatch(event)
    assert session.select_all(object) == tuple(events)
    assert session.select_all(Asked) == (Asked(1), AskedTwice(2), Asked(1))
    assert session.select_all(AskedTwice) == (AskedTwice(2),)
    assert session.select_all(Answered) == (Answered("a"),)
    assert session.select_all(str) == ()


def test_the_latest_event_of_a_type_is_the_last_that_was_dispatched() -> None:
    session = Session()
    assert session.latest(Asked) is None
    for event in (Asked(1), AskedTwice(2), Answered("a")):
        session.dispatch(event)
    assert session.latest(Asked) == AskedTwice(2)
    assert session.latest(Answered) == Answered("a")
    assert session.latest(int) is None


def test_what_was_selected_does_not_change_afterwards() -> None:
    session = Session()
    session.dispatch(Asked(1))
    before = session.select_all(Asked)
    session.dispatch(Asked(2))
    assert before == (Asked(1),)
    assert session.select_all(Asked) == (Asked(1), Asked(2))


def test_nothing_takes_an_event_back() -> None:
    offered = {name for name in dir(Session()) if not name.startswith("_")}
    assert offered == {
        *("tags", "budget", "deadline", "calls", "notify"),
        *("dispatch", "select_all", "latest"),
    }


def test_tags_are_a_copy_that_nobody_changes() -> None:
    tags = {"scope": "rollout"}
    session: SessionProtocol = Session(tags=tags)
    tags["scope"] = "other"
    assert session.tags == {"scope": "rollout"}
    assert isinstance(session.tags, FrozenMap)
    assert Session().tags == {}


def test_without_a_bus_nothing_is_seen_outside() -> None:
    bus = EventBus()
    seen: list[object] = []
    bus.subscribe(object, seen.append)
    quiet, loud = Session(), Session(bus=bus)
    quiet.dispatch(Asked(1))
    loud.dispatch(Asked(2))
    assert seen == [Asked(2)]
    assert quiet.select_all(object) == (Asked(1),)
    assert loud.select_all(object) == (Asked(2),)


def test_a_handler_sees_the_event_in_the_session_and_may_dispatch_another() -> None:
    bus = EventBus()
    session = Session(bus=bus)

    def answer(asked: Asked) -> None:
        assert session.latest(Asked) is asked
        session.dispatch(Answered(str(asked.number)))

    bus.subscribe(Asked, answer)
    session.dispatch(Asked(1))
    session.dispatch(Asked(2))
    assert session.select_all(object) == (Asked(1), Answered("1"), Asked(2), Answered("2"))


def together(threads: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in all threads at once; raise what any of them raises."""
    start = threading.Barrier(threads)

    def started(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(started, number) for number in range(threads)]:
            done.result()


def test_eight_threads_lose_no_event_and_keep_their_own_order() -> None:
    bus = EventBus()
    session = Session(bus=bus)
    seen: list[Asked] = []
    bus.subscribe(Asked, seen.append)

    def dispatch(thread: int) -> None:
        place = 0
        for number in range(500):
            session.dispatch(Asked(thread * 1000 + number))
            found = session.select_all(Asked)
            latest = session.latest(Asked)
            place = found.index(Asked(thread * 1000 + number), place)
            assert latest is not None

    together(8, dispatch)
    for events in (session.select_all(Asked), seen):
        assert len(events) == 4000
        for thread in range(8):
            own = [event.number for event in events if event.number // 1000 == thread]
            assert own == [thread * 1000 + number for number in range(500)]


def test_events_are_never_compared_or_hashed() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        def __hash__(self) -> int:
            raise AssertionError("hashed")

    session = Session()
    odd = Odd()
    session.dispatch(odd)
    assert session.latest(Odd) is odd
    assert session.select_all(Odd)[0] is odd
