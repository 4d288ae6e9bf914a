"""Runs that are resumed after functions of the user's were edited."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from optimizers.worlds import PROMPT, TEMPLATE, Question, Run, config, judge
from programs import Programs
from promptgraft import (
    Case,
    GepaConfig,
    MarkdownSection,
    MemoryJournal,
    Prompt,
    Texts,
    Tool,
    examples_from,
    feedback_from,
)
from promptgraft.errors import JournalMismatchError
from promptgraft.evals import metrics

SCORING = "import words\n\n\ndef score(case, answer):\n    return words.worth(answer.text)\n"
WORDS = "def worth(text):\n    return 0.5 if text else 0.0\n"
PROJECT = """
version: 1
prompts: {echo: echo.md}
dataset: {path: cases.jsonl}
splits: {ratio: {train: 0.5, validation: 0.5}, seed: 0}
metrics: [{name: worth, kind: python, function: "scoring.py:score"}]
models: {task: {python: "models.py:MODEL"}, reflection: {python: "models.py:MODEL"}}
optimizer: {rollout_budget: 60, minibatch_size: 2}
"""
MODELS = """
from promptgraft import ScriptedAdapter
MODEL = ScriptedAdapter(lambda rendered: "```instruction\\nAnswer $question.\\n```")
"""
MARKDOWN = "---\nns: toy\nkey: echo\n---\n\n# Rules\n\nAnswer $question.\n"

SCRIPT = """
import sys
from pathlib import Path
from promptgraft import *
from promptgraft.errors import PromptgraftError
import words

PROMPT = Prompt(PromptTemplate(ns="toy", key="echo", sections=[
    MarkdownSection(title="Rules", key="rules", template="Answer $q."),
]))


def feedback(example, response, session):
    return RolloutFeedback(score=words.worth(response.text), feedback="")


def main():
    model = ScriptedAdapter(lambda rendered: "```instruction\\nAnswer.\\n```")
    config = GepaConfig(
        rollout_budget=20, minibatch_size=2, pareto_set_size=2, feedback_fn=feedback,
        training_examples=[GepaExample(id=str(n), params=({"q": str(n)},)) for n in range(4)],
    )
    with FileJournal("journal.jsonl") as journal:
        context = OptimizationContext(model, journal=journal, reuse_scores="reuse" in sys.argv)
        try:
            print(GepaOptimizer(context, config).optimize(PROMPT).baseline_pareto_mean)
        except PromptgraftError as error:
            print(error)
    print(model.calls)


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> Path:
    """A project with a metric in Python, and a run of it."""
    folder = tmp_path_factory.mktemp("made") / "project"
    folder.mkdir()
    (folder / "promptgraft.yaml").write_text(PROJECT)
    (folder / "echo.md").write_text(MARKDOWN)
    (folder / "scoring.py").write_text(SCORING)
    (folder / "words.py").write_text(WORDS)
    (folder / "models.py").write_text(MODELS)
    cases = [{"id": f"c{n}", "input": f"w{n}", "expected": "x"} for n in range(8)]
    (folder / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    ended = programs.promptgraft("optimize", "-q", folder=folder)
    assert ended.returncode in (0, 1, 3), ended.stderr
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "project")


def test_the_command_line_refuses_a_metric_whose_helper_was_edited(
    project: Path, programs: Programs
) -> None:
    journal = next(project.glob("runs/*/journal.jsonl"))
    before = journal.read_bytes()
    (project / "words.py").write_text(WORDS.replace("0.5 if text else 0.0", "1.0"))

    refused = programs.promptgraft("resume", "-q", folder=project)
    assert refused.returncode == 2
    assert journal.read_bytes() == before
    said = refused.stderr
    assert said.count("\n") == 1
    assert re.search(
        r"`functions\.metric worth` \(scoring\.score\) has changed since the run; start a new "
        "run or restore what differs, or keep the old scores: "
        "`--reuse-scores`, in Python `reuse_scores=True`$",
        said.strip(),
    )

    reused = programs.promptgraft("resume", "-q", "--reuse-scores", "--json", folder=project)
    assert reused.returncode in (0, 1, 3)
    assert json.loads(reused.stdout.splitlines()[-1])["scores"]["pareto"]["baseline"] == 0.5
    assert journal.read_bytes() == before


