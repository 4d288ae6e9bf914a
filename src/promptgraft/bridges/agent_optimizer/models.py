"""Models and metrics of an imported configuration of another optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.evals.judges.registry import judge_kinds
from promptgraft.evals.metrics.registry import METRICS, load_metrics
from promptgraft.evals.types import Metric
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.nodes import Source
from promptgraft.project.format_models import MODEL
from promptgraft.project.models import make_adapter
from promptgraft.project.parts import judge_among
from promptgraft.project.python_source import PythonSource


def read_as(kind: Kind[Any], value: Json) -> Any:
    """Return plain data that an import has made, read as a part of a project."""
    source = Source.of(value)
    value_read = kind.read(source.root)
    source.raise_all()
    return value_read


def adapter_of(model: Json, what: str, *, path: Path) -> ProviderAdapter:
    """Return the adapter of a model in the configuration at ``path``."""
    python = PythonSource(path.parent)
    return make_adapter(read_as(MODEL, model), what=f"{path}: {what}", python=python)


def metrics_of(
    evaluate: Mapping[str, Json], judges: Mapping[str, Json], *, path: Path
) -> tuple[Metric, ...]:
    """Return the metrics of the configuration at ``path``, with the models of their judges."""
    adapters = {name: adapter_of(model, name, path=path) for name, model in judges.items()}
    registry = METRICS.plus(*judge_kinds(judge_among(adapters)))
    return load_metrics(dict(evaluate), registry=registry)
