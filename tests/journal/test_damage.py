"""Files that are cut, flipped, foreign or changed behind the journal's back."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgraft.errors import JournalCorruptError, JournalError, JournalWriteError
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import FileJournal, Record
from promptgraft.journal.records import encode_header, encode_record

RUN: dict[str, Json] = {"seed": 7}
ASKED = digest_text("what is asked")
RECORDS = [
    Record("step/1/child/0", ASKED, "rollout", {"score": 0.5, "sum": "00000000"}),
    Record("step/1/reflect", ASKED, "reflection", "say \u201cplease\u201d \ud800\n"),
    Record("step/2/child/0", ASKED, "rollout", None),
]
HEADER = encode_header(RUN)
LINES = [encode_record(record) for record in RECORDS]
WHOLE = HEADER + b"".join(LINES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def read(path: Path) -> list[Record]:
    with FileJournal(path) as journal:
        journal.begin(RUN)
        return list(journal.records())


def whole_records(length: int) -> list[Record]:
    """Return the records that end within the first ``length`` bytes of the sample file."""
    end, found = len(HEADER), []
    for record, line in zip(RECORDS, LINES, strict=True):
        end += len(line)
        if end <= length:
            found.append(record)
    return found


def test_a_cut_at_any_byte_leaves_the_whole_records_before_it(path: Path) -> None:
    more = Record("after", ASKED, "rollout", [1])
    for length in range(len(WHOLE) + 1):
        path.write_bytes(WHOLE[:length])
        with FileJournal(path) as journal:
            journal.begin(RUN)
            assert list(journal.records()) == whole_records(length), length
            journal.append(more.key, more.digest, more.kind, more.answer)
        assert read(path) == [*whole_records(length), more], length


def test_a_cut_is_on_disk_when_the_journal_is_open(path: Path) -> None:
    path.write_bytes(WHOLE[:-5])

    with FileJournal(path):
        assert path.read_bytes() == HEADER + LINES[0] + LINES[1]


def flipped(data: bytes) -> Iterator[tuple[int, bytes]]:
    for position, byte in enumerate(data):
        bit = (0x01, 0x20, 0x80)[position % 3]
        for other in {byte ^ bit, 0x0A} - {byte}:
            yield position, data[:position] + bytes([other]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("data", "terminated"),
    [
        (WHOLE, len(WHOLE)),
        (WHOLE[:-40], len(WHOLE) - len(LINES[2])),
        pytest.param(WHOLE[:-1], len(WHOLE) - len(LINES[2]), marks=pytest.mark.thorough),
        (HEADER, len(HEADER)),
        (HEADER[:-1], 0),
    ],
    ids=["whole", "torn tail", "no last newline", "header", "header without newline"],
)
def test_a_flipped_byte_is_an_error_and_never_a_wrong_value(
    path: Path, data: bytes, terminated: int
) -> None:
    expected = whole_records(len(data))
    for position, damaged in flipped(data):
        path.write_bytes(damaged)
        if position < terminated:
            with pytest.raises(JournalError, match=re.escape(str(path))):
                read(path)
            assert path.read_bytes() == damaged, "a file that is refused must stay as it is"
        else:
            with contextlib.suppress(JournalError):
                assert read(path) == expected, (position, damaged)


def test_a_damaged_line_is_named_with_its_place_and_the_mend(path: Path) -> None:
    offset = len(HEADER) + len(LINES[0])
    path.write_bytes(WHOLE.replace(b"please", b"cheese"))

    with pytest.raises(JournalCorruptError) as caught:
        FileJournal(path)
    assert str(caught.value) == (
        f"journal {path}, line 3, byte {offset}: the bytes of the line do not fit its checksum; "
        "restore the file from a copy, or give up this record and all behind it with "
        f"`truncate -s {offset} {path}`"
    )


def test_the_mend_for_a_damaged_line_works(path: Path) -> None:
    offset = len(HEADER) + len(LINES[0])
    path.write_bytes(WHOLE.replace(b"please", b"cheese"))
    os.truncate(path, offset)

    assert read(path) == RECORDS[:1]


def test_a_wrong_byte_for_the_last_newline_is_corruption_and_no_torn_tail(path: Path) -> None:
    for behind in (b"\r", b"\x00\x00", b"x" + LINES[0][:30]):
        damaged = HEADER + LINES[1][:-1] + behind
        path.write_bytes(damaged)
        place = f"line 2, byte {len(HEADER)}: expected a newline at byte"
        with pytest.raises(JournalCorruptError, match=place):
            FileJournal(path)
        assert path.read_bytes() == damaged


def test_a_key_recorded_twice_is_corruption(path: Path) -> None:
    path.write_bytes(WHOLE + LINES[1])

    with pytest.raises(
        JournalCorruptError, match=r"line 5, .* `step/1/reflect` is recorded a seco"
    ):
        FileJournal(path)


@pytest.mark.parametrize("removed", range(3))
def test_a_line_that_is_no_record_is_corruption(path: Path, removed: int) -> None:
    lines = [*LINES]
    lines[removed] = HEADER
    path.write_bytes(HEADER + b"".join(lines))

    with pytest.raises(JournalCorruptError, match=f"line {removed + 2}, .* is not a record"):
        FileJournal(path)


@pytest.mark.parametrize(
    "foreign",
    [
        b"dear diary",
        b"dear diary\nit rained\n",
        b"\n",
        b"{\n",
        b"{}",
        b'{"kind": "header"}\n',
        b"\x00" * 200,
        LINES[0],
        LINES[0][:-9],
        b'{"kind":"header","version":2,"fing',
        b'{"kind":"header","version":1,"config":{',
        HEADER.replace(b"\n", b" "),
    ],
)
def test_a_file_that_is_no_journal_is_refused_untouched(path: Path, foreign: bytes) -> None:
    path.write_bytes(foreign)

    with pytest.raises(JournalCorruptError, match="line 1, byte 0: expected"):
        FileJournal(path)
    assert path.read_bytes() == foreign


def test_another_version_is_refused_untouched_and_both_are_named(path: Path) -> None:
    body = b'{"kind":"header","version":2,"fingerprint":{}'
    later = b'%b,"sum":"%08x"}\n' % (body, zlib.crc32(body))
    path.write_bytes(later + b"whatever comes in version 2")

    with pytest.raises(JournalError, match="expected format version 1, found 2") as caught:
        FileJournal(path)
    assert not isinstance(caught.value, JournalCorruptError)
    assert str(path) in str(caught.value)
    assert path.read_bytes().startswith(later)


def test_a_record_changed_under_an_open_journal_is_an_error(path: Path) -> None:
    path.write_bytes(WHOLE)
    with FileJournal(path) as journal:
        journal.begin(RUN)
        path.write_bytes(WHOLE.replace(b"please", b"cheese"))

        with pytest.raises(JournalCorruptError, match="`step/1/reflect`: the bytes of the line"):
            journal.find("step/1/reflect", ASKED)
        with pytest.raises(JournalCorruptError, match="`step/1/reflect`: the bytes of the line"):
            journal.find_texts(["step/1/reflect"], [ASKED])


def test_a_record_in_the_place_of_another_is_an_error(path: Path) -> None:
    twins = [encode_record(Record(key, ASKED, "rollout", 1)) for key in ("a", "b")]
    path.write_bytes(HEADER + twins[0] + twins[1])
    with FileJournal(path) as journal:
        journal.begin(RUN)
        path.write_bytes(HEADER + twins[1] + twins[0])

        with pytest.raises(JournalCorruptError, match="record of `a`: found the record of `b`"):
            journal.find("a", ASKED)
        with pytest.raises(JournalCorruptError, match="record of `a`: found the record of `b`"):
            journal.find_texts(["a"], [ASKED])


def test_an_append_is_refused_when_somebody_else_has_written(path: Path) -> None:
    with FileJournal(path) as journal:
        journal.begin(RUN)
        with path.open("ab") as other:
            other.write(LINES[0])

        with pytest.raises(JournalCorruptError, match=f"expected {len(HEADER)} bytes, found"):
            journal.append("mine", ASKED, "rollout", 1)
        assert journal.find("mine", ASKED) is None
    assert path.read_bytes() == HEADER + LINES[0]


def test_a_journal_that_is_deleted_is_noticed_at_the_next_sync(path: Path) -> None:
    journal = FileJournal(path)
    journal.begin(RUN)
    journal.append("mine", ASKED, "rollout", 1)
    path.unlink()

    for end in (journal.sync, journal.close):
        with pytest.raises(JournalWriteError, match="was deleted while it was written to"):
            end()


def test_a_journal_that_is_replaced_is_noticed_at_the_next_sync(path: Path) -> None:
    path.write_bytes(WHOLE)
    journal = FileJournal(path)
    journal.begin(RUN)
    copy = path.with_name("copy")
    copy.write_bytes(WHOLE)
    copy.replace(path)

    for end in (journal.sync, journal.close):
        with pytest.raises(JournalCorruptError, match="was replaced by another file"):
            end()
    assert read(path) == RECORDS


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(JournalWriteError, match=r"there is no folder .*; create it first"):
        FileJournal(tmp_path / "runs" / "journal.jsonl")
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalWriteError, match="cannot be opened: Is a directory"):
        FileJournal(tmp_path)


def test_a_device_is_no_journal(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(JournalError, match="is not a regular file"):
        FileJournal(pipe)


def test_a_refused_file_is_not_left_locked(path: Path) -> None:
    path.write_bytes(b"dear diary")
    with pytest.raises(JournalCorruptError):
        FileJournal(path)
    path.write_bytes(WHOLE)

    assert read(path) == RECORDS