def test_the_command_line_does_not_mind_comments_and_layout(
    project: Path, programs: Programs
) -> None:
    (project / "words.py").write_text(f"# What words are worth.\n\n{WORDS}\n\nOTHER = 1\n")
    (project / "scoring.py").write_text(
        SCORING.replace("(answer.text)", "(\n        answer.text,\n    )")
    )
    assert programs.promptgraft("resume", "-q", folder=project).stderr == ""


def test_a_script_refuses_before_any_call_and_resumes_when_it_is_told_to(
    tmp_path: Path, programs: Programs
) -> None:
    (tmp_path / "run.py").write_text(SCRIPT)
    words = tmp_path / "words.py"
    words.write_text(WORDS)

    def said(*arguments: str) -> list[str]:
        done = programs(*(arguments or ("run.py",)), folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    [mean, calls] = said()
    assert (mean, int(calls) > 0) == ("0.5", True)
    # Imported, it is the same function as when it is run.
    assert said("-c", "import run; run.main()") == ["0.5", "0"]

    words.write_text(WORDS.replace("0.5 if text else 0.0", "0.75"))
    [refusal, calls] = said()
    assert "`functions.feedback_fn` (run.feedback) has changed since the run" in refusal
    assert calls == "0"
    assert said("run.py", "reuse") == ["0.5", "0"]

    words.write_text(f"\n\n{WORDS}")
    assert said() == ["0.5", "0"]


def compiled(body: str) -> Any:
    """Return a function that has no file."""
    holds: dict[str, Any] = {}
    exec(f"def made(*given, **named):\n    return {body}", holds)
    return holds["made"]


def prompt_with(*, handler: Any = None, enabled: Any = None) -> Prompt[object]:
    tool = Tool(
        name="look", description="Look.", params_type=Question, result_type=str, handler=handler
    )
    help_ = MarkdownSection(
        title="Help", key="help", template="Help.", tools=[tool], enabled=enabled
    )
    return Prompt(attrs.evolve(TEMPLATE, sections=(*TEMPLATE.sections, help_)))


def judged_by(function: Any) -> GepaConfig:
    metric = metrics.python(function=function, name="mine")
    cases = [Case(id=f"c{n}", input=f"w{n}", expected="ok") for n in range(12)]
    examples = examples_from(PROMPT, cases, params=lambda case: Question(str(case.input)))
    return config(training_examples=examples, feedback_fn=feedback_from([metric]))


def texts_of(function: Any) -> Any:
    return Texts({"rules": "Rules:", "notes": "Notes:"}, run=function, key="words")


SETTINGS: dict[str, Callable[[Any], tuple[GepaConfig, Any]]] = {
    "feedback_fn": lambda f: (config(feedback_fn=lambda *given: f() and judge(*given)), PROMPT),
    "example_formatter": lambda f: (config(example_formatter=lambda *_: ("in", f())), PROMPT),
    "trace_formatter": lambda f: (config(trace_formatter=f), PROMPT),
    "metric mine": lambda f: (judged_by(lambda case, answer: f() == "x"), PROMPT),
    "tool look": lambda f: (config(), prompt_with(handler=f)),
    "enabled of help": lambda f: (config(), prompt_with(enabled=f)),
    "run": lambda f: (config(), texts_of(f)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_function_that_decides_answers_is_a_part_of_the_run(name: str) -> None:
    journal = MemoryJournal()

    def run(body: str, **context: Any) -> Run:
        settings, prompt = SETTINGS[name](compiled(body))
        return Run(settings, prompt=prompt, journal=journal, **context)

    found = run("'x'").start()
    kept = len(journal)
    assert run("'x'").start() == found
    with pytest.raises(JournalMismatchError, match=rf"`functions\.{name}` .*--reuse-scores"):
        run("'y'").start()
    assert run("'y'", reuse_scores=True).start() == found
    assert len(journal) == kept


def test_scores_are_not_reused_where_more_than_functions_differs() -> None:
    journal = MemoryJournal()
    Run(config(), journal=journal).start()
    changed = Run(config(seed=7, feedback_fn=compiled("1")), journal=journal, reuse_scores=True)
    with pytest.raises(JournalMismatchError, match=r"start a new run or restore what differs$"):
        changed.start()
    assert changed.task.calls == 0
