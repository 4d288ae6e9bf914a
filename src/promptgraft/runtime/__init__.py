"""What happens during an evaluation: sessions, events, and what ends it."""

from promptgraft.runtime.budget import Budget, Charge
from promptgraft.runtime.cancellation import Cancellation
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import EventBus, Session, SessionProtocol

__all__ = ["Budget", "Cancellation", "Charge", "Deadline", "EventBus", "Session", "SessionProtocol"]
