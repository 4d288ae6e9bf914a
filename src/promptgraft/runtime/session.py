"""What happened during one evaluation: an append-only log of typed events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from promptgraft.frozenmap import FrozenMap
from promptgraft.runtime.budget import Budget
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.events import EventBus

E = TypeVar("E")


class SessionProtocol(Protocol):
    """What feedback functions and formatters may rely on."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Labels of the session, such as its scope."""
        ...

    @property
    def budget(self) -> Budget | None:
        """What calls of this evaluation are paid from; None for no limit."""
        ...

    @property
    def deadline(self) -> Deadline | None:
        """When this evaluation ends, judging included; None for never."""
        ...

    def notify(self, notice: object) -> None:
        """Tell whoever watches the run of something that is no event of the evaluation.

        Adapters say so what they wait for. The notice is not kept.
        """
        ...

    def dispatch(self, event: object) -> None:
        """Append an event."""
        ...

    def select_all(self, kind: type[E]) -> tuple[E, ...]:
        """Return every event that is a ``kind``, in order of dispatch."""
        ...

    def latest(self, kind: type[E]) -> E | None:
        """Return the last event that is a ``kind``, or None."""
        ...


class Session:
    """An append-only, thread-safe log of events.

    Args:
        tags: labels of the session.
        bus: also publishes each event to its subscribers; without a bus nothing that
            happens in the session is seen outside it.
        budget: what calls are paid from.
        notices: publishes notices; ``bus`` does when it is None.
        deadline: when the evaluation ends.
    """

    def __init__(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        bus: EventBus | None = None,
        budget: Budget | None = None,
        notices: EventBus | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._tags: FrozenMap[str, str] = FrozenMap(tags or {})
        self._bus = bus
        self._budget = budget
        self._deadline = deadline
        self._notices = notices or bus
        self._events: list[object] = []
        self._lock = threading.Lock()

    @property
    def tags(self) -> Mapping[str, str]:
        return self._tags

    @property
    def budget(self) -> Budget | None:
        return self._budget

    @property
    def deadline(self) -> Deadline | None:
        return self._deadline

    def notify(self, notice: object) -> None:
        if self._notices is not None:
            self._notices.publish(notice)

    def dispatch(self, event: object) -> None:
        with self._lock:
            self._events.append(event)
        if self._bus is not None:
            self._bus.publish(event)

    def select_all(self, kind: type[E]) -> tuple[E, ...]:
        with self._lock:
            return tuple(event for event in self._events if isinstance(event, kind))

    def latest(self, kind: type[E]) -> E | None:
        with self._lock:
            return next(
                (event for event in reversed(self._events) if isinstance(event, kind)), None
            )


def teller(session: SessionProtocol | None, bus: EventBus | None) -> Callable[[object], None]:
    """Return a function that tells an event to ``session`` and to ``bus``.

    A session may publish to the same bus itself; its subscribers are not told again then.
    """

    def tell(event: object) -> None:
        told = _dispatch(session, bus, event) if session is not None else False
        if bus is not None and not told:
            bus.publish(event)

    return tell


def _dispatch(session: SessionProtocol, bus: EventBus | None, event: object) -> bool:
    """Append ``event``, and tell whether ``bus`` has published it on the way."""
    heard: list[object] = []
    stop_listening = bus.subscribe(type(event), heard.append) if bus is not None else None
    try:
        session.dispatch(event)
    finally:
        if stop_listening is not None:
            stop_listening()
    return any(told is event for told in heard)
