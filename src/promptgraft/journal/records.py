"""The lines of a journal: one JSON record each, in ASCII, sealed by a checksum.

A line is written only if it reads back equal to its record.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping

import msgspec

from promptgraft.errors import DataFormatError, JournalCorruptError, JournalError
from promptgraft.ground.serde import HexDigest, Json, is_deeper, parse_json, shown, unstructure

FORMAT_VERSION = 1

MAX_DEPTH = 100
"""Levels of an answer; deeper ones might be written, and later not be readable on a deep stack."""

HEADER_START = b'{"kind":"header","version":'
"""The start of a journal file, in every version of the format."""

SENT = "sent"
"""The kind of a record that a request is about to be sent."""

LOST = "lost"
"""The kind of a record of requests that were sent by a process that died before the answers."""

_THIS_HEADER_START = b'%b%d,"fingerprint":{' % (HEADER_START, FORMAT_VERSION)
_SEAL_LENGTH = len(b',"sum":"00000000"}\n')
_SEAL = re.compile(rb',"sum":"([0-9a-f]{8})"\}')
_ANSWER_START = b'","answer":'
# There is one way to match each character, so a damaged line causes no backtracking.
_STRING = rb'"[ !#-\[\]-~]*(?:\\[ -~][ !#-\[\]-~]*)*"'
_HEAD = re.compile(
    rb'\{"key":(%b),"digest":"([0-9a-f]{64})","kind":(%b),"answer":' % (_STRING, _STRING)
)

# Without escapes: its strings are what they look like.
_PLAIN_HEAD = re.compile(
    r'\{"key":"[ !#-\[\]-~]*","digest":"[0-9a-f]{64}","kind":"[ !#-\[\]-~]*","answer":'
)

_ANSWER = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
# Keeps the order of keys: a replay must see the answer exactly as the first run saw it.
_WRITER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


class Record(msgspec.Struct, frozen=True):
    """An answer, its kind, key and digest of its question; ``text`` may be its plain text."""

    key: str
    digest: HexDigest
    kind: str
    answer: Json
    text: bytes | None = None


def encode_record(record: Record) -> bytes:
    """Return the line of ``record``, with its newline.

    Raises ``DataFormatError`` when it would not read back equal: NaN, lone surrogates that JSON
    joins into one character, an invalid digest, nesting beyond ``MAX_DEPTH``.
    """
    # Nearly all answers are plain and shallow, and need not be walked.
    if (line := _plain_line(record)) is not None:
        return line
    where = f"answer of `{record.key}`"
    answer = _plain(record.answer, where)
    text = (
        f'{{"key":{_dumps(record.key, where)},"digest":{_dumps(record.digest, where)},'
        f'"kind":{_dumps(record.kind, where)},"answer":{_dumps(answer, where)}'
    )
    line = _seal(text.encode("ascii"))
    try:
        same = decode_record(line) == msgspec.structs.replace(record, answer=answer, text=None)
    except JournalCorruptError as error:
        raise DataFormatError(f"{where}: it cannot be recorded: {error}") from None
    if not same:
        raise DataFormatError(f"{where}: it would not read back unchanged from JSON")
    return line


def _plain_line(record: Record) -> bytes | None:
    """Return the line of a record that plainly reads back equal; None if in doubt."""
    head = f'{{"key":"{record.key}","digest":"{record.digest}","kind":"{record.kind}","answer":'
    text = record.text or plain_text(record.answer)
    return _seal(head.encode() + text) if text and _PLAIN_HEAD.fullmatch(head) else None


def plain_text(answer: Json) -> bytes | None:
    """Return the JSON of an answer that plainly reads back equal; None if in doubt."""
    try:
        text = _json_of(answer)
        # msgspec writes NaN as null, and enums and dates as text: comparing shows it.
        same = _ANSWER.decode(text) == answer
    except (msgspec.DecodeError, TypeError, OverflowError, ValueError, RecursionError):
        return None
    # An upper bound of the depth: brackets in strings count too.
    return text if same and text.count(b"{") + text.count(b"[") < MAX_DEPTH else None


def _json_of(value: Json) -> bytes:
    text = _ENCODER.encode(value)
    return text if text.isascii() else _WRITER.encode(value).encode("ascii")


def decode_record(line: bytes) -> Record:
    """Return the record in ``line``.

    A ``JournalCorruptError`` has the reason alone; callers know the place.
    """
    key, digest, kind, start = _split(line)
    answer = _loads_answer(line[start:-_SEAL_LENGTH])
    return Record(_loads_string(key), HexDigest(digest.decode()), _loads_string(kind), answer)


def record_key(line: bytes) -> str:
    """Return the key of the record in ``line``; all but the inside of the answer is checked."""
    body = line[:-_SEAL_LENGTH]
    head = _HEAD.match(body)
    # The fast path for intact lines: opening a journal looks at every line.
    if head is None or not line.endswith(_seal_of(body)):
        return _loads_string(_split(line)[0])
    return _loads_string(head[1])


def record_kind(line: bytes) -> str:
    """Return the kind of the record in ``line``; raises ``JournalCorruptError``."""
    return _loads_string(_split(line)[2])


def answer_text(line: bytes, key: str, digest: HexDigest) -> bytes | None:
    """Return the answer in ``line`` as JSON; None unless it plainly belongs to this question."""
    # Other characters are escaped in the line; such keys do not match and take the slow way.
    head = f'{{"key":"{key}","digest":"{digest}","kind":"'.encode("ascii", "replace")
    body = line[:-_SEAL_LENGTH]
    if not body.startswith(head) or not line.endswith(_seal_of(body)):
        return None
    # The first match ends the kind, because a quote inside it is escaped.
    return body[len(head) :].partition(_ANSWER_START)[2] or None


def record_text(line: bytes) -> bytes:
    """Return the answer in ``line`` as JSON."""
    return line[_split(line)[3] : -_SEAL_LENGTH]


Contents = Mapping[str, Mapping[str, str]]
"""What digests in a fingerprint were made of: a short digest of each item, by its name."""


def encode_header(fingerprint: Mapping[str, Json], contents: Contents | None = None) -> bytes:
    """Return the first line of the journal of the run that ``fingerprint`` identifies.

    ``contents`` are those of its keys. Raises ``DataFormatError`` when it would not read back
    equal.
    """
    plain = _plain(fingerprint, "fingerprint")
    if not isinstance(plain, dict):
        raise DataFormatError(f"fingerprint: expected an object, found {shown(fingerprint)}")
    inside = _dumps(dict(sorted(plain.items())), "fingerprint")
    text = f'{HEADER_START.decode()}{FORMAT_VERSION},"fingerprint":{inside}'
    if contents:
        text += f',"contents":{_dumps(_plain(contents, "contents"), "contents")}'
    line = _seal(text.encode("ascii"))
    if decode_header(line) != plain:
        raise DataFormatError("fingerprint: it would not read back unchanged from JSON")
    return line


def decode_header(line: bytes) -> dict[str, Json]:
    """Return the fingerprint in the first line of a journal.

    Raises ``JournalCorruptError`` (the reason alone) for another line, ``JournalError`` for one of
    another version of promptgraft.
    """
    return _header(line)[0]


def header_contents(line: bytes) -> dict[str, dict[str, str]]:
    """Return the contents in the first line of a journal; empty if an early version wrote it.

    Raises as :func:`decode_header` does.
    """
    contents = _header(line)[1]
    return {
        name: {item: str(value) for item, value in items.items()}
        for name, items in contents.items()
        if isinstance(items, dict)
    }


def _header(line: bytes) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return fingerprint and contents."""
    _check_seal(line)
    try:
        header = parse_json(line[:-_SEAL_LENGTH] + b"}", where="the header")
    except ValueError as error:
        raise JournalCorruptError(str(error)) from None
    if not isinstance(header, dict) or not line.startswith(HEADER_START):
        raise JournalCorruptError("the line is not a header")
    # Checked before the rest, whose shape another version may change.
    if header["version"] != FORMAT_VERSION:
        raise JournalError(
            f"expected format version {FORMAT_VERSION}, found {shown(header['version'])}; "
            "use the version of promptgraft that has written it"
        )
    fingerprint, contents = header.get("fingerprint"), header.get("contents", {})
    is_known = len(header) == (4 if "contents" in header else 3)
    is_begun = line.startswith(_THIS_HEADER_START) and is_known
    if is_begun and isinstance(fingerprint, dict) and isinstance(contents, dict):
        return fingerprint, contents
    raise JournalCorruptError("the header does not have the shape of its version")


