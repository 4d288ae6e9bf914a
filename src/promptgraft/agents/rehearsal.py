"""The call before a run: finds an agent that always fails before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from promptgraft.adapters.base import evaluated
from promptgraft.agents.adapter import AgentAdapter, query_of
from promptgraft.errors import (
    AgentFaultError,
    CallerError,
    PermanentProviderError,
    ProviderError,
)
from promptgraft.evals.spending import Role, Spending, spent_on
from promptgraft.evals.types import Case
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Watch

MOST_CALLS = 3
"""Cases whose first turn an agent is asked, as long as it fails."""


def rehearse(
    adapter: AgentAdapter,
    prompt: Prompt[object],
    cases: Iterable[Case],
    *,
    watch: Watch,
    deadline: Deadline | None,
) -> tuple[Spending, ...]:
    """Ask an agent the first turn of a case, and of up to two others if it fails.

    Returns what the calls took.

    Raises:
        CallerError: it has failed each time; with file and line of the user's code.
        ProviderError: it could not be reached any time.
        LimitReachedError: there is no time.
    """
    lenient = attrs.evolve(adapter, on_agent_error="zero", user=None)
    spent: list[Spending] = []
    error: AgentFaultError | ProviderError | None = None
    for case in list(cases)[:MOST_CALLS]:
        first = case.turns[0].user if case.turns else query_of(case)
        asked = prompt.bind(attrs.evolve(case, input=first, turns=(), fields={}))
        session = watch.session(tags={"scope": "rehearsal", "example": case.id}, deadline=deadline)
        try:
            watch.call(evaluated, lenient, asked, session=session, deadline=deadline)
        except PermanentProviderError:
            raise
        except (AgentFaultError, ProviderError) as found:
            error, failed = found, case
        else:
            error = None
        spent += spent_on(Role.TASK, session.select_all(object), adapter.identity)
        if error is None:
            return tuple(spent)
    if isinstance(error, AgentFaultError):
        where = f"{failed.origin}: " if failed.origin else ""
        place = f" ({error.place})" if error.place else ""
        raise CallerError(
            f"{where}agent `{adapter.agent.name}` fails on each case that it was tried on before "
            f"the run, at last on `{failed.id}`: {error}{place}; mend it first"
        ) from error
    if error is not None:
        raise error
    return tuple(spent)
