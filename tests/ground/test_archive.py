"""Archives from strangers: nothing is unpacked before everything is checked."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from promptgraft.errors import DataFormatError
from promptgraft.ground.archive import read_archive, write_archive
from promptgraft.ground.work import WorkBudget

MEMBERS = {"a.txt": b"first " * 500, "folder/b.bin": bytes(range(256)) * 40}


def packed(entry: zipfile.ZipInfo, content: bytes = b"x") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(entry, content)
    return file.getvalue()


def linked() -> bytes:
    entry = zipfile.ZipInfo("link")
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return packed(entry, b"/etc/passwd")


def test_members_are_unpacked_as_they_were_packed(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"of a file" * 1000)
    path = tmp_path / "archive.zip"
    write_archive(path, {**MEMBERS, "c": tmp_path / "c"})
    archive = read_archive(path, WorkBudget())
    folder = tmp_path / "unpacked"
    archive.unpack(folder, {name: name for name in archive.names})

    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert files == {**MEMBERS, "c": b"of a file" * 1000}
    assert archive.read("a.txt") == MEMBERS["a.txt"]
    assert path.stat().st_size < 2000
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_equal_members_make_equal_archives(tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip"):
        write_archive(tmp_path / name, MEMBERS)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "../out",
        "a/../../out",
        "/etc/cron.d/out",
        "a//b",
        "./a",
        "folder/",
        "a\\..\\out",
        "C:out",
        "line\nbreak",
        "x" * 300,
        "/".join("a" * 30),
        "",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.zip"
    path.write_bytes(packed(zipfile.ZipInfo(name)))
    with pytest.raises(DataFormatError, match="expected a relative path below the archive"):
        read_archive(path, WorkBudget())


def test_a_name_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile.zip"
    path.write_bytes(packed(zipfile.ZipInfo("harmless..")).replace(b"harmless..", b"harmless\0."))
    with pytest.raises(DataFormatError):
        read_archive(path, WorkBudget())


def test_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile.zip"
    path.write_bytes(linked())
    with pytest.raises(DataFormatError, match="expected a plain file"):
        read_archive(path, WorkBudget())


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile.zip"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("aa", "first")
        archive.writestr("ab", "second")
    path.write_bytes(file.getvalue().replace(b"ab", b"aa"))
    with pytest.raises(DataFormatError, match="it is there twice"):
        read_archive(path, WorkBudget())


def test_an_archive_of_very_many_members_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a"), b"")
    content = path.read_bytes()
    members, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    member = content[members:end]
    size = struct.pack("<L", len(member) * 100_001)
    head, foot = content[:members], content[end : end + 12] + size + content[end + 16 :]
    path.write_bytes(head + member * 100_001 + foot)
    with pytest.raises(DataFormatError, match="at most 100,000 members, found 100,001"):
        read_archive(path, WorkBudget())


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    write_archive(path, {f"{number}": bytes(10_000_000) for number in range(10)})
    assert path.stat().st_size < 200_000
    with pytest.raises(DataFormatError, match="expected at most 50,000,000 bytes in all"):
        read_archive(path, WorkBudget(bytes=50_000_000))


def test_a_member_that_lies_about_its_size_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    write_archive(path, {"big": bytes(10_000_000)})
    lie = path.read_bytes().replace((10_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(lie)
    archive = read_archive(path, WorkBudget(bytes=100_000))
    with pytest.raises(DataFormatError, match="is damaged, or is no archive"):
        archive.read("big")


def test_every_cut_and_every_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.zip", tmp_path / "damaged.zip"
    write_archive(whole, {"a": b"some text that is packed", "b": b"more of it"})
    content = whole.read_bytes()
    damaged = [content[:size] for size in range(len(content))]
    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 0xFF
        damaged.append(bytes(flipped))
    noticed = 0
    for bad in damaged:
        path.write_bytes(bad)
        try:
            archive = read_archive(path, WorkBudget())
            read = {name: archive.read(name) for name in archive.names}
        except DataFormatError:
            noticed += 1
        else:
            assert set(read.values()) <= {b"some text that is packed", b"more of it"}
    assert noticed > len(content)
