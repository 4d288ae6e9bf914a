"""Metrics: each judges an answer with a score, pass or fail, and a reason."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.evals.metrics.base import AllOf, BaseMetric, ByCase
    from promptgraft.evals.metrics.containment import Contains
    from promptgraft.evals.metrics.expressions import Assertion, Check
    from promptgraft.evals.metrics.functions import Python
    from promptgraft.evals.metrics.json_schemas import JsonSchema
    from promptgraft.evals.metrics.json_values import JsonMatch, JsonRules, ToolRule, ToolTrajectory
    from promptgraft.evals.metrics.judging import check_cases, check_metrics, judge_case
    from promptgraft.evals.metrics.patterns import Regex
    from promptgraft.evals.metrics.reading import UnusableAnswerError
    from promptgraft.evals.metrics.registry import (
        METRICS,
        MetricConfig,
        Registry,
        load_metric_config,
        load_metrics,
    )
    from promptgraft.evals.metrics.similarity import EditSimilarity, Rouge
    from promptgraft.evals.metrics.text import Exact
    from promptgraft.evals.metrics.values import (
        Classification,
        Cost,
        Latency,
        Length,
        Number,
        Tokens,
    )
    from promptgraft.evals.types import MetricKind
    from promptgraft.ground.strict.kinds import record_of
    from promptgraft.ground.strict.nodes import Node

    # The names that metric files use, so that Python reads the same:
    # `metrics.exact(ignore_case=True)`.
    all_of = AllOf
    assertion = Assertion
    by_case = ByCase
    check = Check
    classification = Classification
    contains = Contains
    cost = Cost
    edit_similarity = EditSimilarity
    exact = Exact
    json_match = JsonMatch
    json_schema = JsonSchema
    latency = Latency
    length = Length
    number = Number
    python = Python
    regex = Regex
    rouge = Rouge
    tokens = Tokens
    tool_trajectory = ToolTrajectory

__all__ = [
    "METRICS",
    "AllOf",
    "Assertion",
    "BaseMetric",
    "ByCase",
    "Check",
    "Classification",
    "Contains",
    "Cost",
    "EditSimilarity",
    "Exact",
    "JsonMatch",
    "JsonRules",
    "JsonSchema",
    "Latency",
    "Length",
    "MetricConfig",
    "MetricKind",
    "Node",
    "Number",
    "Python",
    "Regex",
    "Registry",
    "Rouge",
    "Tokens",
    "ToolRule",
    "ToolTrajectory",
    "UnusableAnswerError",
    "check_cases",
    "check_metrics",
    "judge_case",
    "load_metric_config",
    "load_metrics",
    "record_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
