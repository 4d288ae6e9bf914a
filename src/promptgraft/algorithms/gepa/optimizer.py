"""GEPA as an optimizer."""

from __future__ import annotations

from promptgraft.search.job import Optimizer


class GepaOptimizer(Optimizer):
    """Improves a prompt with GEPA, whose settings are a ``GepaConfig``."""
