"""What happens during an evaluation: sessions, events, deadlines."""

from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.events import EventBus
from promptgraft.runtime.session import Session, SessionProtocol

__all__ = ["Deadline", "EventBus", "Session", "SessionProtocol"]
