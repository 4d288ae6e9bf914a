"""Sessions, event buses and budgets: what an evaluation logs to and is paid from."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from inspect import iscoroutinefunction
from typing import ParamSpec, Protocol, TypeVar

import attrs

from promptgraft.errors import BudgetExhaustedError, ConfigError, user_errors
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import call_fault, raised_at
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import COUNT, DOLLARS, check, instance
from promptgraft.runtime import event_loop
from promptgraft.runtime.calls import CallKeeper, Places, answering
from promptgraft.runtime.deadline import Deadline

ZERO = Decimal(0)


@attrs.frozen(kw_only=True)
class Charge:
    """The cost of calls: US dollars, and tokens sent and received."""

    cost: Decimal = ZERO
    tokens: int = 0

    def __add__(self, other: Charge) -> Charge:
        return Charge(cost=self.cost + other.cost, tokens=self.tokens + other.tokens)

    def __sub__(self, other: Charge) -> Charge:
        return Charge(cost=self.cost - other.cost, tokens=self.tokens - other.tokens)


NOTHING = Charge()


class Budget:
    """Limits on money and tokens; safe to share between threads.

    A call reserves its expected cost before it begins and pays its actual cost when it ends. The
    actual cost is not known in advance, so calls in flight may exceed the limits; no others can.

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
        # Unknown prices could exceed the limit unnoticed.
        self.needs_prices: bool = max_cost is not None
        self.paid: Charge = NOTHING  # for calls that have ended
        self._reserved = NOTHING
        self._lock = threading.Lock()

    @property
    def is_limited(self) -> bool:
        return self._max_cost is not None or self._max_tokens is not None

    def check(self, used: Charge) -> None:
        """Raise ``BudgetExhaustedError`` if ``used``, over all sessions, has reached a limit."""
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
        """Reserve the minimum that a call will cost.

        Raises ``BudgetExhaustedError`` when payments and reservations have reached a limit.
        """
        with self._lock:
            self.check(self.paid + self._reserved)
            self._reserved += expected

    def settle(self, expected: Charge, actual: Charge) -> None:
        """Replace a reservation by the actual cost of the call."""
        with self._lock:
            # In one step: between the two, another request could take what is paid here.
            self._reserved -= expected
            self.paid += actual

    def pay(self, actual: Charge) -> None:
        """Pay for a call without a reservation, such as one made by an earlier process."""
        with self._lock:
            self.paid += actual


E = TypeVar("E")
Handler = Callable[[E], None]

_logger = logging.getLogger("promptgraft")


def _handles(value: object) -> object | None:
    is_plain = callable(value) and not iscoroutinefunction(value)
    return value if is_plain and not call_fault(value, "event") else None


_HANDLER = check("a plain function of an event", _handles)


class EventBus:
    """Passes events to subscribers, in the publishing thread.

    A handler that raises is logged once, with its traceback, and does not affect the publisher.
    """

    def __init__(self) -> None:
        self._handlers: tuple[Callable[[object], None], ...] = ()
        self._reported: set[tuple[object, type[BaseException]]] = set()
        self._lock = threading.Lock()

    def subscribe(self, kind: type[E], handler: Handler[E]) -> Callable[[], None]:
        """Call ``handler`` with every event that is a ``kind``.

        Returns a function that ends the subscription; calling it twice is harmless.

        Raises:
            ConfigError: ``kind`` is no class, or ``handler`` no plain function of an event.
        """
        instance(type, "a class of events").hold("kind", kind)
        _HANDLER.hold("handler", handler)

        def guarded(event: object) -> None:
            if isinstance(event, kind):
                handler(event)

        # The log names the user's handler, not this wrapper.
        guarded.__qualname__ = getattr(handler, "__qualname__", type(handler).__qualname__)
        with self._lock:
            self._handlers = (*self._handlers, guarded)

        def unsubscribe() -> None:
            with self._lock:
                # The wrapper, because one handler may be subscribed several times.
                self._handlers = tuple(
                    handler for handler in self._handlers if handler is not guarded
                )

        return unsubscribe

    def publish(self, event: object) -> None:
        """Call every subscriber, in the order of subscription."""
        # The tuple is replaced, never changed: subscribing meanwhile affects the next event.
        for handler in self._handlers:
            try:
                handler(event)
            except user_errors() as error:
                self._report(handler, event, error)

    def _report(
        self, handler: Callable[[object], None], event: object, error: BaseException
    ) -> None:
        """Log what a handler raised, once for each handler and kind of exception."""
        with self._lock:
            is_reported = (handler, type(error)) in self._reported
            self._reported.add((handler, type(error)))
        if not is_reported:
            name = getattr(handler, "__qualname__", type(handler).__qualname__)
            what = f"handler `{name}` of {type(event).__name__} raised {raised_at(error)}"
            _logger.error("%s; it is logged only once", what, exc_info=error)


