"""Text from prompts cannot command a terminal, in any encoding."""

from __future__ import annotations

import io
import unicodedata
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.cli.output import Screen, spell_for_encoding
from promptgraft.cli.panel import sparkline
from promptgraft.ground.text import (
    aligned,
    counted,
    difference,
    dollars,
    duration,
    moment,
    score,
    short_count,
    visible,
    visible_line,
)

TEXTS = st.text(st.characters(exclude_categories=()))


@given(TEXTS)
def test_nothing_is_left_that_a_terminal_would_obey(text: str) -> None:
    shown = visible(text)
    line = visible_line(text)

    for character in shown.replace("\n", "").replace("\t", "") + line:
        assert unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(character) not in {
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        }
    assert shown.count("\n") == text.count("\n")
    shown.encode("utf-8")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert visible_line(text) == text


def test_escapes_say_what_was_there() -> None:
    text = "a\x1b[2J\r\n\tb\x9b\u202ec\ud800"
    assert visible(text) == "a\\x1b[2J\\r\n\tb\\x9b\\u202ec\\ud800"
    assert visible_line(text) == "a\\x1b[2J\\r\\n\\tb\\x9b\\u202ec\\ud800"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@given(TEXTS)
def test_every_encoding_can_carry_every_text(encoding: str, text: str) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, newline="")
    spell_for_encoding(stream)

    stream.write(visible(text))
    stream.flush()

    assert written.getvalue().decode(encoding).count("\n") == text.count("\n")


def test_typographic_characters_become_their_plain_relatives() -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii", newline="")
    spell_for_encoding(stream, None)

    stream.write("3f9c… “so” it’s → é ✓")
    stream.flush()

    assert written.getvalue() == b'3f9c... "so" it\'s -> \\xe9 \\u2713'


def test_figures_are_short() -> None:
    local = timezone(timedelta(hours=2))
    assert moment(datetime(2026, 1, 1, 1, 2, 3, 999, tzinfo=local)) == "2025-12-31 23:02:03Z"
    assert moment(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01 00:00:00Z"
    assert (score(2 / 3), score(None)) == ("0.667", "none")
    assert (difference(0.5, 0.75), difference(0.5, 0.25)) == ("+0.250", "-0.250")
    assert (difference(None, 0.5), difference(0.5, None)) == ("", "")
    assert (counted(1, "section"), counted(0, "section")) == ("1 section", "0 sections")
    amounts = [None, Decimal(0), Decimal("0.00321"), Decimal("1234.567")]
    assert list(map(dollars, amounts)) == ["unknown price", "$0.00", "$0.0032", "$1,234.57"]
    times = [0.4, 59.9, 60, 200, 3600, 3660, 90_061]
    assert list(map(duration, times)) == [
        *("0 s", "59 s", "1 min", "3 min 20 s", "1 h", "1 h 1 min", "1 d 1 h")
    ]
    counts = [0, 9_999, 10_000, 999_499, 999_500, 1_500_000]
    assert list(map(short_count, counts)) == ["0", "9,999", "10k", "999k", "1.0M", "1.5M"]


def test_columns_of_figures_stand_to_the_right() -> None:
    rows = [("name", "mean", "why"), ("a", "0.5", "long"), ("bb", "none", "")]
    assert aligned(rows) == ["name  mean  why", "a      0.5  long", "bb    none"]
    assert aligned([("only", "a head")]) == ["only  a head"]


@given(st.lists(st.floats(-1e6, 1e6), max_size=80), st.integers(0, 30))
def test_a_curve_is_drawn_from_its_lowest_to_its_highest_value(
    values: list[float], width: int
) -> None:
    drawn = sparkline(values, width)

    if len(set(values)) < 2 or width < 2:
        assert drawn == ""
    elif width >= len(values):
        assert len(drawn) == len(values)
        assert drawn[values.index(min(values))] == "▁"
        assert drawn[values.index(max(values))] == "█"
    else:
        assert len(drawn) == width
        ends = sparkline([values[0], values[-1], min(values), max(values)], 4)
        assert (drawn[0], drawn[-1]) == (ends[0], ends[1])


def test_tables_on_screens_have_texts_on_the_left_and_figures_on_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        ("part", "type", "calls", "model"),
        ("a", "tool", "9/10", "m"),
        ("b", "text", "none", "n"),
    ]
    Screen().table(rows)
    Screen().table([("only", "a", "head")])
    assert capsys.readouterr().out.splitlines() == [
        "part  type  calls  model",
        "a     tool   9/10  m",
        "b     text   none  n",
        "only  a  head",
    ]
