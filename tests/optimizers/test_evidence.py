"""What a question shows besides its minibatch, and replies with a block for each part."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from optimizers.several_world import NAMES, judge, search
from optimizers.worlds import bound
from promptgraft.algorithms.gepa import RolloutFeedback, RolloutRecord
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import RejectionReason
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.evidence import (
    MOST_FAILURES,
    Evidence,
    TriedChild,
    in_full,
    tried_before,
)
from promptgraft.targets.replies import Edit, edits_in
from promptgraft.targets.types import Candidate

MARKS = {"section rules": "P1", "section notes/tone": "P2", "tool look_up": "P3"}


def block(name: str, text: str) -> str:
    return f"```{name}\n{text}\n```"


def test_a_block_for_each_part_is_read_by_name_or_mark_with_the_line_before_it() -> None:
    reply = "\n".join(
        [
            "I looked at all of it.",
            "",
            "It lacks a rule.",
            block("section rules", "Be brief."),
            block("**P2**", "Be kind."),
            "Its use was unclear.",
            "````Tool look_up",
            '{"description": "as in ```js"}',
            "````",
        ]
    )
    assert edits_in(reply, MARKS).edits == {
        "P1": Edit("Be brief.", "It lacks a rule."),
        "P2": Edit("Be kind.", ""),
        "P3": Edit('{"description": "as in ```js"}', "Its use was unclear."),
    }


def test_of_names_that_differ_in_case_only_each_means_its_own_part() -> None:
    marks = {"tool Look": "P1", "tool look": "P2", "tool find": "P3"}
    both = edits_in(f"{block('tool Look', 'one')}\n{block('tool look', 'two')}", marks).edits
    assert {mark: edit.text for mark, edit in both.items()} == {"P1": "one", "P2": "two"}
    assert [*edits_in(block("tool Look", "one"), marks).edits] == ["P1"]
    unclear = f"{block('TOOL LOOK', 'one')}\n{block('Tool Find', 'two')}"
    assert [*edits_in(unclear, marks).edits] == ["P3"]


@pytest.mark.parametrize("between", ["", "\n \n", "```queues` is one of two\n"])
def test_only_a_line_of_words_between_blocks_is_a_reason(between: str) -> None:
    reply = f"The first is wrong.\n```P1\na\n```\n{between}```P2\nb\n```"
    edits = edits_in(reply, {"P1": "P1", "P2": "P2"}).edits
    assert {mark: edit.reason for mark, edit in edits.items()} == {
        "P1": "The first is wrong.",
        "P2": "",
    }


def test_a_reply_in_json_is_read_as_before() -> None:
    reply = '```json\n{"edits": [{"part": "P1", "text": "Be brief.", "reason": "long"}]}\n```'
    assert edits_in(reply, MARKS).edits == {"P1": Edit("Be brief.", "long")}


@pytest.mark.parametrize("after_name", ["\t", " \t", "\u00a0", "\x0b"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blocks_are_read_whatever_ends_their_lines(after_name: str, end: str) -> None:
    lines = ["P1", "it was long", f"```P1{after_name}", "Be brief.", "```", "", "", "odd"]
    lines += [f"  ````P2{after_name}", "```x", "y", "```", "````"]
    assert edits_in(end.join(lines), MARKS).edits == {
        "P1": Edit("Be brief.", "it was long"),
        "P2": Edit("```x\ny\n```", "odd"),
    }


def test_of_two_blocks_for_one_part_neither_is_used() -> None:
    twice = f"{block('section rules', 'one')}\n{block('P1', 'two')}"
    with pytest.raises(InvalidProposalError, match="one block for each part"):
        edits_in(twice, MARKS)
    read = edits_in(f"{twice}\n{block('P2', 'three')}", MARKS)
    assert [*read.edits] == ["P2"]
    assert len(read.faults) == 1


@pytest.mark.parametrize(
    ("reply", "finish", "detail"),
    [
        (block("section rules", "Be brief."), "length", "cut off"),
        (f"{block('section rules', 'Run:')}\nls\n```\nand this\n```", "stop", "where a text ends"),
        (f"{block('section rules', 'one')}\n```P2\ntwo", "stop", "does not end"),
        (block("section rules", ""), "stop", "empty"),
        (block("a style", "x"), "stop", "opens with the name of a part.* ```section rules$"),
        (block("instruction", "x"), "stop", "opens with the name of a part"),
        ("Nothing has to change.", "stop", "opens with the name of a part"),
        ("Edits follow.", "length", "cut off"),
    ],
)
def test_a_reply_whose_texts_are_not_clear_is_refused(reply: str, finish: str, detail: str) -> None:
    with pytest.raises(InvalidProposalError, match=detail) as caught:
        edits_in(reply, MARKS, finish_reason=finish)
    assert caught.value.reason in {RejectionReason.UNPARSABLE, RejectionReason.EMPTY}


def record(name: str, asked: str, answer: str, said: str, *, score: float = 0.0) -> RolloutRecord:
    return RolloutRecord(
        example_id=name,
        inputs_repr=asked,
        output_repr=answer,
        tool_trace_repr="",
        feedback=RolloutFeedback(score=score, feedback=said),
    )


WRONG = [
    record(f"e{number}", f"ticket {number}", "sales", "expected billing, answered sales")
    for number in range(30)
]


def test_at_most_twenty_failures_are_shown_and_labels_as_a_table() -> None:
    labels = {one.example_id: "billing" for one in WRONG}
    shown = Evidence.of(WRONG[:6], WRONG[6:], [], labels).failures
    assert "| billing | sales | 30 |" in shown
    assert shown.count("→") == MOST_FAILURES - 6
    assert "- ticket 6 → sales; expected billing, answered sales" in shown


def test_rubrics_that_are_met_take_no_room_in_a_list_of_failures() -> None:
    said = (
        "[failed] good 0.5: 1 of 2 rubrics are met, not `short`\n"
        "  rubric `short` not met: three sentences\n  rubric `true` met: all is there\n"
        "[passed] length 1: found 100"
    )
    shown = Evidence.of([], [record("e", "t", "a", said)], [], {}).failures
    assert shown == (
        "- t → a; ``[failed] good 0.5: 1 of 2 rubrics are met, not `short` "
        "rubric `short` not met: three sentences [passed] length 1: found 100``"
    )


def test_a_label_that_feedback_does_not_tell_is_not_told() -> None:
    labels = {one.example_id: "billing" for one in WRONG}
    untold = [attrs.evolve(one, feedback=RolloutFeedback(0.0, "wrong")) for one in WRONG]
    assert "billing" not in Evidence.of(untold[:6], untold[6:], [], labels).failures


def test_right_answers_near_the_failures_are_kept_in_sight() -> None:
    far = [record(f"f{one}", f"parcel {one}", "shipping", "right", score=1.0) for one in range(9)]
    near = record("near", "ticket 3 is open", "sales", "right", score=1.0)
    kept = Evidence.of(WRONG[:6], [], [*far, near], {}).kept.splitlines()
    assert kept[0] == "- ticket 3 is open → sales"
    assert len(kept) == 6


def test_right_answers_that_are_equally_near_keep_their_order_in_every_process() -> None:
    # Words are hashed anew in every process; a sum in their order could differ in its last digit.
    for seed in range(40):
        sizes = (3, 7, 9, 11, 13)
        words = {side: [f"{side}{seed}w{size}" for size in sizes] for side in "ab"}
        right = [record(side, " ".join(words[side]), "", "", score=1.0) for side in "ba"]
        for side in "ab":
            for word, size in zip(words[side], sizes, strict=True):
                right += [record(f"{word}-{n}", word, "", "", score=1.0) for n in range(size - 1)]
        failure = record("wrong", " ".join([*words["a"], *words["b"]]), "", "")
        kept = Evidence.of([failure], [], right, {}).kept.splitlines()
        assert [line[2] for line in kept[:2]] == ["b", "a"], seed


PARENT = Candidate(changes={})


def test_right_answers_are_shown_in_full_while_they_fit_and_failures_always() -> None:
    long = [attrs.evolve(record, inputs_repr="x" * 10_000) for record in WRONG[:5]]
    assert in_full(long, long[:2]) == tuple(long[:2])
    assert in_full(long[1:], long[1:2]) == tuple(long[1:3])
    short = tuple(WRONG[:5])
    assert in_full(short, short[:2]) == short


OLD, NEW = "Queues:\n- billing: money", "Queues:\n- billing: money, refunds"
LATER = f"{NEW}, receipts"


def attempt(
    *,
    is_better: bool,
    failed: str = "e1",
    mended: str = "",
    texts: tuple[str, str] = (OLD, NEW),
) -> TriedChild:
    return TriedChild(
        parent="another",
        scores=(0.25, 0.5),
        failed=frozenset({failed}),
        mended=frozenset({mended} - {""}),
        is_better=is_better,
        edits=(("section queues", *texts),),
    )


def told_of(tried: TriedChild, *lineage: str) -> str:
    """Return what a question says of an attempt; the texts are the current one and its former."""
    return tried_before([tried], WRONG[:3], PARENT, [{"section queues": text} for text in lineage])


BOTH = "\nsection queues:\n- `- billing: money`\n+ `- billing: money, refunds`"
REMOVED = "\nsection queues:\n- `- billing: money`"


@pytest.mark.parametrize(
    ("tried", "lineage", "said", "lines"),
    [
        (attempt(is_better=False), [OLD], "Tried, and not better on the cases it was", BOTH),
        (attempt(is_better=True), [OLD], "but not on others, so it was not kept", BOTH),
        (attempt(is_better=True), [NEW, OLD], "Kept: it is in the current text, in", REMOVED),
        (attempt(is_better=True), [LATER, NEW, OLD], "Kept, and changed again", "\nsection queues"),
        (attempt(is_better=True), [LATER, OLD], "but not on others, so it was not kept", BOTH),
        (attempt(is_better=True), [NEW, OLD], "Still wrong of what it was written", REMOVED),
        (attempt(is_better=True, mended="e1"), [NEW], "Failed again of what it mended", REMOVED),
        (attempt(is_better=True, mended="e1"), [LATER, NEW], "mended: `e1`.", "\nsection queues"),
    ],
)
def test_what_became_of_an_attempt_is_told(
    tried: TriedChild, lineage: list[str], said: str, lines: str
) -> None:
    told = told_of(tried, *lineage)
    assert said in told
    assert "(0.25 before, 0.50 after)" in told
    assert told.endswith(lines)


def test_of_a_kept_attempt_that_only_added_lines_nothing_is_promised_below() -> None:
    longer = f"{OLD}\n- sales: plans"
    told = told_of(attempt(is_better=True, texts=(OLD, longer)), longer, OLD)
    assert "Kept: it is in the current text" in told
    assert told.endswith("\nsection queues, where nothing was replaced")


@pytest.mark.parametrize("mended", ["", "e1"])
def test_of_an_attempt_that_was_not_kept_no_case_is_wrong_again(mended: str) -> None:
    for is_better in (True, False):
        told = told_of(attempt(is_better=is_better, mended=mended), OLD)
        assert "rong of" not in told
        assert "again" not in told


def test_of_a_long_line_what_has_changed_is_told() -> None:
    words = [f"word{number}" for number in range(80)]
    changed = [*words[:78], "refunds", *words[78:]]
    others = "- sync: devices\n- sales: plans"
    before, after = (f"{others}\n- billing: {' '.join(line)}" for line in (words, changed))
    told = told_of(attempt(is_better=False, texts=(before, after)), after)
    assert told.endswith("\n+ `- billing: … refunds word78 word79`")
    alone = attempt(is_better=False, texts=(" ".join(words), " ".join(changed)))
    assert told_of(alone, " ".join(changed)).endswith("\n+ word0 word1 … refunds word78 word79")


def test_of_a_long_line_whose_middle_has_changed_its_end_is_left_out() -> None:
    words = [f"word{number}" for number in range(80)]
    changed = [*words[:40], "refunds", *words[40:]]
    told = told_of(attempt(is_better=False, texts=(" ".join(words), " ".join(changed))), OLD)
    assert told.endswith("\n+ word0 word1 … refunds word40 word41 …")
    other = attempt(is_better=False, texts=(" ".join(words), " ".join(words[::-1])))
    assert "\n- word0 word1 word2" in told_of(other, OLD)


def test_what_was_tried_is_bounded_and_about_these_failures() -> None:
    assert told_of(attempt(is_better=False, failed="e29"), OLD) == ""
    many = [attempt(is_better=False) for _ in range(40)]
    told = tried_before(many, WRONG[:3], PARENT, [{"section queues": OLD}])
    assert told.count("Tried, and not better") == 5
    long = attempt(is_better=False, texts=("", "\n".join(f"{n} {'x' * 900}" for n in range(40))))
    assert len(told_of(long, "")) < 4_000
    assert "+ and 34 more lines" in told_of(long, "")


def test_a_question_says_what_is_wrong_with_every_failure_and_the_highest_score() -> None:
    def of_ten(*args: Any) -> RolloutFeedback:
        feedback = judge(*args)
        return attrs.evolve(feedback, score=4 + 6 * feedback.score)

    asked: list[RenderedPrompt[object]] = []

    def useless(rendered: RenderedPrompt[object]) -> str:
        asked.append(rendered)
        return block("section apples", f"Words: nothing {len(asked)}")

    settings = {"whole_prompt": 1.0, "rollout_budget": 120, "minibatch_size": 2}
    search(NAMES[:2], useless, feedback_fn=of_ten, perfect_score=10, **settings).start()
    lines = bound(asked[-1], "more").splitlines()
    assert len(lines) > 1
    assert all("missing w" in line for line in lines)
    example = "**Score:** 8\n\n**Objectives:** the highest score is 10\n\n**Input:**"
    assert example in asked[0].text
    of_one = search(NAMES[:1], rollout_budget=60)
    of_one.start()
    assert "highest score" not in of_one.reflection.requests[0].text


def test_a_search_tells_what_it_has_tried_and_shows_parts_in_the_order_of_the_prompt() -> None:
    asked: list[RenderedPrompt[object]] = []

    def useless(rendered: RenderedPrompt[object]) -> str:
        asked.append(rendered)
        return block("section apples", f"Words: nothing {len(asked)}")

    search(NAMES[:2], useless, whole_prompt=1.0, rollout_budget=120).start()
    whole = [rendered for rendered in asked if rendered.key == WHOLE.key]
    assert len(whole) > 2
    assert "What was tried" not in whole[0].text
    assert "Tried, and not better" in bound(whole[1], "tried")
    assert "+ Words: nothing 1" in bound(whole[1], "tried")
    for rendered in whole:
        assert bound(rendered, "current").index("apples") < bound(rendered, "current").index("berr")