def may_be_header(data: bytes, *, torn: bool = False) -> bool:
    """Return whether a journal may begin with ``data``; if ``torn``, one of this version."""
    expected = _THIS_HEADER_START if torn else HEADER_START
    return data.startswith(expected) or expected.startswith(data)


def sealed_length(data: bytes) -> int | None:
    """Return the length of the sealed line (without newline) that ``data`` starts with."""
    # Continued from match to match, so that the time is linear in the length.
    checksum, position = 0, 0
    for seal in _SEAL.finditer(data):
        checksum = zlib.crc32(data[position : seal.start()], checksum)
        position = seal.start()
        if int(seal[1], 16) == checksum:
            return seal.end()
    return None


def _plain(value: object, where: str) -> Json:
    try:
        plain = unstructure(value)
    except DataFormatError as error:
        raise DataFormatError(f"{where}: {error}") from None
    if is_deeper(plain, MAX_DEPTH):
        raise DataFormatError(
            f"{where}: the data is nested too deeply: expected at most {MAX_DEPTH} levels"
        )
    return plain


def _dumps(value: Json, where: str) -> str:
    try:
        return _WRITER.encode(value)
    except ValueError as error:
        raise DataFormatError(f"{where}: {error}") from None


def _seal(body: bytes) -> bytes:
    return body + _seal_of(body)


def _seal_of(body: bytes) -> bytes:
    return b',"sum":"%08x"}\n' % zlib.crc32(body)


def _check_seal(line: bytes) -> None:
    if not line.endswith(_seal_of(line[:-_SEAL_LENGTH])):
        raise JournalCorruptError("the bytes of the line do not fit its checksum")


def _split(line: bytes) -> tuple[bytes, bytes, bytes, int]:
    _check_seal(line)
    head = _HEAD.match(line)
    if head is None:
        raise JournalCorruptError("the line is not a record")
    return head[1], head[2], head[3], head.end()


def _loads_answer(text: bytes) -> Json:
    try:
        answer: Json = _ANSWER.decode(text)
        # msgspec keeps the last of duplicate keys; comparing with what we write rules that out.
        if _json_of(answer) == text:
            return answer
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    # Formatted differently, or invalid: the strict reader says which.
    try:
        return parse_json(text, where="its answer")
    except ValueError as error:  # also an integer with too many digits, not a DataFormatError
        raise JournalCorruptError(str(error)) from None


def _loads_string(quoted: bytes) -> str:
    if b"\\" not in quoted:
        return quoted[1:-1].decode("ascii")
    try:
        return str(parse_json(quoted, where="a string of the record"))
    except DataFormatError as error:
        raise JournalCorruptError(str(error)) from None
