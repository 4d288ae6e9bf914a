"""Answers that processes of one test run share."""

from __future__ import annotations

from pathlib import Path

from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.bridges.pytest_plugin_reports import CollectedAnswers
from promptgraft.errors import TransientProviderError
from promptgraft.evals.gate import Subject
from promptgraft.evals.metrics import Exact
from promptgraft.evals.types import Case
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt

SECTION = MarkdownSection(title="Word", key="word", template="Repeat: $word")
TEMPLATE = PromptTemplate[object](ns="docs", key="echo", sections=(SECTION,))
CASES = tuple(Case(id=f"{n}/\ud800", input=f"w{n}", expected=f"w{n}") for n in range(40))


def reply(prompt: RenderedPrompt[object]) -> str:
    word = prompt.text.split()[-1]
    if word == "w7":
        raise TransientProviderError("overloaded")
    return word


def subject() -> tuple[Subject, ScriptedAdapter]:
    adapter = ScriptedAdapter(reply)
    made = Subject(
        prompt=Prompt(TEMPLATE),
        tried="the source",
        split="test",
        cases=CASES,
        metrics=(Exact(),),
        adapter=adapter,
    )
    return made, adapter


def test_another_process_finds_what_was_answered_and_answers_the_rest(tmp_path: Path) -> None:
    mine, adapter = subject()
    first, second = (CollectedAnswers(tmp_path / "shelf") for _ in range(2))

    some = first.of(mine, CASES[:36], identity="a", workers=3)
    assert adapter.calls == 36
    assert some[CASES[7].id].outcome.error == "the model's provider failed: overloaded"
    whole = second.of(mine, CASES, identity="a")
    assert adapter.calls == 40
    assert list(whole) == [case.id for case in CASES]
    assert {**whole, **some} == whole
    assert [one.outcome.score for one in whole.values()].count(None) == 1


def test_other_texts_have_answers_of_their_own(tmp_path: Path) -> None:
    mine, adapter = subject()
    shelf = tmp_path / "shelf"

    CollectedAnswers(shelf).of(mine, CASES[:2], identity="a")
    CollectedAnswers(shelf).of(mine, CASES[:2], identity="b")
    assert adapter.calls == 4


def test_one_process_answers_each_case_once() -> None:
    mine, adapter = subject()
    answers = CollectedAnswers()

    assert answers.of(mine, CASES, identity="a") == answers.of(mine, CASES, identity="a")
    assert adapter.calls == 40
