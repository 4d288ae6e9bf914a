"""GEPA by the name that its specification has for it."""

from __future__ import annotations

from promptgraft.search.optimizer import Optimizer


class GepaOptimizer(Optimizer):
    """Improves a prompt with GEPA, whose settings are a ``GepaConfig``."""
