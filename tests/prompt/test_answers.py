"""What in a reply of a model is the answer: a table of forms, and rules for any text."""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from further import thorough
from promptgraft.errors import OutputError
from promptgraft.prompt import PromptTemplate
from promptgraft.prompt.answers import answer_text, read_output
from promptgraft.prompt.template import Prompt

Shelf = Literal["poetry", "travel", "cooking"]
YesNo = Literal["yes", "no"]


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@attrs.frozen
class Book:
    shelf: Shelf
    copies: int = 1
    sold: bool = False
    tags: tuple[str, ...] = ()


@attrs.frozen
class Shelves:
    shelves: tuple[Shelf, ...]


TRAVEL = Book("travel")
REFUSED: Any = OutputError

# The type of the answer, the reply, and what the program gets.
FORMS: list[tuple[Any, str, Any]] = [
    # Thoughts.
    (str, "<think>\nA map.\n</think>\n\nAtlas", "Atlas"),
    (str, "A map, so\n</think>\n\nAtlas", "Atlas"),
    (str, "<thinking>x</thinking>Atlas", "Atlas"),
    (str, "<Reasoning>x</Reasoning>\nAtlas\n", "Atlas\n"),
    (str, "[THINK]x[/THINK]Atlas", "Atlas"),
    (str, "◁think▷x◁/think▷Atlas", "Atlas"),
    (
        str,
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>A",
        "A",
    ),
    (str, "<think>a</think>\n<think>b</think>\nAtlas", "Atlas"),
    (str, "<think>I may write <think> here.</think>Atlas", "Atlas"),
    (str, "<think>a <think>b</think> c</think>Atlas", "Atlas"),
    (str, '<thinking lang="en">x</thinking>Atlas', "Atlas"),
    (
        str,
        (
            "<|start|>assistant<|channel|>analysis<|message|>x<|end|>"
            "<|start|>assistant<|channel|>commentary<|message|>y<|end|>"
            "<|start|>assistant<|channel|>final<|message|>A<|return|>"
        ),
        "A",
    ),
    (str, "<|channel|>commentary<|message|>x<|end|><|channel|>final<|message|>A", "A"),
    (str, "<|channel|>final<|message|>Atlas<|return|>", "Atlas"),
    (str, "analysisPoetry? No.assistantfinalAtlas", "Atlas"),
    (str, "Analysis: the assistantfinal state", "Analysis: the assistantfinal state"),
    (str, "analysis: an AssistantFinal state", "analysis: an AssistantFinal state"),
    (str, "class Atlas:\n    assistantFinal = 3", "class Atlas:\n    assistantFinal = 3"),
    (str, "<think about it> Atlas", "<think about it> Atlas"),
    (Shelf, "<think>Poetry? Cooking?</think>travel", "travel"),
    (Shelf, "Poetry? Cooking?\n</think>\ntravel", "travel"),
    (Book, '<think>{"shelf": "poetry"}</think>{"shelf": "travel"}', TRAVEL),
    (Shelf, "<think>travel", REFUSED),
    (Shelf, "<think>travel</think>", REFUSED),
    # A text is the answer, whatever it holds.
    (
        str,
        "Write <think> before and </think> after it.",
        "Write <think> before and </think> after it.",
    ),
    (str, "Close it with `</think>`.", "Close it with `</think>`."),
    (str, "```\nAtlas\n```", "```\nAtlas\n```"),
    (str, '  "Atlas"\n', '  "Atlas"\n'),
    # The token that ends a turn is no text.
    (str, "Atlas<|im_end|>", "Atlas"),
    (str, "Atlas</s>\n<|eot_id|>\n", "Atlas"),
    (str, "Atlas<｜end▁of▁sentence｜>", "Atlas"),
    (str, "<s>Atlas</s>", "<s>Atlas</s>"),
    (str, "Write <|im_end|> last.\n", "Write <|im_end|> last.\n"),
    (str, "Answer: Atlas", "Answer: Atlas"),
    (str, "", ""),
    # A choice.
    (Shelf, "travel", "travel"),
    (Shelf, " Travel.\n", "travel"),
    (Shelf, "**Travel**.", "travel"),
    (Shelf, '"travel"', "travel"),
    (Shelf, "`TRAVEL`", "travel"),
    (Shelf, "```\ntravel\n```", "travel"),
    (Shelf, "Sure:\n```text\ntravel\n```\nNot poetry, not cooking.", "travel"),
    (Shelf, "Answer: travel", "travel"),
    (Shelf, "**Final answer:** travel", "travel"),
    (Shelf, "It is about maps, so neither poetry nor cooking.\nAnswer: Travel.", "travel"),
    (Shelf, "<answer>travel</answer>", "travel"),
    (Shelf, "Poetry? <final_answer>travel</final_answer>", "travel"),
    (Shelf, "No poetry, so $\\boxed{\\text{travel}}$.", "travel"),
    (Shelf, "\\boxed{poetry} is how to write it.\nAnswer: travel", "travel"),
    (Shelf, "<answer>travel</answer>, and not \\boxed{poetry}", "travel"),
    (Shelf, "Not poetry, since it has maps.\n\ntravel", "travel"),
    (Shelf, "travel\n\nIt has maps; poetry has none.", "travel"),
    (Shelf, '{"shelf": "travel"}', "travel"),
    (Shelf, '{"shelf": "travel", "why": "no poetry"}', "travel"),
    (Shelf, "The shelf is travel, because of the maps.", "travel"),
    (Shelf, "It's travel, since it's not about food.", "travel"),
    (Size, "Large!", Size.LARGE),
    (YesNo, "No, it doesn't.", "no"),
    (Shelf, "", REFUSED),
    (Shelf, "history", REFUSED),
    (Shelf, "travel or poetry", REFUSED),
    (Shelf, "poetry\ntravel\ncooking", REFUSED),
    (Shelf, "I'm sorry, I can't help with travel.", REFUSED),
    (Shelf, "It is not travel.", REFUSED),
    (Shelf, "Travel is not the shelf.", REFUSED),
    (Shelf, "I am happy to help!", REFUSED),
    (Literal["Größe", "Maß"], "Es ist die Gro\u0308ße.", "Größe"),
    # An object.
    (Book, '{"shelf": "travel"}', TRAVEL),
    (Book, '```json\n{"shelf": "travel"}\n```', TRAVEL),
    (Book, 'Here:\n{"shelf": "Travel"}\nDone.', TRAVEL),
    (Book, "{'shelf': 'travel', 'sold': True, 'tags': ['a',],}", Book("travel", 1, True, ("a",))),
    (Book, '{shelf: "travel", // why\n "copies": "2"}', Book("travel", 2)),
    (Book, '{"shelf": "travel", "copies": 2.0, "sold": "yes"}', Book("travel", 2, True)),
    (Book, '{"shelf": "poetry"}\nNo:\n{"shelf": "travel"}', TRAVEL),
    (Book, '{"shelf": "travel"}\n{"shelf": "poe', TRAVEL),
    (Book, '{"shelf": "history"}', REFUSED),
    (Book, '{"shelf": "travel"', REFUSED),
    (Book, '{"book": {"shelf": "travel"}, "more": ', REFUSED),
    (Book, '[{"shelf": "travel"}]', REFUSED),
    (Shelves, '["travel", "poetry"]', Shelves(("travel", "poetry"))),
    (Shelves, '["travel", "history"]', REFUSED),
    (list[Shelves], '[["travel", "poetry"]]', REFUSED),
    (Book, '{"shelf": "travel", "copies": "two"}', REFUSED),
    (Book, '{"shelf": "travel", "copies": 2.5}', REFUSED),
    (Book, "I cannot name a shelf.", REFUSED),
    (Book, '"{\\"shelf\\": \\"travel\\"}"', TRAVEL),
    (Book, '"```json\\n{\\"shelf\\": \\"travel\\"}\\n```"', TRAVEL),
    (Book, '"travel"', REFUSED),
    # Lists, numbers and truth values.
    (list[str], '["a", "b"]', ["a", "b"]),
    (list[str], "Tags: ['a', 'b',].", ["a", "b"]),
    (list[int], '```json\n["1", 2]\n```', [1, 2]),
    (list[int | None], '["null", 2]', REFUSED),
    (list[str], "a, b", REFUSED),
    (int, "42", 42),
    (int, "The answer is **42**.", 42),
    (int, "3 + 39 = 42\nAnswer: 42", 42),
    (float, "-0.5", -0.5),
    (int, "3 + 39 is \\boxed{42}.", 42),
    (int, "3 + 39 is \\boxed{41}, no, \\boxed{42}.", 42),
    (float, "The answer is \\boxed{\\frac{1}{2}}.", REFUSED),
    (int, "3 + 39\n42\n\n", 42),
    (int, "3 + 39 = 42\n#### 42", 42),
    (int, "Of 3 and 39 the sum is\n\n**42**", 42),
    (int, "Two sums:\n3\n42", REFUSED),
    (int, "42.5", REFUSED),
    (int, "1,234", REFUSED),
    (float, ".5", 0.5),
    (float, "1 234,50 €", REFUSED),
    (float, "3 1/2", REFUSED),
    (float, "42, or 1,000", REFUSED),
    (int, "6 or 7", REFUSED),
    (bool, "True.", True),
    (bool, "No, it is full.", False),
    (bool, "I do not know.", REFUSED),
]


