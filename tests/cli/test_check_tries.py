"""``promptgraft check`` tries what a project names, and a run refuses the same before a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console, Ended
from promptgraft.cli.exits import ExitCode
from promptgraft.evals import metrics
from promptgraft.evals.types import Answer, Case, Turn
from promptgraft.ground.serde import Json
from promptgraft.project.checking import tried_metrics

PROMPT = "# Job\n\nName the shelf: travel or cooking.\n\n# Note {#note .frozen}\n\n$note\n"
# Nothing listens there: a request would be a fault of the provider.
SERVER = '{provider: openai, model: m, base_url: "http://127.0.0.1:9/v1", api_key: none}'
OFFLINE = "{provider: offline}"


@attrs.frozen
class Shelf:
    """A project in a folder that is the current one."""

    folder: Path
    console: Console

    def check(
        self, metrics: str = "[{name: exact}]", task: str = SERVER, further: str = ""
    ) -> Ended:
        self.write(metrics, task, further)
        return self.console("check")

    def write(self, metrics: str, task: str = SERVER, further: str = "") -> None:
        (self.folder / "promptgraft.yaml").write_text(
            "version: 1\nprompts: {shelf: job.md}\ndataset: {path: cases.jsonl}\n"
            "splits: {ratio: {train: 0.5, validation: 0.25, test: 0.25}}\n"
            f"metrics: {metrics}\nmodels:\n  task: {task}\n  reflection: {OFFLINE}\n{further}"
        )

    def cases(self, **fields: object) -> None:
        rows = [
            {"id": f"n{n}", "input": {"note": f"map {n}"}, "expected": "travel", **fields}
            for n in range(24)
        ]
        (self.folder / "cases.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def shelf(tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.chdir(tmp_path)
    found = Shelf(tmp_path, console)
    (tmp_path / "job.md").write_text(PROMPT)
    found.cases()
    return found


def test_a_model_that_does_not_serve_the_prompt_is_a_fault_of_check_and_of_runs(
    shelf: Shelf,
) -> None:
    checked = shelf.check(task=OFFLINE)

    assert checked.code == ExitCode.WRONG_USE
    assert checked.out.startswith(
        "promptgraft.yaml:2: prompts.shelf: the embedded offline model does not serve `prompts/job`"
    )
    for command in ("eval", "optimize"):
        ended = shelf.console(command)
        assert ended.code == ExitCode.WRONG_USE
        assert "does not serve `prompts/job`" in ended.err
    assert not (shelf.folder / "runs").exists() or not list((shelf.folder / "runs").glob("*/*"))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        pytest.param(
            "def m(gold, pred, trace):\n    return 1\n",
            "metrics[0].function: m() cannot be called with (case, answer): its arguments are "
            "(gold, pred, trace)",
            id="more arguments",
        ),
        pytest.param(
            "def m(answer):\n    return 1\n",
            "m() cannot be called with (case, answer): its arguments are (answer)",
            id="fewer arguments",
        ),
        pytest.param(
            "def m(case, answer, *, strict):\n    return 1\n",
            "its arguments are (case, answer, *, strict)",
            id="a required name",
        ),
        pytest.param(
            "def m(case, answer):\n    return answer.txt\n",
            "metric `m`, case `n4`: AttributeError: 'Answer' object has "
            "no attribute 'txt' (score.py:2)",
            id="raises",
        ),
        pytest.param(
            "def m(case, answer):\n    return 'good'\n",
            "expected a score from 0 to 1",
            id="returns no score",
        ),
    ],
)
def test_a_metric_that_cannot_judge_is_a_fault_before_a_call(
    shelf: Shelf, code: str, why: str
) -> None:
    (shelf.folder / "score.py").write_text(code)

    checked = shelf.check('[{name: m, kind: python, function: "score.py:m"}]')

    assert (checked.code, why in checked.out) == (ExitCode.WRONG_USE, True), checked.out
    assert len(checked.out.splitlines()) == 1
    for command in ("eval", "optimize"):
        ended = shelf.console(command)
        assert (ended.code, why in ended.err) == (ExitCode.WRONG_USE, True), ended.err


def test_a_metric_is_tried_on_cases_of_each_form() -> None:
    def right(case: Case, answer: Answer) -> bool:
        expected: Any = case.expected
        return bool(answer.text == expected["team"].lower())

    forms: list[Json] = [{"team": "Roads"}, {"team": "Roads"}, {"team": None}, {"queue": "Waste"}]
    cases = [Case(id=f"c{n}", input="Hi", expected=value) for n, value in enumerate(forms)]
    for last, why in ((2, ""), (3, "case `c2`: AttributeError"), (4, "case `c2`: AttributeError")):
        trial = tried_metrics([metrics.python(function=right)], cases[:last])
        assert [why in fault for fault in trial.faults] == [True] * bool(why), last
    [why] = tried_metrics([metrics.python(function=right)], [*cases[:2], cases[3]]).faults
    assert "case `c3`: KeyError: 'team'" in why


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "return answer.text[0] == 't'",
            "fails on an empty answer, and such an answer ends a run: ",
        ),
        (
            "if answer.text: raise ConnectionError('no IndexError')",
            "fails on the expected answer, and such an answer stays unscored: ",
        ),
    ],
    ids=["broken", "down"],
)
def test_a_metric_that_fails_on_one_of_both_answers_is_a_warning(
    shelf: Shelf, body: str, line: str
) -> None:
    (shelf.folder / "score.py").write_text(f"def m(case, answer):\n    {body}\n    return 0\n")

    checked = shelf.check('[{name: m, kind: python, function: "score.py:m"}]')

    assert checked.code == ExitCode.OK
    assert f"warning: promptgraft.yaml:5: metrics: {line}" in checked.out
    assert "IndexError" in checked.out


def test_what_cannot_be_tried_is_named(shelf: Shelf) -> None:
    judged = "[{name: exact}, {name: llm_final_response, judges: [strict]}]"

    checked = shelf.check(judged, further=f"  judges:\n    strict: {OFFLINE}\n")

    assert checked.code == ExitCode.OK, checked.out
    assert "not checked: metric `llm_final_response` asks a model" in checked.out
    assert "metric `exact`" not in checked.out


def test_metrics_of_conversations_are_named_with_the_reason() -> None:
    turns = (Turn(user="Hi", expected="Hello"), Turn(user="And?", expected="Bye"))
    talks = [Case(id=f"c{n}", input="Hi", expected="Bye", turns=turns) for n in range(2)]
    [why] = tried_metrics([metrics.exact()], talks).unchecked
    assert why == (
        "metric `exact`: all cases have several turns, and it is tried on single questions only"
    )
    single = Case(id="c2", input="Hi")
    [why] = tried_metrics([metrics.exact()], [*talks, single]).unchecked
    assert why == "metric `exact`: no case shows its expected answer"


@pytest.mark.parametrize(
    ("hints", "why"),
    [
        ({"exakt": "look twice"}, "hints: no metric is called 'exakt' (did you mean `exact`?)"),
        ({"exact": "P7: look twice"}, "hints: expected a severity from P0 to P3, found 'P7'"),
    ],
)
def test_a_hint_that_nothing_reads_is_a_fault(
    shelf: Shelf, hints: Mapping[str, str], why: str
) -> None:
    shelf.cases(hints=hints)
    checked = shelf.check()

    assert checked.code == ExitCode.WRONG_USE
    assert why in checked.out
    assert "the same in 23 more" in checked.out


def test_right_hints_pass(shelf: Shelf) -> None:
    shelf.cases(hints={"exact": "P1: look twice", "": "the shelf is named in the note"})
    assert shelf.check().code == ExitCode.OK


@pytest.mark.parametrize(
    ("further", "code", "why"),
    [
        (
            'params: "given.py:p"\n',
            "def p():\n    return {}\n",
            "params: p() cannot be called with (case): its arguments are ()",
        ),
        (
            'optimizer: {trace_formatter: "given.py:t"}\n',
            "def t(session, x):\n    return ''\n",
            "trace_formatter: t() cannot be called with (session): its arguments are (session, x)",
        ),
    ],
)
def test_every_function_of_a_project_is_asked_whether_it_takes_its_arguments(
    shelf: Shelf, further: str, code: str, why: str
) -> None:
    (shelf.folder / "given.py").write_text(code)
    checked = shelf.check(further=further)
    assert (checked.code, why in checked.out) == (ExitCode.WRONG_USE, True), checked.out


GRAPH = """
from promptgraft import MarkdownSection, PromptTemplate
from promptgraft.graphs import Graph, Node

