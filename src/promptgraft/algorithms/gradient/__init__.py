"""Textual gradients: failures travel back along the trace to the texts that led to them."""

from promptgraft.algorithms.gradient.config import GradientConfig, GradientOptimizer
from promptgraft.algorithms.gradient.search import GradientResult, Round

__all__ = ["GradientConfig", "GradientOptimizer", "GradientResult", "Round"]
