"""What a dry run runs: the same job without models."""

from __future__ import annotations

from typing import TypeVar

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.offline import DryAdapter
from promptgraft.evals.judges.mock import MockJudge
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.settings import without_stop_files
from promptgraft.targets.judging import MetricFeedback
from promptgraft.targets.prompts import Improvable, PromptSet
from promptgraft.targets.texts import OwnCodeAdapter

T = TypeVar("T")


def _talking_to(user: ProviderAdapter, agent: T) -> T:
    """Return an agent with ``user`` in place of the model that plays its users, if one does."""
    # Targets of users may call anything so.
    if not hasattr(getattr(agent, "user", None), "evaluate") or not attrs.has(type(agent)):
        return agent
    changed: T = attrs.evolve(agent, user=user)  # type: ignore[misc]
    return changed


def without_models(
    subject: Improvable, context: OptimizationContext, config: RunConfig
) -> tuple[Improvable, OptimizationContext, RunConfig]:
    """Return what a job is made of, with the embedded offline model in place of every model."""
    offline, task, feedback = DryAdapter(), context.adapter, config.feedback_fn
    if isinstance(feedback, MetricFeedback):
        feedback = feedback.answered_by(MockJudge())
    # A stop file may be meant for the real run, and a run removes the one that it finds.
    limits = without_stop_files(config.limits)
    if task is not None and not isinstance(task, OwnCodeAdapter):
        task = offline
    return (
        subject.answered_by(offline)
        if isinstance(subject, PromptSet)
        else _talking_to(offline, subject),
        attrs.evolve(
            context,
            adapter=_talking_to(offline, task),
            reflection_adapter=offline,
            journal=None,
            remember_looks=False,
            teacher=context.teacher and context.teacher.answered_by(offline),
        ),
        attrs.evolve(
            config,
            feedback_fn=feedback,
            persist=False,
            limits=attrs.evolve(limits, max_cost=None, max_tokens=None),
        ),
    )
