"""Where requests wait for their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import attrs
import pytest

from promptgraft.adapters.calling.limiter import (
    START,
    Gate,
    Lane,
    PausedError,
    Ticket,
    Verdict,
    gate_of,
)
from promptgraft.ground.clock import SystemClock
from promptgraft.testing import FakeClock


@attrs.define
class Crowd:
    """People before a gate; ``inside`` and ``announced`` tell what became of them."""

    clock: FakeClock = attrs.field(factory=FakeClock)
    lane: Lane = attrs.field(factory=Lane)
    inside: list[int] = attrs.field(factory=list)
    announced: list[tuple[float, str]] = attrs.field(factory=list)
    tickets: dict[int, Ticket] = attrs.field(factory=dict)
    patience: float = 60.0
    gate: Gate = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.gate = Gate(self.clock)

    async def enter(self, number: int, lane: Lane | None = None) -> None:
        ticket = await self.gate.enter(
            lane or self.lane,
            refusal=lambda pause: "impatient" if pause > self.patience else "",
            announce=lambda seconds, why: self.announced.append((seconds, why)),
        )
        self.inside.append(number)
        self.tickets[number] = ticket

    def leave(
        self, number: int, verdict: Verdict = Verdict.SILENT, wait: float | None = None
    ) -> None:
        self.inside.remove(number)
        self.gate.leave(self.tickets.pop(number), self.lane, verdict, wait=wait)

    def come(self, *numbers: int, lane: Lane | None = None) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.enter(number, lane)) for number in numbers]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def play(scene: Coroutine[object, object, None]) -> None:
    asyncio.run(scene)


def test_who_came_first_goes_first() -> None:
    async def scene() -> None:
        crowd = Crowd()
        crowd.come(*range(8))
        await settle()
        assert crowd.inside == [0, 1, 2, 3]
        assert len(crowd.inside) == START
        crowd.leave(2)
        crowd.leave(0)
        await settle()
        assert crowd.inside == [1, 3, 4, 5]

    play(scene())


def test_somebody_who_goes_away_loses_no_place() -> None:
    async def scene() -> None:
        crowd = Crowd()
        tasks = crowd.come(*range(7))
        await settle()
        tasks[4].cancel()  # while waiting
        crowd.leave(0)
        tasks[5].cancel()  # just when the place was given
        await settle()
        assert crowd.inside == [1, 2, 3, 6]
        for number in (1, 2, 3, 6):
            crowd.leave(number)
        crowd.come(*range(10, 20))
        await settle()
        assert crowd.inside == [10, 11, 12, 13]

    play(scene())


def test_a_full_lane_holds_up_nobody_else() -> None:
    async def scene() -> None:
        narrow = Lane(1)
        crowd = Crowd(lane=narrow)
        crowd.come(0, 1)
        crowd.come(2, 3, lane=Lane())
        await settle()
        assert crowd.inside == [0, 2, 3]
        crowd.leave(0)
        await settle()
        assert crowd.inside == [2, 3, 1]

    play(scene())


def test_nobody_starts_in_a_pause_and_somebody_says_so_once() -> None:
    async def scene() -> None:
        crowd = Crowd()
        crowd.come(*range(6))
        await settle()
        crowd.leave(0, Verdict.LIMITED, wait=20.0)
        crowd.leave(1, Verdict.LIMITED, wait=20.0)
        crowd.come(6)
        await settle()
        assert crowd.inside == [2, 3]
        assert crowd.announced == [(20.0, "rate limited; no request is started before")]

        crowd.leave(2)
        crowd.leave(3)
        crowd.clock.advance(20)
        crowd.come(7)
        await settle()
        assert crowd.inside[0] == 4

    play(scene())


def test_short_pauses_and_full_gates_are_not_worth_a_word() -> None:
    async def scene() -> None:
        crowd = Crowd()
        crowd.come(*range(9))
        await settle()
        crowd.leave(0, Verdict.LIMITED, wait=1.0)
        await settle()
        assert crowd.announced == []

    play(scene())


def test_the_gate_opens_by_itself_when_a_pause_ends() -> None:
    async def scene() -> None:
        gate = Gate(SystemClock())

        async def enter() -> Ticket:
            return await gate.enter(Lane(), refusal=lambda _: "", announce=lambda *_: None)

        gate.leave(await enter(), Lane(), Verdict.LIMITED, wait=0.01)
        assert (await asyncio.wait_for(enter(), 10)).in_flight == 1

    play(scene())


def test_who_cannot_wait_for_the_end_of_a_pause_is_sent_away_at_once() -> None:
    async def scene() -> None:
        crowd = Crowd(patience=10.0)
        tasks = crowd.come(*range(6))
        await settle()
        crowd.leave(0, Verdict.LIMITED, wait=11.0)
        late = crowd.come(6)
        await settle()
        for task in (tasks[4], tasks[5], *late):
            error = task.exception()
            assert isinstance(error, PausedError)
            assert (error.seconds, error.refusal) == (11.0, "impatient")
        assert crowd.announced == []

    play(scene())


def test_an_account_has_one_gate() -> None:
    clock = SystemClock()
    assert gate_of("gate-test-a", clock) is gate_of("gate-test-a", clock)
    assert gate_of("gate-test-a", clock) is not gate_of("gate-test-b", clock)


@pytest.mark.parametrize("count", [1, 3])
def test_a_lane_is_full_when_so_many_are_inside(count: int) -> None:
    async def scene() -> None:
        crowd = Crowd(lane=Lane(count))
        crowd.come(*range(4))
        await settle()
        assert len(crowd.inside) == count
        assert crowd.lane.is_full

    play(scene())
