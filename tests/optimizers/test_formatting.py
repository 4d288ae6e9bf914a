"""What reflectors and journals are given of inputs, answers and traces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_world import TEMPLATE
from agent_world import Question as Reviewed
from optimizers.paid import spendings
from optimizers.worlds import Question
from promptgraft.adapters.base import PromptResponse, ToolInvoked
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback, RolloutRecord
from promptgraft.errors import JournalCorruptError
from promptgraft.evals.types import Case, Step, ToolUse, Verdict
from promptgraft.ground.serde import canonical_json, digest_text
from promptgraft.ground.text import clip, clip_lines, joined
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import Prompt, PromptTemplate
from promptgraft.runtime import Session
from promptgraft.search.answers import READER, record_from_json, record_to_json
from promptgraft.targets.formatting import (
    default_example_formatter,
    default_trace_formatter,
    expected_text,
    show_value,
    tool_line,
)

NOTE = re.compile(r"\n\[… (\d+) of (\d+) characters left out …\]\n")


def test_a_trace_says_that_no_tool_was_called_whichever_prompt_had_one() -> None:
    with_tools = Prompt(TEMPLATE).bind(Reviewed("?"))
    without = Prompt(
        PromptTemplate[object](ns="tests", key="plain", sections=TEMPLATE.sections[1:2])
    )
    for prompts in ([with_tools], [with_tools, without], [without, with_tools]):
        session = Session()
        for prompt in prompts:
            prompt.render(session)
        assert default_trace_formatter(session) == "[no tool was called]"
        session.dispatch(ToolInvoked(name="search_code", params={}, result="a.py:1"))
        assert default_trace_formatter(session).startswith("[search_code]\n")
    session = Session()
    without.render(session)
    assert default_trace_formatter(session) == ""


@given(st.text(max_size=900), st.integers(100, 400))
@settings(max_examples=300, deadline=None)
def test_a_clipped_text_keeps_head_and_tail_and_says_exactly_what_is_missing(
    text: str, limit: int
) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    if len(text) <= limit:
        assert clipped == text
        return
    [(left_out, total)] = [(int(m[1]), int(m[2])) for m in NOTE.finditer(clipped)][-1:]
    note = f"\n[… {left_out} of {total} characters left out …]\n"
    head, _, tail = clipped.partition(note)
    assert total == len(text)
    assert text == head + text[len(head) : len(head) + left_out] + tail
    assert 0 <= len(head) - len(tail) <= 1
    assert len(head) + len(tail) >= limit - len(note) - 3


@pytest.mark.parametrize("limit", [100, 999, 1000, 9_999, 10_000, 99_999, 100_000])
def test_a_clipped_text_stays_within_the_limit_where_counts_grow_a_digit(limit: int) -> None:
    for surplus in (1, 8, 9, 10, 98, 99, 100, 950, 999, 1000, 10**6):
        clipped = clip("x" * (limit + surplus), limit)
        assert len(clipped) <= limit
        found = NOTE.search(clipped)
        assert found is not None
        assert int(found[1]) == limit + surplus - clipped.count("x")


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_limit_without_room_for_the_note_keeps_the_head(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert text.startswith(clipped[:1])


@given(st.text(max_size=900), st.integers(60, 400))
@settings(max_examples=300, deadline=None)
def test_a_text_that_is_clipped_by_lines_is_within_its_limit(text: str, limit: int) -> None:
    clipped = clip_lines(text, limit)
    assert len(clipped) <= limit
    assert (clipped == text) == (len(text) <= limit)


@attrs.frozen
class Ticket:
    title: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note:
    body: str
    pages: int


class Queue(Enum):
    BILLING = "billing"


def shown(*params: object, response: PromptResponse[object] | None) -> tuple[str, str]:
    return default_example_formatter(GepaExample(id="e", params=params), response)


def answered(text: str, output: object = None) -> PromptResponse[object]:
    return PromptResponse[object](text=text, output=output)


@pytest.mark.parametrize(
    ("param", "text"),
    [
        (Ticket("a", ("b",)), '{\n  "title": "a",\n  "tags": [\n    "b"\n  ]\n}'),
        (Note("é", 2), '{\n  "body": "é",\n  "pages": 2\n}'),
        ({"word": "w"}, '{\n  "word": "w"\n}'),
        ({"queue": Queue.BILLING}, '{\n  "queue": "billing"\n}'),
    ],
)
def test_one_parameter_is_shown_as_json(param: object, text: str) -> None:
    assert shown(param, response=answered("x")) == (text, "x")


def test_several_parameters_are_shown_together() -> None:
    text, _ = shown(Question("w"), {"tone": "kind"}, response=None)
    assert (
        text == '[\n  {\n    "word": "w",\n    "again": ""\n  },\n  {\n    "tone": "kind"\n  }\n]'
    )
    assert shown(response=None) == ("{}", "<no response>")


def test_a_parameter_that_json_cannot_hold_is_shown_by_its_repr() -> None:
    assert show_value({"at": 1 + 2j}) == "{'at': (1+2j)}"
    assert show_value(float("nan")) == "nan"


def test_answers_are_shown_as_what_the_model_wrote() -> None:
    for response, text in (
        (None, "<no response>"),
        (answered(""), "<empty>"),
        (answered("ok"), "ok"),
        (answered('{"title": "a"}', Ticket("a")), '{"title": "a"}'),
        (answered("", Ticket("a")), '{\n  "title": "a",\n  "tags": []\n}'),
    ):
        assert shown(Question("w"), response=response)[1] == text


@given(st.text(max_size=400), st.integers(60, 200))
def test_a_text_may_be_clipped_in_its_line(text: str, limit: int) -> None:
    line = " ".join(text.splitlines())
    clipped = clip(line, limit, around=" ")
    assert len(clipped) <= limit
    assert clipped.splitlines() in ([], [clipped])
    assert (" characters left out …] " in clipped) is (len(line) > limit)


@pytest.mark.parametrize("failed", [False, True])
def test_a_trace_shows_each_value_in_one_line_of_at_most_a_thousand_characters(
    failed: bool,
) -> None:
    session = Session()
    long = "a line\n" * 5_000
    for result in (long, {"short": 1}):
        error = "" if not failed else str(result)
        session.dispatch(ToolInvoked(name="read", params={"q": long}, result=result, error=error))
    lines = default_trace_formatter(session).split("\n")
    label = "  error: " if failed else "  result: "
    assert [line[:8] for line in lines] == ["[read]", "  params", label[:8]] * 2
    for line in (lines[1], lines[2], lines[4]):
        _, _, value = line.partition(": ")
        assert 990 < len(value) <= 1_000
        assert re.search(r" \[… \d+ of \d+ characters left out …\] ", value)
    assert lines[5] == label + ("{'short': 1}" if failed else '{"short": 1}')


def test_halves_of_characters_are_joined_and_everything_else_is_kept() -> None:
    assert joined("\ud83d\ude00") == "😀"
    assert joined("a\ud83d\ud83d\ude00\ude00b") == "a\ud83d😀\ude00b"
    assert joined("\ude00\ud83d") == "\ude00\ud83d"


texts = st.text(st.characters() | st.sampled_from("\ud83d\ude00"), max_size=12)


@given(texts)
def test_a_joined_text_reads_back_from_a_journal_as_it_is(text: str) -> None:
    journal = MemoryJournal()
    journal.begin({})
    once = joined(text)
    journal.append("k", digest_text("q"), "rollout", once)
    found = journal.find("k", digest_text("q"))
    assert found is not None
    assert found.value == once == joined(once)


feedbacks = st.builds(
    RolloutFeedback,
    score=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9),
    feedback=texts,
    eval_trace=st.none() | texts,
)
verdicts = st.builds(
    Verdict,
    metric=texts,
    score=st.just(0.5),
    passed=st.booleans(),
    reason=texts,
    amount=st.none() | st.just(1.5),
    node=st.sampled_from(["", "reply"]),
)
names = st.sampled_from(["1", "2.1.1", "route", "support/route#instruction"])
steps = st.builds(
    Step,
    id=names,
    node=names,
    kind=st.sampled_from(["prompt", "function"]),
    after=st.lists(names, max_size=2).map(tuple),
    input=texts,
    output=texts,
    error=texts,
    parts=st.dictionaries(names, st.just("0" * 64), max_size=2),
    tools=st.lists(names, max_size=2).map(tuple),
    spent=st.lists(spendings, max_size=2).map(tuple),
)
records = st.builds(
    RolloutRecord,
    example_id=texts,
    inputs_repr=texts,
    output_repr=texts,
    expected_repr=texts,
    tool_trace_repr=texts,
    feedback=st.none() | feedbacks,
    fault=texts,
    spent=st.lists(spendings, max_size=2).map(tuple),
    verdicts=st.lists(verdicts, max_size=2).map(tuple),
    steps=st.lists(steps, max_size=2).map(tuple),
)


@given(records)
@settings(max_examples=50, deadline=None)
def test_a_rollout_reads_back_from_a_journal_as_it_is(record: RolloutRecord) -> None:
    journal = MemoryJournal()
    journal.begin({})
    journal.append("k", digest_text("q"), "rollout", record_to_json(record))
    found = journal.find("k", digest_text("q"))
    assert found is not None
    assert record_from_json(found.value, "k") == record


def test_a_record_without_verdicts_and_steps_has_no_word_of_them() -> None:
    record = RolloutRecord(
        example_id="a", inputs_repr="b", output_repr="c", tool_trace_repr="", feedback=None
    )
    plain = record_to_json(record)
    assert isinstance(plain, dict)
    assert [*plain] == [
        "example_id",
        "inputs_repr",
        "output_repr",
        "tool_trace_repr",
        "feedback",
        "fault",
        "hidden",
        "spent",
    ]
    step = Step(id="1", node="route", kind="prompt")
    said = Verdict(metric="exact", score=1.0, passed=True, reason="equal")
    traced = attrs.evolve(record, verdicts=(said,), steps=(step,))
    longer = record_to_json(traced)
    assert READER.decode(canonical_json(longer)) == traced
    assert isinstance(longer, dict)
    assert longer["steps"] == [{"id": "1", "node": "route", "kind": "prompt"}]
    assert longer["verdicts"] == [
        {"metric": "exact", "score": 1.0, "passed": True, "reason": "equal"}
    ]


def test_the_texts_of_a_step_are_cut_with_a_mark() -> None:
    step = Step(id="1", node="route", kind="prompt", input="x" * 900, output="y", error="z" * 900)
    cut = step.clipped(100)
    assert max(len(cut.input), len(cut.error)) <= 100
    assert cut.output == "y"
    assert "left out" in cut.input
    assert "left out" in cut.error
    assert step.clipped(900) is step


@pytest.mark.parametrize("answer", [None, [], {}, {"example": "e"}, "text"])
def test_a_record_that_is_no_rollout_is_named(answer: None) -> None:
    with pytest.raises(JournalCorruptError, match="record `step/1/parent/0` is no rollout"):
        record_from_json(answer, "step/1/parent/0")


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (None, ""),
        ("red", "red"),
        (3, "3"),
        ({"queue": "login"}, '{\n  "queue": "login"\n}'),
        (Case(id="a", input="x", expected="<b>"), "<b>"),
        (Case(id="a", input="x"), ""),
        (Case(id="a", input="x", tools=(ToolUse(name="find"),)), "find"),
        (object(), ""),
        (CYCLE, ""),
    ],
)
def test_an_expected_answer_is_text_that_is_the_same_in_every_run(
    label: object, shown: str
) -> None:
    text = expected_text(GepaExample(id="a", params=(), label=label))
    assert text == shown if shown != "find" else '"find"' in text


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolInvoked(name="find", params={"q": 1}, result={"n": 2}), 'result: {"n": 2}'),
        (ToolInvoked(name="find", params={"q": 1}, result=0), "result: 0"),
        (ToolInvoked(name="find", params={"q": 1}, result=None, error="late"), "error: late"),
        # An agent that is only called may report its calls without their results.
        (ToolInvoked(name="find", params={"q": 1}, result=None), ""),
    ],
)
def test_a_trace_tells_no_result_that_nobody_has_reported(call: ToolInvoked, told: str) -> None:
    session = Session()
    session.dispatch(call)
    lines = ["[find]", '  params: {"q": 1}', *([f"  {told}"] if told else [])]
    assert default_trace_formatter(session) == "\n".join(lines)
    assert tool_line(call) == f'find: {{"q": 1}}{"; " if told else ""}{told}'
