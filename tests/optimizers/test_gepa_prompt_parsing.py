"""Replies of reflection models: read strictly, or refused with a reason."""

from __future__ import annotations

import random
import re
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from further import some
from one_pass import check_one_pass
from optimizers.worlds import hostile_text, refusal_of
from promptgraft.ground.text import fenced
from promptgraft.search import RejectionReason
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.replies import Edit, ReadEdits, edits_in, new_text

UNPARSABLE, EMPTY, UNUSABLE = (
    RejectionReason.UNPARSABLE,
    RejectionReason.EMPTY,
    RejectionReason.UNUSABLE_TEXT,
)

EDITS = "<<<<<<< SEARCH\nBe brief.\n=======\nBe exact.\n>>>>>>> REPLACE"
READ = {
    "plain": ("```instruction\nBe brief.\n```", "Be brief."),
    "upper case": ("```text\nold\n```\n```INSTRUCTION\nBe brief.\n```", "Be brief."),
    "spaces around the tag": ("```  instruction  \nBe brief.\n```  ", "Be brief."),
    "prose around": ("Here it is:\n\n```instruction\nBe brief.\n```\nGood luck!", "Be brief."),
    "other blocks before": (
        "It said:\n```\nold\n```\nor\n```text\nolder\n```\n```instruction\nnew\n```",
        "new",
    ),
    "a tagged block after it": ("```instruction\nnew\n```\n```text\nwhy\n```", "new"),
    "the only block, without a tag": ("```\nBe brief.\n```", "Be brief."),
    "the only block, with another tag": ("```markdown\nBe brief.\n```", "Be brief."),
    "tildes": ("~~~instruction\nBe brief.\n~~~", "Be brief."),
    "backticks inside tildes": ("~~~instruction\n```\ncode\n```\n~~~", "```\ncode\n```"),
    "tildes inside backticks": ("```instruction\n~~~\ncode\n~~~\n```", "~~~\ncode\n~~~"),
    "an inner block with a language": (
        "```instruction\nUse:\n```python\nprint()\n```\nThen stop.\n```",
        "Use:\n```python\nprint()\n```\nThen stop.",
    ),
    "two inner blocks": (
        "```instruction\n```a\n1\n```\n```b\n2\n```\n```",
        "```a\n1\n```\n```b\n2\n```",
    ),
    "blocks three deep": (
        "```instruction\n```a\n```b\n2\n```\n1\n```\n0\n```",
        "```a\n```b\n2\n```\n1\n```\n0",
    ),
    "a longer fence": ("````instruction\n```\ncode\n```\n````", "```\ncode\n```"),
    "an unclosed inner fence in a longer one": (
        "````instruction\n```python\ncode\n````",
        "```python\ncode",
    ),
    "a longer closing fence": ("```instruction\nBe brief.\n`````", "Be brief."),
    "a longer inner fence": (
        "```instruction\n````text\n```\n````\nend\n```",
        "````text\n```\n````\nend",
    ),
    "indented fences": ("  ```instruction\nBe brief.\n   ```", "Be brief."),
    "a token that ends the turn": ("```instruction\nnew\n```<|im_end|>", "new"),
    "a byte order mark": ("\ufeff```instruction\nnew\n```", "new"),
    "a block around the block": ("```markdown\n```instruction\nnew\n```\n```", "new"),
    "attributes of a block": ('```instruction title="a b"\nnew\n```', "new"),
    "blank lines around": ("```instruction\n\n\n  Be brief.\n\n```", "  Be brief."),
    "blank lines inside": ("```instruction\na\n\n\nb\n```", "a\n\n\nb"),
    "Windows line ends": ("```instruction\r\na\r\nb\r\n```\r\n", "a\nb"),
    "old line ends": ("```instruction\ra\rb\r```\r", "a\nb"),
    "mixed line ends": ("```instruction\r\n\r\r\na\n\rb\r\n```", "a\n\nb"),
    "inline backticks": ("```instruction\nUse `x` and ``y``.\n```", "Use `x` and ``y``."),
    "backticks within a line": ("```instruction\nwrite ``` here\n```", "write ``` here"),
    "a fence in an indented code block": ("```instruction\n    ```\n```", "    ```"),
    "dollars and braces": (
        "```instruction\n$5 $$ ${x} {{ y }} {% z %}\n```",
        "$5 $$ ${x} {{ y }} {% z %}",
    ),
    "tabs": ("```instruction\n\ta\tb\n```", "\ta\tb"),
    "other scripts": ("```instruction\nНе спеши — 慢一点 😀\n```", "Не спеши — 慢一点 😀"),
}

