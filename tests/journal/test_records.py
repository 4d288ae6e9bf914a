"""Records: what goes into a line comes out of it, or is refused before it is written."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.errors import DataFormatError, JournalCorruptError, JournalError
from promptgraft.ground.serde import HexDigest, Json, digest_text
from promptgraft.journal import Record
from promptgraft.journal.records import (
    MAX_DEPTH,
    decode_header,
    decode_record,
    encode_header,
    encode_record,
    header_contents,
    record_key,
    sealed_length,
)

DIGEST = digest_text("what is asked")


def is_utf16_pair_free(text: str) -> bool:
    return re.search("[\ud800-\udbff][\udc00-\udfff]", text) is None


# Without arguments, `characters` yields lone surrogates too.
texts = st.text(st.characters()).filter(is_utf16_pair_free)
numbers = st.integers() | st.integers(min_value=-(10**4000), max_value=10**4000)
scalars = st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False)
answers: st.SearchStrategy[Json] = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
digests = st.binary().map(lambda data: digest_text(data.hex()))
records = st.builds(Record, texts, digests, texts, answers)


@given(records)
def test_a_record_reads_back_as_it_was_and_its_line_is_plain_json(record: Record) -> None:
    line = encode_record(record)

    assert decode_record(line) == record
    assert record_key(line) == record.key
    assert line.isascii()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    fields = json.loads(line)
    assert list(fields) == ["key", "digest", "kind", "answer", "sum"]
    assert fields["answer"] == record.answer


@given(answers)
def test_the_keys_of_an_answer_keep_their_order(answer: Json) -> None:
    decoded = decode_record(encode_record(Record("k", DIGEST, "rollout", answer)))

    assert repr(decoded.answer) == repr(answer)


@given(records, st.binary(max_size=40))
def test_the_end_of_a_sealed_line_is_found_whatever_follows(record: Record, rest: bytes) -> None:
    line = encode_record(record)[:-1]

    assert sealed_length(line + rest) == len(line)
    assert sealed_length(line[:-1]) is None


def test_an_answer_that_imitates_a_seal_does_not_end_its_line() -> None:
    body = b'{"sum":"00000000"},"sum":"%08x"}' % zlib.crc32(b'{"sum":"00000000"}')
    answers_that_imitate: list[Json] = [
        {"text": "", "sum": "00000000"},
        {"text": body.decode()},
        {"a": {"b": 1, "sum": f"{zlib.crc32(b'')}"}, "sum": "1a2b3c4d"},
    ]
    for answer in answers_that_imitate:
        line = encode_record(Record("k", DIGEST, "rollout", answer))
        assert sealed_length(line[:-1]) == len(line) - 1
        assert decode_record(line).answer == answer


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (float("nan"), "expected a finite number, found nan"),
        ({"score": float("-inf")}, r"\$\.score: expected a finite number, found -inf"),
        ("\ud83d\ude00", "would not read back"),
        ([10**5000], "limit"),
    ],
)
def test_an_answer_that_json_cannot_hold_is_refused(answer: Json, fault: str) -> None:
    with pytest.raises(DataFormatError, match=fault):
        encode_record(Record("k", DIGEST, "rollout", answer))


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_an_answer_that_is_nested_too_deeply_is_refused(levels: int) -> None:
    nested: Json = "inside"
    for _ in range(levels):
        nested = [nested]

    with pytest.raises(DataFormatError, match=r"`k`: .*the data is nested too deeply"):
        encode_record(Record("k", DIGEST, "rollout", nested))


def test_the_deepest_answer_that_is_taken_reads_back() -> None:
    nested: Json = {}
    for _ in range(MAX_DEPTH - 1):
        nested = {"in": nested}
    record = Record("k", DIGEST, "rollout", nested)

    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("odd", ["", "abc", DIGEST.upper(), f"{DIGEST}0", f"{DIGEST[:-1]}\n"])
def test_a_digest_that_is_none_is_refused(odd: str) -> None:
    with pytest.raises(DataFormatError, match="answer of `step/1`: it cannot be recorded"):
        encode_record(Record("step/1", HexDigest(odd), "rollout", 1))


def sealed(body: str) -> bytes:
    return b'%b,"sum":"%08x"}\n' % (body.encode(), zlib.crc32(body.encode()))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        f'{{"key":"k","digest":"{DIGEST}","kind":"r"',
        f'{{"key":"k","digest":"{DIGEST}","kind":"r","answer":',
        f'{{"key":"k","digest":"{DIGEST}","kind":"r","answer":1,"extra":2',
        f'{{"key":"k","digest":"{DIGEST}","kind":"r","answer":NaN',
        f'{{"key":"k","digest":"{DIGEST}","kind":"r","answer":{"9" * 5000}',
        f'{{"key":"k","digest":"{DIGEST}","kind":"r","answer":{{"a":1,"a":2}}',
        f'{{"key":"k","digest":"{DIGEST}","kind":"r","answer":[{{"a":"\\u00e9","a":"\\u00e9"}}]',
        f'{{"key":"\\x","digest":"{DIGEST}","kind":"r","answer":1',
        f'{{"key":"é","digest":"{DIGEST}","kind":"r","answer":1',
        f'{{"key":"k","digest":"{DIGEST[1:]}","kind":"r","answer":1',
        f'{{"digest":"{DIGEST}","key":"k","kind":"r","answer":1',
    ],
)
def test_a_line_that_is_sealed_but_no_record_is_corrupt(body: str) -> None:
    with pytest.raises(JournalCorruptError):
        decode_record(sealed(body))


@settings(max_examples=20)
@given(st.dictionaries(texts, answers, max_size=5))
def test_a_fingerprint_reads_back_from_its_header(fingerprint: dict[str, Json]) -> None:
    assert decode_header(encode_header(fingerprint)) == fingerprint


def test_contents_read_back_from_a_header_and_do_not_change_its_fingerprint() -> None:
    contents = {"dataset": {"example `\u00e9`": "12", "example `a`": "3"}}
    line = encode_header({"seed": 7}, contents)
    assert (decode_header(line), header_contents(line)) == ({"seed": 7}, contents)
    assert list(header_contents(line)["dataset"]) == ["example `\u00e9`", "example `a`"]
    assert header_contents(encode_header({"seed": 7})) == {}
    assert encode_header({"seed": 7}, {}) == encode_header({"seed": 7})


def test_a_header_is_the_same_whatever_the_order_of_the_fingerprint() -> None:
    assert encode_header({"b": 1, "a": 2}) == encode_header({"a": 2, "b": 1})


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[1",
        '{"kind":"header","version":1',
        '{"kind":"header","version":1,"fingerprint":{}}',
        '{"kind":"header","version":1,"fingerprint":[]',
        '{"kind":"header","version":true,"fingerprint":{}',
        '{"kind":"header","version":1,"fingerprint":{},"more":1',
        '{"kind":"header","version":1,"fingerprint":{},"contents":1',
        '{"kind":"header","version":1,"fingerprint":{},"contents":{},"more":1',
        '{"version":1,"kind":"header","fingerprint":{}',
    ],
)
def test_a_line_that_is_sealed_but_no_header_is_corrupt(body: str) -> None:
    with pytest.raises(JournalCorruptError):
        decode_header(sealed(body))


def test_a_header_of_another_version_says_which_one_is_supported() -> None:
    with pytest.raises(JournalError, match="expected format version 1, found 2") as caught:
        decode_header(sealed('{"kind":"header","version":2,"run":{}'))
    assert not isinstance(caught.value, JournalCorruptError)


def test_the_sample_in_the_specification_is_a_journal() -> None:
    page = Path(__file__).parents[2] / "specs" / "journal.md"
    header, line = re.findall(rb"^\{.*\n", page.read_bytes(), re.MULTILINE)
    record = Record("step/12/child/3", DIGEST, "rollout", {"score": 0.5, "text": "caf\u00e9"})

    assert header == encode_header(decode_header(header))
    assert line == encode_record(record)
