"""A run from its checks to the stored winner, whatever the algorithm."""

from __future__ import annotations

from contextlib import closing, nullcontext

from promptgraft.adapters.base import opened
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.assemble import assemble, begin
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.preflight import preflight
from promptgraft.search.result import RunResult
from promptgraft.search.store import store_winner, with_wear
from promptgraft.targets.prompts import Improvable


def run(
    context: OptimizationContext,
    config: RunConfig,
    subject: Improvable,
    session: SessionProtocol | None,
) -> RunResult:
    """Improve ``subject`` and store the winner, in three stages with values between them.

    Args:
        context: the context of the run.
        config: its settings.
        subject: what is improved.
        session: receives the events, and the winner if ``persist_scope`` says so.
    """
    checked = preflight(context, config, subject)
    begun = begin(checked, session)
    calls = begun.answers.calls
    with opened(checked.context.adapter), nullcontext() if calls is None else closing(calls):
        if calls is not None:
            # Of calls that an earlier process of the run has not lived to answer.
            begun.ledger.count(calls.unfinished(), recorded=True)
        assembled = assemble(begun)
        result = with_wear(begun, assembled.search())
        try:
            result = store_winner(assembled.begun, result)
        finally:
            # Also if the winner cannot be stored: the search itself has ended.
            begun.emit(result.ended)
    return result
