"""The published algorithm is visible: one short file, without a word of any strategy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from promptgraft.algorithms.gepa import search
from promptgraft.algorithms.gepa.additions.base import GROUP

SEARCH = Path(search.__file__)
GEPA = SEARCH.parent
MOST_LINES = 150
MOST_LINES_OF_ALL = 4_549
STRATEGY_WORDS = (
    *("racer", "race", "racing", "stray", "strays", "misplaced", "shortener", "shorten"),
    *("shortening", "lesson", "lessons", "rider", "riders", "carried", "complaint", "complaints"),
    *("taught", "leads", "gained", "challenger", "blamed", "teaching", "relocate", "credit"),
    *("crowned", "generic", "stop_words", "woven", "merge3", "early"),
)


def test_the_algorithm_is_one_short_file() -> None:
    assert len(SEARCH.read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("word", STRATEGY_WORDS)
def test_no_strategy_is_named_in_it(word: str) -> None:
    text = SEARCH.read_text("utf-8").casefold()
    assert not re.findall(rf"(?<![a-z]){word}(?![a-z])", text)


def test_it_names_no_addition() -> None:
    text = SEARCH.read_text("utf-8").casefold()
    names = {*GROUP.names} - {"lines"}  # of the paper
    assert not [name for name in names if re.search(rf"\b{name}\b", text)]


def test_every_line_of_algorithm_1_is_in_it() -> None:
    """Lines 3 to 20; 1 and 2 are the settings, and 13 belongs to 12."""
    named = set[int]()
    text = SEARCH.read_text("utf-8")
    for first, last in re.findall(r"[Ll]ines? (\d+)(?:(?: to| and) (\d+))?", text):
        named.update(range(int(first), int(last or first) + 1))
    assert named >= set(range(3, 21))


def test_the_folder_of_the_algorithm_is_small() -> None:
    files = GEPA.rglob("*.py")
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= MOST_LINES_OF_ALL
