"""Helpers of the tests of agents: cases, and an agent asked in a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptgraft import Agent, BlackBox, Case, PromptResponse, Session
from promptgraft.adapters.base import evaluated
from promptgraft.runtime import Deadline

TEXTS = {"system": "Be brief.", "skill": "Count."}


def cases(count: int, **fields: Any) -> list[Case]:
    return [Case(id=f"c{n}", input=f"q{n}", expected=f"a{n}", **fields) for n in range(count)]


def asked(
    agent: Agent | Callable[..., Any],
    case: Case | None = None,
    *,
    session: Session | None = None,
    deadline: Deadline | None = None,
    **settings: Any,
) -> PromptResponse[object]:
    """Return what an agent answers with the texts of the source."""
    found = BlackBox(TEXTS, agent=agent, **settings)
    prompt = found.prompt.bind(case or Case(id="c1", input="how many?"))
    session = session or Session(tags={"example": "c1"})
    return evaluated(found.adapter, prompt, session=session, deadline=deadline)
