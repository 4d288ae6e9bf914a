"""JSON in and out: strict when read, one form when written, one digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from enum import Enum, StrEnum
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgraft.errors import DataFormatError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import (
    Json,
    canonical_json,
    did_you_mean,
    digest,
    digest_all,
    digest_text,
    nearest,
    parse_json,
    plain_json,
    shown,
    unstructure,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


class Color(Enum):
    RED = "red"
    BLUE = 2


class Queue(StrEnum):
    LOGIN = "login"


@attrs.define
class Unset:
    x: int
    y: int = attrs.field(init=False)


@attrs.frozen
class Point:
    x: float
    y: float = 0.0


def reordered(data: Any) -> Any:
    """Return equal data whose objects have their keys in another order."""
    if isinstance(data, dict):
        return {key: reordered(value) for key, value in reversed(data.items())}
    return [reordered(item) for item in data] if isinstance(data, list) else data


@given(JSON)
def test_canonical_json_is_the_same_for_any_order_of_keys(data: Any) -> None:
    text = canonical_json(data)
    assert canonical_json(reordered(data)) == text
    assert digest(reordered(data)) == digest(data)
    assert canonical_json(FrozenMap(data) if isinstance(data, dict) else data) == text


@given(JSON)
def test_canonical_json_is_read_back_as_it_was(data: Any) -> None:
    text = canonical_json(data)
    again = parse_json(text, where="x")
    assert again == data
    assert canonical_json(again) == text
    assert parse_json(text.encode(), where="x") == data


@given(JSON, JSON)
def test_digests_differ_where_the_data_does(one: Any, other: Any) -> None:
    # `repr` tells 1 from 1.0 and from True, which `==` does not.
    same = repr(reordered(one)) == repr(reordered(other)) or json.dumps(
        one, sort_keys=True
    ) == json.dumps(other, sort_keys=True)
    assert (digest(one) == digest(other)) == same
    assert digest([one]) != digest(one)


@given(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=4))
def test_digests_of_texts_with_one_beginning_are_those_of_the_texts(
    beginning: str, ends: list[str]
) -> None:
    halves = [*ends, "\ude00"]
    for begun in (beginning, f"{beginning}\ud83d"):
        assert digest_all(begun, halves) == [digest_text(f"{begun}{end}") for end in halves]


@given(JSON | st.floats() | st.integers() | st.dictionaries(st.text(max_size=2), st.text()))
@example({"\ud800": 1e16})
@example([float("nan"), -0.0, 1e-05, 1e-4, 2**70, "\x7f\u2028\x00"])
def test_plain_json_is_what_python_writes(data: Any) -> None:
    # Digests of earlier versions are compared with those of this one.
    plainly = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert plain_json(data) == plainly


def test_canonical_json_has_one_known_form() -> None:
    data = {"b": [1, 1.5, True, None], "a": {"é": "\n", "": -0.0}}
    text = '{"a":{"":-0.0,"é":"\\n"},"b":[1,1.5,true,null]}'
    assert canonical_json(data) == text
    assert digest(data) == hashlib.sha256(text.encode()).hexdigest()
    assert digest_text("é") == hashlib.sha256("é".encode()).hexdigest()
    assert len(digest_text("\ud800")) == 64


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1, 2.5), {"x": 1, "y": 2.5}),
        ([Point(1)], [{"x": 1, "y": 0.0}]),
        (Unset(1), {"x": 1}),
        (Color.BLUE, 2),
        (Queue.LOGIN, "login"),
        ({Color.RED: Queue.LOGIN}, {"red": "login"}),
        (FrozenMap({"a": (1, 2)}), {"a": [1, 2]}),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({("b", 1), ("a", 2)}, [["a", 2], ["b", 1]]),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (None, None),
    ],
)
def test_values_have_a_plain_form(value: object, plain: Json) -> None:
    found = unstructure(value)
    assert found == plain
    assert json.loads(json.dumps(found)) == plain


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "$: expected plain data, an attrs class or a dataclass, found b'x'"),
        (Point, f"$: expected plain data, an attrs class or a dataclass, found {Point}"),
        ({"a": [1, object]}, "$.a[1]: expected plain data, an attrs class or a dataclass, found "),
        ({"a": float("nan")}, "$.a: expected a finite number, found nan"),
        (Point(float("inf")), "$.x: expected a finite number, found inf"),
        ({1: 2}, "$: expected string keys, found 1"),
        ([{Color.BLUE: 2}], "$[0]: expected string keys, found <Color.BLUE: 2>"),
        ({Color.RED: 1, "red": 2}, "$: two keys have the same plain form, in {"),
    ],
)
def test_values_without_a_plain_form_are_refused_with_their_path(
    value: object, message: str
) -> None:
    for write in (unstructure, canonical_json, digest):
        with pytest.raises(DataFormatError) as caught:
            write(value)
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.json:1:1: Expecting value"),
        ("{\n  'a': 1}", "a.json:2:3: Expecting property name enclosed in double quotes"),
        ("[1, 2", "a.json:1:6: Expecting ',' delimiter"),
        ("[1,\n]", "a.json:1:3: Illegal trailing comma before end of array"),
        ('{"a": [] , }', "a.json:1:10: Illegal trailing comma before end of object"),
        ('{"a": 1, ]', "a.json:1:10: Expecting property name enclosed in double quotes"),
        ("[1, }", "a.json:1:5: Expecting value"),
        ("[1]\n[2]", "a.json:2:1: Extra data"),
        ('"\n"', "a.json:1:2: Invalid control character at"),
        ("NaN", "a.json: expected a finite number, found NaN"),
        ("[Infinity]", "a.json: expected a finite number, found Infinity"),
        ("[-Infinity]", "a.json: expected a finite number, found -Infinity"),
        ("[1e999]", "a.json: expected a finite number, found 1e999"),
        ('{"a": 1, "b": {"a": 1, "a": 1}}', "a.json: the key 'a' occurs twice in one object"),
        (b"\xff\xfe[\x00", "a.json: expected UTF-8, found byte 0xff at offset 0"),
        ('["caf\xe9"]'.encode("latin-1"), "a.json: expected UTF-8, found byte 0xe9 at offset 5"),
        (b'["\xed\xa0\x80"]', "a.json: expected UTF-8, found byte 0xed at offset 2"),
        ("[" * 100_000, "a.json: the JSON is nested too deeply"),
        ('{"a":' * 100_000, "a.json: the JSON is nested too deeply"),
    ],
)
def test_json_that_is_not_strict_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    with pytest.raises(DataFormatError) as caught:
        parse_json(text, where="a.json")
    assert str(caught.value) == message
    assert caught.value.faults == (message,)


def test_a_number_that_python_will_not_convert_is_refused() -> None:
    with pytest.raises(DataFormatError, match=r"^a\.json: .*digits"):
        parse_json(f"[{'1' * 5000}]", where="a.json")
    with pytest.raises(DataFormatError, match=r"^expected plain data, found .*digits"):
        canonical_json(10**5000)


@given(st.binary(max_size=30) | st.text(alphabet='[]{}",:0eE1.- NaInfity\\u\ud800', max_size=12))
def test_any_text_is_json_or_a_refusal_in_one_line(text: bytes | str) -> None:
    refused = None
    try:
        found = parse_json(text, where="a.json")
    except DataFormatError as error:
        refused = str(error)
    if refused is None:
        assert json.loads(text) == found
    else:
        assert refused.startswith("a.json:")
        assert len(refused.splitlines()) == 1


def nested(depth: int) -> Json:
    data: Json = []
    for _ in range(depth):
        data = [data]
    return data


def test_deep_data_is_written_or_refused_but_never_a_crash() -> None:
    assert canonical_json(nested(50)) == "[" * 51 + "]" * 51
    for write in (unstructure, canonical_json, digest):
        with pytest.raises(DataFormatError, match=r"^\$: the data is nested too deeply"):
            write(nested(100_000))


def test_messages_show_values_in_short() -> None:
    assert shown("x") == "'x'"
    assert shown(list(range(1000))) == f"{str(list(range(1000)))[:80]}…"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("promt", " (did you mean `prompt`?)"),
        ("prompt", " (did you mean `prompt`?)"),
        ("zzz", ""),
    ],
)
def test_a_near_word_is_suggested(word: str, hint: str) -> None:
    assert did_you_mean(word, ["prompt", "store"]) == hint


class Counting(list[str]):
    """A list that counts how many of its items are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        for item in super().__iter__():
            self.looked_at += 1
            yield item


def test_the_search_for_a_near_word_is_bounded_whatever_a_file_holds() -> None:
    many = Counting(f"key{number}" for number in range(1_000_000))
    assert did_you_mean("key7x", many) == " (did you mean `key7`?)"
    assert many.looked_at <= 10_000
    # Words of another length are passed over, not compared.
    long_ones = ["x" * 50] * 5_000
    assert did_you_mean("promt", [*long_ones, "prompt"]) == " (did you mean `prompt`?)"
    assert did_you_mean("x" * 100_000, ["x" * 100_000]) == ""


def test_a_word_is_near_only_above_the_cutoff() -> None:
    assert nearest("promt", ["prompt"], cutoff=0.8) == "prompt"
    assert nearest("pro", ["prompt"], cutoff=0.8) == ""
