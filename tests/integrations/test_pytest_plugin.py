"""Cases of a project as tests: which pass, which fail and how, and which are answered once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from integrations.words import AGENT, WORDS, calls, case, write_project
from promptgraft.evals.aggregate import CaseOutcome, CaseStatus
from promptgraft.evals.gate import Answered, Baseline, write_baseline
from promptgraft.evals.gate.baseline import parse_baseline
from promptgraft.overrides import LocalPromptOverridesStore, PromptOverride, SectionOverride
from promptgraft.project import load_project
from promptgraft.project.gate import Choice, subject_of

EACH = """
import pytest

@pytest.mark.promptgraft(split="test")
def test_word():
    pass
"""


@pytest.fixture(scope="module", autouse=True)
def everything_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a test run inside this process imports is forgotten with it, and imported twice."""
    pytest.importorskip("scipy.stats")
    project = load_project(write_project(tmp_path_factory.mktemp("warm")) / "promptgraft.yaml")
    subject = subject_of(project, Choice())
    report = subject.report(map(Answered.of, subject.evaluate().attempts))
    parse_baseline(Baseline.of(report).text(), where="baseline")


def words(pytester: pytest.Pytester, test: str, *lines: str) -> Path:
    """A project with one file of tests."""
    files = {"tests/test_words.py": test, "pytest.ini": "[pytest]\n"}
    return write_project(pytester.path, *lines, files=files)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def apply(folder: Path, body: str, tag: str = "latest") -> None:
    """Let a tag of the store hold another task."""
    descriptor = load_project(folder / "promptgraft.yaml").prompt().prompt.descriptor
    part = descriptor.section(("task",))
    assert part is not None
    entry = SectionOverride(path=("task",), expected_hash=part.content_hash, body=body)
    override = PromptOverride(
        ns=descriptor.ns, prompt_key=descriptor.key, tag=tag, sections={("task",): entry}
    )
    LocalPromptOverridesStore(folder).upsert(descriptor, override)


def test_each_case_is_a_test_and_a_failing_one_says_why_without_a_traceback(
    pytester: pytest.Pytester,
) -> None:
    words(pytester, EACH)

    result = run(pytester, "-v")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "tests/test_words.py::test_word[[]apple[]] PASSED*",
            "tests/test_words.py::test_word[[]bread[]] FAILED*",
            "case `bread` (words.jsonl:2) fails, score 0",
            'exact 0: expected "BREAD", found "bread"*',
            "answer: bread",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin*")


ASYNC = """

import asyncio

from promptgraft import PromptResponse


class Async:
    identity = "async"

    async def evaluate(self, prompt, *, session, deadline=None):
        await asyncio.sleep(0)
        return PromptResponse(text=answer(prompt.render(session)))


def adapter():
    return Async()
"""


def test_cases_are_answered_by_an_async_adapter(pytester: pytest.Pytester) -> None:
    folder = words(pytester, EACH)
    (folder / "agent.py").write_text(AGENT + ASYNC, "utf-8")
    run(pytester, "-W", "error").assert_outcomes(passed=2, failed=1)
    assert calls(folder) == ["apple", "bread", "cheese"]


def test_an_unscored_case_is_an_error_and_never_a_pass(pytester: pytest.Pytester) -> None:
    own = EACH.replace('split="test"', "check=False").replace(
        "_word()", "_own(promptgraft_verdict)"
    )
    words(pytester, EACH + own, case("overloaded"), *WORDS[3:])

    result = run(pytester)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["case `overloaded` has no score: the model's provider failed: the provider is overloaded"]
    )


def test_verdicts_hold_the_answer_and_the_test_may_decide_itself(pytester: pytest.Pytester) -> None:
    words(
        pytester,
        """
import pytest

@pytest.mark.promptgraft(check=False)
class TestWords:
    def test_own_rule(self, promptgraft_case, promptgraft_verdict):
        assert promptgraft_verdict.answer.text == promptgraft_case.input
        assert [one.metric for one in promptgraft_verdict.verdicts] == ["exact"]
        assert promptgraft_verdict.passed is (promptgraft_verdict.score == 1.0)

    def test_truth(self, promptgraft_verdict):
        assert promptgraft_verdict

    @pytest.mark.promptgraft(split="train")
    def test_of_another_split(self, promptgraft_case):
        assert promptgraft_case.id == "date"
""",
    )
    result = run(pytester)
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(["*assert <case 'bread' fails, score 0: exact 0: expected *"])