REFUSED = {
    "nothing": ("", UNPARSABLE, "no fenced block"),
    "prose": ("I would rather not.", UNPARSABLE, "no fenced block"),
    "inline code": ("`instruction`", UNPARSABLE, "no fenced block"),
    "two backticks": ("``instruction\nBe brief.\n``", UNPARSABLE, "no fenced block"),
    "a fence in a line": ("Say ```instruction\nBe brief.\n", UNPARSABLE, "no fenced block"),
    "an open block": ("```instruction\nBe brief.", UNPARSABLE, "does not end"),
    "an open block of another fence": ("```instruction\nBe brief.\n~~~", UNPARSABLE, "not end"),
    "a shorter closing fence": ("````instruction\nBe brief.\n```", UNPARSABLE, "does not end"),
    "an inner block that does not end": (
        "```instruction\n```python\ncode\n```",
        UNPARSABLE,
        "does not end",
    ),
    "a bare inner block": (
        "```instruction\nUse:\n```\ncode\n```\nThen stop.\n```",
        UNPARSABLE,
        "not clear where the text ends",
    ),
    "two bare inner blocks": (
        "```instruction\na\n```\n1\n```\nb\n```\n2\n```\nc\n```",
        UNPARSABLE,
        "not clear where the text ends",
    ),
    "a bare inner block without an end of the outer one": (
        "```instruction\nUse:\n```\ncode\n```\n",
        UNPARSABLE,
        "does not end",
    ),
    "two texts": (
        "```instruction\na\n```\n```instruction\nb\n```",
        UNPARSABLE,
        "2 blocks that may be the text",
    ),
    "an open fence below a block around": (
        "```markdown\n```instruction\nnew\n```\n```\n```",
        UNPARSABLE,
        "does not end",
    ),
    "edits beside a text": (f"```\n{EDITS}\n```\n```\nb\n```", UNPARSABLE, "2 blocks"),
    "two blocks without a tag": ("```\na\n```\n```\nb\n```", UNPARSABLE, "2 blocks"),
    "a text beside the fence": ("```instruction Be brief.\nBe kind.\n```", UNPARSABLE, "new line"),
    "a text after a colon": ("```Instruction: Be brief.\nBe kind.\n```", UNPARSABLE, "new line"),
    "an empty block": ("```instruction\n```", EMPTY, "empty"),
    "a blank block": ("```instruction\n \n\t\n```", EMPTY, "empty"),
    "NUL": ("```instruction\na\x00b\n```", UNUSABLE, "U+0000"),
    "escape": ("```instruction\na\x1b[31mb\n```", UNUSABLE, "U+001B"),
    "delete": ("```instruction\na\x7f\n```", UNUSABLE, "U+007F"),
    "a lone surrogate": ("```instruction\na\udc80b\n```", UNUSABLE, "U+DC80"),
}


@pytest.mark.parametrize("case", READ)
def test_a_text_is_read_as_it_was_meant(case: str) -> None:
    reply, text = READ[case]
    assert new_text(reply).text == text


@pytest.mark.parametrize("case", REFUSED)
def test_a_reply_that_is_not_clear_is_refused_with_a_reason(case: str) -> None:
    reply, reason, detail = REFUSED[case]
    with pytest.raises(InvalidProposalError) as caught:
        new_text(reply)
    assert caught.value.reason is reason
    assert detail in caught.value.detail
    assert "\n" not in caught.value.detail


def test_the_line_before_a_text_is_its_reason_and_edits_are_made_in_the_current_text() -> None:
    assert new_text("Too long.\n\n```instruction\na\n```") == Edit("a", "Too long.")
    assert new_text("```a`\n```instruction\na\n```") == Edit("a")
    exact = Edit("Be exact.\nStop.", "Too long.")
    assert new_text(f"Too long.\n```instruction\n{EDITS}\n```", "Be brief.\nStop.") == exact
    with pytest.raises(InvalidProposalError, match="edit 1"):
        new_text(f"```instruction\n{EDITS}\n```", "Stop.")
    stop = EDITS.replace("brief", "kind").replace("exact", "sure")
    for reply in (f"So:\n{EDITS}\n{stop}", f"```\n{EDITS}\n```\nand\n```\n{stop}\n```"):
        assert new_text(reply, "Be brief.\nBe kind.").text == "Be exact.\nBe sure."
    code = EDITS.replace("exact", "exact.\n```js\n1\n```")
    assert new_text(f"So:\n{code}", "Be brief.").text == "Be exact.\n```js\n1\n```."


