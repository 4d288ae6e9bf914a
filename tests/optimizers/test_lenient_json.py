"""JSON as models write it: read as it is meant, or refused."""

from __future__ import annotations

import ast
import json
import random
import re

import pytest
from hypothesis import given

from one_pass import check_one_pass
from optimizers.sloppy import BATCH, PIECES, SEEDS, Sloppy, a_text, a_value, batches, damaged
from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json
from promptgraft.prompt.lenient_json import parse_lenient


def read(text: str) -> tuple[Json, str]:
    """Return what a text is read as, or why it is refused."""
    try:
        return parse_lenient(text), ""
    except DataFormatError as error:
        return None, str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"q": ["a", "b",], }', {"q": ["a", "b"]}),
        ('{"q": "a"} // why', {"q": "a"}),
        (
            '/* so */ {"q": "a", // one\n # two\n "u": "http://x#y" /* three */}',
            {"q": "a", "u": "http://x#y"},
        ),
        (
            "{'q': 'a \"b\"', 'r': True, 's': [False, None]}",
            {"q": 'a "b"', "r": True, "s": [False, None]},
        ),
        (r"{'q': 'it\'s'}", {"q": "it's"}),
        (r'{"q": "it\'s"}', {"q": "it's"}),
        ('{“q”: “it\'s”, „r”: „a”, ‘s’: ‘say "so"’}', {"q": "it's", "r": "a", "s": 'say "so"'}),
        ('{"q": “a”, "r": "keep “it”, so"}', {"q": "a", "r": "keep “it”, so"}),
        ('{"q": "a\n\tb"}', {"q": "a\n\tb"}),
        (r'{"q": "\d+\s\\"}', {"q": r"\d+\s" + "\\"}),
        ("{q: 1, _r2: true}", {"q": 1, "_r2": True}),
        ("{true: 1}", {"true": 1}),
        ('{"yes": "no", "when": "2024-01-02"}', {"yes": "no", "when": "2024-01-02"}),
    ],
)
def test_what_can_be_meant_in_one_way_is_read(text: str, expected: object) -> None:
    assert parse_lenient(text) == expected


def test_numbers_and_constants_keep_their_types() -> None:
    found = parse_lenient("[1.50, -0.0, 1e3, 12345678901234567890123, 1, 1.0, True, null,]")
    assert repr(found) == "[1.5, -0.0, 1000.0, 12345678901234567890123, 1, 1.0, True, None]"


