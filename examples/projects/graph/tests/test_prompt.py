"""The gate: the cases and metrics of `promptgraft.yaml`, as a test."""

import pytest

from promptgraft.testing import ReportOfTests


@pytest.mark.promptgraft(split="test")
def test_the_graph_is_good_enough(promptgraft_report: ReportOfTests) -> None:
    """Fails for the prompts as they come; `promptgraft optimize` and `apply` make it pass."""
    promptgraft_report.check(fail_under=0.6)
