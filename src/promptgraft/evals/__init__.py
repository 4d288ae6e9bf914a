"""What is judged, and how: cases, metrics, judgements."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.evals.dataset import Dataset
    from promptgraft.evals.evaluate import Evaluation
    from promptgraft.evals.splits import Splits
    from promptgraft.evals.types import Case

__all__ = ["Case", "Dataset", "Evaluation", "Splits"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
