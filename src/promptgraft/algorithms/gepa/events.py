"""The names that the specification of GEPA gives to events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from promptgraft.algorithms.gepa.plan import RunPlan
from promptgraft.parts.descriptors import PromptDescriptor
from promptgraft.search.events import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaExampleGenerated,
    GepaMergeAccepted,
    GepaMergeAttempted,
    GepaMergeRejected,
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
    GepaStopFileRemoved,
    GepaWorking,
)
from promptgraft.search.events import RolloutCompleted as GepaRolloutCompleted

if TYPE_CHECKING:
    from promptgraft.algorithms.gepa.types import GepaResult


@attrs.frozen(kw_only=True)
class GepaOptimizationStarted:
    """A run begins, or begins again on its journal.

    Attributes:
        run_id: identity of the run; equal for equal configuration, data and prompt.
        descriptor: the prompt.
        rollout_budget: rollouts that may be used.
        pareto_ids: their ids, in the order of every list of scores.
        modules: names of what may be mutated.
        texts: the baseline's text of each module; those that write new examples have none.
        seed: what decides every random choice.
        plan: what the run can use.
    """

    run_id: str
    descriptor: PromptDescriptor
    rollout_budget: int
    pareto_ids: tuple[str, ...]
    modules: tuple[str, ...]
    texts: Mapping[str, str]
    seed: int
    plan: RunPlan

    @property
    def pareto_size(self) -> int:
        """Number of examples that candidates are compared on."""
        return len(self.pareto_ids)


@attrs.frozen
class GepaOptimizationCompleted:
    """A run ended.

    Attributes:
        result: what it found, as ``optimize`` returns it; when the store refused the winner,
            as the error carries it.
    """

    result: GepaResult


__all__ = [
    "GepaCandidateAdded",
    "GepaCandidateScored",
    "GepaExampleGenerated",
    "GepaMergeAccepted",
    "GepaMergeAttempted",
    "GepaMergeRejected",
    "GepaMutationAccepted",
    "GepaMutationProposed",
    "GepaMutationRejected",
    "GepaOptimizationCompleted",
    "GepaOptimizationStarted",
    "GepaRolloutCompleted",
    "GepaStopFileRemoved",
    "GepaWorking",
]