def test_a_block_is_for_the_part_whose_name_it_opens_with() -> None:
    parts: Any = {"part": "section rules", "others": ["section notes", ""]}
    rules, notes = "```section rules\nBe brief.\n```", "```Section Notes:\nBe kind.\n```"
    for reply in (rules, f"{notes}\n{rules}", f"`````\n{notes}\n{rules}\n`````"):
        assert new_text(reply, **parts).text == "Be brief."
    with pytest.raises(InvalidProposalError, match=r"for 'section notes'; write .*'section rules'"):
        new_text(notes, **parts)


def test_a_block_of_several_that_cannot_be_used_leaves_the_others() -> None:
    rules = "```section rules\nBe brief.\n```"
    for other, detail in (
        ("```section notse\nBe kind.\n```", "no part is called 'section notse' (did you mean "),
        ("```section notes\n```", "the block is empty"),
        ("```section notes: Be kind.\nBe brief.\n```", "text stands beside the fence"),
    ):
        read = edits_in(f"`````\n{other}\nIt was long.\n{rules}\n`````", MARKS)
        assert read.edits == {"P1": ("Be brief.", "It was long.")}
        [fault] = read.faults
        assert fault.detail.startswith(detail)
        with pytest.raises(InvalidProposalError, match=re.escape(detail)):
            edits_in(other, MARKS)


def test_edits_of_one_part_may_stand_in_several_blocks() -> None:
    first, second = (f"<<<<<<< SEARCH\n{x}\n=======\n>>>>>>> REPLACE" for x in "ab")
    reply = f"One.\n```P1\n{first}\n```\nTwo.\n```section rules\n{second}\n```"
    assert edits_in(reply, MARKS) == ({"P1": (f"{first}\n{second}", "One.")}, [])


@pytest.mark.parametrize("reply", ['{"a": 1}', '\n{\n"a": {}}\n', "{}"])
def test_a_reply_that_is_one_json_object_needs_no_block_where_json_is_asked_for(reply: str) -> None:
    assert new_text(reply, tag="json").text == reply.strip()
    for other, tag in ((reply, "instruction"), (f"So: {reply}", "json"), (f"{reply}!", "json")):
        with pytest.raises(InvalidProposalError, match="no fenced block"):
            new_text(other, tag=tag)


@pytest.mark.parametrize("finish_reason", ["length", "max_tokens"])
def test_a_reply_that_was_cut_off_is_refused_even_if_it_looks_whole(finish_reason: str) -> None:
    with pytest.raises(InvalidProposalError, match="cut off") as caught:
        new_text("```instruction\nBe brief.\n```", finish_reason=finish_reason)
    assert caught.value.reason is UNPARSABLE


FRAGMENTS = (
    *("```", "````", "`", "``", "~~~", "~~~~", "```instruction", "````instruction", "```python"),
    *("~~~instruction", "instruction", "\n", "\n", "\n", "\r\n", "\r", " ", "   ", "    ", "\t"),
    *("$", "$$", "$5", "$word", "${word}", "{{ word }}", "{% if x %}", "{{", "}}", "\\"),
    *("text", "Be brief.", "é", "😀", "\ud800", "\udc00", "\x00", "\x1b", "\u2028", "\x0b", ""),
)
MARKS = {"section rules": "P1", "section notes": "P2"}
TEXTS_PER_SEED = 20
seeds = st.integers(0, 2**63)


@given(seeds, st.sampled_from(("stop", "stop", "length")))
@settings(max_examples=100, deadline=None)
def test_any_reply_is_read_or_refused(seed: int, finish_reason: str) -> None:
    chance = random.Random(seed)
    for _ in range(TEXTS_PER_SEED):
        reply = hostile_text(chance, FRAGMENTS)
        if chance.random() < 0.5:
            reply = f"```instruction\n{reply}\n```"
        check_any_reply(reply, finish_reason)


@given(st.text(st.sampled_from("`~ \n\rxi$")), st.just("stop"))
@settings(max_examples=150, deadline=None)
def test_any_reply_made_of_fences_is_read_or_refused(reply: str, finish_reason: str) -> None:
    check_any_reply(reply, finish_reason)


blocks_of_parts = st.builds(
    "```{}{}\n{}\n```".format,
    st.sampled_from(("P1", "section notes", "section others", "", "js")),
    st.sampled_from(("", "\t", " ", "\u00a0", "~")),
    st.sampled_from(("Be brief.", "", "P1", "```js", "```")),
)


