"""What is refused before anything is judged: metrics that clash, cases that cannot be judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from promptgraft.errors import ConfigError
from promptgraft.evals.faults import CaseFaults, in_one_line
from promptgraft.evals.metrics.base import ChecksCases, NeedsTexts, Path
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


def check_cases(
    metrics: Sequence[Metric], cases: Iterable[Case], output_type: object = None
) -> None:
    """Refuse cases that the metrics cannot judge, all in one ``ConfigError``.

    Cases whose expected texts are no options of ``output_type`` are refused too.
    """
    faults = in_one_line()
    note_unjudgeable(metrics, cases, faults, output_type)
    faults.refuse()


def note_unjudgeable(
    metrics: Sequence[Metric], cases: Iterable[Case], faults: CaseFaults, output_type: object
) -> None:
    """Note what :func:`check_cases` refuses."""
    checking = [
        (metric, metric.needed_texts if isinstance(metric, NeedsTexts) else None)
        for metric in metrics
        if isinstance(metric, ChecksCases)
    ]
    for case in cases:
        for metric, needed_texts in checking:
            try:
                metric.check(case)
                if needed_texts and case.recorded is None:
                    _check_options(metric.name, needed_texts(case), output_type)
            except ConfigError as error:
                faults.add_of(case, str(error))


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
