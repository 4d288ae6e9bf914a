"""The gate as tests, in processes of their own: red on a regression, green after `apply`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from promptgraft.cli.main import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "closed_loop"
# The embedded offline model, which also writes down what it is asked.
AGENT = """
from pathlib import Path

from promptgraft import OfflineAdapter


class Counted(OfflineAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        if prompt.descriptor.key == "desk":
            with Path(__file__).with_name("calls.log").open("a") as file:
                file.write("call\\n")
        return super().evaluate(prompt, session=session, deadline=deadline)


def adapter():
    return Counted()
"""
TESTS = """
import pytest


@pytest.mark.promptgraft(split="test")
def test_each_message_has_an_answer(promptgraft_case, promptgraft_report):
    assert promptgraft_report.report.case(promptgraft_case.id).outcomes


@pytest.mark.promptgraft(split="test", check=False)
def test_answers_are_short(promptgraft_verdict):
    assert len(promptgraft_verdict.answer.text) < 20


@pytest.mark.promptgraft(split="test")
def test_gate(promptgraft_report):
    promptgraft_report.check(fail_under=0.9)
"""
TEST_CASES = 18
FAILING = 9
# Those of the example: the source passes its own baseline, whatever the store holds.
OF_THE_EXAMPLE = 1 + 18
CALLS_OF_THE_EXAMPLE = 18 + 18


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with a run that found a better prompt, which nobody has applied."""
    folder = tmp_path_factory.mktemp("regression") / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    (folder / "agent.py").write_text(AGENT, "utf-8")
    (folder / "test_desk.py").write_text(TESTS, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    project = folder / "promptgraft.yaml"
    text = project.read_text("utf-8")
    assert "task: {provider: offline}" in text
    counted = text.replace("task: {provider: offline}", 'task: {python: "agent.py:adapter"}')
    project.write_text(counted, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["optimize", "--quiet"]) == 0
    return folder


@pytest.mark.thorough
def test_a_regression_fails_and_the_winner_passes_once_it_is_applied(
    finished: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, pytester.path, dirs_exist_ok=True)
    calls = pytester.path / "calls.log"
    calls.unlink()

    # Workers share what was asked.
    before = pytester.runpytest_subprocess("-pno:cacheprovider", "-n", "2")
    passed = 2 * TEST_CASES - FAILING + OF_THE_EXAMPLE
    before.assert_outcomes(passed=passed, failed=FAILING + 1)
    before.stdout.fnmatch_lines(["mean score: 0.5, at least 0.9 wanted"])
    assert before.ret == pytest.ExitCode.TESTS_FAILED
    asked = len(calls.read_text("utf-8").splitlines())
    assert asked == TEST_CASES + CALLS_OF_THE_EXAMPLE

    monkeypatch.chdir(pytester.path)
    assert run(["apply"]) == 0
    calls.unlink()
    options = ("-pno:cacheprovider", "-pno:xdist", "-k", "gate or short", "test_desk.py")
    after = pytester.runpytest_subprocess(*options)
    after.assert_outcomes(passed=TEST_CASES + 1, deselected=TEST_CASES)
    assert after.ret == pytest.ExitCode.OK
    assert len(calls.read_text("utf-8").splitlines()) == TEST_CASES
