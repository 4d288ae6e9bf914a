"""The phases of a run: search, finish, held-out examples, and remarks on the scores."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import correlation, mean

import attrs

from promptgraft import errors
from promptgraft.evals.causes import constant_metrics, silent_metrics
from promptgraft.evals.metrics.base import asks_models
from promptgraft.evals.types import Metric
from promptgraft.ground.text import counted, listed, on_one_line
from promptgraft.runtime.session import SessionProtocol, Watch
from promptgraft.search.algorithm import BaseSearch
from promptgraft.search.answers import Answers
from promptgraft.search.asks import Asking, GiveUp
from promptgraft.search.events import CaseTaught, Emit, RolloutCompleted
from promptgraft.search.held_out import Sides, measure
from promptgraft.search.population import Population
from promptgraft.search.preflight import CheckedRun
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import RunStoppedError, StopReason, reason_of
from promptgraft.search.verdict import Figures, HeldOut, PassingSides
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.types import FeedbackFn

_BASELINE = ("baseline/", "held-out/0/")
_FEWEST_ANSWERS = 10  # examples with equal answers
_FEWEST_LENGTHS = 20  # answers, for a correlation
_FEWEST_OTHERS = 5  # that differ from the most frequent value
_PROSE = 40  # characters; the length of shorter answers means nothing
_STRONG = 0.5  # correlation
_SHOWN_CHARS = 60  # of the answer that all examples have
_SCORE = "score"
_FEWEST_OBJECTS = 3
_OBJECTS = (
    "the first %d answers score 0: they are data such as `%s`, and `%s` is expected; return the "
    "text alone, or say in the metric where it is, such as `answer_path: $.answer`, in a function "
    "`answer.output`"
)
_logger = logging.getLogger("promptgraft")


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
        self.metrics: tuple[Metric, ...] = metrics_of(feedback_fn)
        self._may_like_length = not self.metrics or any(map(asks_models, self.metrics))
        self._answer: str | None = None
        self._traces: set[str] = set()
        self._are_alike = True
        self._count = 0
        self._examples: set[str] = set()
        judges = [getattr(metric, "function", None) for metric in self.metrics] or [feedback_fn]
        codes = (getattr(function, "__code__", None) for function in judges)
        # A function that reads `output` expects data.
        reads_data = any("output" in getattr(code, "co_names", ()) for code in codes)
        self._objects: int | None = None if reads_data else 0
        self._by_metric: dict[str, list[float]] = {}
        self._reasons: dict[str, list[str]] = {}
        self._scored: set[str] = set()
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
            self._are_alike = self._are_alike and record.feedback is None
            return
        if self._are_alike:
            self._answer = record.output_repr if self._answer is None else self._answer
            # An agent that is judged by its calls may say the same after all of them.
            self._traces.add(record.tool_trace_repr)
            self._are_alike = record.output_repr == self._answer and len(self._traces) == 1
            self._count += 1
            self._examples.add(record.example_id)
        if self._objects is not None:
            is_text = record.expected_repr[:1] not in ("", "{", "[")
            is_object = (
                is_text and record.output_repr[:1] in ("{", "[") and not record.feedback.score
            )
            self._objects = self._objects + 1 if is_object else None
        if self._objects == _FEWEST_OBJECTS:  # before a search is paid for
            answer, expected = _short(record.output_repr), _short(record.expected_repr)
            _logger.warning(_OBJECTS, _FEWEST_OBJECTS, answer, expected)
        scores = record.feedback.objectives or {_SCORE: record.feedback.score}
        for metric, score in scores.items():
            self._by_metric.setdefault(metric, []).append(score)
        for verdict in record.verdicts:
            if verdict.score is None:
                self._reasons.setdefault(verdict.metric, []).append(verdict.reason)
            else:
                self._scored.add(verdict.metric)
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
        remark_texts += silent_metrics(self._reasons, self._scored)
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
    line = on_one_line(text)
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


_ENDS = set(StopReason) - {
    StopReason.PAUSED,
    StopReason.FAILED,
    StopReason.PROVIDER_FAILED,
    StopReason.UNREADABLE,
    StopReason.DEADLINE,
    StopReason.CANCELLED,
    StopReason.STOP_FILE,
    StopReason.COST,
    StopReason.TOKENS,
}
"""Reasons after which a run can still evaluate its winner on held-out examples."""

_STOPPED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}

Ending = tuple[StopReason, str]
"""Why a run ended, and the same in words."""


@attrs.frozen(kw_only=True)
class BegunRun:
    """A checked run with its accounts: the journal is bound to it.

    Attributes:
        checked: the run; its target has the overrides that were in force when the run began.
        run_id: identity of the run.
        answers: the journal as the run sees it, and a ledger of everything that it uses.
        watch: budget, notices, and what keeps the calls of answers.
        emit: receives every event.
        session: receives the winner if the settings say so; None for none.
    """

    checked: CheckedRun
    run_id: str
    answers: Answers
    watch: Watch
    emit: Emit
    session: SessionProtocol | None


@attrs.define(eq=False, kw_only=True)
class RunPhases:
    """Runs a search, and evaluates its winner on held-out examples.

    Attributes:
        begun: the run.
        remarks: what users should know before they trust the scores.
        held_out: how the winner did on the held-out examples; None if there are none.
    """

    _search: BaseSearch
    _begun: BegunRun
    _remarks: Remarks
    held_out: HeldOut | None = attrs.field(init=False)
    _passing: Sides | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.held_out = self._not_measured("the run was stopped before that")

    @property
    def winner(self) -> int:
        """Position of the winner in the pool; 0 is the baseline."""
        best, population = self._search.best, self._search.population
        return best if population.is_above_baseline(best) else 0

    @property
    def population(self) -> Population:
        """The candidates of the run."""
        return self._search.population

    def run(self) -> Asking[Ending]:
        """Run to the end and return the reason for it.

        Raises:
            FeedbackError, BindingError: the caller's fault.
            CallerError: the search has not evaluated the baseline.
            JournalError: the journal cannot be used.
        """
        reason = StopReason.DONE, "the search has come to its own end"
        ended = yield from self._until_end(self._search.run(), reason)
        if not self._search.population.pool.candidates:
            raise errors.CallerError(
                f"{type(self._search).__name__}.run: expected the baseline to be taken in first; "
                "begin with `yield from self.validate(self.kit.target.baseline())`"
            )
        if ended[0] in _ENDS:
            ended = yield from self._until_end(self._search.finish(), ended)
        # The finish may have been stopped too.
        if ended[0] in _ENDS:
            ended = yield from self._until_end(self._measure(), ended)
        return ended

    def _measure(self) -> Asking[None]:
        if not self.winner:
            self.held_out = self._not_measured("no new text was better than yours")
        elif held_out := self._begun.checked.config.held_out:
            self.held_out, self._passing = yield from measure(
                self._search.kit,
                self.winner,
                held_out,
                seed=self._begun.checked.config.seed,
                metrics=self._remarks.metrics,
            )

    def _not_measured(self, why: str) -> HeldOut | None:
        ids = tuple(example.id for example in self._begun.checked.config.held_out)
        return HeldOut(ids=ids, why_not=why) if ids else None

    def _until_end(self, part: Asking[None], otherwise: Ending) -> Asking[Ending]:
        """Run a part of the run; return why it ended, ``otherwise`` if it ran to completion."""
        ended, answers = otherwise, self._begun.answers
        try:
            yield from part
            answers.accept_faults()
        except RunStoppedError as stop:
            if stop.reason in _STOPPED_BY_FAULTS:
                answers.deferred.clear()  # so that a resumed run asks again
            else:
                answers.accept_faults()
            ended = stop.reason, stop.detail
        except errors.PermanentProviderError as error:
            ended = StopReason.PROVIDER_FAILED, str(error)
        except errors.LimitReachedError as error:
            ended = reason_of(error), str(error)
        except errors.PromptgraftError:
            # The answers until now are paid for, and a resumed run needs them.
            answers.journal.sync()
            raise
        answers.journal.sync()
        # Rollouts of abandoned branches are used, but the search's own ledger never counts them.
        self._search.kit.budget.in_flight = yield from GiveUp()
        return ended

    def result(self, ended: Ending) -> RunResult:
        """Return the result of a run that has ended; its winner is not persisted yet."""
        search, best, ledger = self._search, self.winner, self._begun.answers.ledger
        pool, rules = search.population.pool, search.population.pass_rules
        of_examples = sum(modules[0].is_example for modules in search.accepted)
        lacking = "" if best else search.population.lacking_scores
        core = RunResult(
            run_id=self._begun.run_id,
            name=search.kit.target.identity.name,
            tag=self._begun.checked.context.overrides_tag,
            best_index=best,
            baseline_pareto_mean=pool.means[0],
            persisted=False,
            candidates=tuple(pool.candidates),
            scores_matrix=tuple(pool.scores),
            objectives=tuple(pool.objectives),
            frontier=tuple(pool.frontier()),
            held_out=self.held_out,
            passing=PassingSides(
                thresholds=rules.thresholds,
                validation=(search.population.figures(0), search.population.figures(best)),
                held_out=self._passing,
                hidden=rules.hidden,
            ),
            remarks=(
                *self._remarks.texts(self.held_out),
                *_still_failing(ended[0], search.population.figures(best)),
                *filter(None, [lacking]),
            ),
            taught=tuple(self._remarks.taught),
            pareto_ids=tuple(example.id for example in search.kit.validation),
            means=tuple(pool.estimate(position) for position in range(len(pool))),
            accepted_mutations=len(search.accepted) - of_examples,
            accepted_example_mutations=of_examples,
            kept_rewrites=sum(map(len, search.accepted)),
            rejections=tuple(search.rejections),
            total_rollouts=ledger.rollouts,
            unscored_rollouts=ledger.unscored,
            total_reflections=ledger.reflections,
            ledger=ledger.entries,
            steps=search.steps,
            stop_reason=ended[0],
            stop_detail=ended[1],
            sources=self._begun.checked.prompts,
        )
        return search.result(core)


def _still_failing(reason: StopReason, figures: Figures) -> Iterator[str]:
    """Yield a remark on metrics that fail although the score, which ends a run, is perfect."""
    failing = [f"{name} ({mean:.3g})" for name, mean in figures.means.items() if mean < 1]
    if reason is StopReason.PERFECT and failing:
        yield (
            f"the score is perfect, and yet {', '.join(failing)} of the best candidate still "
            "fails on validation examples; to improve it too, give it a weight in "
            "`objectives.weights`"
        )