ESCAPES = "holds escapes that JSON does not have; write a backslash as two"
QUOTES = ' (quotes inside a text are written as `\\"`)'


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "line 1: expected a JSON value, found the end"),
        ("so be it", "line 1: expected a JSON value, found 'so be it'"),
        ('{"a": 1} so', "line 1: expected nothing after the JSON, found 'so'"),
        ('{"a": 1}\n{"b": 2}', "line 2: expected nothing after the JSON, found '{\"b\": 2}'"),
        ('{\n"a": }', "line 2: expected a JSON value, found '}'"),
        ('{"a" 1}', "line 1: expected `:` after a key, found '1}'"),
        ("{1: 2}", "line 1: expected a key in double quotes, found '1: 2}'"),
        ("{a b: 2}", "line 1: expected a key in double quotes, found 'a b: 2}'"),
        ("{,}", "line 1: expected a key in double quotes, found ',}'"),
        ("[1,,2]", "line 1: expected a JSON value, found ',2]'"),
        ('{"a": 1\n"b": 2}', "line 2: expected `,` or `}`, found '\"b\": 2}'"),
        ('{"a": [1, 2}', "line 1: expected `,` or `]`, found '}'"),
        ('{"a": [1, 2]', "line 1: expected `,` or `}`, found the end"),
        ('{"a": "b}', "line 1: expected a closing quote, found '\"b}'"),
        ("{“a”: “b}", "line 1: expected a closing quote, found '“b}'"),
        ('["say "so" again"]', f"line 1: expected `,` or `]`{QUOTES}, found 'so\" again\"]'"),
        ('["one" "two"]', f"line 1: expected `,` or `]`{QUOTES}, found '\"two\"]'"),
        ("['it's']", f'line 1: expected `,` or `]`{QUOTES}, found "s\']"'),
        ("[“so “it” is”]", f"line 1: expected `,` or `]`{QUOTES}, found 'it” is”]'"),
        ("[...]", "line 1: expected a JSON value, found '...]'"),
        ('{"a": 1, ...}', "line 1: expected a key in double quotes, found '...}'"),
        ("[yes]", "line 1: expected a JSON value, found 'yes]'"),
        ("[TRUE]", "line 1: expected a JSON value, found 'TRUE]'"),
        ("[undefined]", "line 1: expected a JSON value, found 'undefined]'"),
        ("[2024-01-02]", "line 1: expected a JSON value, found '2024-01-02]'"),
        ("[10:30]", "line 1: expected `,` or `]`, found ':30]'"),
        ("[007]", "line 1: expected a JSON value, found '007]'"),
        ("[1_000]", "line 1: expected a JSON value, found '1_000]'"),
        ("[1.]", "line 1: expected a JSON value, found '1.]'"),
        ("[+1]", "line 1: expected a JSON value, found '+1]'"),
        ("[0x10]", "line 1: expected a JSON value, found '0x10]'"),
        ("[(1, 2)]", "line 1: expected a JSON value, found '(1, 2)]'"),
        ('["""a"""]', f'line 1: expected `,` or `]`{QUOTES}, found \'"a"""]\''),
        ("[1,\nNaN]", "line 2: expected a finite number, found NaN"),
        ("[-Infinity]", "line 1: expected a finite number, found -Infinity"),
        ("[1e999]", "line 1: expected a finite number, found 1e999"),
        ('{"a": 1, "a": 1}', "line 1: the key 'a' occurs twice in one object"),
        ("{a: 1, 'a': 2}", "line 1: the key 'a' occurs twice in one object"),
        (
            r'["C:\Users\new"]',
            rf"""line 1: '"C:\\Users\\new"' {ESCAPES}""",
        ),
        (
            r'["\x41"]',
            rf"""line 1: '"\\x41"' {ESCAPES}""",
        ),
        (f"{'[' * 101}{']' * 101},", "line 1: the JSON is nested deeper than 100 levels"),
        ("/* so", "line 1: expected a JSON value, found '/* so'"),
    ],
)
def test_what_can_be_meant_in_several_ways_is_refused(text: str, detail: str) -> None:
    with pytest.raises(DataFormatError) as refused:
        parse_lenient(text)
    assert str(refused.value) == detail


@batches(500)
@given(SEEDS)
def test_json_is_read_as_json(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        value = a_value(rng)
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        assert repr(parse_lenient(text)) == repr(value)
        assert repr(parse_lenient(f"{text} // so")) == repr(value)


@batches(500)
@given(SEEDS)
def test_sloppy_forms_mean_the_same(seed: int) -> None:
    rng = random.Random(seed)
    sloppy = Sloppy(rng)
    for _ in range(BATCH):
        value = a_value(rng)
        text = sloppy.value(value)
        assert repr(parse_lenient(text)) == repr(value), text


@batches(3_000)
@given(SEEDS)
def test_what_python_can_read_too_means_the_same_in_both(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        text = damaged(repr(a_value(rng)), rng)
        found, fault = read(text)
        # The two languages differ in what they make of these.
        if fault or re.search(r"//|/\*|\\[/0-7\n\r]", text):
            continue
        try:
            expected = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
        if type(expected) in {list, dict, str, int, float, bool, type(None)}:
            assert repr(found) == repr(expected), text


@batches(5_000)
@given(SEEDS)
def test_any_text_is_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BATCH):
        text = "".join(rng.choices((*PIECES, "\x00", "\ud800", a_text(rng)), k=rng.randrange(26)))
        found, fault = read(rng.choice([text, f"[{text}]", f'{{"a": {text}}}']))
        assert "\n" not in fault
        json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("start", ["[", "['", '{"a": "'])
@pytest.mark.parametrize(
    "piece",
    [
        *("[", "{", '"', "'", "“", "\\", ",", "]", "(", " ", "\n", "1", "a", "-", "`"),
        *('{"a":', '["a",', '"a" ', '"a": "b "', "{'a': '", "'a\\'", "{a:", '{"a":1,"b":'),
        *("//", "/*", "/*/", "#\n", "// a\n", "1 // ", "“a” # ", "[1,]", "[1,\n", "null ", "a: "),
    ],
)
def test_a_long_text_is_read_or_refused_in_one_pass(start: str, piece: str) -> None:
    def check(text: str) -> None:
        _, fault = read(text)
        assert len(fault) < 300

    check_one_pass(check, lambda length: start + piece * (length // len(piece)))
