"""Changes of one text that were made apart, in one text."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.targets.combining import merge3_onto

texts = st.lists(st.sampled_from(["a", "b", "c", "d", "", "e"]), max_size=8).map("\n".join)
RULES = "Rules:\n- be short\n- be kind\n\nAnswer with a word."


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (f"{RULES}\n- one", f"{RULES}\n- two", f"{RULES}\n- one\n- two"),
        (f"{RULES}\n- one", f"{RULES}\n- one\n- two", f"{RULES}\n- one\n- two"),
        (
            f"Hello.\n{RULES}",
            RULES.replace("kind", "polite"),
            f"Hello.\n{RULES.replace('kind', 'polite')}",
        ),
        (
            RULES.replace("- be short\n", ""),
            f"{RULES}\n- two",
            f"{RULES.replace('- be short' + chr(10), '')}\n- two",
        ),
    ],
)
def test_both_sides_have_their_way(first: str, second: str, expected: str) -> None:
    assert merge3_onto(RULES, first, second) == expected


def test_woven_in_the_first_side_has_its_way_where_both_change_one_line() -> None:
    polite, rude = (RULES.replace("kind", word) for word in ("polite", "rude"))
    assert merge3_onto(RULES, polite, rude) == polite
    assert merge3_onto(RULES, polite, f"{rude}\n- two") == f"{polite}\n- two"
    assert merge3_onto(RULES, polite, polite) == polite


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("roads: pothole, bump", "roads: pothole, hole", "roads: pothole, bump, hole"),
        ("roads: pothole, bump", "roads: pothole, bump", "roads: pothole, bump"),
        ("old roads: pothole", "roads: pothole, hole", "old roads: pothole, hole"),
        ("roads: hole", "roads: pothole, hole", "roads: hole"),
    ],
)
def test_a_line_has_the_words_that_both_have_added(first: str, second: str, expected: str) -> None:
    before, after = "Teams\n", "\nwater: leak"
    sides = (f"{before}{line}{after}" for line in (first, second))
    assert merge3_onto(f"{before}roads: pothole{after}", *sides) == f"{before}{expected}{after}"


words = st.lists(st.sampled_from(["a", "b", "c", ",", "."]), max_size=6)


@given(words, words, words)
def test_added_words_are_neither_lost_nor_torn(
    base: list[str], first: list[str], second: list[str]
) -> None:
    line = " ".join(["x", *base])
    found = merge3_onto(line, f"{line} {' '.join(first)}", f"{line} {' '.join(second)}")
    assert found is not None
    assert Counter(found.split()) >= Counter([*line.split(), *first])
    assert set(found.split()) == {*line.split(), *first, *second}


@given(texts, texts)
def test_a_side_that_changed_nothing_lets_the_other_have_its_way(base: str, side: str) -> None:
    assert merge3_onto(base, base, side) == merge3_onto(base, side, base) == side


@given(texts, texts, texts)
def test_no_line_comes_from_nowhere_and_none_of_the_first_is_lost(
    base: str, first: str, second: str
) -> None:
    found = merge3_onto(base, first, second)
    assert found is not None
    sides = {*first.split("\n"), *second.split("\n")}
    assert set(found.split("\n")) <= sides | {""}
    assert set(first.split("\n")) - set(base.split("\n")) <= set(found.split("\n"))


@given(texts, texts, texts)
def test_lines_that_both_only_add_are_all_there(base: str, first: str, second: str) -> None:
    found = merge3_onto(base, f"{base}\n{first}", f"{second}\n{base}")
    assert found is not None
    assert set(found.split("\n")) >= {*base.split("\n"), *first.split("\n"), *second.split("\n")}


@given(texts, texts)
def test_the_same_change_on_both_sides_is_made_once(base: str, side: str) -> None:
    distinct = "\n".join(dict.fromkeys(side.split("\n")))
    assert merge3_onto(base, distinct, distinct) == distinct


def test_texts_of_more_lines_than_a_prompt_has_are_not_woven() -> None:
    long = "\n" * 1_000
    assert merge3_onto("a", "a\nb", long) is merge3_onto(long, "a", "b") is None
    assert merge3_onto("a", "a\nb", "\n" * 900 + "a") is not None
