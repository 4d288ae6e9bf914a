"""What a run lends to each of its evaluations."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.runtime.budget import Budget
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.events import EventBus
from promptgraft.runtime.session import Session


@attrs.frozen(kw_only=True)
class Watch:
    """Budget and notices of a run. They stay in its process: a copy lends nothing.

    Attributes:
        budget: what calls are paid from; None for no limit.
        notices: is told what calls wait for.
    """

    budget: Budget | None = None
    notices: EventBus | None = None

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return type(self), ()

    def session(self, *, tags: Mapping[str, str], deadline: Deadline | None = None) -> Session:
        """Return the session of one evaluation, which ends at ``deadline``."""
        return Session(tags=tags, budget=self.budget, notices=self.notices, deadline=deadline)