@pytest.mark.parametrize(("kind", "reply", "value"), FORMS)
def test_a_reply_is_an_answer_or_refused(kind: Any, reply: str, value: Any) -> None:
    if value is REFUSED:
        with pytest.raises(OutputError) as refused:
            read_output(kind, reply)
        assert "\n" not in str(refused.value)
        return
    assert read_output(kind, reply).output == value


def test_the_table_has_sixty_forms_of_every_kind() -> None:
    assert len({(str(kind), reply) for kind, reply, _ in FORMS}) == len(FORMS) >= 60
    assert sum(value is REFUSED for _, _, value in FORMS) >= 20


@pytest.mark.parametrize(
    ("reply", "notes"),
    [
        ('{"shelf": "travel", "copies": 2}', ()),
        ("{'shelf': 'travel'}", ("it is not strict JSON (quotes, commas, comments or constants)",)),
        ('{"shelf": "travel", "copies": "2"}', ("'2' was read as an integer @ $.copies",)),
        (
            '{"shelf": "poetry"} {"shelf": "travel"}',
            ("the reply holds 2 JSON objects; the last one counts",),
        ),
        ('{"shelf": "travel"} {"shelf": "travel"}', ()),
        ('"{\\"shelf\\": \\"travel\\"}"', ("the JSON was inside a JSON text",)),
    ],
)
def test_a_repair_is_noted_and_can_be_turned_off(reply: str, notes: tuple[str, ...]) -> None:
    assert read_output(Book, reply).notes == notes
    strict: PromptTemplate[Book] = PromptTemplate(ns="a", key="b", output_type=Book, repair=False)
    rendered = Prompt(strict).render()
    if notes:
        with pytest.raises(OutputError):
            rendered.parse(reply)
    else:
        assert rendered.parse(reply) == read_output(Book, reply).output


