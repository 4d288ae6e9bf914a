"""The data of a run, split into what candidates are compared on and what is learned from."""

from __future__ import annotations

import random
from collections.abc import Sequence

from promptgraft.targets.types import GepaExample


def split_examples(
    examples: Sequence[GepaExample], pareto_size: int, *, shuffle_seed: int | None
) -> tuple[tuple[GepaExample, ...], tuple[GepaExample, ...]]:
    """Return validation set (the first ``pareto_size``) and training set (the others)."""
    ordered = list(examples)
    if shuffle_seed is not None:
        random.Random(f"{shuffle_seed}/split").shuffle(ordered)
    return tuple(ordered[:pareto_size]), tuple(ordered[pareto_size:])
