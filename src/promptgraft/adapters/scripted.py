"""An adapter that answers with a function, for tests and dry runs."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from promptgraft.adapters.base import FreeAdapter, PromptResponse, answered, free_call
from promptgraft.errors import AdapterError, ConfigError
from promptgraft.ground.functions import call_fault
from promptgraft.ground.serde import shown
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")

Reply = Callable[[RenderedPrompt[object]], str]
"""Returns the answer to a rendered prompt, or raises what a provider would."""

LateReply = Callable[[RenderedPrompt[object]], Awaitable[str]]
"""The same as a coroutine."""


class ScriptedAdapter(FreeAdapter):
    """Answers with a function, or with the texts of a list in turn; thread-safe.

    It renders prompts, dispatches events and parses answers like any other adapter, and records
    the prompts that it is given.

    Args:
        reply: a function of the rendered prompt, or texts, each of which is used once.
        identity: its name in the run's fingerprint.

    Raises:
        ConfigError: ``reply`` is neither, such as a single text, or takes other arguments.
    """

    def __init__(
        self, reply: Reply | LateReply | Sequence[str], *, identity: str = "scripted"
    ) -> None:
        replies: object = reply
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Iterable)):
            mend = "; write [...] around it" if isinstance(replies, str) else ""
            raise ConfigError(
                "scripted adapter: expected a function or a list of texts, "
                f"found {shown(replies)}{mend}"
            )
        if fault := call_fault(reply, "rendered"):
            raise ConfigError(f"scripted adapter: {fault}")
        super().__init__(identity)
        self._reply = reply if callable(reply) else _in_turn(reply)
        self._lock = threading.Lock()
        self._requests: list[RenderedPrompt[object]] = []

    @property
    def requests(self) -> tuple[RenderedPrompt[object], ...]:
        """The prompts that it was given, in order of arrival."""
        with self._lock:
            return tuple(self._requests)

    @property
    def calls(self) -> int:
        """The number of prompts that it was given."""
        return len(self.requests)

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        with self._lock:
            self._requests.append(rendered)
        session.dispatch(free_call(self.identity))
        text = awaited(self._reply(rendered), deadline=deadline)
        if not isinstance(text, str):
            raise AdapterError(
                f"scripted adapter: expected a text of its function, found {shown(text)}"
            )
        return answered(rendered, text, session=session)


def _in_turn(texts: Sequence[str]) -> Reply:
    lock = threading.Lock()
    remaining = iter(texts)

    def reply(_: RenderedPrompt[object]) -> str:
        # An iterator must not be advanced by two threads at once.
        with lock:
            text = next(remaining, None)
        if text is None:
            raise ConfigError(
                f"scripted adapter: all {len(texts)} replies are used; add one for each call"
            )
        return text

    return reply
