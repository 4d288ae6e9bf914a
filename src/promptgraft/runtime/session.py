"""Sessions: the append-only log of one evaluation, its event bus, and what its run lends to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import attrs

from promptgraft.errors import BudgetExhaustedError
from promptgraft.frozenmap import FrozenMap
from promptgraft.runtime import event_loop
from promptgraft.runtime.deadline import Deadline
from promptgraft.strict.checks import COUNT, DOLLARS
from promptgraft.text import raised_at

ZERO = Decimal(0)


@attrs.frozen(kw_only=True)
class Charge:
    """What calls cost: US dollars, and tokens sent and received."""

    cost: Decimal = ZERO
    tokens: int = 0

    def __add__(self, other: Charge) -> Charge:
        return Charge(cost=self.cost + other.cost, tokens=self.tokens + other.tokens)

    def __sub__(self, other: Charge) -> Charge:
        return Charge(cost=self.cost - other.cost, tokens=self.tokens - other.tokens)


NOTHING = Charge()


class Budget:
    """Lets calls begin while there is money; safe to share between threads.

    Money is reserved before a call begins and paid when it ends. What a call will cost is
    not known before, so the limits may be exceeded by the calls in flight, never by more.

    Args:
        max_cost: US dollars, above 0; None for no limit.
        max_tokens: tokens sent and received, at least 1; None for no limit.

    Raises:
        ConfigError: a limit is out of range.
    """

    def __init__(self, *, max_cost: Decimal | None = None, max_tokens: int | None = None) -> None:
        DOLLARS.or_none.hold("max_cost", max_cost)
        COUNT.or_none.hold("max_tokens", max_tokens)
        self._max_cost = max_cost
        self._max_tokens = max_tokens
        self.paid = NOTHING  # by calls that have ended
        self._reserved = NOTHING
        self._lock = threading.Lock()

    @property
    def is_limited(self) -> bool:
        return self._max_cost is not None or self._max_tokens is not None

    @property
    def needs_prices(self) -> bool:
        """Whether a call of unknown cost would break a limit unnoticed."""
        return self._max_cost is not None

    def check(self, used: Charge) -> None:
        """Raise ``BudgetExhaustedError`` if ``used``, of all sessions, has reached a limit."""
        if self._max_cost is not None and used.cost >= self._max_cost:
            raise BudgetExhaustedError(
                f"max_cost: {used.cost:.4f} of {self._max_cost} US dollars are used or reserved",
                limit="max_cost",
            )
        if self._max_tokens is not None and used.tokens >= self._max_tokens:
            raise BudgetExhaustedError(
                f"max_tokens: {used.tokens} of {self._max_tokens} tokens are used or reserved",
                limit="max_tokens",
            )

    def reserve(self, expected: Charge) -> None:
        """Set aside the least that a call will cost.

        Raises ``BudgetExhaustedError`` when what is paid and reserved has reached a limit.
        """
        with self._lock:
            self.check(self.paid + self._reserved)
            self._reserved += expected

    def settle(self, expected: Charge, actual: Charge) -> None:
        """End a reservation and pay what the call has cost."""
        with self._lock:
            self._reserved -= expected
            self.paid += actual

    def pay(self, actual: Charge) -> None:
        """Pay for a call that nothing was reserved for, such as one of an earlier process."""
        with self._lock:
            self.paid += actual


E = TypeVar("E")
Handler = Callable[[E], None]

_logger = logging.getLogger("promptgraft")


class EventBus:
    """Hands events to subscribers, in the thread that publishes.

    A handler that raises is logged once, with its traceback, and never breaks what it watches.
    """

    def __init__(self) -> None:
        self._handlers: tuple[Callable[[object], None], ...] = ()
        self._reported: set[tuple[object, type[Exception]]] = set()
        self._lock = threading.Lock()

    def subscribe(self, kind: type[E], handler: Handler[E]) -> Callable[[], None]:
        """Call ``handler`` with every event that is a ``kind``.

        Returns a function that ends the subscription; calling it twice is harmless.
        """

        def guarded(event: object) -> None:
            if isinstance(event, kind):
                handler(event)

        guarded.__qualname__ = getattr(handler, "__qualname__", type(handler).__qualname__)
        with self._lock:
            self._handlers = (*self._handlers, guarded)

        def unsubscribe() -> None:
            with self._lock:
                self._handlers = tuple(kept for kept in self._handlers if kept is not guarded)

        return unsubscribe

    def publish(self, event: object) -> None:
        """Tell every subscriber, in the order in which they subscribed."""
        for handler in self._handlers:
            try:
                handler(event)
            except Exception as error:  # noqa: BLE001 - whatever a user's handler raises
                self._report(handler, event, error)

    def _report(self, handler: Callable[[object], None], event: object, error: Exception) -> None:
        """Log what a handler raised, once for each handler and kind of exception."""
        with self._lock:
            known = (handler, type(error)) in self._reported
            self._reported.add((handler, type(error)))
        if not known:
            name = getattr(handler, "__qualname__", type(handler).__qualname__)
            what = f"handler `{name}` of {type(event).__name__} raised {raised_at(error)}"
            _logger.error("%s; it is not said again", what, exc_info=error)


class SessionProtocol(Protocol):
    """What feedback functions and formatters may rely on.

    Attributes:
        tags: labels of the session, such as its scope.
        budget: what calls of this evaluation are paid from; None for no limit.
        deadline: when this evaluation ends, judging included; None for never.
    """

    tags: Mapping[str, str]
    budget: Budget | None
    deadline: Deadline | None

    def notify(self, notice: object) -> None:
        """Publish what is no event of the evaluation, such as a long wait, and do not keep it."""
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
        self.tags: Mapping[str, str] = FrozenMap(tags or {})
        self.budget = budget
        self.deadline = deadline
        self._bus = bus
        self._notices = notices or bus
        self._events: list[object] = []
        self._lock = threading.Lock()

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
            return tuple([event for event in self._events if isinstance(event, kind)])

    def latest(self, kind: type[E]) -> E | None:
        with self._lock:
            return next(
                (event for event in reversed(self._events) if isinstance(event, kind)), None
            )


class Branch(Session):
    """A part of an evaluation that runs beside others; :meth:`join` appends its events.

    Notices are published at once. Joined in a fixed order, parts give one order of events whichever
    ends first.

    Args:
        session: the session of the whole.
    """

    def __init__(self, session: SessionProtocol) -> None:
        super().__init__(tags=session.tags, budget=session.budget, deadline=session.deadline)
        self._whole = session

    def notify(self, notice: object) -> None:
        self._whole.notify(notice)

    def join(self) -> tuple[object, ...]:
        """Append the events of the part to the whole, and return them."""
        events = self.select_all(object)
        for event in events:
            self._whole.dispatch(event)
        return events


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


P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen
class CallsInFlight:
    """A notice: ``change`` more calls are in flight, or with a minus fewer.

    Published in the thread that makes the call, just before and just after it.

    Attributes:
        change: 1 or -1.
        position: where in the run, as text; empty for what is no part of its course.
        outcome: what the call has returned; None before it, and when it raised.
    """

    change: int
    position: str = ""
    outcome: object = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class Watch:
    """Budget, notices and event loop of a run; they stay in its process: a copy lends nothing.

    ``notices`` publishes the calls in flight and what they wait for; ``position`` is where in the
    run they are made. ``loop`` runs coroutines, that of the process when it is None. A run that
    would begin in the thread of the loop that it needs raises ``CallerError``.
    """

    budget: Budget | None = None
    notices: EventBus | None = None
    position: str = ""
    loop: event_loop.RunLoop | None = attrs.field(factory=event_loop.of_new_run, eq=False)

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return type(self), ()

    def at(self, position: str) -> Watch:
        """Return the same for a call there."""
        return Watch(budget=self.budget, notices=self.notices, position=position, loop=self.loop)

    def session(self, *, tags: Mapping[str, str], deadline: Deadline | None = None) -> Session:
        return Session(tags=tags, budget=self.budget, notices=self.notices, deadline=deadline)

    def call(self, function: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """Call ``function`` with the event loop of the run, and publish that it is in flight."""
        outcome: T | None = None
        self._publish(CallsInFlight(1, self.position))
        try:
            outcome = event_loop.call_in(self.loop, partial(function, *args, **given))
            return outcome
        finally:
            self._publish(CallsInFlight(-1, self.position, outcome))

    def _publish(self, notice: object) -> None:
        if self.notices is not None:
            self.notices.publish(notice)
