"""Secrets stay out of messages, in whatever form they come."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.adapters.calling.access import LONGEST_MESSAGE, redacted_line
from promptgraft.adapters.calling.faults import Fault, judge
from promptgraft.adapters.calling.turns import Received
from promptgraft.ground.secrets import HIDDEN, redact

SECRET = 'p/ss+w"örd =%7x'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET),
        quote_plus(SECRET),
        quote_plus(SECRET).lower(),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
    ],
)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    assert redact(f"before {form} after", [SECRET]) == f"before {HIDDEN} after"


@given(st.binary(max_size=5), st.binary(max_size=5), st.text("abcXYZ019/+_-", min_size=8))
@settings(max_examples=50)
def test_a_secret_is_found_in_base64(before: bytes, after: bytes, secret: str) -> None:
    for encode in (b64encode, urlsafe_b64encode):
        encoded = encode(before + secret.encode() + after).decode()
        found = redact(encoded, [secret])
        assert HIDDEN in found
        assert len(found) <= len(HIDDEN) + 4 * (len(before) + len(after) + 8) / 3


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-api03-abcdefgh",
        "sk-proj-****wxyz",
        "Bearer abcdefghij",
        "Authorization: abc",
        '"x-api-key": "abcdef"',
        "Basic dXNlcjpwYXNzd29yZA==",
    ],
)
def test_what_looks_like_a_key_is_hidden_although_nobody_told_of_it(text: str) -> None:
    found = redact(f"Incorrect key ({text}) given", [])
    assert HIDDEN in found
    assert not any(word in found for word in ("abc", "wxyz", "dXNl"))


def test_credentials_in_an_address_are_hidden() -> None:
    found = redact("cannot reach https://me:pass@example.test/v1?x=1", [])
    assert found == f"cannot reach https://{HIDDEN}@example.test/v1?x=1"


@pytest.mark.parametrize("text", ["the task-oriented risk-free plan", "Basic facts", "1 < 2", ""])
def test_other_words_stay(text: str) -> None:
    assert redact(text, ["", "another"]) == text


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    assert redact("abc-def", ["abc", "abc-def"]) == HIDDEN


@given(st.text(max_size=60), st.text(max_size=2000))
@settings(max_examples=50)
def test_a_line_is_one_bounded_and_without_control_characters(secret: str, text: str) -> None:
    line = redacted_line(text, [secret])
    assert len(line) <= LONGEST_MESSAGE
    assert line.isprintable()
    assert line == " ".join(line.split())


def test_a_long_line_keeps_its_ends_and_is_cut_only_after_it_is_redacted() -> None:
    line = redacted_line("first" + "x" * 328 + "topsecret" + "y" * 400 + "last", ["topsecret"])
    assert line.startswith("first")
    assert line.endswith("last")
    assert "top" not in line


def test_the_ends_of_an_endless_text_stay() -> None:
    line = redacted_line("first" + " x" * 100_000 + " last", [])
    assert line.startswith("first")
    assert line.endswith("last")


def test_colours_and_lines_of_a_terminal_are_neutralised() -> None:
    assert redacted_line("a\x1b[31m\r\nb\u202ec\x00\ud800d", []) == "a [31m b c d"


def test_no_part_of_a_key_in_a_long_word_of_a_server_is_left() -> None:
    body = {"error": {"type": "x", "code": "5" * 50 + "topsecret-0123456", "message": "Oops"}}
    received = Received(status=401, headers={}, content=json.dumps(body))
    fault = judge(received, now=datetime.now(UTC))
    assert isinstance(fault, Fault)
    assert redacted_line(fault.what, ["topsecret-0123456"]) == "HTTP 401 x"