GATE = """
import pytest

@pytest.mark.promptgraft(split="test")
def test_each():
    pass

@pytest.mark.promptgraft(split="test")
def test_gate(promptgraft_report):
    promptgraft_report.check(fail_under=0.6, baseline="baseline.json")
    assert promptgraft_report.pass_rate >= 0.6

@pytest.mark.promptgraft(split="all")
def test_rate(promptgraft_report):
    assert promptgraft_report.pass_rate > 0.9

def test_function(promptgraft_evaluate, promptgraft_project):
    report = promptgraft_evaluate(split="test")
    assert report.compared_with("baseline.json").worse == ()
    assert promptgraft_project.names == ("words",)
"""


SHOWN = """
import pytest

@pytest.mark.promptgraft(check=False)
def test_word(promptgraft_verdict):
    assert promptgraft_verdict

@pytest.mark.promptgraft(split="test")
def test_gate(promptgraft_report):
    promptgraft_report.check(fail_under=0.6)
"""


def test_every_case_is_answered_once_however_many_tests_ask(pytester: pytest.Pytester) -> None:
    folder = words(pytester, GATE)
    subject = subject_of(load_project(folder / "promptgraft.yaml"), Choice())
    before = subject.report(())
    kept = Baseline.of(before).text()
    (folder / "baseline.json").write_text(kept, "utf-8")

    result = run(pytester)
    assert calls(folder) == ["apple", "bread", "cheese", "date", "egg"]
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        [
            "baseline: no case has a score here and in the baseline",
            (
                "docs/words, your source (nothing is applied under tag `latest`), "
                "3 test cases: pass rate *"
            ),
            "bread: exact 0: expected *",
            "*assert 0.8 > 0.9",
            "*where 0.8 = <docs/words, *, failing 'bread'>.pass_rate",
        ]
    )


def test_a_reason_of_several_lines_is_one_line_of_a_report(pytester: pytest.Pytester) -> None:
    rules = "def rules(case, answer):\n    return 0, '2 faults\\n\\n  no verb\\nno number'\n"
    folder = words(pytester, GATE)
    (folder / "scoring.py").write_text(rules)
    file = folder / "promptgraft.yaml"
    python = 'metrics: [{name: rules, kind: python, function: "scoring.py:rules"}]'
    file.write_text(file.read_text().replace("metrics: [{name: exact}]", python))
    (folder / "tests" / "test_words.py").write_text(SHOWN)
    result = run(pytester)
    result.stdout.fnmatch_lines(
        [
            "*assert <case 'bread' fails, score 0: rules 0: 2 faults; no verb; no number>",
            "bread: rules 0: 2 faults; no verb; no number",
        ]
    )


def test_a_critical_case_is_asked_again_before_a_baseline_fails_its_test(
    pytester: pytest.Pytester,
) -> None:
    folder = words(pytester, GATE)
    write_baseline(
        folder / "baseline.json",
        subject_of(load_project(folder / "promptgraft.yaml"), Choice()).report(
            Answered(
                outcome=CaseOutcome(case_id=id_, status=CaseStatus.PASSED, score=1.0),
                answer=None,
                seconds=0.0,
            )
            for id_ in ("apple", "bread", "cheese")
        ),
    )

    result = run(pytester, "-k", "test_gate or test_function")
    result.stdout.fnmatch_lines(["critical cases: worse than the baseline: bread (1 -> 0)"])
    assert sorted(calls(folder)) == ["apple", "bread", "bread", "bread", "cheese"]


def test_a_report_with_unscored_answers_is_an_error_unless_they_are_allowed(
    pytester: pytest.Pytester,
) -> None:
    report = EACH.replace("test_word()", "test_report(promptgraft_report)")
    cases = (case("apple"), case("overloaded"), *WORDS[3:])
    words(pytester, report, *cases)

    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["1 of 2 answers unscored, at most 0 allowed", "overloaded: *"])

    words(pytester, report.replace('split="test"', "max_unscored=1"), *cases)
    run(pytester).assert_outcomes(passed=1)


def test_collecting_and_selecting_calls_no_model_and_needs_no_key(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = words(pytester, EACH)

    with monkeypatch.context() as patch:
        patch.setenv("WITHOUT_KEY", "1")
        result = run(pytester, "--collect-only", "-q")
    result.stdout.fnmatch_lines(
        ["tests/test_words.py::test_word[[]cheese[]]", "3 tests collected*"]
    )
    run(pytester, "--setup-plan")
    assert calls(folder) == []

    run(pytester, "-k", "cheese").assert_outcomes(passed=1, deselected=2)
    assert calls(folder) == ["cheese"]


def test_ids_are_safe_whatever_cases_are_called(pytester: pytest.Pytester) -> None:
    odd = [case("a/b::c[d] e", expected="e"), case("\x1b[31mred\x00", expected="x"), case("é" * 90)]
    words(pytester, EACH, *odd, *WORDS[3:])

    result = run(pytester, "--collect-only", "-q")
    ids = [line for line in result.outlines if line.startswith("tests/")]
    assert len(set(ids)) == 3
    for line in ids:
        name = line.partition("[")[2].removesuffix("]")
        assert len(name) <= 67
        assert name.isascii()
        assert not set(name) & set("/:[] \x1b\x00")


def test_a_key_that_is_refused_is_tried_once(pytester: pytest.Pytester) -> None:
    folder = words(pytester, EACH, case("forbidden"), case("apple"), *WORDS[3:])

    result = run(pytester)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["the key is refused"])
    assert calls(folder) == ["forbidden"]


