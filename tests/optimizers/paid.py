"""A task model that costs money, tokens and time, and can hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import attrs
from hypothesis import strategies as st

from optimizers.worlds import answer
from promptgraft.adapters.base import ModelCalled, PromptResponse, Usage, answered
from promptgraft.adapters.scripted import Reply
from promptgraft.errors import PromptgraftError
from promptgraft.evals.spending import Role, Spending
from promptgraft.prompt import Prompt
from promptgraft.runtime import Charge, Deadline, SessionProtocol

OutputT = TypeVar("OutputT")

CENT = Decimal("0.01")
TOKENS = Usage(input_tokens=8, output_tokens=2, cached_tokens=4)


amounts = st.decimals(min_value=0, max_value=10**6, places=12)
counts = st.integers(0, 2**53)
spendings = st.builds(
    Spending,
    role=st.sampled_from(Role),
    model=st.text(st.characters(exclude_categories=["Cs"])),
    calls=counts,
    requests=counts,
    input_tokens=counts,
    output_tokens=counts,
    cached_tokens=counts,
    cost=st.none() | amounts,
    microseconds=counts,
    reasoning_tokens=counts,
)


@attrs.define(kw_only=True)
class PaidAdapter:
    """Answers as ``reply`` does, at a price; counts what it was paid for.

    A call that raises has been sent, and costs tokens as any other.
    """

    reply: Reply = answer
    identity: str = "paid"
    cost: Decimal | None = CENT
    requests: int = 2
    before: Callable[[Deadline | None], None] = lambda deadline: None
    calls: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        budget = session.budget
        if budget is not None:
            budget.reserve(Charge())
        fault = ""
        try:
            self.before(deadline)
            text = self.reply(rendered)
        except PromptgraftError as error:
            fault = str(error)
            raise
        finally:
            with self.lock:
                self.calls += 1
            session.dispatch(
                ModelCalled(
                    model=self.identity,
                    requests=self.requests,
                    usage=TOKENS,
                    cost=self.cost,
                    seconds=0.5,
                    fault=fault,
                )
            )
            if budget is not None:
                budget.settle(Charge(), Charge(cost=self.cost or Decimal(0), tokens=10))
        return answered(rendered, text, session=session, usage=TOKENS)
