"""What a run notices that users should know before they trust its scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import correlation, mean

from promptgraft.evals.metrics.base import asks_models
from promptgraft.search.events import CaseTaught, Emit, RolloutCompleted
from promptgraft.search.fresh import HeldOut
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import FeedbackFn
from promptgraft.text import counted, listed

_BASELINE = ("baseline/", "held-out/0/")
_FEWEST_ANSWERS = 10
_FEWEST_LENGTHS = 20
_FEWEST_OTHERS = 5
_PROSE = 40
_STRONG = 0.5
_SHOWN_CHARS = 60


class Remarks:
    """Looks at the rollouts of a run as they are told, recorded ones included.

    Args:
        feedback_fn: what scores; metrics that ask no model do not care for length.
        emit: is called with every event.

    Attributes:
        taught: the teacher of each case that had no ``expected``, by id.
    """

    def __init__(self, feedback_fn: FeedbackFn | None, emit: Emit) -> None:
        self._emit = emit
        metrics = metrics_of(feedback_fn)
        self._may_like_length = not metrics or any(map(asks_models, metrics))
        self._answer: str | None = None
        self._are_alike = True
        self._count = 0
        self._examples: set[str] = set()
        self._lengths: list[int] = []
        self._scores: list[float] = []
        self.taught: dict[str, str] = {}

    def __call__(self, event: object) -> None:
        """Take account of an event of the run."""
        self._emit(event)
        if not isinstance(event, RolloutCompleted):
            if isinstance(event, CaseTaught):
                self.taught[event.case] = event.teacher
            return
        record = event.record
        if record.feedback is None or record.fault:
            return
        if self._are_alike:
            self._answer = record.output_repr if self._answer is None else self._answer
            self._are_alike = record.output_repr == self._answer
            self._count += 1
            self._examples.add(record.example_id)
        if event.position.startswith(_BASELINE):
            self._lengths.append(len(record.output_repr))
            self._scores.append(record.feedback.score)

    def texts(self, held_out: HeldOut | None) -> tuple[str, ...]:
        """Return the remarks, one line each."""
        found = []
        if self.taught:
            found.append(
                f"{counted(len(self.taught), 'case')} had no `expected` and are judged by what the "
                f"teacher `{next(iter(self.taught.values()))}` answered: {listed(self.taught)}"
            )
        if held_out is not None and held_out.lost:
            found.append(
                f"the winner is worse on {listed(held_out.lost)}, which must not get worse"
            )
        if self._are_alike and self._answer and len(self._examples) >= _FEWEST_ANSWERS:
            answers = f"all {counted(self._count, 'answer')} of the run were"
            found.append(f"{answers} `{_short(self._answer)}`, whatever was asked")
        rises = _correlation(self._lengths, self._scores) if self._may_like_length else None
        if rises is not None and rises >= _STRONG:
            longer = held_out.answer_length if held_out is not None else ""
            also = f"; the winner's answers: {longer}" if longer else ""
            found.append(
                f"scores rise with the length of the answers (correlation {rises:.2f} over "
                f"{len(self._lengths)} answers of the baseline){also}; see that length is not "
                "what is rewarded"
            )
        return tuple(found)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}…"


def _correlation(lengths: Sequence[int], scores: Sequence[float]) -> float | None:
    """Return the correlation; None where answers are short, or few differ from the others."""
    if len(lengths) < _FEWEST_LENGTHS or mean(lengths) < _PROSE:
        return None
    for values in (lengths, scores):
        ((_, alike),) = Counter(values).most_common(1)
        if len(values) - alike < _FEWEST_OTHERS:
            return None
    return correlation(lengths, scores)
