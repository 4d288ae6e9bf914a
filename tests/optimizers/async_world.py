"""The world of words with adapters and feedback that are ``async``, around a client of one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import attrs

from optimizers.worlds import answer, judge
from promptgraft.adapters.base import PromptResponse, Usage, answered, free_call
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback
from promptgraft.prompt import Prompt
from promptgraft.runtime import Deadline, SessionProtocol

OutputT = TypeVar("OutputT")


class Client:
    """Answers in the loop of its first call, and refuses every other one."""

    def __init__(self) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self.calls = 0

    async def ask(self, reply: Callable[[], str]) -> str:
        loop = asyncio.get_running_loop()
        self.loops.add(loop)
        if len(self.loops) > 1:
            raise RuntimeError("the client is bound to a different event loop")
        self.calls += 1
        await asyncio.sleep(0)
        return reply()


@attrs.frozen(eq=False)
class AsyncAdapter:
    """Answers by calling a function, as ``ScriptedAdapter`` does, but over a client."""

    reply: Reply
    identity: str
    client: Client = attrs.field(factory=Client)

    @property
    def longest_answer(self) -> int:
        return 0

    def price_of(self, usage: Usage) -> Decimal:
        return Decimal(0)

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        rendered = prompt.render(session)
        session.dispatch(free_call(self.identity))
        text = await self.client.ask(lambda: self.reply(rendered))
        return answered(rendered, text, session=session)


@attrs.frozen(eq=False)
class Hanging:
    """Answers some calls, and the others never; calls ``then`` when one of those begins."""

    calls: int
    then: Callable[[], object] = lambda: None
    identity: str = "task"
    seen: list[str] = attrs.field(factory=list)
    cancelled: list[str] = attrs.field(factory=list)

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        rendered = prompt.render(session)
        self.seen.append(rendered.text)
        if len(self.seen) > self.calls:
            self.then()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled.append(rendered.text)
                raise
        await asyncio.sleep(0)
        session.dispatch(free_call(self.identity))
        return answered(rendered, answer(rendered), session=session)


@attrs.frozen
class Judge:
    """The plain feedback function of the world."""

    identity: str = "judge"

    def __call__(
        self, example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return judge(example, response, session)


@attrs.frozen
class AsyncJudge:
    """The same as an object whose call is ``async``, over a client."""

    client: Client = attrs.field(factory=Client, eq=False)
    identity: str = "judge"

    async def __call__(
        self, example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        await self.client.ask(lambda: "")
        return judge(example, response, session)
