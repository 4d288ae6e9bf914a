"""Plain bodies: nothing in them is replaced; a proposal changes no more than it says."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plain_texts import plain_texts
from promptgraft.overrides.parts.body import (
    BodySyntax,
    kept_names,
    marker_names,
    parse_body,
    restored,
    shown_plain,
    spell,
    write_body,
)
from promptgraft.overrides.parts.descriptors import hash_section

PLAIN = BodySyntax.PLAIN
TEXTS = st.text(st.sampled_from("ab \r\n\x0c\ufeff$😀"), max_size=30) | st.text()
LINES = st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"]))


@given(TEXTS, st.frozensets(st.text(min_size=1), max_size=3))
def test_a_plain_body_is_one_text_that_is_written_as_it_was_read(
    text: str, names: frozenset[str]
) -> None:
    pieces = parse_body(text, PLAIN, names)
    assert "".join(map(str, pieces)) == text
    assert len(pieces) == (1 if text else 0)
    assert write_body(pieces, PLAIN, names) == text
    assert marker_names(text, PLAIN) == frozenset()


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("{q}", {"{q}"}),
        ("{ q }", set()),
        ("$id_of", {"$id_of"}),
        ("$id_of $id", {"$id_of", "$id"}),
        ("$$id", {"$id"}),
        ("a.c", {"a.c"}),
        ("abc", set()),
        ("{q", set()),
        ("", set()),
    ],
)
def test_a_placeholder_is_kept_where_it_stands_letter_by_letter(body: str, kept: set[str]) -> None:
    names = frozenset({"{q}", "$id", "$id_of", "a.c"})
    assert kept_names(body, PLAIN, names) == kept
    assert kept_names(body, PLAIN, frozenset()) == frozenset()
    assert spell("$id", PLAIN) == "$id"


def test_the_hash_knows_syntax_and_placeholders_but_not_their_order() -> None:
    hashes = [
        hash_section("{a} {b}", BodySyntax.DOLLAR),
        hash_section("{a} {b}", PLAIN),
        hash_section("{a} {b}", PLAIN, ["{a}"]),
        hash_section("{a} {b}", PLAIN, ["{b}", "{a}"]),
        hash_section("{a} {b}\n", PLAIN, ["{b}", "{a}"]),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hash_section("{a} {b}", PLAIN, ["{a}", "{b}"]) == hashes[3]


@given(TEXTS)
def test_what_a_reflector_gives_back_unchanged_is_the_text_to_the_byte(text: str) -> None:
    shown = shown_plain(text)
    assert "\r" not in shown
    assert shown.strip("\n") == shown
    assert restored(shown, text) == text
    assert restored(f"\n{shown}\n\n".replace("\n", "\r\n"), text) == text
    assert restored(text, text) == text


def with_line(text: str, at: int, line: str) -> str:
    """Return a file with another line, the ``at``-th counted from the first that is not blank."""
    content = text.lstrip("\ufeff\r\n")
    parts = re.split(r"(\r\n|\r|\n)", content)
    parts[2 * at] = line
    return text[: len(text) - len(content)] + "".join(parts)


def test_a_proposal_that_changes_one_line_changes_the_bytes_of_that_line() -> None:
    chance = random.Random("one line")
    changed = 0
    for text in plain_texts(10_000, seed="proposals"):
        lines = shown_plain(text).split("\n")
        if lines == [""]:
            continue
        at = chance.randrange(len(lines))
        # Other lines of the text too: nothing may be taken for another line that is equal.
        others = [line.lstrip("\ufeff") for line in lines]
        new = chance.choice([*filter(None, others), "new $HOME {{ y }}"])
        lines[at] = new
        assert restored("\n".join(lines), text) == with_line(text, at, new), text
        changed += 1
    assert changed > 8_000


@given(
    st.lists(LINES, min_size=1), st.lists(LINES, min_size=1), st.sampled_from(["\n", "\r\n", "\r"])
)
def test_a_new_text_gets_the_line_ends_of_the_old_one(
    old: list[str], new: list[str], end: str
) -> None:
    like = f"x{end}{end.join(old)}{end}y"
    proposal = "\n".join(["a", *new, "b"])
    assert restored(proposal, like) == proposal.replace("\n", end)


@pytest.mark.parametrize(
    ("like", "proposal", "after"),
    [
        ("", "a\nb", "a\nb"),
        ("one line", "a\nb", "a\nb"),
        ("\n", "a", "a\n"),
        ("\ufeff", "a", "\ufeffa"),
        ("\ufeffa\r\nb", "\ufeffa\nc", "\ufeffa\r\nc"),
        ("a\r\nb\r\nc\n", "a\nb\nc\nd", "a\r\nb\r\nc\r\nd\n"),
        ("a\r\nb\nc\r\n", "new\na\nb\nc", "new\r\na\r\nb\nc\r\n"),
        ("a\nb\rc\nd", "a\nd", "a\nd"),
        ("a\rb\nc\nd", "b\nc\na\nd", "b\nc\na\nd"),
        ("\r\n\r\na\n", "", "\r\n\r\n\n"),
    ],
)
def test_examples_of_new_texts(like: str, proposal: str, after: str) -> None:
    assert restored(proposal, like) == after
