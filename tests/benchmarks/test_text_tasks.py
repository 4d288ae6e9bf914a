"""Real texts: fair splits, yardsticks that learn, and a search that never sees held-out texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import attrs
import pytest

from further import thorough

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import text_tasks
from promptgraft import (
    Deadline,
    OfflineAdapter,
    Prompt,
    PromptResponse,
    Session,
)
from promptgraft.runtime import SessionProtocol
from search.texts import TASKS, Parts, Text, TextTask
from search.yardsticks import Learner, Linear, Neighbours, answers

LEARNERS = [Neighbours(1), Neighbours(5), Linear()]


@pytest.mark.parametrize("name", ["tickets", "raises", *thorough(["docstrings", "sources"])])
def test_parts_share_no_content_and_follow_the_seed(name: str) -> None:
    task = TASKS[name]()
    parts, other = task.split(0), task.split(1)
    texts = [*parts.train, *parts.validation, *parts.held_out]
    everything = "\n".join(text.content for text in texts)
    assert all(everything.count(text.content) == 1 for text in texts)
    assert (len(parts.train), len(parts.validation)) == task.sizes[:2]
    assert len(parts.held_out) >= 95  # those of `raises` are as many as this Python documents
    assert task.split(0) == parts
    assert other.held_out != parts.held_out


def test_texts_of_the_same_words_are_one_text() -> None:
    made = [Text(f"text {number}", "a") for number in range(20)]
    again = [Text(f"Text: {number}.", "b") for number in range(20)]
    task = attrs.evolve(TASKS["tickets"](), load=lambda: [*made, *again], sizes=(8, 4, 99))
    parts = task.split(3)
    assert {*parts.train, *parts.validation, *parts.held_out} == set(made)
    with pytest.raises(ValueError, match="20 texts; expected more than 20"):
        attrs.evolve(task, sizes=(15, 5, 9)).split(0)


@pytest.mark.parametrize("name", ["docstrings", "sources", "raises"])
def test_answers_are_right_for_their_texts(name: str) -> None:
    task = TASKS[name]()
    texts = task.load()
    if task.labels:
        assert {text.answer for text in texts} == set(task.labels)
    else:
        assert all(text.answer in text.text for text in texts)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_yardsticks_learn_labels(learner: Learner) -> None:
    task = TASKS["tickets"]()
    known = [
        Text(f"{word} {thing}", label)
        for label, words in {"fruit": ("sweet", "ripe"), "tool": ("steel", "sharp")}.items()
        for word in words
        for thing in ("one", "another", "third")
    ]
    new = ["some sweet and ripe ones", "sharp steel"]
    assert answers(task, learner, known, new) == ["fruit", "tool"]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_yardsticks_learn_where_a_name_stands(learner: Learner) -> None:
    task = TASKS["raises"]()
    known = [
        Text(f"Parse a {one}. Raises {name} unless Strict is off.", name)
        for one, name in [("Date", "DateError"), ("Page", "PageError"), ("Mode", "ModeError")] * 2
    ]
    new = ["Read the Header. Raises HeaderFault unless Quiet is set.", "nothing here"]
    assert answers(task, learner, known, new) == ["HeaderFault", ""]


OutputT = TypeVar("OutputT")


class Listening(OfflineAdapter):
    """The embedded model; remembers every prompt that it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        self.heard.append(prompt.render(session).text)
        return super().evaluate(prompt, session=session, deadline=deadline)


@pytest.fixture
def small() -> Callable[[str], tuple[TextTask, Parts]]:
    def made(name: str) -> tuple[TextTask, Parts]:
        task = attrs.evolve(TASKS[name](), sizes=(20, 10, 40))
        return task, task.split(0)

    return made


@pytest.mark.parametrize("name", TASKS)
def test_a_search_hears_nothing_of_held_out_texts(
    name: str, small: Callable[[str], tuple[TextTask, Parts]]
) -> None:
    task, parts = small(name)
    model = Listening()
    text_tasks.searched(task, parts, budget=120, seed=0, model=model)
    heard = "\n".join(model.heard)
    assert all(text.text in heard for text in parts.validation)
    assert not any(text.text in heard for text in parts.held_out)


def test_gepa_is_given_the_same_prompt(small: Callable[[str], tuple[TextTask, Parts]]) -> None:
    task, parts = small("tickets")
    world = text_tasks.TextWorld(task, parts, 0)
    prompt: Prompt[object] = Prompt(task.template)
    assert set(world.first) == set(task.changed)
    assert world.expected(world.first, world.test) == text_tasks.judged(
        task, prompt, parts.held_out, OfflineAdapter()
    )
    given = [world.answer(world.first, item).score for item in world.train]
    assert 0 < sum(given) < len(given) == world.calls


def test_the_winner_is_rendered_with_its_overrides(
    small: Callable[[str], tuple[TextTask, Parts]],
) -> None:
    task, parts = small("raises")
    model = OfflineAdapter()
    result = text_tasks.searched(task, parts, budget=150, seed=0, model=model)
    assert result.found_better
    winner = text_tasks.winner_of(task, result)
    assert "### Example: " in winner.bind({"text": "x"}).render(Session()).text
    assert text_tasks.judged(task, winner, parts.held_out, model) > 0.3


@pytest.mark.thorough
def test_the_command_prints_the_same_rows_for_the_same_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--task", "tickets", "--seeds", "2", "--budget", "40", "--sizes", "12,6,20"]
    tables = []
    for name in ("one.json", "two.json"):
        assert text_tasks.main([*asked, "--jobs", "1", "--json", str(tmp_path / name)]) == 0
        # The last column, and the first line, are times.
        tables.append([line[:-8] for line in capsys.readouterr().out.splitlines()[1:]])
    assert tables[0] == tables[1]
    rows = "\n".join(tables[0])
    for title in ("baseline prompt", "linear classifier", "promptgraft lean, 40", "gepa defaults"):
        assert title in rows
    found = json.loads((tmp_path / "one.json").read_text("utf-8"))["found"]["tickets"]
    assert len(found) == 2
    assert all(0 < cells["baseline prompt"]["score"] < 1 for cells in found)
