"""What a GEPA run returns."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.optimizers.gepa.events import GepaMutationRejected
from promptgraft.optimizers.gepa.pool import Score
from promptgraft.optimizers.stopping import StopReason
from promptgraft.optimizers.types import Candidate
from promptgraft.overrides.types import PromptOverride, SectionPath


@attrs.frozen(kw_only=True)
class GepaResult:
    """The outcome of a run: a function of configuration, seed, data and answers only.

    Attributes:
        run_id: identity of the run.
        best_section_overrides: bodies of the best candidate by section path; empty when
            nothing beat the baseline.
        best_override: the same as what a store keeps.
        best_index: position of the best candidate; 0 is the baseline.
        best_pareto_mean: its mean on D_pareto; None when nothing was scored.
        baseline_pareto_mean: the mean of the baseline on D_pareto.
        improved: whether the best candidate beats the baseline on the examples that both
            were scored on. A tie goes to the baseline.
        persisted: whether the winner was written to the override store.
        candidates: every member of the pool, the baseline first.
        scores_matrix: candidates times examples of D_pareto; None for unscored.
        pareto_ids: ids of the examples, the columns of ``scores_matrix``.
        ancestry: for each candidate the position of its (first) parent, None for the baseline.
        accepted_mutations: how many proposals joined the pool.
        rejections: every refused proposal with its reason.
        total_rollouts: rollouts used, unscored ones included.
        unscored_rollouts: rollouts that the provider failed.
        total_reflections: reflections used.
        steps: steps begun.
        stop_reason: why the run ended.
        stop_detail: the same in words.
    """

    run_id: str
    best_section_overrides: Mapping[SectionPath, str]
    best_override: PromptOverride
    best_index: int
    best_pareto_mean: float | None
    baseline_pareto_mean: float | None
    improved: bool
    persisted: bool
    candidates: tuple[Candidate, ...]
    scores_matrix: tuple[tuple[Score, ...], ...]
    pareto_ids: tuple[str, ...]
    ancestry: tuple[int | None, ...]
    accepted_mutations: int
    rejections: tuple[GepaMutationRejected, ...]
    total_rollouts: int
    unscored_rollouts: int
    total_reflections: int
    steps: int
    stop_reason: StopReason
    stop_detail: str
