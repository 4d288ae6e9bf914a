"""From the text of an answer to the output type, or to a reason why not."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import OutputError, PromptDefinitionError
from promptgraft.prompt import PromptTemplate
from promptgraft.prompt.answers import read_output
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.rendered import check_output_type


class Queue(Enum):
    BILLING = "billing"
    REFUND = "refund"
    REFUND_REQUEST = "refund request"
    CPP = "C++"


class Answer(StrEnum):
    YES = "yes"
    NO = "no"


Mood = Literal["good", "bad", "Bad"]


@attrs.frozen
class Verdict:
    queue: Queue
    score: float
    reasons: list[str] = attrs.field(factory=list)


@dataclasses.dataclass
class Note:
    text: str
    answer: Answer = Answer.NO


class Number(Enum):
    ONE = 1


class Empty(Enum):
    pass


@attrs.frozen
class Waiting:
    delay: timedelta


def parsed(kind: Any, text: str) -> Any:
    return read_output(kind, text).output


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("billing", Queue.BILLING),
        ("  billing\n", Queue.BILLING),
        ("Billing", Queue.BILLING),
        ("BILLING.", Queue.BILLING),
        ('"billing"', Queue.BILLING),
        ("'billing'", Queue.BILLING),
        ("“billing”", Queue.BILLING),
        ("`billing`", Queue.BILLING),
        ("**billing**", Queue.BILLING),
        ("***Billing***.", Queue.BILLING),
        ("```\nbilling\n```", Queue.BILLING),
        ("The queue is: billing", Queue.BILLING),
        ("I would say **Billing**, because of the invoice.", Queue.BILLING),
        ("billing, surely billing", Queue.BILLING),
        ("refund", Queue.REFUND),
        ("A refund request, no doubt.", Queue.REFUND_REQUEST),
        ("refund\u00a0request", Queue.REFUND),
        ("C++", Queue.CPP),
        ("It is c++!", Queue.CPP),
    ],
)
def test_a_choice_may_be_wrapped_as_long_as_it_is_the_only_one(text: str, value: Queue) -> None:
    assert parsed(Queue, text) is value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'', which names none of them"),
        ("shipping", "'shipping', which names none of them"),
        ("billings", "'billings', which names none of them"),
        ("pre-billing", "'pre-billing', which names none of them"),
        ("_billing_", "'_billing_', which names none of them"),
        ("billing or refund", "'billing or refund', which names 2 of them"),
        ("refund request or refund", "'refund request or refund', which names 2 of them"),
        ("billing, refund, C++", "'billing, refund, C++', which names 3 of them"),
    ],
)
def test_an_answer_that_names_no_option_or_several_is_refused(text: str, problem: str) -> None:
    with pytest.raises(OutputError) as caught:
        parsed(Queue, text)
    assert str(caught.value) == (
        f"answer: expected one of billing, refund, refund request, C++; found {problem}"
    )


def test_a_string_enum_gives_its_members() -> None:
    assert parsed(Answer, "Yes.") is Answer.YES
    with pytest.raises(OutputError, match="expected one of yes, no; found 'maybe', which names"):
        parsed(Answer, "maybe")


@pytest.mark.parametrize(
    ("text", "value"),
    [("good", "good"), ("Good!", "good"), ("bad", "bad"), ("Bad", "Bad"), ("so Good", "good")],
)
def test_a_literal_gives_one_of_its_texts(text: str, value: str) -> None:
    found: object = parsed(Mood, text)
    assert found == value


def test_options_that_differ_by_case_only_must_be_answered_exactly() -> None:
    with pytest.raises(OutputError, match="names 2 of them"):
        parsed(Mood, "BAD")


@pytest.mark.parametrize("inner", ["request", "refund", "fund req", "nd request"])
def test_an_option_inside_a_longer_one_is_not_named(inner: str) -> None:
    kind: Any = Literal[inner, "refund request"]
    assert parsed(kind, "It is a refund request.") == "refund request"


def test_text_is_taken_as_it_is() -> None:
    text = ' "quoted" \n```\n'
    assert parsed(str, text) == text
    assert parsed(None, text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"queue": "refund", "score": 1, "reasons": ["a"]}',
        '\n {"score": 1.0, "queue": "refund", "reasons": ["a"]} \n',
        '```json\n{"queue": "refund", "score": 1, "reasons": ["a"]}\n```',
        '```\n{"queue": "refund", "score": 1, "reasons": ["a"]}\n```\n',
        '```JSON\r\n{"queue": "refund",\r\n "score": 1, "reasons": ["a"]}```',
        'Here it is: {"queue": "refund", "score": 1, "reasons": ["a"]}. Anything else?',
        '{"Queue": "Refund", "SCORE": 1, "rea_sons": ["a"], "confidence": "high"}',
    ],
)
def test_an_object_is_read_from_json_fenced_or_not(text: str) -> None:
    assert parsed(Verdict, text) == Verdict(Queue.REFUND, 1.0, ["a"])


def test_a_dataclass_has_its_defaults() -> None:
    assert parsed(Note, '{"text": "x"}') == Note("x", Answer.NO)
    found = parsed(Note, '{"text": "x", "answer": "yes"}')
    assert found == Note("x", Answer.YES)
    assert found is not None
    assert found.answer is Answer.YES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "answer:1:1: Expecting value"),
        ("refund", "answer:1:1: Expecting value"),
        ('{"queue": "refund", "score": 1', "answer:1:31: Expecting ',' delimiter"),
        ('```json\n{"queue": "refund",\n```', "answer:2:1: Expecting property name"),
        ("[]", "answer: expected an object, found [] @ $"),
        ("null", "answer: expected an object, found None @ $"),
        ('{"score": 1}', "answer: required key missing @ $.queue"),
        ('{"queue": "Reflux", "score": 1}', "answer: expected one of 'billing', 'refund', "),
        (
            '{"queue": "refund", "score": "one"}',
            "answer: expected a number, found 'one' @ $.score",
        ),
        (
            '{"queue": "refund", "score": true}',
            "answer: expected a number, found True @ $.score",
        ),
        ('{"queue": "refund", "score": NaN}', "answer: expected a finite number, found NaN"),
        ('{"queue": "refund", "score": 1e999}', "answer: expected a finite number, found 1e999"),
        (
            '{"queue": "refund", "score": 1, "reasons": "abc"}',
            "answer: expected a list, found 'abc' @ $.reasons",
        ),
        ('{"score": 1, "score": 2}', "answer: the key 'score' occurs twice in one object"),
        ("[" * 100_000, "answer: the JSON is nested too deeply"),
    ],
)
def test_an_object_that_does_not_fit_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(OutputError) as caught:
        parsed(Verdict, text)
    assert str(caught.value).startswith(message)


def test_every_fault_of_an_object_is_named() -> None:
    with pytest.raises(OutputError) as caught:
        parsed(Verdict, '{"queue": 5, "score": "x"}')
    assert "found 5 @ $.queue" in str(caught.value)
    assert "found 'x' @ $.score" in str(caught.value)


WORDS = ["refund", " request", "yes", "no", '{"text":', '"', "}", "\n", "`"]
ANSWERS = st.text(max_size=20) | st.lists(st.sampled_from(WORDS)).map("".join)


@given(st.sampled_from([Queue, Answer, Verdict, Note, str]), ANSWERS)
def test_any_text_is_an_output_or_an_output_error(kind: Any, text: str) -> None:
    try:
        found = parsed(kind, text)
    except OutputError:
        return
    assert isinstance(found, kind)


def test_long_answers_are_searched_in_linear_time() -> None:
    # Each of these takes minutes when the time grows with the square of the length.
    words = "refund request " * 20_000
    assert parsed(Queue, words) is Queue.REFUND_REQUEST
    for text in ("```" + "\n" * 300_000 + "x", "```json\n" * 50_000, "`" * 300_000):
        with pytest.raises(OutputError):
            parsed(Verdict, text)


@pytest.mark.parametrize("kind", [None, str, Queue, Answer, Mood, Verdict, Note, Number])
def test_what_an_answer_can_be_parsed_into_may_be_an_output_type(kind: Any) -> None:
    check_output_type(kind, "prompt `a/b`")
    template: PromptTemplate[Any] = PromptTemplate(ns="a", key="b", output_type=kind)
    assert template.output_type is kind


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (bytes, "no plain data can become <class 'bytes'>"),
        (list[bytes], "no plain data can become <class 'bytes'>"),
        (Empty, "type `Empty` has no JSON Schema"),
        (Verdict(Queue.REFUND, 1.0), "expected a type such as str, an Enum, a class or list[str]"),
        ("str", "expected a type such as str, an Enum, a class or list[str], found 'str'"),
    ],
)
def test_what_no_answer_can_be_parsed_into_is_refused(kind: Any, found: str) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        PromptTemplate(ns="a", key="b", output_type=kind)
    assert str(caught.value).startswith(f"prompt `a/b`: output_type: {found}")


def test_a_class_with_a_field_that_json_cannot_give_is_refused_before_it_is_answered() -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        PromptTemplate(ns="a", key="b", output_type=Waiting)
    assert str(caught.value) == (
        "prompt `a/b`: output_type: field `Waiting.delay`: no plain data can become "
        "<class 'datetime.timedelta'>"
    )


def test_the_options_of_a_choice_are_in_order() -> None:
    assert options_of(Queue) == ("billing", "refund", "refund request", "C++")
    assert options_of(Mood) == ("good", "bad", "Bad")
    assert [options_of(kind) for kind in (None, str, Verdict, Number, Empty)] == [()] * 5


def test_half_of_a_character_in_an_answer_is_its_fault() -> None:
    with pytest.raises(OutputError, match="answer: expected whole characters, found half"):
        parsed(Note, '{"text": "billing \\ud83d"}')
