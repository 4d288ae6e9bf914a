"""From a prompt and cases to a report, once or several times."""

from __future__ import annotations

from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.errors import TransientProviderError
from promptgraft.evals.gate import Answered, Subject
from promptgraft.evals.metrics import Exact, Length
from promptgraft.evals.types import Case
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt

PROMPT = Prompt(
    PromptTemplate[object](
        ns="docs",
        key="echo",
        sections=(MarkdownSection(title="Word", key="word", template="Repeat: $word"),),
    )
)
CASES = (
    Case(id="1", input="a", expected="a", critical=True),
    Case(id="2", input="b", expected="b"),
)


def subject(*replies: str) -> Subject:
    """Replies in turn; `overloaded` stands for a provider that is."""
    left = iter(replies)

    def reply(_: RenderedPrompt[object]) -> str:
        text = next(left)
        if text == "overloaded":
            raise TransientProviderError(text)
        return text

    return Subject(
        prompt=PROMPT,
        tried="the source",
        split="test",
        cases=CASES,
        metrics=(Exact(), Length(name="short", max=1, required=False)),
        adapter=ScriptedAdapter(reply),
    )


def test_a_report_has_every_answer_to_every_case_run_by_run() -> None:
    mine = subject("a", "long", "a", "overloaded")

    found = mine.evaluate(num_runs=2)
    report = mine.report(map(Answered.of, found.attempts), num_runs=2, stopped=found.stopped)
    assert report.prompt == "docs/echo"
    assert [case.id for case in report.cases] == ["1", "2"]
    assert [case.critical for case in report.cases] == [True, False]
    assert [one.status for one in report.case("2").outcomes] == ["failed", "unscored"]
    assert (report.mean_score, report.pass_rate, report.unscored) == (0.5, 2 / 3, 1)


def test_reasons_are_those_of_metrics_that_a_case_has_to_pass() -> None:
    mine = subject("a", "long")

    report = mine.report(map(Answered.of, mine.evaluate().attempts))
    assert report.case("2").reason.startswith("exact 0: expected ")
    assert "short" not in report.case("2").reason


def test_a_report_shows_itself_in_a_line_and_as_a_card() -> None:
    mine = subject("a", "<b>")
    report = mine.report(map(Answered.of, mine.evaluate().attempts))

    assert repr(report) == (
        "<docs/echo, the source, 2 test cases: pass rate 0.500, mean score 0.500, failing '2'>"
    )
    assert "failing" in str(report)
    assert "<b>" not in report._repr_html_()
    assert "&lt;b&gt;" in report._repr_html_()
