"""The cases of a run with their metrics, and the settings that they become."""

from __future__ import annotations

import attrs

from promptgraft.evals.aggregate import Aggregation
from promptgraft.evals.binding import ParamsOf
from promptgraft.evals.splits import Splits
from promptgraft.evals.types import Metric
from promptgraft.prompt.template import Prompt
from promptgraft.search.settings import Data
from promptgraft.targets.judging import examples_from, feedback_from


@attrs.frozen(kw_only=True)
class Judging:
    """The cases of a run and how answers to them are scored.

    Attributes:
        aggregation: combines several scores; None for their mean.
        params: turns a case into the parameters of a prompt; None to match them by name.
        has_teacher: whether a teacher answers cases without ``expected``.
    """

    splits: Splits
    metrics: tuple[Metric, ...]
    aggregation: Aggregation | None = None
    params: ParamsOf | None = None
    has_teacher: bool = False


def data_settings(prompt: Prompt[object], judging: Judging) -> dict[str, object]:
    """Return the run settings that hold the data: examples, held-out examples and feedback.

    The validation set comes first among the examples, followed by the training set.

    Raises:
        ConfigError: cases, metrics and prompt do not fit together.
    """
    metrics, parts = judging.metrics, judging.splits.parts()
    examples = {
        name: examples_from(
            prompt, part, metrics, params=judging.params, taught=judging.has_teacher
        )
        for name, part in parts.items()
    }
    # A run takes its validation set from the front of the examples.
    return {
        "pareto_set_size": len(examples["validation"]),
        "training_examples": (*examples["validation"], *examples["train"]),
        "data": Data(held_out=examples.get("test")),
        "feedback_fn": feedback_from(metrics, aggregation=judging.aggregation),
    }
