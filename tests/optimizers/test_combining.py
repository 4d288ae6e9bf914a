"""What several children have changed, in one candidate."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizers.worlds import NOTES, RULES, examples, grafted, target_of
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.targets.combining import combined
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.types import Candidate

LINES = ["alpha", "beta", "gamma", "delta"]
PROMPT = Prompt[object](
    PromptTemplate[object](
        ns="toy",
        key="gathering",
        sections=(
            MarkdownSection(title="Rules", key="rules", template="\n".join(LINES)),
            MarkdownSection(title="Notes", key="notes", template="nothing yet"),
            MarkdownSection(title="Question", key="question", template="Do you know $word?"),
        ),
    )
)
DATA = examples(1)
TARGET = target_of(PROMPT, RULES, NOTES)
PARENT = TARGET.baseline()


def child(text: str, path: tuple[str, ...] = RULES) -> Candidate:
    return grafted(TARGET, PARENT, path, text, *DATA)


def together(onto: Candidate, *children: Candidate) -> tuple[Candidate, list[bool]]:
    return combined(TARGET, onto, children, base=PARENT, parents=(0,), examples=DATA, is_child=True)


def rules(candidate: Candidate) -> list[str]:
    return TARGET.describe(SectionModule(RULES), candidate).text.split("\n")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("alpha\nbeta\ngamma\ndelta\n- short: one word", "alpha\nbeta\ngamma\n- short: two\ndelta"),
        # One side was written anew.
        ("- short: one word", "alpha\nbeta\ngamma\ndelta\n- short: two"),
        ("alpha\nbeta\ngamma\ndelta\n- short: two", "- short: one word"),
    ],
)
def test_what_both_children_define_is_there_once(first: str, second: str) -> None:
    for sides in ((first, second), (second, first)):
        found, _ = together(*map(child, sides))
        starts = [line.partition(":")[0] for line in rules(found)]
        assert len(set(starts)) == len(starts)


def test_labels_that_a_child_has_several_times_stay() -> None:
    lines = "\n".join(LINES)
    found, _ = together(child(f"Q: one\nA: yes\nQ: two\nA: no\n{lines}"), child(f"{lines}\nend"))
    assert rules(found) == ["Q: one", "A: yes", "Q: two", "A: no", *LINES, "end"]


@given(st.integers(0, 2**32), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_no_line_is_lost_that_one_child_has_added(seed: int, count: int) -> None:
    chance, children = random.Random(seed), []
    for number in range(count):
        lines = list(LINES)
        for more in range(chance.randrange(1, 4)):
            lines.insert(chance.randrange(len(lines) + 1), f"{number} says {more}")
        children.append(child("\n".join(lines)))
    found, brought = together(*children)
    assert brought == [True] * (count - 1)
    lines = rules(found)
    assert sorted(lines) == sorted({line for one in children for line in rules(one)})
    for one in (PARENT, *children):  # each in its order
        remaining = iter(lines)
        assert all(line in remaining for line in rules(one))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=4))
@settings(max_examples=20, deadline=None)
def test_of_those_that_rewrite_the_same_line_the_first_has_its_way(places: list[int]) -> None:
    """Lines that stand apart: places 0 and 2, or 1 and 3."""
    texts = [
        "\n".join(
            f"rewritten by {number}" if at == place else line for at, line in enumerate(LINES)
        )
        for number, place in enumerate(places)
    ]
    found, brought = together(*map(child, texts))
    assert brought == [place not in places[: at + 1] for at, place in enumerate(places[1:])]
    kept = {place: number for number, place in reversed(list(enumerate(places)))}
    assert rules(found) == [
        f"rewritten by {kept[at]}" if at in kept else line for at, line in enumerate(LINES)
    ]


def test_a_line_to_which_both_only_add_words_has_the_words_of_both() -> None:
    first, *others = LINES
    found, brought = together(
        child("\n".join([f"{first} here", *others])), child("\n".join([f"{first}, there", *others]))
    )
    assert brought == [True]
    assert rules(found) == [f"{first} here, there", *others]


def test_words_that_a_child_adds_to_another_line_stay_there() -> None:
    first, second, *others = LINES
    found, _ = together(
        child("\n".join([f"{first} here", second, *others])),
        child("\n".join([first, f"{first} and {second}", *others])),
    )
    assert rules(found) == [f"{first} here", f"{first} and {second}", *others]


def test_words_that_both_add_to_a_line_are_there_once() -> None:
    first, *others = LINES
    both = f"{first} here"
    found, _ = together(child("\n".join([both, *others])), child("\n".join([both, *others, "end"])))
    assert rules(found) == [both, *others, "end"]


def test_parts_are_taken_from_whoever_has_changed_them() -> None:
    found, brought = together(
        child("\n".join([*LINES, "one"])),
        child("something", NOTES),
        child("\n".join(["two", *LINES])),
        child("something else", NOTES),
    )
    assert brought == [True, True, False]
    assert rules(found) == ["two", *LINES, "one"]
    assert TARGET.describe(SectionModule(NOTES), found).text == "something"
    assert found.modules == (SectionModule(RULES), SectionModule(NOTES))
    assert found.parents == (0,)


def test_what_brings_nothing_leaves_the_candidate_as_it_is() -> None:
    one = child("\n".join([*LINES, "one"]))
    found, brought = together(one, child("\n".join([*LINES, "one"])))
    assert (found, brought) == (one, [False])


def test_a_line_that_a_child_drops_is_gone_whatever_others_add() -> None:
    found, brought = together(child("\n".join([*LINES, "one"])), child("\n".join(LINES[1:])))
    assert brought == [True]
    assert rules(found) == [*LINES[1:], "one"]


def test_what_is_added_at_the_same_place_comes_in_the_order_of_the_children() -> None:
    found, _ = together(*(child("\n".join([*LINES, name])) for name in ("one", "two", "three")))
    assert rules(found) == [*LINES, "one", "two", "three"]
