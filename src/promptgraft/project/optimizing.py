"""A search in one call, from a prompt, cases and metrics to the result of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict, Unpack

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.algorithms import algorithm
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.strict.checks import COUNT
from promptgraft.journal.base import Journal
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.project.format import DEFAULT_WORKERS
from promptgraft.project.given import (
    Examples,
    Scoring,
    Source,
    asked_as,
    metrics_of,
    names_read,
    splits_of,
    subject_of,
)
from promptgraft.project.models import named_adapter
from promptgraft.project.settings import Judging, data_settings
from promptgraft.runtime.session import EventBus
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.job import Optimizer
from promptgraft.search.result import RunResult
from promptgraft.search.settings import Limits, Size
from promptgraft.targets.prompts import Improvable


class OptimizeOptions(TypedDict, total=False):
    """Optional arguments of :func:`optimize`.

    Attributes:
        reflection_model: proposes new texts; by default the model that answers.
        rollout_budget: rollouts that the run may use, or ``light`` (the default), ``medium`` or
            ``heavy``.
        target_section_paths: sections that may change; by default all that are overridable.
        limits: limits that may end the run early, such as ``Limits(max_cost=5)``.
        seed: seed of all random choices; 0 by default.
        workers: concurrent rollouts, 4 by default; the result does not depend on it.
        overrides_store: the store to start from and to write the winner to; by default none.
        overrides_tag: the tag for both; ``latest`` by default.
        keep_anyway: also store a winner that is better only on the validation set.
        journal: records every answer, so that the run can be resumed; by default none.
        event_bus: receives every event of the run; by default none.
    """

    reflection_model: str | ProviderAdapter
    rollout_budget: int | Size
    target_section_paths: Sequence[SectionPath]
    limits: Limits
    seed: int
    workers: int
    overrides_store: PromptOverridesStore
    overrides_tag: str
    keep_anyway: bool
    journal: Journal
    event_bus: EventBus


def optimize(
    prompt: Source,
    cases: Examples,
    metrics: Scoring,
    *,
    model: str | ProviderAdapter,
    **options: Unpack[OptimizeOptions],
) -> RunResult:
    """Improve a prompt on cases, and return the result: ``print(result)`` says what it is worth.

    The search learns from the training set and compares candidates on the validation set; the
    winner and the source are evaluated once on the test set, which the search never sees.
    ``GepaOptimizer`` does the same and has further settings.

    Args:
        prompt: what to improve. A text, or texts by name, such as ``"Say which team answers."``:
            ``$name`` stands for a value of the case, and values that no text names follow the
            texts. Or a ``PromptTemplate``, a ``Prompt`` with values bound that all cases share, a
            ``Graph``, or texts that code of yours uses: ``Texts``, a ``BlackBox``, a target.
        cases: a file of cases, a ``Dataset``, a table, a list of mappings like
            ``{"input": ..., "expected": ...}`` or of pairs ``(input, expected)``, which are split
            60 : 20 : 20; or ``Splits``. A text is bound to the only open placeholder, an object to
            the placeholders of its keys; functions are called with the input unchanged.
        metrics: score an answer: a name such as ``"exact"``, a metric, a function
            ``f(case, answer)``, or a list of these, whose mean is the score.
        model: answers, and proposes new texts: ``offline``, ``anthropic/MODEL``, ``openai/MODEL``
            and so on, or an adapter. It only proposes where code of yours answers.
        **options: rollout_budget: test calls that the run may make, or ``light`` (the default),
            ``medium`` or ``heavy``; reflection_model: proposes new texts instead of ``model``;
            limits: such as ``Limits(max_cost=5)``; overrides_store and overrides_tag: where a
            proven winner is stored; keep_anyway: store it without proof; journal: to resume the
            run; target_section_paths, seed, workers, event_bus: see :class:`OptimizeOptions`.

    Raises:
        ConfigError, DataFormatError: an argument is unusable, or cases, metrics and prompt do not
            fit together; found before the first call.
    """
    with _prepared(prompt, cases, metrics, model=model, options=options) as (optimizer, subject):
        return optimizer.optimize(subject)


async def aoptimize(
    prompt: Source,
    cases: Examples,
    metrics: Scoring,
    *,
    model: str | ProviderAdapter,
    **options: Unpack[OptimizeOptions],
) -> RunResult:
    """Improve a prompt as :func:`optimize` does, without blocking the running event loop."""
    with _prepared(prompt, cases, metrics, model=model, options=options) as (optimizer, subject):
        return await optimizer.aoptimize(subject)


@contextlib.contextmanager
def _prepared(
    prompt: Source,
    cases: Examples,
    metrics: Scoring,
    *,
    model: str | ProviderAdapter,
    options: OptimizeOptions,
) -> Iterator[tuple[Optimizer, Improvable]]:
    # `Unpack` alone is checked by type checkers only.
    option_names = list(OptimizeOptions.__annotations__)
    for name in options:
        if name not in option_names:
            raise ConfigError(
                f"optimize: there is no option `{name}`{did_you_mean(name, option_names)}; further "
                "settings are those of GepaConfig, for GepaOptimizer"
            )
    judging = Judging(splits=splits_of(cases, names_read(prompt)), metrics=metrics_of(metrics))
    subject = subject_of(prompt, judging.splits)
    make: Callable[..., RunConfig] = algorithm()
    config = make(
        **data_settings(asked_as(subject), judging),
        rollout_budget=options.get("rollout_budget", "light"),
        target_section_paths=options.get("target_section_paths", ()),
        limits=options.get("limits", Limits()),
        seed=options.get("seed", 0),
        keep_anyway=options.get("keep_anyway", False),
    )
    reflection = options.get("reflection_model")
    workers = options.get("workers", DEFAULT_WORKERS)
    COUNT.hold("workers", workers)
    executor = ThreadPoolExecutor(workers)
    context = OptimizationContext(
        named_adapter(model, "model"),
        reflection_adapter=None
        if reflection is None
        else named_adapter(reflection, "reflection_model"),
        overrides_store=options.get("overrides_store"),
        overrides_tag=options.get("overrides_tag", DEFAULT_TAG),
        executor=executor,
        journal=options.get("journal"),
        event_bus=options.get("event_bus"),
    )
    try:
        yield Optimizer(context, config), subject
    finally:
        # A cancelled run does not wait for rollouts that hang.
        executor.shutdown(wait=False, cancel_futures=True)
