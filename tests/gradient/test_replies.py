"""What models reply to the questions: read, or refused in one line that says why."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.algorithms.gradient.inquiries import Blames, read_blame, read_patch, read_problems
from promptgraft.search.asks import Reply
from promptgraft.search.round_events import Blame, Problem, Severity
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.types import ModuleDescription

TABLE = Path(__file__).with_name("broken_replies.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text("utf-8").splitlines()]
PARTS = {"T1": "section rules", "T2": "section notes"}
BEFORE = {"S1": "1.1.1", "S2": "1.2.1"}


def blames(text: str, finish_reason: str = "stop") -> Blames:
    return read_blame(Reply(text=text, finish_reason=finish_reason), parts=PARTS, before=BEFORE)


READ: Mapping[str, Callable[[str], object]] = {
    "blame": blames,
    "merge": lambda text: read_problems(Reply(text=text, finish_reason="stop")),
}


WHOLE: Mapping[str, object] = {
    "blame": {
        "blame": [{"text": "T1", "severity": "P1", "problem": "too short"}],
        "hand_on": [{"step": "S1", "severity": "P2", "problem": "wrong"}],
    },
    "merge": {"problems": [{"severity": "P1", "problem": "too short"}]},
}


def refusal(read: Callable[[str], object], text: str) -> str:
    """Return why a reply is refused; empty when it is read."""
    try:
        read(text)
    except InvalidProposalError as error:
        return error.detail
    return ""


def block(value: object) -> str:
    return f"```json\n{json.dumps(value)}\n```"


@pytest.mark.parametrize("row", ROWS)
def test_a_broken_reply_is_refused_in_the_line_that_the_table_has(row: Mapping[str, str]) -> None:
    with pytest.raises(InvalidProposalError) as refused:
        READ[row["question"]](row["reply"])
    assert refused.value.detail == row["detail"]


def test_a_reply_that_was_cut_off_is_refused_whatever_it_holds() -> None:
    with pytest.raises(InvalidProposalError, match="the reply was cut off before its end"):
        blames(block({"blame": [], "hand_on": []}), "length")
    failed = Reply(text="", finish_reason="", fault="429: overloaded")
    with pytest.raises(InvalidProposalError, match="failed: 429: overloaded"):
        read_problems(failed)


def test_handles_are_read_as_what_they_stand_for() -> None:
    said = {"severity": "P1", "problem": " too short\n"}
    found = blames(block({"blame": [{"text": "T2", **said}], "hand_on": [{"step": "S2", **said}]}))
    assert found == (
        (Blame(to="section notes", severity=Severity.P1, text="too short"),),
        (Blame(to="1.2.1", severity=Severity.P1, text="too short"),),
    )
    assert blames('{"blame": [], "hand_on": []}') == ((), ())


@pytest.mark.parametrize("around", ["{}", "`{}`", "[{}]", "**{}**", " {} "])
def test_handles_and_severities_are_read_in_what_models_write_around_them(around: str) -> None:
    entry = {"text": around.format("t2"), "severity": around.format("p1"), "problem": "too short"}
    problem = Blame(to="section notes", severity=Severity.P1, text="too short")
    assert blames(block({"blame": [entry], "hand_on": []})) == ((problem,), ())


def test_a_list_with_nothing_in_it_may_be_left_out() -> None:
    assert blames(block({"hand_on": []})) == blames(block({"blame": []})) == ((), ())


PART = ModuleDescription(name="section rules", title="Rules", text="Be brief.", max_chars=99)


@pytest.mark.parametrize(
    "reply",
    ["Too short.\n```instruction\nBe kind.\n```", block({"text": "Be kind.", "why": "Too short."})],
)
def test_a_new_text_stands_in_a_block_or_as_earlier_versions_asked_in_json(reply: str) -> None:
    assert read_patch(Reply(text=reply, finish_reason="stop"), PART, tag="instruction") == (
        "Be kind.",
        "Too short.",
    )


@pytest.mark.parametrize("fields", [{"text": " ", "why": ""}, {"text": "a", "why": "x" * 2_001}])
def test_a_blank_text_or_an_endless_reason_in_json_is_refused(fields: Mapping[str, str]) -> None:
    with pytest.raises(InvalidProposalError, match="is a JSON object"):
        read_patch(Reply(text=block(fields), finish_reason="stop"), PART, tag="instruction")


def test_a_new_text_that_is_json_may_be_an_object() -> None:
    reply = Reply(text=block({"text": {"a": "ü"}, "why": "b"}), finish_reason="stop")
    assert read_patch(reply, PART, tag="json") == ('{"a": "ü"}', "b")


def test_the_worst_problem_comes_first() -> None:
    problems = [{"severity": "P3", "problem": "b"}, {"severity": "P0", "problem": "a"}]
    assert READ["merge"](block({"problems": problems})) == (
        Problem(severity=Severity.P0, text="a"),
        Problem(severity=Severity.P3, text="b"),
    )


NAMES = ["blame", "hand_on", "problems", "text", "step", "severity", "problem", "why"]
VALUES = st.recursive(
    st.none() | st.integers(-3, 3) | st.text(max_size=5) | st.sampled_from(["T1", "S1", "P1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.text(max_size=40) | VALUES.map(json.dumps) | VALUES.map(block))
def test_whatever_is_replied_is_read_or_refused_in_one_line(text: str) -> None:
    for read in READ.values():
        assert "\n" not in refusal(read, text)


def test_thousands_of_damaged_replies_are_read_or_refused_in_one_line() -> None:
    chance = random.Random(19)
    whole = [row["reply"] for row in ROWS] + [block(WHOLE[name]) for name in READ for _ in range(9)]
    for _ in range(3_000):
        text = chance.choice(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text) + 1)
            piece = chance.choice(["", *'"{}[],:`\\\n', "P1", "T1", "null", "\ud800", "\x00"])
            text = text[:at] + piece + text[at + chance.randint(0, 3) :]
        for read in READ.values():
            assert "\n" not in refusal(read, text)


@pytest.mark.parametrize("piece", ['{"blame": [', "```json\n", "[", "\\", '"a": "', "T1 ", "{"])
def test_a_very_long_reply_is_refused_too(piece: str) -> None:
    text = f"```json\n{piece * (100_000 // len(piece))}\n```"
    for read in READ.values():
        with pytest.raises(InvalidProposalError):
            read(text)
