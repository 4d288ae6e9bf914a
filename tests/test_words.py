"""Words of texts in any script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.ground.text import folded_spans, folded_words, is_spaced, pieces_in, words_in

TEXTS = st.text(max_size=60) | st.text("aé1_ \n-日本กा\u0301\u200d한ß", max_size=40)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic, snake_case 42!", ["Don", "t", "panic", "snake", "case", "42"]),
        ("Łódź naïve", ["Łódź", "naïve"]),
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("می‌خواهم", ["می‌خواهم"]),
        ("日本語です", ["日", "本", "語", "で", "す"]),
        ("Tokyo東京2020", ["Tokyo", "東", "京", "2020"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("", []),
    ],
)
def test_words_are_told_in_every_script(text: str, words: list[str]) -> None:
    assert words_in(text) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [("CAFÉ", "cafe"), ("Straße", "STRASSE"), ("ﬁn", "fin"), ("soft\u00adened", "softened")],
)
def test_case_accents_and_marks_are_folded(one: str, other: str) -> None:
    assert folded_words(one) == folded_words(other)


def test_a_text_is_spaced_without_characters_that_stand_alone() -> None:
    assert is_spaced("plain ascii")
    assert is_spaced("한국어, naïve")
    assert not is_spaced("a 日")
    assert not is_spaced("ไทย")


@given(TEXTS)
def test_the_pieces_of_a_text_are_the_text_and_hold_its_words(text: str) -> None:
    pieces = pieces_in(text)
    assert "".join(pieces) == text
    assert [piece for piece in pieces if words_in(piece)] == words_in(text)


@given(TEXTS)
def test_every_folded_word_has_its_place(text: str) -> None:
    words = [folded_words(text[start:end]) for start, end in folded_spans(text)]
    assert words == [[word] for word in folded_words(text)]


@given(TEXTS)
def test_no_letter_is_lost(text: str) -> None:
    letters = [char for char in text if unicodedata.category(char)[0] in "LN"]
    found = [char for char in "".join(words_in(text)) if unicodedata.category(char)[0] in "LN"]
    assert found == letters
