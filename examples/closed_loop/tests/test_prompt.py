"""The gate as tests: ``pytest`` in this folder, or ``pytest -n 2``."""

import pytest

from promptgraft.testing import CaseVerdict, ReportOfTests


@pytest.mark.promptgraft(split="test", source=True)
def test_nothing_is_worse_than_the_baseline(promptgraft_report: ReportOfTests) -> None:
    """Not the mean, and no critical case."""
    promptgraft_report.check(fail_under=0.5, baseline="baseline.json")


@pytest.mark.promptgraft(split="validation", source=True, check=False)
def test_every_answer_names_a_desk(promptgraft_verdict: CaseVerdict) -> None:
    """Whether it is the right one is not asked here."""
    assert promptgraft_verdict.answer is not None, promptgraft_verdict.reason
