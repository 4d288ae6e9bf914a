"""Of calls whose prompts begin alike, one goes ahead."""

from __future__ import annotations

import asyncio

from adapters.calling.endpoints import read
from promptgraft.adapters.calling.caller import Beginnings
from promptgraft.adapters.calling.faults import Fault
from promptgraft.adapters.calling.turns import Turn
from promptgraft.errors import TransientProviderError
from promptgraft.testing import FakeClock

ANSWER = read({"text": "fine"})
FAULT = Fault(error=TransientProviderError, what="down")


class World:
    """Calls that begin, and end when they are told to."""

    def __init__(self, *, longest: float = 10.0) -> None:
        self.clock = FakeClock()
        self.beginnings = Beginnings(self.clock, longest=longest)
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Future[Turn | Fault]] = {}

    def call(self, name: str, beginning: str) -> asyncio.Task[Turn | Fault]:
        async def work() -> Turn | Fault:
            self.begun.append(name)
            self.ends[name] = asyncio.get_running_loop().create_future()
            return await self.ends[name]

        led = self.beginnings.after_the_first(beginning, work, waited=lambda _: None)
        return asyncio.ensure_future(led)

    async def settled(self) -> list[str]:
        """Return what has begun once nothing can begin any more."""
        for _ in range(10):
            await asyncio.sleep(0)
        return self.begun


def test_calls_wait_for_the_first_and_then_all_begin() -> None:
    async def checked() -> None:
        world = World()
        calls = [world.call(name, "same") for name in "abc"]
        other, short = world.call("d", "other"), world.call("e", "")
        assert await world.settled() == ["a", "d", "e"]
        world.ends["a"].set_result(ANSWER)
        assert await world.settled() == ["a", "d", "e", "b", "c"]
        for name in "bcde":
            world.ends[name].set_result(ANSWER)
        await asyncio.gather(*calls, other, short)
        world.call("f", "same")
        world.call("g", "same")
        assert (await world.settled())[-2:] == ["f", "g"]
        for name in "fg":
            world.ends[name].set_result(ANSWER)

    asyncio.run(checked())


def test_after_some_minutes_one_goes_ahead_again() -> None:
    async def checked() -> None:
        world = World()
        first = world.call("a", "same")
        await world.settled()
        world.ends["a"].set_result(ANSWER)
        await first
        world.clock.advance(241)
        calls = [world.call(name, "same") for name in "bc"]
        assert await world.settled() == ["a", "b"]
        world.ends["b"].set_result(ANSWER)
        await world.settled()
        world.ends["c"].set_result(ANSWER)
        await asyncio.gather(*calls)

    asyncio.run(checked())


def test_the_next_one_goes_ahead_if_the_first_fails_or_is_cancelled() -> None:
    async def checked() -> None:
        world = World()
        calls = [world.call(name, "same") for name in "abcd"]
        await world.settled()
        world.ends["a"].set_result(FAULT)
        assert await world.settled() == ["a", "b"]
        calls[1].cancel()
        assert await world.settled() == ["a", "b", "c"]
        world.ends["c"].set_result(ANSWER)
        assert await world.settled() == ["a", "b", "c", "d"]
        world.ends["d"].set_result(ANSWER)
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(checked())


def test_nobody_waits_forever() -> None:
    async def checked() -> None:
        world = World(longest=0.0)
        calls = [world.call(name, "same") for name in "ab"]
        while len(world.begun) < 2:
            await asyncio.sleep(0)
        for name in "ab":
            world.ends[name].set_result(ANSWER)
        await asyncio.gather(*calls)

    asyncio.run(checked())
