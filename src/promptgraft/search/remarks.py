"""Remarks on the scores of a run: what users should know before they trust them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import correlation, mean

from promptgraft.evals.causes import constant_metrics
from promptgraft.evals.metrics.base import asks_models
from promptgraft.ground.text import counted, listed
from promptgraft.search.events import CaseTaught, Emit, RolloutCompleted
from promptgraft.search.fresh import HeldOut
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import FeedbackFn

_BASELINE = ("baseline/", "held-out/0/")
_FEWEST_ANSWERS = 10
_FEWEST_LENGTHS = 20
_FEWEST_OTHERS = 5
_PROSE = 40
_STRONG = 0.5
_SHOWN_CHARS = 60
_SCORE = "score"


class Remarks:
    """Notices what users should know before they trust the scores of a run.

    Passes on every event, and looks at all rollouts, including those from the journal.

    Args:
        feedback_fn: what scores answers; metrics that ask no model have no bias towards length.
        emit: receives every event.

    Attributes:
        metrics: the metrics of the run; none if a function scores.
        taught: the teacher of each case that had no ``expected``, by id.
    """

    def __init__(self, feedback_fn: FeedbackFn | None, emit: Emit) -> None:
        self._emit = emit
        self.metrics = metrics_of(feedback_fn)
        self._may_like_length = not self.metrics or any(map(asks_models, self.metrics))
        self._answer: str | None = None
        self._are_alike = True
        self._count = 0
        self._examples: set[str] = set()
        self._by_metric: dict[str, list[float]] = {}
        self._lengths: list[int] = []
        self._scores: list[float] = []
        self.taught: dict[str, str] = {}

    def __call__(self, event: object) -> None:
        """Look at an event of the run, and pass it on."""
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
        scores = record.feedback.objectives or {_SCORE: record.feedback.score}
        for metric, score in scores.items():
            self._by_metric.setdefault(metric, []).append(score)
        # Only of the baseline: later candidates were chosen by the scores in question.
        if event.position.startswith(_BASELINE):
            self._lengths.append(len(record.output_repr))
            self._scores.append(record.feedback.score)

    def texts(self, held_out: HeldOut | None) -> tuple[str, ...]:
        """Return the remarks, one line each."""
        remark_texts = []
        if self.taught:
            remark_texts.append(
                f"{counted(len(self.taught), 'case')} had no `expected` and are judged by what the "
                f"teacher `{next(iter(self.taught.values()))}` answered: {listed(self.taught)}"
            )
        if held_out is not None and held_out.lost:
            remark_texts.append(f"critical cases got worse: {listed(held_out.lost)}")
        if held_out is not None:
            remark_texts += [f"gamed? {doubt}" for doubt in held_out.doubts]
        if self._are_alike and self._answer and len(self._examples) >= _FEWEST_ANSWERS:
            answers = f"all {counted(self._count, 'answer')} of the run were"
            remark_texts.append(f"{answers} `{_short(self._answer)}`, whatever was asked")
        elif not self._are_alike:
            remark_texts += constant_metrics(self._by_metric)
        rises = _correlation(self._lengths, self._scores) if self._may_like_length else None
        if rises is not None and rises >= _STRONG:
            longer = held_out.answer_length if held_out is not None else ""
            also = f"; the winner's answers: {longer}" if longer else ""
            remark_texts.append(
                f"scores rise with the length of the answers (correlation {rises:.2f} over "
                f"{len(self._lengths)} answers of the baseline){also}; see that length is not "
                "what is rewarded"
            )
        return tuple(remark_texts)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}…"


def _correlation(lengths: Sequence[int], scores: Sequence[float]) -> float | None:
    """Return the correlation; None if answers are short, or too few values differ."""
    if len(lengths) < _FEWEST_LENGTHS or mean(lengths) < _PROSE:
        return None
    for values in (lengths, scores):
        ((_, alike),) = Counter(values).most_common(1)
        if len(values) - alike < _FEWEST_OTHERS:
            return None
    return correlation(lengths, scores)
