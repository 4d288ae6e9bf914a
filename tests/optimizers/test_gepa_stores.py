"""GEPA and the stores: what it takes from each of them, and what it leaves behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

import agent_world
from agent_world import EXAMPLES, REPLIES, TOOL_EXAMPLE, WORD, Finding
from agent_world import TEMPLATE as AGENT
from optimizers.worlds import (
    NOTES,
    PROMPT,
    QUESTION,
    RULES,
    TEMPLATE,
    Question,
    Run,
    config,
    optimize,
    scored,
    section,
)
from promptgraft import (
    EventBus,
    GepaExample,
    GepaOptimizer,
    OptimizationContext,
    Prompt,
    PromptResponse,
    RenderedPrompt,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.algorithms.gepa import GepaOptimizationStarted, GepaResult
from promptgraft.errors import ConfigError, StoreError, WinnerNotStoredError
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import (
    BasePromptOverridesStore,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OverlayPromptOverridesStore,
    PromptOverride,
    Revision,
    SkipReason,
)
from promptgraft.runtime import SessionProtocol
from promptgraft.testing import FakeClock

Store = BasePromptOverridesStore
TAG = "t"
WELL = "Well, do you know $word?"


def in_memory(folder: Path) -> Store:
    return InMemoryPromptOverridesStore()


def local(folder: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(folder, clock=FakeClock())


def overlay(folder: Path) -> Store:
    return OverlayPromptOverridesStore(base=local(folder), overlay=InMemoryPromptOverridesStore())


STORES: Mapping[str, Callable[[Path], Store]] = {
    "in memory": in_memory,
    "local": local,
    "overlay": overlay,
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


def kept(store: Store, tag: str = TAG) -> PromptOverride:
    found = store.resolve(PROMPT.descriptor, tag)
    assert found is not None
    return found


def shown(store: Store, tag: str = TAG) -> RenderedPrompt[object]:
    """Return what a model receives later, by the template, the store and the tag alone."""
    return Prompt(TEMPLATE, overrides_store=store, overrides_tag=tag).bind(Question("w1")).render()


def improve(store: Store, **changes: object) -> GepaResult:
    return optimize(config(**changes), overrides_store=store, overrides_tag=TAG)


def at_start(act: Callable[[], object]) -> EventBus:
    """Return a bus that acts once the run has read the store, before its first rollout."""

    def started(_: GepaOptimizationStarted) -> None:
        act()

    bus = EventBus()
    bus.subscribe(GepaOptimizationStarted, started)
    return bus


def last_year(path: tuple[str, ...]) -> Prompt[object]:
    """Return the prompt as it was before the author reworded a section."""
    sections = [
        attrs.evolve(found, template=f"Old. {found.template}") if (found.key,) == path else found
        for found in TEMPLATE.sections
    ]
    return Prompt(attrs.evolve(TEMPLATE, sections=sections))


# ---- every store ----


def test_the_winner_is_what_is_rendered_later_under_its_tag_and_no_other(store: Store) -> None:
    store.set_section_override(PROMPT, tag="other", path=NOTES, body="More words: w5")
    before = store.resolve(PROMPT.descriptor, "other")
    result = improve(store)
    assert result.persisted
    assert kept(store) == result.best_override
    for path in (RULES, NOTES):
        assert section(shown(store), path).text == result.best_section_overrides[path]
    assert store.resolve(PROMPT.descriptor, "other") == before
    assert store.resolve(PROMPT.descriptor) is None


def test_fresh_and_stale_overrides_of_other_parts_stay(store: Store) -> None:
    store.set_section_override(last_year(NOTES), tag=TAG, path=NOTES, body="More words: w0")
    store.set_section_override(PROMPT, tag=TAG, path=QUESTION, body=WELL)
    before = kept(store)
    result = improve(store, target_section_paths=(RULES,))
    assert result.found_better
    after = kept(store)
    assert after.without(after.sections[RULES]) == before
    assert [skip.reason for skip in shown(store).skipped] == [SkipReason.STALE]
    assert section(shown(store), QUESTION).text == "Well, do you know w1?"


def test_the_seed_of_a_store_is_the_baseline_and_gives_way_to_the_winner(store: Store) -> None:
    store.seed(PROMPT, tag=TAG)
    plain = optimize()
    result = improve(store)
    assert result.baseline_pareto_mean == plain.baseline_pareto_mean
    assert result.scores_matrix == plain.scores_matrix
    assert result.best_section_overrides == plain.best_section_overrides
    assert section(shown(store), RULES).text == result.best_section_overrides[RULES]
    assert section(shown(store), QUESTION).text == "Do you know w1?"


def test_a_second_run_begins_where_the_first_one_ended(store: Store) -> None:
    first = improve(store, target_section_paths=(RULES,), rollout_budget=60)
    assert first.best_pareto_mean is not None
    assert 0 < first.best_pareto_mean < 1
    second = improve(store, target_section_paths=(NOTES,))
    assert second.baseline_pareto_mean == first.best_pareto_mean
    assert second.best_pareto_mean == 1.0
    assert section(shown(store), RULES).text == first.best_section_overrides[RULES]
    assert section(shown(store), NOTES).text == second.best_section_overrides[NOTES]


def test_what_others_write_during_a_run_is_not_seen_by_it_and_not_lost(store: Store) -> None:
    bus = at_start(lambda: store.set_section_override(PROMPT, tag=TAG, path=QUESTION, body=WELL))
    run = Run(overrides_store=store, overrides_tag=TAG, event_bus=bus)
    result = run.start()
    assert {section(r, QUESTION).text[:12] for r in run.task.requests} == {"Do you know "}
    assert set(kept(store).sections) == {RULES, NOTES, QUESTION}
    assert section(shown(store), QUESTION).text == "Well, do you know w1?"
    assert section(shown(store), RULES).text == result.best_section_overrides[RULES]


def test_two_runs_at_once_both_keep_their_winners(store: Store) -> None:
    both_have_begun = threading.Barrier(2, timeout=30)

    def run(path: tuple[str, ...]) -> GepaResult:
        return optimize(
            config(target_section_paths=(path,)),
            overrides_store=store,
            overrides_tag=TAG,
            event_bus=at_start(both_have_begun.wait),
        )

    with ThreadPoolExecutor(2) as pool:
        results = tuple(pool.map(run, (RULES, NOTES)))
    for path, result in zip((RULES, NOTES), results, strict=True):
        assert kept(store).sections[path].body == result.best_section_overrides[path]


def test_examples_of_every_kind_are_kept_and_rendered_later(store: Store) -> None:
    def better(rendered: RenderedPrompt[object]) -> list[bool]:
        paths = {found.path for found in rendered.sections if WORD in found.text}
        call = WORD in rendered.tools[0].examples[0].description
        return [call, ("examples", "first") in paths, ("examples", f"the-{WORD}") in paths]

    def reply(rendered: RenderedPrompt[object]) -> str:
        return json.dumps({"severity": "low", "note": "*" * sum(better(rendered))})

    def stars(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        assert isinstance(response.output, Finding)
        return RolloutFeedback(score=len(response.output.note) / 3, feedback="more")

    context = OptimizationContext(
        ScriptedAdapter(reply),
        reflection_adapter=ScriptedAdapter(lambda rendered: REPLIES[rendered.key]),
        overrides_store=store,
        overrides_tag=TAG,
    )
    settings = config(
        target_section_paths=(),
        target_tool_examples=(TOOL_EXAMPLE,),
        target_task_examples=(("examples", "first"),),
        enable_example_generation=True,
        training_examples=EXAMPLES,
        feedback_fn=stars,
        max_failed_reflections=100,
    )
    result = GepaOptimizer(context, settings).optimize(Prompt(AGENT))
    assert result.best_pareto_mean == 1.0
    assert store.resolve(AGENT.descriptor, TAG) == result.best_override
    later = Prompt(AGENT, overrides_store=store, overrides_tag=TAG)
    rendered = later.bind(agent_world.Question("new")).render()
    assert better(rendered) == [True, True, True]
    assert len(rendered.applied) == 3


# ---- the overlay ----


def test_the_base_of_an_overlay_counts_and_is_left_alone(tmp_path: Path) -> None:
    base, above = local(tmp_path), InMemoryPromptOverridesStore()
    base.set_section_override(PROMPT, tag=TAG, path=RULES, body="Known words: w0")
    base.set_section_override(PROMPT, tag=TAG, path=QUESTION, body=WELL)
    files = documents(tmp_path)
    layered = OverlayPromptOverridesStore(base=base, overlay=above)
    result = improve(layered)
    assert result.baseline_pareto_mean == pytest.approx(1 / 6)
    assert result.best_pareto_mean == 1.0
    assert documents(tmp_path) == files
    assert kept(above) == result.best_override
    assert QUESTION not in kept(above).sections
    assert section(shown(layered), RULES).text.startswith("Known words: w0 ")
    assert section(shown(layered), QUESTION).text == "Well, do you know w1?"
    assert section(shown(base), RULES).text == "Known words: w0"


# ---- the local store ----


def documents(root: Path) -> dict[Path, bytes]:
    """Return every file of a local store but its locks."""
    files = (root / ".promptgraft").rglob("*.json")
    return {file: file.read_bytes() for file in files}


def history(store: LocalPromptOverridesStore) -> tuple[Revision, ...]:
    """Return the revisions of the tag, the first one first."""
    found = store.history(ns="toy", prompt_key="words", tag=TAG)
    return tuple(sorted(found, key=lambda revision: revision.number))


def test_a_winner_is_one_revision_that_says_where_it_comes_from(tmp_path: Path) -> None:
    store = local(tmp_path)
    result = improve(store)
    assert len(result.best_section_overrides) == 2
    [revision] = history(store)
    assert revision.override == result.best_override
    assert revision.provenance.run_id == result.run_id
    assert revision.provenance.scores == {"baseline": 0.0, "best": 1.0}


def test_another_process_with_the_folder_sees_the_winner(tmp_path: Path) -> None:
    result = improve(local(tmp_path))
    assert kept(local(tmp_path)) == result.best_override


def test_without_an_improvement_a_folder_stays_as_it_is(tmp_path: Path) -> None:
    for changes in ({"feedback_fn": scored(0.5)}, {"persist": False}):
        improve(local(tmp_path), **changes)
        assert list(tmp_path.iterdir()) == []
    store = local(tmp_path)
    improve(store)
    files = documents(tmp_path)
    assert not improve(store).found_better
    assert documents(tmp_path) == files


def test_winners_follow_each_other_and_the_last_one_can_be_taken_back(tmp_path: Path) -> None:
    store = local(tmp_path)
    first = improve(store, target_section_paths=(RULES,), rollout_budget=60)
    second = improve(store, target_section_paths=(NOTES,))
    older, newer = history(store)
    assert newer.parent == older.id
    assert (older.provenance.run_id, newer.provenance.run_id) == (first.run_id, second.run_id)
    store.rollback(ns="toy", prompt_key="words", tag=TAG)
    assert kept(store) == first.best_override


def test_a_winner_does_not_replace_what_another_writer_wrote_during_the_run(store: Store) -> None:
    theirs = "Known words: w9"
    bus = at_start(lambda: store.set_section_override(PROMPT, tag=TAG, path=RULES, body=theirs))
    surroundings: dict[str, Any] = {
        "overrides_store": store,
        "overrides_tag": TAG,
        "journal": MemoryJournal(),
    }
    with pytest.raises(WinnerNotStoredError) as caught:
        optimize(event_bus=bus, **surroundings)
    assert str(caught.value) == (
        "the winner is not stored: section rules: another writer has changed it under tag `t` of "
        "prompt `toy/words` since the run began; look at both, then roll the tag back and resume "
        "the run, or write the winner over it: "
        "`store.upsert(prompt.descriptor, error.result.best_override)`"
    )
    assert {path: one.body for path, one in kept(store).sections.items()} == {RULES: theirs}
    result = caught.value.result
    assert isinstance(result, GepaResult)
    assert result.found_better
    assert not result.persisted
    # Both ways out of it that the message names.
    store.upsert(PROMPT.descriptor, result.best_override)
    assert kept(store) == result.best_override
    store.delete(ns="toy", prompt_key="words", tag=TAG)
    assert optimize(**surroundings).persisted


def test_a_winner_is_stored_beside_what_another_writer_wrote_elsewhere(store: Store) -> None:
    bus = at_start(lambda: store.set_section_override(PROMPT, tag=TAG, path=QUESTION, body=WELL))
    result = optimize(overrides_store=store, overrides_tag=TAG, event_bus=bus)
    assert result.persisted
    assert {*kept(store).sections} == {RULES, NOTES, QUESTION}


def test_of_two_runs_at_the_same_time_the_second_does_not_replace_the_winner_of_the_first(
    store: Store,
) -> None:
    settings = config(target_section_paths=(RULES,))
    first: list[GepaResult] = []

    def run_another() -> None:
        first.append(optimize(attrs.evolve(settings, seed=2), **surroundings))

    surroundings: dict[str, Any] = {"overrides_store": store, "overrides_tag": TAG}
    with pytest.raises(WinnerNotStoredError, match="section rules: another writer"):
        optimize(settings, event_bus=at_start(run_another), **surroundings)
    assert kept(store) == first[0].best_override


def test_a_resumed_run_replaces_the_winner_that_it_has_stored_itself(store: Store) -> None:
    surroundings: dict[str, Any] = {
        "overrides_store": store,
        "overrides_tag": TAG,
        "journal": MemoryJournal(),
    }
    short = optimize(config(rollout_budget=60), **surroundings)
    longer = optimize(config(rollout_budget=300), **surroundings)
    assert short.persisted
    assert longer.persisted
    assert short.best_override != longer.best_override == kept(store)


def test_a_store_that_cannot_be_written_any_more_costs_only_the_write(tmp_path: Path) -> None:
    store = local(tmp_path)
    obstacle = tmp_path / ".promptgraft" / "overrides"
    obstacle.parent.mkdir()
    run = Run(overrides_store=store, overrides_tag=TAG, event_bus=at_start(obstacle.touch))
    with pytest.raises(WinnerNotStoredError, match="the winner is not stored: ") as caught:
        run.start()
    assert isinstance(caught.value.__cause__, StoreError)
    result = caught.value.result
    assert isinstance(result, GepaResult)
    assert result.best_pareto_mean == 1.0
    assert not result.persisted
    # With the obstacle gone, what the error carries can be stored by hand.
    obstacle.unlink()
    store.upsert(PROMPT.descriptor, result.best_override)
    assert kept(store) == result.best_override


# ---- a store of the prompt's own ----


def of_prompt(store: Store, tag: str = "prod", **surroundings: object) -> GepaResult:
    prompt = Prompt(TEMPLATE, overrides_store=store, overrides_tag=tag)
    return optimize(config(), prompt=prompt, **surroundings)


def test_the_tag_of_the_prompts_own_store_is_the_base_and_is_not_written(store: Store) -> None:
    store.set_section_override(PROMPT, tag="prod", path=QUESTION, body=WELL)
    before = kept(store, "prod")
    run = Run(prompt=Prompt(TEMPLATE, overrides_store=store, overrides_tag="prod"))
    result = run.start()
    assert result.found_better
    assert not result.persisted
    assert result.best_override.tag == "prod"
    assert {section(call, QUESTION).text[:5] for call in run.task.requests} == {"Well,"}
    assert kept(store, "prod") == before


def test_a_prompt_may_have_the_same_store_and_tag_as_the_context(store: Store) -> None:
    assert of_prompt(store, overrides_store=store, overrides_tag="prod").persisted


@pytest.mark.parametrize(
    ("tag", "same", "message"),
    [
        ("prod", False, "has the tag `prod` of a .*, the context the tag `prod` of a InMemory"),
        ("other", True, "has the tag `prod` of a .*, the context the tag `other` of the same"),
    ],
)
def test_another_base_in_the_context_than_in_the_prompt_is_refused(
    store: Store, tag: str, same: bool, message: str
) -> None:
    other = store if same else InMemoryPromptOverridesStore()
    with pytest.raises(ConfigError, match=message):
        of_prompt(store, overrides_store=other, overrides_tag=tag)
