"""Advice before a run: settings that are allowed, and yet unlikely to do what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from promptgraft.adapters.abilities import end_of_model
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.evals.causes import compares_expected, contradictions
from promptgraft.evals.gains import least_cases
from promptgraft.ground.clock import SystemClock
from promptgraft.ground.text import counted
from promptgraft.overrides.resolution import resolve_override
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.verdict import LEVEL, case_of
from promptgraft.targets.base import Target
from promptgraft.targets.formatting import default_example_formatter
from promptgraft.targets.judging import metrics_of

_LEAST_ACCEPTED = 3  # kept candidates
_FEW = 10  # cases
_MANY = 1_000  # validation cases


def advice(
    config: RunConfig, target: Target, models: Iterable[ProviderAdapter], questions: Questions
) -> Iterator[str]:
    """Yield the warnings of a plan, a line each."""
    yield from _ends(models)
    yield from _of_settings(config)
    yield from config.warnings(target)
    yield from _outdated(questions)


def _of_settings(config: RunConfig) -> Iterator[str]:
    """Yield what the sizes of sets and limits make unlikely to succeed."""
    sizes = {"training": len(config.split[1]), "validation": config.pareto_set_size}
    if few := [f"{size} {name}" for name, size in sizes.items() if 0 < size < _FEW]:
        yield (
            f"there are only {' and '.join(few)} cases; use {_FEW} or more in each set, better 50, "
            "to tell a gain from luck"
        )
    if (many := sizes["validation"]) >= _MANY and isinstance(config.rollout_budget, str):
        yield (
            f"rollout_budget: `{config.rollout_budget}` means {config.budget:,} test calls, as "
            f"there are {many:,} validation cases; 200 are enough: give `validation` a smaller "
            "share in `splits.ratio` (in Python `Splits.by_ratio`), or name a number of calls"
        )
    count = len({case_of(example.id, example.family) for example in config.held_out})
    least, one = least_cases(LEVEL), " (a family is one)" if count < len(config.held_out) else ""
    cases = f"{counted(count, 'test case')}{one}"
    if config.data.held_out is None and not count:
        yield (
            "there are no test cases: the run cannot prove that its winner is better; name some "
            "as `test` in `splits` of a project, or as `data.held_out` in Python"
        )
    elif 0 < count < least:
        yield f"{cases} cannot prove a gain; use {least} or more, better 50"
    elif least <= count < _FEW:
        yield f"{cases} prove a gain only if {least} of them get better; use more, better 50"
    if compares_expected(metrics_of(config.feedback_fn)):
        yield from filter(None, [contradictions(config.cases)])
    most_chars = config.max_example_chars
    if config.example_formatter is None:
        inputs = (default_example_formatter(each, None)[0] for each in config.training_examples)
        if (longest := max(map(len, inputs))) > 2 * most_chars:
            yield (
                f"inputs have up to {longest:,} characters, of which the reflection model sees the "
                f"first and last {most_chars // 2:,}; raise max_example_chars if the middle matters"
            )
    budget, needed = config.budget, config.rollouts_for(_LEAST_ACCEPTED)
    if budget < needed:
        yield (
            f"rollout_budget: {counted(budget, 'test call')} are enough for only "
            f"{counted(config.pays_for(budget).if_accepted, 'kept candidate')}; raise it to "
            f"{needed} for {_LEAST_ACCEPTED}, or lower the number of validation cases "
            "(pareto_set_size in Python) or minibatch_size"
        )
    limit = config.limits.max_reflections
    if limit is not None and limit < _LEAST_ACCEPTED:
        yield (
            f"limits.max_reflections: {counted(limit, 'reflection call')} can show little; raise "
            f"it to {_LEAST_ACCEPTED} or more"
        )


def _ends(models: Iterable[ProviderAdapter]) -> Iterator[str]:
    """Yield a line for each model that has ended or will soon."""
    today = SystemClock().now().date()
    ends = map(end_of_model, models)
    yield from dict.fromkeys(
        end.line(today) for end in ends if end is not None and end.is_near(today)
    )


def _outdated(questions: Questions) -> Iterator[str]:
    """Yield a line for each meta-prompt whose overrides were made for an older shipped text."""
    for prompt in questions.values():
        store, descriptor = prompt.overrides_store, prompt.descriptor
        resolution = store.resolve(descriptor) if store is not None else None
        skipped = resolve_override(descriptor, resolution).skipped
        if skipped:
            parts = ", ".join(f"{part.part} ({part.reason})" for part in skipped)
            yield (
                f"meta-prompt `{descriptor.key}`: {parts}: the override is not applied, because "
                "the shipped text is another one now; see `promptgraft meta diff`, then "
                f"`promptgraft meta reset {descriptor.key}`"
            )
