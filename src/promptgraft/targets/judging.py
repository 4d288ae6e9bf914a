"""Data sets and metrics as the examples and the feedback function of an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter
from promptgraft.errors import ConfigError, FeedbackError, TransientProviderError
from promptgraft.evals.aggregate import Aggregation, check_aggregation, judged, metrics_identity
from promptgraft.evals.attempt import answer_of
from promptgraft.evals.binding import ParamsOf, params_of_cases
from promptgraft.evals.metrics.base import answered_by, is_hidden
from promptgraft.evals.metrics.judging import check_cases, check_metrics, feedback_text, judge_case
from promptgraft.evals.types import Case, Metric, cases_of
from promptgraft.ground.functions import code_digest, function_identity
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict.checks import instance
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import plays_turns
from promptgraft.runtime.session import SessionProtocol
from promptgraft.targets.types import FeedbackFn, GepaExample, RolloutFeedback


def examples_from(
    prompt: Prompt[object],
    cases: Iterable[Case],
    metrics: Sequence[Metric] = (),
    *,
    params: ParamsOf | None = None,
    taught: bool = False,
) -> tuple[GepaExample, ...]:
    """Return cases as the examples of a run; the label of each is its case.

    Args:
        prompt: the prompt, with the parameters that all cases share.
        cases: a ``Dataset``, or any cases with distinct ids.
        metrics: the metrics that will judge; checks that cases have what they need.
        params: returns the prompt's parameters for a case; without it a text is bound to the only
            open placeholder, and an object to the placeholders of its names.
        taught: whether a teacher will answer the cases that have no ``expected``, so that these are
            not checked.

    Raises:
        ConfigError: cases, metrics and prompt do not fit together; names the cases.
    """
    instance(Prompt).hold("prompt", prompt)
    chosen = cases_of(cases)
    if metrics:
        check_metrics(metrics)
    checked = known(chosen) if taught else chosen
    check_cases(metrics, checked, prompt.template.output_type, by_turn=plays_turns(prompt))
    for case in chosen:
        if case.recorded is not None:
            raise ConfigError(
                f"{case.origin or 'cases'}: case `{case.id}` has a recorded answer, which no "
                "prompt changes; leave it out of a search"
            )
    bound = params_of_cases(prompt, chosen, params)
    return tuple(
        GepaExample(
            id=case.id,
            params=bound[case.id],
            label=case,
            critical=case.critical,
            family=case.family,
        )
        for case in chosen
    )


def known(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the cases that have ``expected``."""
    return tuple(case for case in cases if case.expected is not None)


def feedback_from(
    metrics: Sequence[Metric], *, aggregation: Aggregation | None = None
) -> MetricFeedback:
    """Return a feedback function that judges with metrics.

    It expects examples made by :func:`examples_from`. The score is the aggregation of the metrics'
    scores, the feedback consists of their reasons with the hints of the case, failed metrics
    first, and each metric's score is an objective under its name. An answer is unscored if a
    metric that contributes to the score cannot judge it.

    Args:
        metrics: metrics with distinct names.
        aggregation: combines the scores into one; None for their mean.

    Raises:
        ConfigError: there are no metrics, or two have the same name.
    """
    check_metrics(metrics)
    if aggregation is not None:
        countable = [metric.name for metric in metrics if not is_hidden(metric)]
        check_aggregation(aggregation, countable)
    return MetricFeedback(metrics=tuple(metrics), aggregation=aggregation)


@attrs.frozen(kw_only=True)
class MetricFeedback:
    """A feedback function over metrics, picklable if they are. See :func:`feedback_from`.

    Attributes:
        metrics: the metrics, hidden ones included.
        aggregation: combines their scores; None for the mean.
        held_out: ids of the examples that hidden metrics judge; they judge no others.
    """

    metrics: tuple[Metric, ...]
    aggregation: Aggregation | None = None
    held_out: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        """Its identity in a run's fingerprint: a digest of the metrics with their options."""
        # Without code, which is in `functions`: it may differ when scores are reused.
        return metrics_identity(self.metrics, self.aggregation, code=False)

    @property
    def functions(self) -> Mapping[str, Json]:
        """The identities of the user's code in metrics and aggregation, by name."""
        named = {
            **{
                f"metric {metric.name}": getattr(metric, "function", metric)
                for metric in self.metrics
            },
            "aggregation": self.aggregation,
        }
        return {
            name: function_identity(function)
            for name, function in named.items()
            if code_digest(function)
        }

    def answered_by(self, judge: ProviderAdapter) -> MetricFeedback:
        """Return the feedback function with ``judge`` in place of the models that metrics ask."""
        return attrs.evolve(self, metrics=answered_by(self.metrics, judge))

    def __call__(
        self, example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        """Judge one answer.

        Raises:
            FeedbackError: the example has no case, or a user's metric failed.
            ProviderError: a judge failed; the answer stays unscored.
        """
        case = example.label
        if not isinstance(case, Case):
            raise FeedbackError(
                f"expected an example of a case, made by `examples_from`; its label is "
                f"{shown(case)}"
            )
        answer = answer_of(response, session)
        # Elsewhere their verdicts could only guide the search, and would have to be paid for.
        metrics = [
            metric
            for metric in self.metrics
            if example.id in self.held_out or not is_hidden(metric)
        ]
        verdicts = judge_case(metrics, case, answer, session=session)
        # Before the score is known to be missing: the record of an unscored rollout has them too.
        for verdict in verdicts:
            session.dispatch(verdict)
        outcome = judged(case.id, verdicts, metrics, self.aggregation)
        # A fault of the provider leaves the rollout unscored: a 0 would blame the prompt.
        if outcome.score is None:
            raise TransientProviderError(f"not judged: {outcome.error}")
        hidden = {metric.name for metric in metrics if is_hidden(metric)}
        shown_verdicts = [verdict for verdict in verdicts if verdict.metric not in hidden]
        return RolloutFeedback(
            score=outcome.score,
            feedback=feedback_text(case, shown_verdicts, notes=answer.notes),
            objectives={
                verdict.metric: verdict.score
                for verdict in shown_verdicts
                if verdict.score is not None
            },
        )


def metrics_of(feedback: object) -> tuple[Metric, ...]:
    """Return the metrics of a feedback function; empty if it has none."""
    return feedback.metrics if isinstance(feedback, MetricFeedback) else ()


def hidden_in(feedback: object) -> tuple[str, ...]:
    """Return the names of the hidden metrics of a feedback function."""
    return tuple(metric.name for metric in metrics_of(feedback) if is_hidden(metric))


def with_held_out(feedback: FeedbackFn | None, ids: Iterable[str]) -> FeedbackFn | None:
    """Return a feedback function whose hidden metrics judge the examples with these ids."""
    if not isinstance(feedback, MetricFeedback) or not hidden_in(feedback):
        return feedback
    return attrs.evolve(feedback, held_out=frozenset(ids))
