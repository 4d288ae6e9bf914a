"""Graphs of prompts that are optimized together, and the trace of each answer."""

from promptgraft.evals.types import Step
from promptgraft.graphs.flow import AsyncRun
from promptgraft.graphs.graph import Graph, Node, step, text
from promptgraft.graphs.run import Run

__all__ = ["AsyncRun", "Graph", "Node", "Run", "Step", "step", "text"]
