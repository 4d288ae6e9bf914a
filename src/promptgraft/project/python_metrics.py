"""Metrics of a project that are functions in its own Python files."""

from __future__ import annotations

from pathlib import Path

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.functions import Judge, Python
from promptgraft.evals.metrics.registry import MetricKind
from promptgraft.project.python_source import PythonSource, Wanted, place_of
from promptgraft.strict.checks import Kind
from promptgraft.strict.classes import record_of
from promptgraft.strict.kinds import without_name
from promptgraft.strict.nodes import Node


def _function(value: object) -> Judge | None:
    return value if callable(value) and not isinstance(value, type) else None


_FUNCTION = Wanted(what="function", expected="a function", plural="functions", read=_function)


def python_kind(source: PythonSource, folder: Path) -> MetricKind:
    """Return the kind ``python`` that finds ``file.py:NAME`` and ``module:NAME`` in a folder."""

    def function(node: Node) -> Judge | None:
        if not isinstance(node.value, str):
            node.expected("`file.py:NAME` or `module:NAME`")
            return None
        try:
            return source.load(place_of(node.value, _FUNCTION.what, base=folder), _FUNCTION)
        except ConfigError as error:
            node.fault(without_name(str(error), "function"))
            return None

    return MetricKind(
        name="python", build=record_of(Python, special={"function": Kind(function)}).read
    )
