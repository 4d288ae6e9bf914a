"""What tests are given: the verdict on one case, the report on many."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from promptgraft.errors import PromptgraftError
from promptgraft.evals import gate
from promptgraft.evals.gate.baseline import check_comparable
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.text import visible, visible_line

_SHOWN_CASES = 20
_REASON_CHARS = 300


@attrs.frozen(kw_only=True, repr=False)
class CaseVerdict:
    """One case, the answer to it, and what the metrics of the project say.

    Attributes:
        answer: None when it could not be used.
        verdicts: of every metric in their order; empty when there was no answer.
        score: 0 to 1.
        reason: why it does not pass: a line for each metric; empty when it passes.
    """

    case: Case
    answer: Answer | None
    verdicts: tuple[Verdict, ...]
    score: float
    passed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        if self.passed:
            return f"<case {self.case.id!r} passes, score {self.score:.4g}>"
        return f"<case {self.case.id!r} fails, score {self.score:.4g}: {self.reason}>"

    def told(self, folder: Path) -> str:
        """Return the reasons and the answer as a failing test shows them.

        Files below ``folder`` are named without it.
        """
        origin = self.case.origin.removeprefix(f"{folder}{os.sep}")
        place = f" ({origin})" if origin else ""
        said = "no answer" if self.answer is None else f"answer: {self.answer.text}"
        return visible(
            f"case `{self.case.id}`{place} fails, score {self.score:.4g}\n{self.reason}\n{said}"
        )


@attrs.frozen(kw_only=True, repr=False)
class ReportOfTests:
    """What a selection came to.

    Attributes:
        report: every case with its verdicts.
        folder: what the paths of baselines begin at: the folder of the project file.
        ask: evaluates the cases with these ids again, for the n-th time.
        max_unscored: how many answers may be without a score.
    """

    report: gate.GateReport
    folder: Path
    ask: Callable[[tuple[str, ...], int], gate.GateReport]
    max_unscored: int = 0

    @property
    def mean_score(self) -> float | None:
        """The mean of the cases with a score."""
        return self.report.mean_score

    @property
    def pass_rate(self) -> float | None:
        """The share of passing answers among those with a score."""
        return self.report.pass_rate

    @property
    def cases(self) -> tuple[gate.TriedCase, ...]:
        """Every case, in the order of the data set."""
        return self.report.cases

    @property
    def failing(self) -> tuple[gate.TriedCase, ...]:
        """The cases that do not pass, critical ones first."""
        return self.report.failing

    def compared_with(self, baseline: str | Path, *, tolerance: float = 0.0) -> gate.Comparison:
        """Return what changed since a baseline that ``promptgraft eval --save-baseline`` wrote.

        Critical cases that score lower are asked again.

        Raises:
            ConfigError: it cannot be read, or is of other data.
            DataFormatError: it is damaged.
        """
        path = self.folder / baseline
        kept, where = gate.read_baseline(path), f"baseline {path}"
        check_comparable(kept, self.report, where=where)
        report = gate.confirm(kept, self.report, self.ask)
        return gate.compare(kept, report, tolerance=tolerance, where=where)

    def check(
        self,
        *,
        fail_under: float | None = None,
        min_pass_rate: float | None = None,
        baseline: str | Path | None = None,
        tolerance: float = 0.0,
        refuse_unclear: bool = False,
    ) -> None:
        """Fail the test, with the rules that do not hold and the failing cases.

        The rules are those of ``promptgraft eval``: the least mean score, the least pass rate,
        and a baseline that neither the mean nor a critical case may be worse than.
        """
        rules = gate.GateRules(
            fail_under=fail_under,
            min_pass_rate=min_pass_rate,
            refuse_unclear=refuse_unclear,
            max_unscored=self.max_unscored,
        )
        try:
            found = None if baseline is None else self.compared_with(baseline, tolerance=tolerance)
        except PromptgraftError as error:
            pytest.fail(visible(str(error)), pytrace=False)
        decision = gate.decide(self.report, rules, found)
        if not decision.passed:
            broken = [f"{one.rule}: {one.said}" for one in decision.broken]
            pytest.fail(visible("\n".join([*broken, *self._told()])), pytrace=False)

    def __repr__(self) -> str:
        return repr(self.report)

    def _told(self) -> list[str]:
        failing = self.failing
        lines = [
            visible_line(f"{case.id}: {case.reason}")[:_REASON_CHARS]
            for case in failing[:_SHOWN_CASES]
        ]
        more = len(failing) - _SHOWN_CASES
        return [self.report.line(), *lines, *([f"and {more} more"] if more > 0 else [])]
