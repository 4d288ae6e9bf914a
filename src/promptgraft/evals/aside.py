"""Sessions within a session."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.adapters.base import ModelCalled
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol


class AsideSession(Session):
    """What happens beside another session, and is paid by it.

    Calls and notices are told to the other session, and its budget and deadline hold. Nothing
    else is: the prompt of a judge is no prompt of what is judged.

    Args:
        run: the other session; None for none.
        tags: labels of this one.
        deadline: when this one ends; that of the other when it is None.
    """

    def __init__(
        self,
        run: SessionProtocol | None,
        *,
        tags: Mapping[str, str],
        deadline: Deadline | None = None,
    ) -> None:
        if deadline is None and run is not None:
            deadline = run.deadline
        super().__init__(
            tags=tags, budget=run.budget if run is not None else None, deadline=deadline
        )
        self._run = run

    def notify(self, notice: object) -> None:
        if self._run is not None:
            self._run.notify(notice)

    def dispatch(self, event: object) -> None:
        super().dispatch(event)
        if self._run is not None and isinstance(event, ModelCalled):
            self._run.dispatch(event)
