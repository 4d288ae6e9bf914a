"""Everything that a run needs in one value, and the same for a dry run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from optimizers.worlds import PROMPT, PlainAdapter, answer, config, propose
from promptgraft import (
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    MemoryJournal,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptOverride,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.adapters.base import adapter_identity
from promptgraft.errors import ConfigError
from promptgraft.overrides import PromptDescriptor
from promptgraft.runtime import EventBus


def surroundings(**changes: Any) -> OptimizationContext:
    return OptimizationContext(
        ScriptedAdapter(answer),
        reflection_adapter=ScriptedAdapter(propose),
        overrides_store=InMemoryPromptOverridesStore(),
        overrides_tag="canary",
        journal=MemoryJournal(),
        **changes,
    )


def test_a_job_runs_and_plans_as_its_optimizer_does() -> None:
    job = OptimizationJob(PROMPT, surroundings(), config())
    optimizer = GepaOptimizer(surroundings(), config())
    assert job.plan() == optimizer.plan(PROMPT)
    assert job.run() == optimizer.optimize(PROMPT)


class _CountingStore(InMemoryPromptOverridesStore):
    """Counts how often it is asked for the overrides in force of the prompt."""

    reads = 0

    def resolve(self, descriptor: PromptDescriptor, tag: str = "latest") -> PromptOverride | None:
        self.reads += descriptor.ns == PROMPT.template.ns
        return super().resolve(descriptor, tag)


def test_a_checked_job_is_checked_once() -> None:
    plain, store = OptimizationJob(PROMPT, surroundings(), config(persist=False)), _CountingStore()
    checked = OptimizationJob(
        PROMPT, attrs.evolve(surroundings(), overrides_store=store), config(persist=False)
    ).check()
    reads, events = store.reads, list[object]()
    bus = EventBus()
    bus.subscribe(object, events.append)
    limits = attrs.evolve(checked.config.limits, max_reflections=2)

    assert reads
    assert checked.plan() == plain.plan()
    ran = checked.within(attrs.evolve(checked.context, event_bus=bus), limits=limits).run()

    assert store.reads == reads
    assert ran.total_reflections == 2
    assert events
    assert (
        OptimizationJob(PROMPT, surroundings(), config(max_reflections=2, persist=False)).run()
        == ran
    )


def test_checks_do_not_outlive_what_they_were_made_of() -> None:
    first, second = _CountingStore(), _CountingStore()
    checked = OptimizationJob(
        PROMPT, attrs.evolve(surroundings(), overrides_store=first), config()
    ).check()
    other = attrs.evolve(checked.context, overrides_store=second)
    checked.within(other).plan()
    assert second.reads
    reads = first.reads
    attrs.evolve(checked, config=config(seed=3)).plan()
    assert first.reads > reads


def test_a_dry_run_has_the_embedded_model_and_neither_journal_nor_limits_in_money() -> None:
    job = OptimizationJob(
        PROMPT, surroundings(), config(max_cost=1, max_tokens=10, max_reflections=7, seed=3)
    )
    dry = job.dry()
    asked = (dry.context.adapter, dry.context.reflection_adapter)
    assert [adapter_identity(adapter) for adapter in asked if adapter] == ["offline/5"] * 2
    assert dry.plan().rollouts == job.plan().rollouts
    assert dry.context.journal is None
    assert (dry.context.overrides_store, dry.context.overrides_tag) == (
        job.context.overrides_store,
        "canary",
    )
    assert dry.config == config(persist=False, max_reflections=7, seed=3)
    assert job.config.persist


def test_a_dry_run_answers_free_text_with_the_input_and_refuses_other_types() -> None:
    seen: list[str] = []

    def feedback(example: Any, response: Any, session: Any) -> RolloutFeedback:
        seen.append(response.text)
        return RolloutFeedback(score=0.0, feedback="wrong")

    result = OptimizationJob(PROMPT, surroundings(), config(feedback_fn=feedback)).dry().run()
    params: list[Any] = [example.params[0] for example in config().training_examples]
    assert seen
    assert set(seen) <= {param.word for param in params}
    assert result.best_pareto_mean == result.baseline_pareto_mean == 0.0
    template = PromptTemplate[Any](
        ns="own", key="counts", sections=PROMPT.template.sections, output_type=dict[str, int]
    )
    with pytest.raises(ConfigError, match=r"does not serve `own/counts`.* wants an answer of type"):
        OptimizationJob(Prompt(template), surroundings(), config()).dry().plan()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("subject", PROMPT.template, "subject: expected a Prompt, found "),
        ("context", PlainAdapter(), "context: expected an OptimizationContext, found "),
        ("config", Path(), "config: expected a RunConfig, found "),
    ],
)
def test_a_job_of_other_things_is_refused(field: str, value: Any, message: str) -> None:
    fields = {"subject": PROMPT, "context": surroundings(), "config": config()}
    with pytest.raises(ConfigError, match=message):
        OptimizationJob(**{**fields, field: value})
