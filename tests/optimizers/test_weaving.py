"""Changes of one text that were made apart, in one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.optimizers.gepa.weaving import woven

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
    assert woven(RULES, first, second) == expected


def test_two_sides_that_change_one_line_in_two_ways_cannot_be_put_together() -> None:
    polite, rude = (RULES.replace("kind", word) for word in ("polite", "rude"))
    assert woven(RULES, polite, rude) is None
    assert woven(RULES, polite, polite) == polite


@given(texts, texts)
def test_a_side_that_changed_nothing_lets_the_other_have_its_way(base: str, side: str) -> None:
    assert woven(base, base, side) == woven(base, side, base) == side


@given(texts, texts, texts)
def test_no_line_comes_from_nowhere_and_none_is_lost(base: str, first: str, second: str) -> None:
    found = woven(base, first, second)
    if found is None:
        return
    sides = {*first.split("\n"), *second.split("\n")}
    assert set(found.split("\n")) <= sides | {""}
    added = sides - set(base.split("\n"))
    assert added <= set(found.split("\n"))


@given(texts, texts)
def test_the_same_change_on_both_sides_is_made_once(base: str, side: str) -> None:
    distinct = "\n".join(dict.fromkeys(side.split("\n")))
    assert woven(base, distinct, distinct) == distinct


def test_texts_of_more_lines_than_a_prompt_has_are_not_woven() -> None:
    long = "\n" * 1_000
    assert woven("a", "a\nb", long) is woven(long, "a", "b") is None
    assert woven("a", "a\nb", "\n" * 900 + "a") is not None