ASK = PromptTemplate(ns="g", key="ask", sections=[
    MarkdownSection(title="Job", key="job", template="Name the shelf of $note.")
])

def flow({arguments}):
    return run.ask("ask", note)

SHELF = Graph("g/shelf", flow=flow, nodes=[Node("ask", ASK)])
"""


@pytest.mark.parametrize(
    ("arguments", "task", "why"),
    [
        ("run, note, more", SERVER, "flow() cannot be called with (run, "),
        ("run, note", OFFLINE, "node `ask`: the embedded offline model does not serve `g/ask`"),
    ],
)
def test_graphs_are_tried_too(shelf: Shelf, arguments: str, task: str, why: str) -> None:
    (shelf.folder / "agent.py").write_text(GRAPH.format(arguments=arguments))
    shelf.write("[{name: exact}]", task)
    path = shelf.folder / "promptgraft.yaml"
    path.write_text(
        path.read_text().replace("prompts: {shelf: job.md}", "graphs: {s: agent.py:SHELF}")
    )

    checked = shelf.console("check")

    assert (checked.code, why in checked.out) == (ExitCode.WRONG_USE, True), checked.out


def test_shares_below_1_of_too_few_cases_are_no_fault_of_check(shelf: Shelf) -> None:
    row = {"id": "n0", "input": {"note": "map"}, "expected": "travel"}
    (shelf.folder / "cases.jsonl").write_text(json.dumps(row))
    shelf.write("[{name: exact}]")
    project = shelf.folder / "promptgraft.yaml"
    project.write_text(project.read_text().replace("train: 0.5", "train: 0.4"))
    checked = shelf.console("check")
    assert checked.code == 0
    assert "a run needs them, `check`, `eval` and `render` do not" in checked.out
