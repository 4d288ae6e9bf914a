"""What is refused before anything is judged: metrics that clash, cases that cannot be judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from promptgraft.errors import ConfigError
from promptgraft.evals.faults import CaseFaults, in_one_line
from promptgraft.evals.metrics.base import ChecksCases, NeedsTexts, Path, can_judge, judges_tools
from promptgraft.evals.turns import turn_cases
from promptgraft.evals.types import Case, Metric
from promptgraft.prompt.fields import options_at
from promptgraft.serde import did_you_mean, shown
from promptgraft.text import listed


def check_metrics(metrics: Sequence[Metric]) -> None:
    """Refuse metrics for one evaluation with a ``ConfigError``: none, or two of one name."""
    given: object = metrics
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"metrics: expected a list of metrics, found {shown(given)}")
    if not metrics:
        raise ConfigError("metrics: expected at least one metric, found none")
    for metric in metrics:
        if isinstance(metric, type) or not callable(getattr(metric, "judge", None)):
            raise ConfigError(
                f"metrics: expected metrics such as metrics.exact(), found {shown(metric)}; "
                "metrics.python(function=f) makes one of a function"
            )
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"metrics: two metrics have the name `{name}`; give one of them another `name`"
            )


@runtime_checkable
class CaseAdapter(Protocol):
    """An adapter that is asked with cases, such as that of an agent."""

    @property
    def identity(self) -> str: ...

    @property
    def reports_tools(self) -> bool: ...

    def check_case(self, case: Case) -> None: ...


def check_asked(adapter: object, cases: Iterable[Case], metrics: Sequence[Metric]) -> None:
    """Refuse with a ``ConfigError`` what an agent can never be judged by.

    That are cases that it cannot be asked with, and metrics of tools for one that does not say
    which it called.
    """
    if not isinstance(adapter, CaseAdapter):
        return
    faults = in_one_line()
    for case in cases:
        try:
            if case.recorded is None:
                adapter.check_case(case)
        except ConfigError as error:
            faults.add_of(case, str(error))
    faults.refuse()
    if adapter.reports_tools:
        return
    for metric in metrics:
        if judges_tools(metric):
            raise ConfigError(
                f"metric `{metric.name}` judges tools, and the {adapter.identity} "
                "does not say which it called; return an AgentAnswer with `tools` and annotate "
                "the function so, name where `tools` stand in a reply, or leave the metric out"
            )


def check_cases(
    metrics: Sequence[Metric],
    cases: Iterable[Case],
    output_type: object = None,
    *,
    by_turn: bool = False,
    noted: CaseFaults | None = None,
) -> None:
    """Refuse cases that the metrics cannot judge, all in one ``ConfigError``.

    Cases whose expected texts are no options of ``output_type`` are refused too. Where ``by_turn``
    one turn is enough that a metric can judge. With ``noted`` faults are added there instead.
    """
    faults = in_one_line() if noted is None else noted
    checking = [
        (metric, metric.needed_texts if isinstance(metric, NeedsTexts) else None)
        for metric in metrics
        if isinstance(metric, ChecksCases)
    ]
    for case in cases:
        for metric, needed_texts in checking:
            played = by_turn or (case.recorded is not None and case.recorded.turns)
            if played and any(can_judge(metric, turn) for turn in turn_cases(case)):
                continue
            try:
                metric.check(case)
                if needed_texts and case.recorded is None:
                    _check_options(metric.name, needed_texts(case), output_type)
            except ConfigError as error:
                faults.add_of(case, str(error))
    if noted is None:
        faults.refuse()


def _check_options(
    name: str, texts: Iterable[tuple[Path, Sequence[str]]], output_type: object
) -> None:
    """Refuse texts that the answer of a prompt, a choice of others, cannot be."""
    for place, wanted in texts:
        options = options_at(output_type, [key for key in place if isinstance(key, str)])
        folded = {option.casefold() for option in options}
        if options and not any(text.strip().casefold() in folded for text in wanted):
            raise ConfigError(
                f"metric `{name}`: the expected {shown(wanted[0])} is no option of the prompt's "
                f"answer{did_you_mean(wanted[0], list(options))}; options: {listed(options)}"
            )
