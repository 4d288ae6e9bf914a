"""Graphs of prompts that are optimized together, and the trace of each answer."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.evals.types import Step
    from promptgraft.graphs.flow import AsyncRun
    from promptgraft.graphs.graph import Graph, Node, history, step, text
    from promptgraft.graphs.run import Run

__all__ = ["AsyncRun", "Graph", "Node", "Run", "Step", "history", "step", "text"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
