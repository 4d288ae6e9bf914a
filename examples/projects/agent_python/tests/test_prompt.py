"""The gate: the cases and metrics of `promptgraft.yaml`, as tests."""

import pytest

from promptgraft.testing import ReportOfTests


@pytest.mark.promptgraft(split="test")
def test_the_agent_is_good_enough(promptgraft_report: ReportOfTests) -> None:
    """Fails for the texts as they come; `promptgraft optimize` and `apply` make it pass."""
    promptgraft_report.check(fail_under=0.5)
