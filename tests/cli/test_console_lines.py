"""Each line that the console prints is on the page that says which question it answers.

``Console`` compares all that the commands print in these tests; here is what the page itself needs.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from cli.console_lines import listed_lines, unlisted


def test_each_line_is_listed_once_and_under_a_question() -> None:
    lines = [*listed_lines()]
    assert len({question for question, _ in lines}) >= 7
    assert [line for line, count in Counter(line for _, line in lines).items() if count > 1] == []


def test_the_outputs_of_a_whole_walk_on_a_page_are_listed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "with-a-real-model.md").read_text("utf-8")
    outputs = re.findall(
        r"(?s)^\$ promptgraft (\w+)[^\n]*\n```\n\n```text\n(.*?)^```", text, re.MULTILINE
    )
    assert {command for command, _ in outputs} >= {"check", "plan", "optimize", "apply", "eval"}
    assert {command: unlisted([command], output) for command, output in outputs} == {
        command: [] for command, _ in outputs
    }


def test_a_line_that_answers_none_of_the_questions_is_noticed() -> None:
    printed = "toy/words: improved\nthe optimizer reticulates its splines\n  changed words\n"
    assert unlisted(["optimize"], printed) == ["the optimizer reticulates its splines"]
    assert unlisted(["optimize"], "toy/words: promoted\n") == ["toy/words: promoted"]
    assert unlisted(["optimize", "--json"], printed) == []