@given(
    st.lists(blocks_of_parts | st.sampled_from(("P1", "It was long.", "```", ""))),
    st.sampled_from(("\n", "\r\n", "\r")),
)
def test_any_reply_about_several_parts_is_read_or_refused(lines: list[str], end: str) -> None:
    reply = "\n".join(lines).replace("\n", end)
    read: list[ReadEdits] = []
    refusal = refusal_of(lambda: read.append(edits_in(reply, MARKS)))
    assert refusal is None or refusal.detail
    for edits in read:
        assert edits.edits.keys() <= {"P1", "P2"}
        assert all(edit.text.strip() for edit in edits.edits.values())


def check_any_reply(reply: str, finish_reason: str) -> None:
    refusal = refusal_of(lambda: new_text(reply, finish_reason=finish_reason).text)
    if refusal is not None:
        assert refusal.reason in {UNPARSABLE, EMPTY, UNUSABLE}, repr(reply)
        assert refusal.detail
        return
    text = new_text(reply, finish_reason=finish_reason).text
    assert finish_reason == "stop"
    assert text.strip()
    assert text == text.strip("\n")
    assert text in with_one_kind_of_line_end(reply)
    text.encode("utf-8")
    assert not any(ord(character) < 32 and character not in "\n\t" for character in text)
    # What was read comes back from a block of its own.
    assert new_text(in_block(text)).text == text


def with_one_kind_of_line_end(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text)


def in_block(text: str) -> str:
    """Show ``text`` the way the reflection model is told to."""
    fence, rest = fenced(text).split("\n", 1)
    return f"{fence}instruction\n{rest}"


@given(seeds)
@settings(max_examples=60, deadline=None)
def test_a_text_in_a_fence_of_its_own_is_read_whole_or_refused_for_its_characters(
    seed: int,
) -> None:
    chance = random.Random(seed)
    for _ in range(TEXTS_PER_SEED):
        text = hostile_text(chance, FRAGMENTS)
        expected = with_one_kind_of_line_end(text).strip("\n")
        reply = f"Sure!\n{in_block(text)}\nDone."
        if refusal := refusal_of(partial(new_text, reply)):
            assert refusal.reason is (UNUSABLE if expected.strip() else EMPTY), repr(text)
        else:
            assert new_text(reply).text == expected


def long_replies(length: int) -> dict[str, str]:
    return {
        "backticks": "`" * length,
        "fences": "```\n" * (length // 4),
        "openings": "```a\n" * (length // 5),
        "growing fences": "\n".join(
            "`" * (3 + number) for number in range(int((2 * length) ** 0.5))
        ),
        "spaces": " " * length,
        "spaces before fences": "   ```" + " " * length,
        "tildes": "~" * length,
        "one line": "```instruction\n" + "x" * length + "\n```",
        "lines": "```instruction\n" + "x\n" * (length // 2) + "```",
        "blank lines": "```instruction\n" + "\n" * length + "```",
        "nearly fences": "```instruction\n" + "``\n" * (length // 3) + "```",
        "info strings": "```" + "a" * length,
        "line ends": "```instruction\n" + "\r" * length + "\n```",
        "brackets": "```instruction\n" + "(" * length + "\n```",
        "ellipses": "```instruction\n" + "..." * (length // 3) + "\n```",
        "new words": "```instruction\nHere is " + "new " * (length // 4) + "\n```",
        "existing words": "```instruction\n... existing " + "a " * (length // 2) + "\n```",
        "words after ellipses": "```instruction\n" + "... a b c d e\n" * (length // 14) + "```",
        "an object": '```instruction\n{"' + '{"a' * (length // 3) + "\n```",
        "entities": "```instruction\n" + "&amp;" * (length // 5) + "\n```",
        "removed lines": "```instruction\n" + "-x\n" * (length // 3) + "```",
        "ends of turns": "<|im_end|>" * (length // 10) + "x",
        "edits": "<<<<<<< SEARCH\n" * (length // 15),
        "bad characters": "```instruction\n" + "x\x00" * (length // 2) + "\n```",
    }


@pytest.mark.parametrize("case", some(long_replies(0)))
def test_a_long_reply_is_read_in_one_pass(case: str) -> None:
    def check(reply: str) -> None:
        refusal = refusal_of(lambda: new_text(reply).text)
        assert refusal is None or len(refusal.detail) < 200

    check_one_pass(check, lambda length: long_replies(length)[case])


def test_thoughts_before_a_reply_are_no_part_of_it() -> None:
    draft = "<think>\n```instruction\nA draft.\n```\n</think>\n"
    assert new_text(f"{draft}```instruction\nBe brief.\n```").text == "Be brief."
    assert new_text(f'{draft}{{"a": 1}}', tag="json").text == '{"a": 1}'