def test_options_say_which_project_and_which_tag_for_every_test(pytester: pytest.Pytester) -> None:
    folder = words(pytester, EACH)
    apply(folder, "Repeat the word in capital letters.", tag="canary")
    project = folder / "promptgraft.yaml"
    moved = folder / "elsewhere" / "promptgraft.yaml"
    moved.parent.mkdir()
    for name in ("promptgraft.yaml", "agent.py", "words.jsonl"):
        (folder / name).rename(moved.parent / name)
    (folder / ".promptgraft").rename(moved.parent / ".promptgraft")
    assert not project.exists()

    missing = run(pytester)
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(
        ["there is no promptgraft.yaml in *`--promptgraft-project=FILE` names another"]
    )
    named = ("--promptgraft-project", "elsewhere/promptgraft.yaml")
    run(pytester, *named[:1], "elsewhere").assert_outcomes(passed=2, failed=1)
    run(pytester, *named, "--promptgraft-tag", "canary").assert_outcomes(passed=1, failed=2)
    typo = run(pytester, *named, "--promptgraft-tag", "canari")
    typo.assert_outcomes(errors=3)
    typo.stdout.fnmatch_lines(["tag `canari` holds nothing for `docs/words` in *"])


WRONG = {
    "spilt='test'": "unknown argument `spilt` (did you mean `split`?)*",
    "split='tset'": "split: expected one of test, validation, train, all, found 'tset'*",
    "split=3": "split: expected str, found 3",
    "'test'": "the marker `promptgraft` takes named arguments only, found 'test'",
    "tag='a', source=True": "expected one of a tag, the source and a run*",
    "prompt='other'": "*has no prompt `other`; there: `words`",
    "project='other.yaml'": "*other.yaml: cannot be read*",
}


def test_a_wrong_marker_is_said_in_one_line(pytester: pytest.Pytester) -> None:
    folder = words(pytester, "")
    for number, marker in enumerate(WRONG):
        test = EACH.replace('split="test"', marker)
        (folder / "tests" / f"test_{number}.py").write_text(test, "utf-8")

    result = run(pytester, "--continue-on-collection-errors")
    assert result.parseoutcomes().keys() == {"errors"}
    result.stdout.fnmatch_lines_random([*WRONG.values()])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_tests_that_cannot_be_run_for_each_case_do_not_pass_silently(
    pytester: pytest.Pytester,
) -> None:
    words(
        pytester,
        """
import unittest
import pytest

@pytest.mark.promptgraft(split="test")
class TestWords(unittest.TestCase):
    def test_word(self):
        pass

def test_unmarked(promptgraft_verdict):
    pass
""",
    )
    result = run(pytester)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        [
            "*takes functions and methods of plain classes only*",
            "`promptgraft_verdict` is for tests with the marker `@pytest.mark.promptgraft`",
        ]
    )


def test_expected_failures_and_other_parameters_work_as_ever(pytester: pytest.Pytester) -> None:
    words(
        pytester,
        """
import pytest

@pytest.mark.xfail(strict=False)
@pytest.mark.promptgraft(split="test")
def test_word():
    pass

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.promptgraft(split="validation")
def test_both(number, promptgraft_case):
    assert promptgraft_case.id == "egg"
""",
    )
    run(pytester).assert_outcomes(xfailed=1, xpassed=2, passed=2)


def test_without_the_plugin_other_tests_run_and_its_fixtures_are_unknown(
    pytester: pytest.Pytester,
) -> None:
    words(pytester, EACH.replace("test_word()", "test_word(promptgraft_case)"))
    pytester.makepyfile(test_other="def test_other():\n    pass\n")

    result = run(pytester, "-p", "no:promptgraft")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'promptgraft_case' not found"])
    run(pytester, "--strict-markers", "-W", "error").assert_outcomes(passed=3, failed=1)


def test_the_plugin_imports_nothing_but_pytest_until_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_other():\n"
        "    ours = sorted(name for name in sys.modules if name.startswith('promptgraft'))\n"
        "    assert ours == ['promptgraft', 'promptgraft.bridges',\n"
        "        'promptgraft.bridges.pytest_plugin', 'promptgraft.ground',\n"
        "        'promptgraft.ground.lazy']\n"
        "    assert not {'attrs', 'click', 'jinja2', 'rich'} & set(sys.modules)\n",
        "utf-8",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