@attrs.frozen
class Found:
    """A verdict as judges give it."""

    met: Literal["yes", "no"]
    sure: Literal["Yes", "No", "unclear"] = "unclear"
    kind: Literal["a", "b"] = "a"


def test_a_truth_value_is_the_option_that_says_the_same() -> None:
    parsed = read_output(Found, '{"met": true, "sure": false}')
    assert parsed.output == Found("yes", "No")
    assert parsed.notes == ("True was read as 'yes' @ $.met", "False was read as 'No' @ $.sure")
    for reply in ('{"met": "ja"}', '{"met": 1}', '{"met": true, "kind": true}'):
        with pytest.raises(OutputError):
            read_output(Found, reply)


TAGS = ["<think>", "</think>", "[THINK]", "◁/think▷", "`", "\n", " ", "travel", "\ud83d", "x"]
TEXTS = st.text(max_size=30) | st.lists(st.sampled_from(TAGS)).map("".join)


@given(TEXTS)
def test_an_answer_without_thoughts_stays_as_it_is(text: str) -> None:
    once = answer_text(text)
    assert answer_text(once) == once
    assert text.endswith(once)


PIECES = [
    *TAGS,
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    ":",
    ",",
    "shelf",
    "not ",
    "Answer: ",
    "```",
    "1",
    "-",
]


@given(
    st.sampled_from([Shelf, YesNo, Size, Book, list[str], int, float, bool, str]),
    TEXTS | st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)
def test_any_text_is_an_answer_or_refused(kind: Any, text: str) -> None:
    with contextlib.suppress(OutputError):
        assert read_output(kind, text).output is not None


@pytest.mark.parametrize(
    "text",
    [
        "<think>" * 50_000,
        "</think>\n" * 20_000,
        '{"a":' * 50_000,
        "{a:}" * 10_000,
        "[" * 100_000,
        "answer is " * 30_000,
        "not travel " * 20_000,
        "```\n" * 50_000,
        "1 " * 50_000,
    ],
    ids=["thoughts", "ends", "objects", "braces", "lists", "stated", "denied", "fences", "numbers"],
)
@pytest.mark.parametrize("kind", [Book, *thorough([Shelf, int])])
def test_hostile_replies_are_refused_in_linear_time(kind: Any, text: str) -> None:
    with pytest.raises(OutputError):
        read_output(kind, text)
