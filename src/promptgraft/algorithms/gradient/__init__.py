"""Textual gradients: failures travel back along the trace to the texts that led to them."""

from promptgraft.algorithms.gradient.config import GradientConfig, GradientOptimizer
from promptgraft.algorithms.gradient.search import GradientResult, Round
from promptgraft.algorithms.gradient.stages import (
    Aggregate,
    AggregateRequest,
    Backward,
    BackwardRequest,
    NewText,
    Rewrite,
    RewriteRequest,
)

__all__ = [
    "Aggregate",
    "AggregateRequest",
    "Backward",
    "BackwardRequest",
    "GradientConfig",
    "GradientOptimizer",
    "GradientResult",
    "NewText",
    "Rewrite",
    "RewriteRequest",
    "Round",
]
