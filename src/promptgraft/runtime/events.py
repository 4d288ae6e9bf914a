"""Who is told when something happens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

E = TypeVar("E")
Handler = Callable[[E], None]

_logger = logging.getLogger("promptgraft")


class EventBus:
    """Hands events to subscribers, in the thread that publishes.

    A handler that raises is logged with its traceback and never breaks what it watches.
    """

    def __init__(self) -> None:
        self._handlers: tuple[tuple[type, Callable[[object], None]], ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, kind: type[E], handler: Handler[E]) -> Callable[[], None]:
        """Call ``handler`` with every event that is a ``kind``.

        Returns a function that ends the subscription; calling it twice is harmless.
        """

        def guarded(event: object) -> None:
            if isinstance(event, kind):
                handler(event)

        entry = (kind, guarded)
        with self._lock:
            self._handlers = (*self._handlers, entry)

        def unsubscribe() -> None:
            with self._lock:
                self._handlers = tuple(kept for kept in self._handlers if kept is not entry)

        return unsubscribe

    def publish(self, event: object) -> None:
        """Tell every subscriber, in the order in which they subscribed."""
        for _, handler in self._handlers:
            try:
                handler(event)
            except Exception:
                _logger.exception("a handler of %s failed", type(event).__name__)
