"""Checks before a run: names, prices, overlapping data sets, and agents that fail."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.base import (
    GIVE_PRICES,
    MeteredAdapter,
    ProviderAdapter,
    Usage,
    adapter_identity,
    check_serves,
    is_nameless,
)
from promptgraft.agents.adapter import MOST_CALLS, AgentAdapter, rehearse
from promptgraft.errors import CandidateError, ConfigError, DataFormatError
from promptgraft.evals.judges.panel import JudgeMetric
from promptgraft.evals.metrics.base import AllOf, is_hidden
from promptgraft.evals.metrics.judging import check_asked
from promptgraft.evals.spending import spent_from_json, spent_to_json
from promptgraft.evals.splits import asked_digest, question_digest
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.frozenmap import isolated
from promptgraft.ground.serde import HexDigest, did_you_mean, digest, unstructure
from promptgraft.ground.text import listed
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Watch
from promptgraft.search.answers import Answers
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.ledger import Ledger
from promptgraft.search.scores import AMOUNTS, SCORE
from promptgraft.targets.base import Target
from promptgraft.targets.judging import hidden_in, metrics_of
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.prompts import Improvable
from promptgraft.targets.types import GepaExample

_logger = logging.getLogger("promptgraft")

_A_CALL = Usage(input_tokens=1, output_tokens=1)

_KEY = "rehearsal"
"""The key of the journal's record of the call before the run."""


def cases_of(config: RunConfig) -> list[Case]:
    """Return the cases of the training and validation set; none if examples have no cases."""
    return [
        example.label for example in config.training_examples if isinstance(example.label, Case)
    ]


def check_metrics(config: RunConfig, adapter: ProviderAdapter | None) -> None:
    """Raise ``ConfigError`` if metrics do not fit the cases, or a setting names an unknown one."""
    metrics = metrics_of(config.feedback_fn)
    if not metrics:
        return
    check_asked(adapter, cases_of(config), metrics)
    names = [metric.name for metric in metrics if not is_hidden(metric)]
    names_known = [*names, SCORE, *AMOUNTS]
    for where, objectives in config.objectives_by_setting.items():
        for name in objectives:
            if name in hidden_in(config.feedback_fn):
                raise ConfigError(
                    f"{where}: the metric `{name}` is hidden, and no search may pursue it; take "
                    "it out here, or leave `hidden` out of the metric"
                )
            if name not in names_known:
                raise ConfigError(
                    f"{where}: no metric is called `{name}`{did_you_mean(name, names)}; metrics: "
                    f"{listed(names)}"
                )


def check_answering(
    adapter: ProviderAdapter | None, subject: Improvable, examples: Sequence[GepaExample]
) -> None:
    """Refuse an adapter that says that it cannot answer the prompt.

    Raises:
        ConfigError: the adapter of a single prompt does not serve it.
    """
    if not isinstance(subject, Prompt) or adapter is None or not examples:
        return
    # Copies, because what decides whether a section is shown may modify what is bound.
    bound = isolated(subject.params, where=f"prompt `{subject.template.key}`: bound parameters")
    prompt = attrs.evolve(subject, params=bound).bind(*examples[0].copy().params)
    # A block that does not render scores 0, as it does in the run.
    with contextlib.suppress(CandidateError):
        check_serves(adapter, prompt.render())


def models_asked(
    context: OptimizationContext, own: Mapping[str, ProviderAdapter]
) -> list[ProviderAdapter]:
    """Return the adapters that answer, propose and teach; ``own`` are those of the subject."""
    teachers = context.teacher.models if context.teacher else ()
    adapters = (context.adapter, context.proposing_adapter, *own.values(), *teachers)
    return [adapter for adapter in adapters if adapter is not None]


def check_prices(config: RunConfig, asked: Iterable[ProviderAdapter]) -> None:
    """Refuse a ``max_cost`` that cannot be enforced.

    Raises:
        ConfigError: the price of a model is not known.
    """
    if config.limits.max_cost is None:
        return
    judges = judges_of(metrics_of(config.feedback_fn))
    named = [*(("", adapter) for adapter in asked), *(("the judge ", judge) for judge in judges)]
    for what, adapter in named:
        if isinstance(adapter, MeteredAdapter) and adapter.price_of(_A_CALL) is None:
            raise ConfigError(
                f"limits.max_cost: no price is known for {what}`{adapter_identity(adapter)}`, so "
                f"the limit cannot be enforced; {GIVE_PRICES}"
            )


def warn_of_nameless(asked: Iterable[ProviderAdapter]) -> None:
    """Warn of adapters that a journal cannot distinguish."""
    for name in {type(adapter).__name__ for adapter in asked if is_nameless(adapter)}:
        _logger.warning(
            "adapter `%s` has no `identity`: the journal knows it by the name of its class, "
            "and reuses its answers whatever model it asks; give it one that names the model",
            name,
        )


def judges_of(metrics: Iterable[Metric]) -> Iterator[ProviderAdapter]:
    """Yield the models that metrics ask."""
    for metric in metrics:
        if isinstance(metric, AllOf):
            yield from judges_of(metric.metrics)
        elif isinstance(metric, JudgeMetric):
            yield from metric.judges


def planned_call(adapter: ProviderAdapter | None) -> str:
    """Return a description of the calls before a run; empty if there are none."""
    if not isinstance(adapter, AgentAdapter):
        return ""
    return (
        f"agent `{adapter.agent.name}` is asked the first turn of one case before the run, of "
        f"{MOST_CALLS} if it fails"
    )


def rehearsed(
    target: Target,
    config: RunConfig,
    adapter: ProviderAdapter | None,
    *,
    answers: Answers,
    ledger: Ledger,
    watch: Watch,
    deadline: Deadline | None,
) -> None:
    """Call an agent once before the run, unless that is recorded; see :func:`rehearse`."""
    if not isinstance(adapter, AgentAdapter) or not isinstance(target, PromptTarget):
        return
    question = digest([target.identity.digest])
    recorded = answers.recall(_KEY, question)
    if recorded is not None:
        ledger.count(spent_from_json(recorded, _KEY), recorded=True)
        return
    [prompt] = target.rollout.prompts_of(target.baseline()).values()
    cases = cases_of(config)
    spent = rehearse(adapter, prompt, cases, watch=watch.at(_KEY), deadline=deadline)
    ledger.count(answers.paid(_KEY, spent))
    answers.journal.append(_KEY, question, _KEY, spent_to_json(spent))


def check_overlap(sets: Mapping[str, Sequence[GepaExample]]) -> None:
    """Refuse examples of different sets with the same input, up to case and white space.

    Examples are compared by their case, or by their parameters if these are plain data.

    Raises:
        ConfigError: naming two examples and their sets.
    """
    places: dict[HexDigest, tuple[str, str]] = {}
    for name, examples in sets.items():
        for example in examples:
            question = question_of(example)
            if question is None:
                continue
            elder, place = places.setdefault(question, (example.id, name))
            # Within a set a repeated input only weighs more.
            if place != name:
                raise ConfigError(
                    f"`{elder}` in {place} asks the same as `{example.id}` in {name}; what is "
                    "learned from one must not be judged by the other: leave one of them out"
                )


def question_of(example: GepaExample) -> HexDigest | None:
    """Return a digest of what an example asks; None if it is not known."""
    if isinstance(example.label, Case):
        return question_digest(example.label)
    if not example.params:
        return None
    try:
        return asked_digest([unstructure(param) for param in example.params])
    except DataFormatError:
        return None
