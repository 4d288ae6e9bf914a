"""What a gate tries: one prompt on some cases, with the metrics and the model of a project."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.evals.aggregation import Aggregation, metrics_identity
from promptgraft.evals.binding import ParamsOf
from promptgraft.evals.dataset import cases_digest
from promptgraft.evals.evaluate import Evaluation, evaluate
from promptgraft.evals.gate.report import Answered, GateReport, tried_cases
from promptgraft.evals.types import Case, Metric
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.session import SessionProtocol


@attrs.frozen(kw_only=True)
class Subject:
    """One text of a prompt, and all that it takes to judge it.

    Attributes:
        prompt: with the store whose overrides are tried, or without one.
        tried: which of its texts that is, in words.
        split: which of the cases these are.
        cases: what it is tried on.
        metrics: judge.
        adapter: answers.
        aggregation: makes one score of the metrics; None for their mean.
        params: makes the parameters of a case; None for its input.
        notes: what users should know before they trust the scores, in a line each.
    """

    prompt: Prompt[object]
    tried: str
    split: str
    cases: tuple[Case, ...]
    metrics: tuple[Metric, ...]
    adapter: ProviderAdapter
    aggregation: Aggregation | None = None
    params: ParamsOf | None = None
    notes: tuple[str, ...] = ()

    def evaluate(
        self,
        cases: Iterable[Case] | None = None,
        *,
        num_runs: int = 1,
        executor: Executor | None = None,
        session: SessionProtocol | None = None,
    ) -> Evaluation:
        """Try the prompt on its cases, or on some of them; see ``evaluate``."""
        return evaluate(
            self.prompt,
            self.cases if cases is None else cases,
            self.metrics,
            adapter=self.adapter,
            params=self.params,
            aggregation=self.aggregation,
            num_runs=num_runs,
            executor=executor,
            session=session,
        )

    def report(
        self, answered: Iterable[Answered], *, num_runs: int = 1, stopped: str = ""
    ) -> GateReport:
        """Return the report on answers, ``num_runs`` for each case, run by run."""
        return GateReport(
            prompt=f"{self.prompt.descriptor.ns}/{self.prompt.descriptor.key}",
            tried=self.tried,
            split=self.split,
            model=self.adapter.identity,
            dataset=cases_digest(self.cases),
            metrics=metrics_identity(self.metrics, self.aggregation),
            num_runs=num_runs,
            cases=tried_cases(self.cases, answered, self.metrics),
            stopped=stopped,
        )
