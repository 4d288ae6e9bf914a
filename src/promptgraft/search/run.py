"""A run from its checks to the stored winner, whatever the algorithm."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing, nullcontext

import attrs

from promptgraft.adapters.abilities import opened
from promptgraft.errors import (
    JournalError,
    OverrideConflictError,
    PromptgraftError,
    WinnerNotStoredError,
    user_errors,
)
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import digest
from promptgraft.ground.text import raised
from promptgraft.overrides.looks import Look, record_of
from promptgraft.overrides.types import Provenance
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.assemble import BegunRun, assemble, begin
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.preflight import preflight
from promptgraft.search.result import RunResult
from promptgraft.search.settings import PersistenceScope
from promptgraft.search.stopping import RunStoppedError, is_early
from promptgraft.search.wear import Wear, wear_from_json, wear_to_json
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


_WEAR = "wear"
"""Kind of the journal's record of how worn held-out examples were, and how its key begins."""

_logger = logging.getLogger("promptgraft")


def with_wear(begun: BegunRun, result: RunResult) -> RunResult:
    """Remember that the held-out examples have judged a winner, and add how worn they are.

    How worn they are is kept in the journal like an answer, so that a resumed run has the same.
    """
    checked, held_out = begun.checked, result.held_out
    if held_out is None or held_out.why_not:
        return result
    judged = [example for example in checked.config.held_out if example.id in held_out.ids]
    cases = checked.digests_of(judged)
    recorded = begun.answers.recall(_key(cases), digest(cases))
    if recorded is None:
        look = Look(
            run=begun.run_id,
            prompt=result.name,
            time=checked.context.clock.now().isoformat(),
            cases=cases,
        )
        wear = _looked(begun, look, checked.wear_of(judged))
    else:
        wear = wear_from_json(recorded)
    worn = (wear.line,) if wear is not None and wear.is_worn else ()
    return attrs.evolve(result, wear=wear, remarks=(*result.remarks, *worn))


def _key(cases: Sequence[str]) -> str:
    # Not one for the run, because a resumed run may have other held-out examples.
    return f"{_WEAR}/{digest(cases)[:16]}"


def _looked(begun: BegunRun, look: Look, wear: Wear | None) -> Wear | None:
    """Remember a look, and keep in the journal how worn its examples are."""
    record, journal = record_of(begun.checked.context.overrides_store), begun.answers.journal
    if record is None or not begun.checked.context.remember_looks:
        return None
    try:
        journal.admit(_key(look.cases))
    except (JournalError, RunStoppedError):
        return None  # the replay of a run that has kept none
    record.remember_look(look)
    journal.append(_key(look.cases), digest(look.cases), _WEAR, wear_to_json(wear))
    journal.sync()
    return wear


def store_winner(begun: BegunRun, result: RunResult) -> RunResult:
    """Store the winner if it is better and the settings say so, and return the final result.

    Raises:
        WinnerNotStoredError: the store refused it; the error has the result.
    """
    context, config = begun.checked.context, begun.checked.config
    if not config.persist or not result.found_better:
        return result
    if not (result.improved or config.keep_anyway):
        if context.overrides_store and not is_early(result.stop_reason):
            _logger.warning(
                "the winner is not saved (%s): its gain is not proven on test cases; the "
                "setting `keep_anyway` saves it anyway",
                result.verdict,
            )
        return result
    if config.persist_scope is PersistenceScope.SESSION:
        if begun.session is not None:
            for override in result.best_overrides.values():
                begun.session.dispatch(override)
        return result
    scores = {"baseline": result.baseline_pareto_mean, "best": result.best_pareto_mean}
    provenance = Provenance(
        run_id=begun.run_id,
        note=f"{config.algorithm}, {result.total_rollouts} rollouts, seed {config.seed}",
        scores=FrozenMap((name, mean) for name, mean in scores.items() if mean is not None),
    )
    try:
        persisted = begun.checked.target.persist(result.best, provenance, pool=result.candidates)
        return attrs.evolve(result, persisted=persisted)
    except OverrideConflictError as error:
        raise WinnerNotStoredError(
            f"the winner is not stored: {error} since the run began; look at both, then roll "
            "the tag back and resume the run, or write the winner over it: "
            "`store.upsert(prompt.descriptor, error.result.best_override)`",
            result,
        ) from error
    except user_errors() as error:  # the result must not be lost
        why = str(error) if isinstance(error, PromptgraftError) else raised(error)
        raise WinnerNotStoredError(f"the winner is not stored: {why}", result) from error
