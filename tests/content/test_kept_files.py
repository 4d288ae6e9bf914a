"""Images and files beside a journal: once, whole, found by their names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from image_files import PDF, picture, png
from promptgraft import File, FileJournal, Image, MemoryJournal
from promptgraft.errors import DataFormatError, JournalWriteError
from promptgraft.journal.file import keep_files, kept_file


def test_each_content_is_kept_once_beside_the_journal(tmp_path: Path) -> None:
    first, same = picture("a.png"), picture("b.png")
    files = [first, same, File(data=PDF, name="c.pdf"), Image(url="https://example.com/a.png")]
    for _ in range(2):
        with FileJournal(tmp_path / "journal.jsonl") as journal:
            journal.keep_files(files)
    kept = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert kept == sorted([f"{first.sha256}.png", f"{files[2].sha256}.pdf"])
    found = kept_file(tmp_path / "files", first.sha256[:16])
    assert found is not None
    assert found.read_bytes() == first.read()


def test_a_journal_without_files_makes_no_folder(tmp_path: Path) -> None:
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        journal.keep_files([])
    assert not (tmp_path / "files").exists()
    MemoryJournal().keep_files([picture()])


def test_a_damaged_copy_is_written_again(tmp_path: Path) -> None:
    image = picture()
    path = tmp_path / f"{image.sha256}.png"
    for damage in (b"", b"x" * image.size):
        path.write_bytes(damage)
        keep_files(tmp_path, [image])
        assert path.read_bytes() == image.read()


def test_a_file_that_is_kept_may_leave_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    image = Image(tmp_path / "a.png")
    keep_files(tmp_path / "files", [image])
    (tmp_path / "a.png").unlink()
    keep_files(tmp_path / "files", [image])
    with pytest.raises(DataFormatError, match="expected a file, found none"):
        keep_files(tmp_path / "others", [image])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("no folder")
    with pytest.raises(JournalWriteError, match=r"files/\w+\.png: the file photo\.png cannot be"):
        keep_files(tmp_path / "files", [picture()])


@pytest.mark.parametrize("short", ["", "*", "../../etc", "0" * 15, "g" * 16])
def test_only_digests_are_looked_up(short: str, tmp_path: Path) -> None:
    keep_files(tmp_path, [picture()])
    assert kept_file(tmp_path, short) is None


def test_kept_files_have_the_permissions_of_others(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        keep_files(tmp_path / "files", [picture()])
    finally:
        os.umask(before)
    [path] = (tmp_path / "files").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
