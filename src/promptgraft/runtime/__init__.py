"""Sessions, events and limits of an evaluation."""

from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.session import Budget, Charge, EventBus, Session, SessionProtocol

__all__ = ["Budget", "Cancellation", "Charge", "Deadline", "EventBus", "Session", "SessionProtocol"]