class SessionProtocol(Protocol):
    """The part of a session that feedback functions and formatters may use.

    Attributes:
        tags: labels of the session, such as its scope.
        budget: pays for the calls of this evaluation; None for no limit.
        deadline: when this evaluation must end, judging included; None for no deadline.
    """

    tags: Mapping[str, str]
    budget: Budget | None
    deadline: Deadline | None

    def notify(self, notice: object) -> None:
        """Publish a notice, such as a long wait, without adding it to the log."""
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
        bus: publishes each event too; without a bus, events stay inside the session.
        budget: pays for the calls.
        notices: publishes notices; by default ``bus``.
        deadline: when the evaluation must end.
        calls: the places of its calls, which the journal of a run keeps; None if it keeps none.
    """

    def __init__(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        bus: EventBus | None = None,
        budget: Budget | None = None,
        notices: EventBus | None = None,
        deadline: Deadline | None = None,
        calls: Places | None = None,
    ) -> None:
        if tags is not None and not isinstance(tags, Mapping):
            raise ConfigError(f"tags: expected a mapping of texts, found {shown(tags)}")
        self.tags: Mapping[str, str] = FrozenMap(tags or {})
        self.calls = calls
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
        # Outside the lock: a handler may read this session or dispatch to it.
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
    """The session of one concurrent part of an evaluation; :meth:`join` appends its events.

    Notices are published at once, events on joining: if parts are joined in a fixed order, the
    order of events does not depend on which part ends first.

    Args:
        session: the session of the whole evaluation.
        place: the place of the part in the evaluation, such as ``2.1``; by default its calls take
            the next places of the whole.
    """

    def __init__(self, session: SessionProtocol, *, place: str = "") -> None:
        calls = places_of(session)
        super().__init__(
            tags=session.tags,
            budget=session.budget,
            deadline=session.deadline,
            calls=calls.within(place) if calls is not None and place else calls,
        )
        self._whole = session

    def notify(self, notice: object) -> None:
        self._whole.notify(notice)

    def join(self) -> tuple[object, ...]:
        """Append the events of this part to the session of the whole, and return them."""
        events = self.select_all(object)
        for event in events:
            self._whole.dispatch(event)
        return events


def places_of(session: SessionProtocol | None) -> Places | None:
    """Return the places of a session's calls; None if they are not kept."""
    # Not in the protocol: sessions of users need not keep calls.
    calls: Places | None = getattr(session, "calls", None)
    return calls


def publishing(session: SessionProtocol | None, bus: EventBus | None) -> Callable[[object], None]:
    """Return a function that passes an event to ``session`` and to ``bus``.

    If the session publishes to the same bus, subscribers are called only once.
    """

    def publish(event: object) -> None:
        published = _dispatch(session, bus, event) if session is not None else False
        if bus is not None and not published:
            bus.publish(event)

    return publish


def _dispatch(session: SessionProtocol, bus: EventBus | None, event: object) -> bool:
    """Append ``event``; return whether the session published it on ``bus``."""
    # The protocol does not expose a session's bus, so listen whether the event reaches this one.
    heard: list[object] = []
    stop_listening = bus.subscribe(type(event), heard.append) if bus is not None else None
    try:
        session.dispatch(event)
    finally:
        if stop_listening is not None:
            stop_listening()
    # By identity, because other threads may publish equal events meanwhile.
    return any(event_heard is event for event_heard in heard)


P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen
class CallsInFlight:
    """A notice: the number of calls in flight has changed.

    Published in the thread that makes the call, immediately before and after it.

    Attributes:
        change: 1 or -1.
        position: where in the run, as text; empty outside the course of the run.
        outcome: the result of the call; None before it, and when it raised.
    """

    change: int
    position: str = ""
    outcome: object = attrs.field(default=None, repr=False, hash=False)


@attrs.frozen(kw_only=True)
class Watch:
    """Budget, notices and event loop of a run. They stay in its process: a pickled copy is empty.

    ``notices`` publishes the calls in flight and what they wait for; ``position`` says where in the
    run they are made. ``keeper`` keeps the calls inside of answers. ``loop`` runs coroutines; None
    stands for the loop of the process. Creating a watch in the thread of the loop that the run
    needs raises ``CallerError``.
    """

    budget: Budget | None = None
    notices: EventBus | None = None
    position: str = ""
    keeper: CallKeeper | None = attrs.field(default=None, eq=False)
    loop: event_loop.RunLoop | None = attrs.field(factory=event_loop.of_new_run, eq=False)

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return type(self), ()

    def at(self, position: str) -> Watch:
        """Return the watch for a call at ``position``."""
        return attrs.evolve(self, position=position)

    def session(self, *, tags: Mapping[str, str], deadline: Deadline | None = None) -> Session:
        """Return a session for calls of this position, or of the call in progress."""
        answer = answering.get()
        if answer is None and self.keeper is not None:
            answer = self.keeper, self.position
        return Session(
            tags=tags,
            budget=self.budget,
            notices=self.notices,
            deadline=deadline,
            calls=None if answer is None else answer[0].places(answer[1]),
        )

    def call(self, function: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """Call ``function`` with the event loop of the run, and publish it as in flight.

        Sessions that it makes keep their calls at the position of this watch.
        """
        outcome: T | None = None
        self._publish(CallsInFlight(1, self.position))
        token = answering.set(None if self.keeper is None else (self.keeper, self.position))
        try:
            outcome = event_loop.call_in(self.loop, partial(function, *args, **given))
            return outcome
        finally:
            answering.reset(token)
            if self.keeper is not None:
                self.keeper.made(self.position)
            self._publish(CallsInFlight(-1, self.position, outcome))

    def _publish(self, notice: object) -> None:
        if self.notices is not None:
            self.notices.publish(notice)
