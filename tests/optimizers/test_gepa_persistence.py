"""What becomes of a winner."""

from __future__ import annotations

import pickle

import pytest

from optimizers.worlds import (
    NOTES,
    PROMPT,
    RULES,
    CountingStore,
    Run,
    config,
    examples,
    optimize,
    scored,
)
from promptgraft.algorithms.gepa import GepaOptimizationCompleted, GepaResult
from promptgraft.errors import (
    ConfigError,
    StoreError,
    UnknownPartError,
    WinnerNotStoredError,
)
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import InMemoryPromptOverridesStore, PromptOverride
from promptgraft.runtime import Session
from promptgraft.search import PersistenceScope


def test_a_winner_of_several_sections_is_kept_in_one_write() -> None:
    store = CountingStore()
    result = optimize(overrides_store=store, overrides_tag="t")
    assert result.persisted
    assert len(result.best_section_overrides) == 2
    [(address, provenance)] = store.writes
    assert (address.ns, address.prompt_key, address.tag) == ("toy", "words", "t")
    assert provenance is not None
    assert provenance.run_id == result.run_id
    assert provenance.note == f"gepa, {result.total_rollouts} rollouts, seed 1"
    assert dict(provenance.scores) == {"baseline": 0.0, "best": 1.0}
    kept = store.resolve(PROMPT.descriptor, "t")
    assert kept == result.best_override


def test_a_tie_is_no_improvement_and_nothing_is_written() -> None:
    store = CountingStore()
    # What is learnt helps on the minibatches, and never on the examples to compare on.
    settings = config(training_examples=(*examples(6), *examples(6, first=10)))
    result = optimize(settings, overrides_store=store)
    assert result.accepted_mutations > 0
    assert result.best_pareto_mean == result.baseline_pareto_mean == 0.0
    assert not result.found_better
    assert result.best_index == 0
    assert result.best_section_overrides == {}
    assert not result.persisted
    assert store.writes == []


def test_nothing_accepted_is_no_improvement_and_nothing_is_written() -> None:
    store = CountingStore()
    result = optimize(config(feedback_fn=scored(0.5)), overrides_store=store)
    assert result.accepted_mutations == 0
    assert result.best_pareto_mean == result.baseline_pareto_mean == 0.5
    assert not result.found_better
    assert store.writes == []


@pytest.mark.parametrize("scope", PersistenceScope)
def test_persist_false_leaves_store_and_session_alone(scope: PersistenceScope) -> None:
    store, session = CountingStore(), Session()
    settings = config(persist=False, persist_scope=scope)
    result = optimize(settings, overrides_store=store, session=session)
    assert result.found_better
    assert not result.persisted
    assert store.writes == []
    assert session.select_all(PromptOverride) == ()


def test_without_a_store_the_winner_is_in_the_result_only() -> None:
    result = optimize()
    assert result.found_better
    assert not result.persisted
    assert set(result.best_section_overrides) == {RULES, NOTES}


def test_the_session_scope_hands_the_winner_to_the_session_only() -> None:
    store, session = CountingStore(), Session()
    result = optimize(
        config(persist_scope=PersistenceScope.SESSION), overrides_store=store, session=session
    )
    assert store.writes == []
    assert not result.persisted
    assert session.select_all(PromptOverride) == (result.best_override,)
    assert result.best_override.sections[RULES].body == result.best_section_overrides[RULES]


def test_the_session_scope_without_a_session_is_refused_before_the_first_call() -> None:
    run = Run(config(persist_scope=PersistenceScope.SESSION))
    for refused in (run.plan, run.start):
        with pytest.raises(ConfigError, match=r"^persist_scope: expected a session for the winner"):
            refused()
    assert run.task.calls == 0
    planned = Run(config(persist_scope=PersistenceScope.SESSION), session=Session()).plan()
    assert planned.rollouts > 0
    assert optimize(config(persist_scope=PersistenceScope.SESSION, persist=False)).found_better


def test_the_session_scope_hands_over_nothing_without_an_improvement() -> None:
    session = Session()
    settings = config(feedback_fn=scored(0.5), persist_scope=PersistenceScope.SESSION)
    optimize(settings, session=session)
    assert session.select_all(PromptOverride) == ()


@pytest.mark.parametrize(
    "refusal", [StoreError("the disk is full"), UnknownPartError("no such section")]
)
def test_a_store_that_refuses_the_winner_loses_nothing_of_the_run(refusal: Exception) -> None:
    store, session = CountingStore(refuse=refusal), Session()
    run = Run(overrides_store=store, session=session)
    with pytest.raises(
        WinnerNotStoredError, match=f"the winner is not stored: {refusal}"
    ) as caught:
        run.start()
    result = caught.value.result
    assert isinstance(result, GepaResult)
    assert result.best_pareto_mean == 1.0
    assert not result.persisted
    assert result.total_rollouts == run.task.calls
    assert len(session.select_all(GepaOptimizationCompleted)) == 1
    carried = pickle.loads(pickle.dumps(caught.value)).result
    assert carried == result


def test_the_same_run_on_its_journal_stores_a_winner_that_was_refused_before() -> None:
    store, journal = CountingStore(refuse=StoreError("locked")), MemoryJournal()
    with pytest.raises(WinnerNotStoredError):
        optimize(overrides_store=store, journal=journal)
    store.refuse = None
    run = Run(overrides_store=store, journal=journal)
    result = run.start()
    assert result.persisted
    assert run.task.calls == run.reflection.calls == 0
    assert store.resolve(PROMPT.descriptor) == result.best_override


def test_a_run_resumed_after_its_winner_was_stored_starts_from_the_same_baseline() -> None:
    store, journal = InMemoryPromptOverridesStore(), MemoryJournal()
    first = optimize(config(rollout_budget=60), overrides_store=store, journal=journal)
    assert first.persisted
    longer = optimize(config(rollout_budget=300), overrides_store=store, journal=journal)
    uninterrupted = optimize(
        config(rollout_budget=300), overrides_store=InMemoryPromptOverridesStore()
    )
    assert longer == uninterrupted
    assert longer.baseline_pareto_mean == 0.0
