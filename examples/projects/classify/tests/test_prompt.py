"""The gate: the cases and metrics of `promptgraft.yaml`, as tests."""

import pytest

from promptgraft.testing import CaseVerdict, ReportOfTests


@pytest.mark.promptgraft(split="test")
def test_the_prompt_is_good_enough(promptgraft_report: ReportOfTests) -> None:
    """Fails for the prompt as it comes; `promptgraft optimize` and `apply` make it pass."""
    promptgraft_report.check(fail_under=0.6)


@pytest.mark.promptgraft(split="test", check=False)
def test_the_answer_is_one_word(promptgraft_verdict: CaseVerdict) -> None:
    """Runs once for each case; without `check=False` it would ask for the right answer, too."""
    answer = promptgraft_verdict.answer
    assert answer is not None, promptgraft_verdict.reason
    assert len(answer.text.split()) == 1
