"""What a run lends to each of its evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ParamSpec, TypeVar

import attrs

from promptgraft.runtime import event_loop
from promptgraft.runtime.budget import Budget
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.events import EventBus
from promptgraft.runtime.session import Session

P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Watch:
    """Budget, notices and event loop of a run. They stay in its process: a copy lends nothing.

    Attributes:
        budget: what calls are paid from; None for no limit.
        notices: is told what calls wait for.
        loop: where coroutines are run; None for the loop of the process.

    Raises:
        CallerError: the run would begin in the thread of the loop that it needs.
    """

    budget: Budget | None = None
    notices: EventBus | None = None
    loop: event_loop.RunLoop | None = attrs.field(factory=event_loop.of_new_run, eq=False)

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:
        return type(self), ()

    def session(self, *, tags: Mapping[str, str], deadline: Deadline | None = None) -> Session:
        """Return the session of one evaluation, which ends at ``deadline``."""
        return Session(tags=tags, budget=self.budget, notices=self.notices, deadline=deadline)

    def call(self, function: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """Call ``function`` with the event loop of the run."""
        return event_loop.call_in(self.loop, partial(function, *args, **given))
