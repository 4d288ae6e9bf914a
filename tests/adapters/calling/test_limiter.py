"""The limiter against simulated providers, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.calling.simulated import Bucket, Concurrent, Ended, World
from further import thorough
from promptgraft.adapters.calling.limiter import (
    FIRST_PAUSE,
    LONGEST_PATIENCE,
    LONGEST_PAUSE,
    START,
    Limiter,
    Ticket,
    Verdict,
)

LIMITS = [4, 9, 27, *thorough([5, 6, 16, 40, 64])]


def refused(ended: list[Ended]) -> float:
    return sum(not one.served for one in ended) / len(ended)


def share_near(ended: list[Ended], most: int) -> float:
    return sum(abs(one.limit - most) <= 0.2 * most for one in ended) / len(ended)


@pytest.mark.parametrize("wait", [None, 1.0])
@pytest.mark.parametrize("most", LIMITS)
def test_it_settles_within_200_requests_and_is_hardly_refused_afterwards(
    most: int, wait: float | None
) -> None:
    world = World(Concurrent(most, wait), seed=most)

    world.run(200)
    assert abs(world.limiter.limit - most) <= 0.2 * most
    after = world.run(1000)

    assert refused(after) < 0.02
    assert share_near(after, most) > 0.97


@pytest.mark.parametrize("wait", [None, 1.0, 5.0])
@pytest.mark.parametrize("most", [16, 64])
def test_it_settles_although_all_requests_end_together(most: int, wait: float | None) -> None:
    world = World(Concurrent(most, wait), jitter=0.0, way=0.0)
    world.run(200)
    assert abs(world.limiter.limit - most) <= 0.2 * most


@pytest.mark.parametrize("most", LIMITS)
def test_it_follows_a_limit_that_halves_and_doubles(most: int) -> None:
    provider = Concurrent(most)
    world = World(provider, seed=most)
    world.run(600)

    provider.most = most // 2
    world.run(200)
    assert abs(world.limiter.limit - most // 2) <= 0.2 * (most // 2)
    assert refused(world.run(600)) < 0.02

    provider.most = most
    world.run(800)
    assert abs(world.limiter.limit - most) <= 0.2 * most
    assert refused(world.run(600)) < 0.02


def test_it_uses_what_the_provider_allows() -> None:
    world = World(Concurrent(16), workers=64)
    world.run(300)
    began = world.now
    served = sum(one.served for one in world.run(1000))

    assert served / (world.now - began) > 0.9 * 16


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("size", [1, 10, 100])
def test_a_provider_that_counts_requests_per_second_is_not_stormed(size: int, told: bool) -> None:
    world = World(Bucket(rate=10, size=size, told=told), latency=2.0)
    world.run(300)
    began = world.now
    after = world.run(700)

    assert refused(after) < 0.05
    assert sum(one.served for one in after) / (world.now - began) > 0.5 * 10


@given(seed=st.integers(0, 10**6), most=st.integers(1, 20), wait=st.sampled_from([None, 0.3, 2.0]))
@settings(max_examples=15)
def test_nobody_starts_before_the_provider_wants_to_be_asked_again(
    seed: int, most: int, wait: float | None
) -> None:
    world = World(Concurrent(most, wait), workers=40, seed=seed, way=0.0)
    pauses: list[float] = []
    while len(world.ended) < 150:
        (one,) = world.run(1)
        if not one.served:
            pauses.append(world.now)
    least = FIRST_PAUSE if wait is None else wait

    assert pauses
    for began in (one.began for one in world.ended):
        assert not any(pause < began < pause + least - 1e-9 for pause in pauses)


def saturate(limiter: Limiter, now: float = 0.0) -> list[Ticket]:
    tickets = []
    while (ticket := limiter.start(now)) is not None:
        tickets.append(ticket)
    return tickets


def test_it_starts_slowly_and_doubles_in_each_clean_round() -> None:
    for size in (START, 2 * START, 4 * START):
        limiter = grown(size)
        for ticket in saturate(limiter):
            limiter.finish(ticket, Verdict.CLEAN, now=0.0)
            saturate(limiter)
        assert limiter.limit == 2 * size


def grown(limit: int) -> Limiter:
    """Return a limiter that has grown to ``limit`` and has nothing in flight."""
    limiter = Limiter()
    tickets = saturate(limiter)
    while limiter.limit < limit:
        limiter.finish(tickets.pop(0), Verdict.CLEAN, now=0.0)
        if limiter.limit < limit:
            tickets += saturate(limiter)
    for ticket in tickets:
        limiter.finish(ticket, Verdict.SILENT, now=0.0)
    assert limiter.limit == limit
    assert limiter.in_flight == 0
    return limiter


def test_a_share_of_the_account_is_never_exceeded_nor_needed() -> None:
    limiter = Limiter(3)
    for turn in range(50):
        tickets = saturate(limiter, float(turn))
        assert len(tickets) == limiter.in_flight == 3
        for ticket in tickets:
            limiter.finish(ticket, Verdict.CLEAN, now=turn + 0.5)


def test_it_does_not_grow_while_there_is_less_to_do_than_it_allows() -> None:
    limiter = Limiter()
    for _ in range(100):
        ticket = limiter.start(0.0)
        assert ticket is not None
        limiter.finish(ticket, Verdict.CLEAN, now=0.0)
    assert limiter.limit == START


def test_what_says_nothing_changes_nothing() -> None:
    limiter = Limiter()
    for ticket in saturate(limiter):
        limiter.finish(ticket, Verdict.SILENT, now=0.0)
    assert limiter.limit == START
    assert limiter.in_flight == 0


def test_all_refusals_of_requests_that_began_before_a_cut_are_one_episode() -> None:
    limiter = grown(40)
    tickets = saturate(limiter)
    limiter.finish(tickets.pop(), Verdict.LIMITED, now=1.0)
    assert limiter.limit == 39
    while tickets[-1].in_flight > 30:
        limiter.finish(tickets.pop(), Verdict.LIMITED, now=1.0)

    assert limiter.limit == 30  # the lowest that was found taken, not a tenth cut of a cut
    while tickets:
        limiter.finish(tickets.pop(), Verdict.LIMITED, now=1.0)
    assert limiter.limit == 20  # and at most half in one episode


def test_a_pause_is_as_long_as_the_provider_asks_for_up_to_an_hour() -> None:
    limiter = Limiter()
    first, second, third, fourth = saturate(limiter)
    limiter.finish(first, Verdict.LIMITED, now=10.0, wait=20.0)
    limiter.finish(second, Verdict.LIMITED, now=11.0, wait=5.0)
    limiter.finish(third, Verdict.SILENT, now=11.0)
    assert limiter.pause(11.0) == 19.0
    assert limiter.start(29.9) is None
    assert limiter.start(30.0) is not None

    limiter.finish(fourth, Verdict.LIMITED, now=40.0, wait=1e9)
    assert limiter.pause(40.0) == LONGEST_PAUSE


def test_one_request_is_always_allowed() -> None:
    limiter = Limiter()
    now = 0.0
    for _ in range(20):
        tickets = saturate(limiter, now)
        assert tickets
        for ticket in tickets:
            limiter.finish(ticket, Verdict.LIMITED, now=now)
        now += limiter.pause(now)
    assert limiter.limit == 1


def fill(limiter: Limiter, now: float) -> tuple[list[Ticket], float]:
    """Take all there is, one a second; return it and the time."""
    tickets = []
    while (ticket := limiter.start(now)) is not None:
        tickets.append(ticket)
        now += 1.0
    return tickets, now


def refused_once(limit: int) -> Limiter:
    """Return a limiter that holds ``limit``, with nothing in flight."""
    limiter = grown(limit + 1)
    tickets = saturate(limiter, 2.0)
    limiter.finish(tickets.pop(), Verdict.LIMITED, now=2.0)
    for ticket in tickets:
        limiter.finish(ticket, Verdict.CLEAN, now=3.0)
    assert limiter.limit == limit
    return limiter


def test_answers_to_requests_from_before_a_cut_are_no_reason_to_try_more() -> None:
    limiter = refused_once(200)
    tickets, _ = fill(limiter, 1000.0)
    assert len(tickets) == 200
    assert not any(ticket.probe for ticket in tickets)


def test_only_one_request_more_than_the_limit_is_in_flight() -> None:
    limiter = refused_once(8)
    tickets, now = fill(limiter, 1000.0)
    while not any(ticket.probe for ticket in tickets):
        limiter.finish(tickets.pop(0), Verdict.CLEAN, now=now)
        more, now = fill(limiter, now)
        tickets += more
    assert limiter.in_flight == limiter.limit + 1

    limiter.finish(tickets[0], Verdict.CLEAN, now=now)
    assert limiter.start(now + 1000) is None


def test_a_limit_that_holds_is_tried_rarely_and_by_one_request_only() -> None:
    world = World(Concurrent(8), seed=3)
    world.run(1500)
    after = world.run(3 * LONGEST_PATIENCE)

    assert {one.limit for one in after} == {8}
    assert 1 <= sum(not one.served for one in after) <= 4
