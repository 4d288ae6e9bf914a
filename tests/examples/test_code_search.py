"""The code search example: sane data, and a search that pays on questions it never saw."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from programs import Programs
from promptgraft import OfflineAdapter, Prompt, PromptTemplate, Session
from promptgraft.algorithms.gepa import GepaExample
from promptgraft.project.python_source import load_file

FOLDER = Path(__file__).parents[2] / "examples" / "code_search"


@pytest.fixture(scope="module")
def task() -> ModuleType:
    return load_file(FOLDER / "code_questions.py", name="code_search_questions", what="example")


def questions(task: ModuleType, name: str) -> tuple[GepaExample, ...]:
    found: tuple[GepaExample, ...] = task.load_questions(FOLDER / f"{name}.jsonl")
    return found


def truth_of(example: GepaExample) -> Any:
    return example.label


def text_of(example: GepaExample) -> str:
    question: Any = example.params[0]
    return str(question.text)


def test_there_are_enough_questions_and_none_is_in_both_halves(task: ModuleType) -> None:
    train, test = questions(task, "train"), questions(task, "test")
    assert len(train) >= 60
    assert len(test) >= 30
    texts = [example.params for example in (*train, *test)]
    assert len(set(texts)) == len(texts)


def test_validation_and_held_out_questions_ask_about_files_of_their_own(task: ModuleType) -> None:
    train, test = questions(task, "train"), questions(task, "test")
    parts = [{truth_of(e).file for e in p} for p in (train[:25], train[25:], test)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert set().union(*parts) <= set(task.corpus())


@pytest.mark.parametrize("name", ["train", "test"])
def test_every_answer_occurs_and_none_is_too_frequent(task: ModuleType, name: str) -> None:
    labels = [example.label for example in questions(task, name)]
    for field, options in (("category", task.Category), ("severity", task.Severity)):
        counts = Counter(getattr(label, field) for label in labels)
        assert set(counts) == set(options)
        assert max(counts.values()) < 2 / 3 * len(labels)


@pytest.mark.parametrize("name", ["train", "test"])
def test_the_reference_calls_lead_to_the_file(task: ModuleType, name: str) -> None:
    for example in questions(task, name):
        truth = truth_of(example)
        if truth.query is None:
            assert truth.file in text_of(example)
        else:
            hits = task.search_code(task.Query(truth.query)).hits
            assert hits[0].file == truth.file, example.id


def test_the_feedback_gives_points_by_field_and_says_what_was_expected(task: ModuleType) -> None:
    template: PromptTemplate[object] = task.TEMPLATE
    example = questions(task, "test")[0]
    session = Session()
    prompt = Prompt(template).bind(*example.params)
    response = OfflineAdapter().evaluate(prompt, session=session)
    found = task.feedback(example, response, session)
    assert 0 <= found.score < 1
    assert f"file: expected `{truth_of(example).file}`" in found.feedback
    assert "[read_file]" in found.eval_trace


def test_the_script_improves_the_score_on_questions_that_it_never_saw(
    tmp_path: Path, programs: Programs
) -> None:
    done = programs("-W", "error", FOLDER / "optimize.py", "0", "400", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.search(r"held-out: +([\d.]+) -> ([\d.]+) on 32 questions", done.stdout)
    assert found, done.stdout
    assert float(found[2]) > float(found[1]) + 0.1
    assert list(tmp_path.rglob("*.json"))
