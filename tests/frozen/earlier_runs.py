"""Runs whose journals an earlier version has written; a later one continues them without a call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizers.worlds import NOTES, PROMPT, RULES, Run, answer, propose, twins
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaConfig, GepaExample, RolloutFeedback
from promptgraft.journal import FileJournal
from promptgraft.runtime import SessionProtocol

JOURNALS = Path(__file__).parent / "journals"


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score an answer. The journals have a digest of this function: do not change it."""
    if response.text == "ok":
        return RolloutFeedback(score=1.0, feedback="fine")
    return RolloutFeedback(score=0.0, feedback=f"missing {example.label}")


SETTINGS: Mapping[str, Any] = {
    "rollout_budget": 120,
    "minibatch_size": 3,
    "pareto_set_size": 8,
    "target_section_paths": (RULES, NOTES),
    "training_examples": twins(8),
    "feedback_fn": judge,
    "seed": 1,
    "keep_anyway": True,
}


def run_of(journal: FileJournal, **settings: Any) -> Run:
    """Return a run of the world of words."""
    config = GepaConfig(**{**SETTINGS, **settings})
    return Run(config, task=answer, reflection=propose, prompt=PROMPT, journal=journal)
