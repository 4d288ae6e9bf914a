"""Metrics of a project that are functions in its own Python files."""

from __future__ import annotations

from pathlib import Path

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.functions import Judge, Python
from promptgraft.evals.metrics.options import Options, Place, read_options
from promptgraft.evals.metrics.registry import MetricKind
from promptgraft.evals.types import Metric
from promptgraft.project.python_source import PythonSource, Wanted, place_of


def _function(value: object) -> Judge | None:
    return value if callable(value) and not isinstance(value, type) else None


_FUNCTION = Wanted(what="function", expected="a function", plural="functions", read=_function)


@attrs.frozen(kw_only=True)
class _Common:
    """The options that are read as they stand; an empty name is that of the function."""

    name: str = ""
    threshold: float = 1.0
    required: bool = True


def python_kind(source: PythonSource, folder: Path) -> MetricKind:
    """Return the kind ``python`` that finds ``file.py:NAME`` and ``module:NAME`` in a folder."""

    def build(options: Options, place: Place) -> Metric | None:
        spec = options.get("function")
        if not isinstance(spec, str):
            return read_options(Python, options, place)
        rest = {name: value for name, value in options.items() if name != "function"}
        common = read_options(_Common, rest, place)
        try:
            found = source.load(place_of(spec, _FUNCTION.what, base=folder), _FUNCTION)
            if common is None:
                return None
            named = {"name": common.name} if common.name else {}
            return Python(
                function=found, threshold=common.threshold, required=common.required, **named
            )
        except ConfigError as error:
            place.at("function").fault(str(error).removeprefix("function: "))
            return None

    return MetricKind(name="python", build=build)
