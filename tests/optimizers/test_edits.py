"""What becomes of a reply that edits several parts of a prompt."""

from __future__ import annotations

import contextlib
import json
import random
import re

import pytest
from hypothesis import given

from optimizers.sloppy import BATCH, PIECES, SEEDS, Sloppy, a_text, batches, damaged
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.replies import read_edits

MARKS = ("P1", "P2", "P10")
UNPARSABLE = RejectionReason.UNPARSABLE
LIST = "edits: expected a list of objects"


def edits(*those: object) -> str:
    return json.dumps({"edits": those})


def test_edits_are_texts_by_the_mark_of_their_part_in_the_order_of_the_reply() -> None:
    reply = edits(
        {"part": "P10", "reason": "it says nothing of refunds", "text": "Refund\nwithin a week."},
        {"part": " [p1]", "text": {"description": "Look up", "aliases": ["a"]}},
    )
    assert list(read_edits(reply, MARKS).edits.items()) == [
        ("P10", ("Refund\nwithin a week.", "it says nothing of refunds")),
        ("P1", ('{"description": "Look up", "aliases": ["a"]}', "")),
    ]


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("[]", UNPARSABLE, "expected one JSON object, found []"),
        ("{}", UNPARSABLE, "the field `edits` is missing; expected `edits`"),
        ('{"edits": {}}', UNPARSABLE, f"{LIST}, found {{}}"),
        ('{"edits": []}', RejectionReason.UNCHANGED, "the reply edits no part"),
        (edits("a"), UNPARSABLE, 'edit 1: expected one JSON object, found "a"'),
        (
            edits({"part": "P1"}),
            UNPARSABLE,
            "edit 1: the field `text` is missing; expected `reason`, `part`, `text`",
        ),
        (
            edits({"part": "P3", "text": "a"}),
            UNPARSABLE,
            'edit 1: part: expected one of `P1`, `P2`, `P10`, each once, found "P3"',
        ),
        (
            edits({"part": "P2", "text": "a"}, {"part": "p2", "text": "b"}),
            UNPARSABLE,
            'edit 2: part: expected one of `P1`, `P2`, `P10`, each once, found "P2"',
        ),
        (edits({"part": 1, "text": "a"}), UNPARSABLE, "edit 1: part: expected a text, found 1"),
        (edits({"part": "P1", "text": 1}), UNPARSABLE, "edit 1: text: expected a text, found 1"),
        (
            edits({"part": "P1", "text": "a\x00"}),
            RejectionReason.UNUSABLE_TEXT,
            "edit 1: text holds the character U+0000; leave it out",
        ),
    ],
)
def test_edits_that_cannot_be_read_are_refused_with_what_to_mend(
    text: str, reason: RejectionReason, detail: str
) -> None:
    with pytest.raises(InvalidProposalError) as refused:
        read_edits(text, MARKS)
    assert (refused.value.reason, refused.value.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        ({"part": "P3", "text": "a"}, 'edit 2: part: expected one of .*, each once, found "P3"'),
        ({"part": "P1"}, "edit 2: the field `text` is missing"),
        ({"part": "P1", "text": "a\x00"}, r"edit 2: text holds the character U\+0000"),
        ("a", "edit 2: expected one JSON object"),
    ],
)
def test_an_edit_that_cannot_be_read_leaves_the_others(bad: object, detail: str) -> None:
    read = read_edits(edits({"part": "P2", "text": "a"}, bad, {"part": "P10", "text": "b"}), MARKS)
    assert {mark: edit.text for mark, edit in read.edits.items()} == {"P2": "a", "P10": "b"}
    [fault] = read.faults
    assert re.match(detail, fault.detail)


def test_of_two_edits_of_one_part_neither_is_used() -> None:
    twice = [{"part": "P1", "text": text} for text in "ab"]
    read = read_edits(edits(*twice, {"part": "P2", "text": "c"}), MARKS)
    assert list(read.edits) == ["P2"]
    assert 'found "P1"' in read.faults[0].detail


def some_edits(rng: random.Random) -> dict[str, str]:
    """Return texts by mark; some of them are objects."""
    marks = rng.sample(MARKS, rng.randint(1, len(MARKS)))
    said = {"description": a_text(rng), "aliases": [a_text(rng)]}
    return {one: rng.choice([a_text(rng), json.dumps(said, ensure_ascii=False)]) for one in marks}


def written(texts: dict[str, str], rng: random.Random) -> str:
    """Return a reply with edits; an object is written as an object or as its text."""
    those = []
    for mark, text in texts.items():
        plain: object = text
        if text.startswith('{"desc') and rng.random() < 0.7:
            with contextlib.suppress(json.JSONDecodeError):  # a text may begin like an object
                plain = json.loads(text)
        why = {"reason": a_text(rng)} if rng.random() < 0.5 else {}
        those.append({"part": mark, **why, "text": plain})
    return edits(*those)


@batches(400)
@given(SEEDS)
def test_edits_come_back_as_they_were_written_however_sloppily(seed: int) -> None:
    rng = random.Random(seed)
    sloppy = Sloppy(rng)
    for _ in range(BATCH):
        texts = some_edits(rng)
        reply = written(texts, rng)
        found = read_edits(rng.choice([reply, sloppy.reply(reply)]), MARKS).edits
        assert list(found) == list(texts)
        for mark, text in texts.items():
            assert found[mark].text == text or json.loads(found[mark].text) == json.loads(text)


@batches(1_000)
@given(SEEDS)
def test_damaged_edits_are_read_or_refused_in_one_line(seed: int) -> None:
    rng = random.Random(seed)
    refused: list[str] = []
    for _ in range(BATCH):
        pieces = "".join(rng.choices((*PIECES, '"part": "P1"', '"edits": ['), k=rng.randrange(20)))
        text = rng.choice([damaged(written(some_edits(rng), rng), rng), pieces, f"[{pieces}]"])
        try:
            found, faults = read_edits(text, MARKS)
        except InvalidProposalError as error:
            refused.append(error.detail)
            continue
        refused += [error.detail for error in faults]
        assert found
        assert set(found) <= set(MARKS)
        for said in found.values():
            said.text.encode()
    assert all(one.strip() and "\n" not in one for one in refused)
