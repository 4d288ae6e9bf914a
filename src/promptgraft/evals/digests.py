"""What must be the same for two sets of scores to be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import attrs

from promptgraft.evals.aggregation import Aggregation
from promptgraft.evals.types import Case, Metric
from promptgraft.serde import HexDigest, digest, digest_text, unstructure

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DIGITS = 16


def metrics_identity(metrics: Sequence[Metric], aggregation: Aggregation | None = None) -> str:
    """Return the names of metrics and a digest of them, their options and their aggregation.

    The code of a Python function has no part in it, only its name.
    """
    told = _ADDRESS.sub("", repr((tuple(metrics), aggregation)))
    names = ",".join(metric.name for metric in metrics)
    return f"metrics {names} {digest_text(told)[:_DIGITS]}"


def cases_digest(cases: Iterable[Case]) -> HexDigest:
    """Return the SHA-256 over everything that cases ask and expect, whatever their order.

    Where they stand in a file and what reflectors are told of them has no part in it.
    """
    bare = (attrs.evolve(case, origin="", hints={}) for case in cases)
    return digest([_plain(case) for case in sorted(bare, key=lambda case: case.id)])


def _plain(case: Case) -> object:
    recorded = case.recorded
    if recorded is None or recorded.cost is None:
        return unstructure(case)
    # Money is no plain data.
    free = attrs.evolve(case, recorded=attrs.evolve(recorded, cost=None))
    return [unstructure(free), str(recorded.cost)]
