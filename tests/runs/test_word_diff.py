"""Comparison of two texts by word."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from promptgraft.ground.text import words_in
from promptgraft.runs.report.word_diff import DiffKind, Piece, collapsed, word_diff

WORDS = st.sampled_from(["be", "kind", "and", "brief", "- item:", "\n", " ", "日本", ".", "\x00"])
TEXTS = st.lists(WORDS, max_size=30).map(" ".join) | st.lists(WORDS, max_size=12).map("".join)


def told(pieces: tuple[Piece, ...], *kinds: DiffKind) -> str:
    return "".join(piece.text for piece in pieces if piece.kind in kinds)


@settings(max_examples=150)
@given(TEXTS, TEXTS)
@example("a\n", "a")
@example("", "new")
def test_the_pieces_make_both_texts(before: str, after: str) -> None:
    pieces = word_diff(before, after)
    assert told(pieces, DiffKind.SAME, DiffKind.REMOVED) == before
    assert told(pieces, DiffKind.SAME, DiffKind.ADDED) == after
    assert all(one.kind is not other.kind for one, other in pairwise(pieces))
    assert all(piece.text for piece in pieces)


def test_a_changed_word_is_all_that_is_marked() -> None:
    assert word_diff("Answer in one short word.", "Answer in one long word.") == (
        Piece(DiffKind.SAME, "Answer in one "),
        Piece(DiffKind.REMOVED, "short"),
        Piece(DiffKind.ADDED, "long"),
        Piece(DiffKind.SAME, " word."),
    )


def test_lines_that_begin_alike_are_compared_with_each_other() -> None:
    before = "- billing: payments\n- refunds: money back"
    after = (
        "- billing: payments, invoices, cards, receipts\n- refunds: money back, iban, chargeback"
    )
    assert word_diff(before, after) == (
        Piece(DiffKind.SAME, "- billing: payments"),
        Piece(DiffKind.ADDED, ", invoices, cards, receipts"),
        Piece(DiffKind.SAME, "\n- refunds: money back"),
        Piece(DiffKind.ADDED, ", iban, chargeback"),
    )


def test_what_has_nothing_in_common_is_replaced_as_a_whole() -> None:
    before, after = "Be polite to them all!", "Name the queue, or the team."
    assert word_diff(before, after) == (
        Piece(DiffKind.REMOVED, before),
        Piece(DiffKind.ADDED, after),
    )


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(10, 80))
def test_long_unchanged_stretches_are_counted_instead(head: int, tail: int, around: int) -> None:
    before = " ".join([*(["same"] * head), "old", *(["equal"] * tail)])
    after = before.replace("old", "new")

    pieces = word_diff(before, after)
    short = collapsed(pieces, around)

    changes = [piece for piece in pieces if piece.kind in (DiffKind.ADDED, DiffKind.REMOVED)]
    assert [piece for piece in short if piece.kind in (DiffKind.ADDED, DiffKind.REMOVED)] == changes
    hidden = [piece.text for piece in short if piece.kind is DiffKind.LEFT_OUT]
    assert all(text.endswith(" words unchanged") for text in hidden)
    counted = sum(int(text.split()[0]) for text in hidden)
    assert counted + len(words_in(told(short, DiffKind.SAME))) == head + tail


def test_texts_that_are_too_long_to_compare_are_replaced_at_once() -> None:
    before, after = "a," * 3_000 + "a", "b," * 3_000 + "b"
    assert word_diff(before, after) == (
        Piece(DiffKind.REMOVED, before),
        Piece(DiffKind.ADDED, after),
    )


def test_lines_that_begin_alike_are_compared_one_by_one() -> None:
    before = "- fruit: food\n- tool: work\n- bird: wings"
    after = "- fruit: food (plum, pear)\n- tool: work (hammer, saw)\n- bird: wings (nest)"
    assert [piece.text for piece in word_diff(before, after) if piece.kind is DiffKind.ADDED] == [
        " (plum, pear)",
        " (hammer, saw)",
        " (nest)",
    ]
    assert all(piece.kind is not DiffKind.REMOVED for piece in word_diff(before, after))
