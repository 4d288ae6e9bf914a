"""The photos of receipts: the figures of the page, and where the photos go."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from promptgraft.cli.main import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "receipts"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "receipts", ignore=shutil.ignore_patterns("runs"))
    monkeypatch.chdir(tmp_path / "receipts")
    return tmp_path / "receipts"


def test_the_search_learns_from_photos_and_keeps_each_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize"]) == 0
    printed = capsys.readouterr().out
    page = (folder / "README.md").read_text("utf-8")
    for line in re.findall(r"^(?:test|validation) .*$", page, re.MULTILINE):
        assert line in printed
    [kept] = (folder / "runs").iterdir()
    photos = {path.read_bytes() for path in (folder / "photos").iterdir()}
    assert sorted(path.read_bytes() for path in (kept / "files").iterdir()) == sorted(photos)
    text = b"".join(path.read_bytes() for path in kept.rglob("*.json*"))
    assert b"PNG" not in text
    assert b"iVBORw0KGgo" not in text, "an image in Base64"
    assert re.search(rb"\[image \d\d\.png [0-9a-f]{16}\]", text)


def test_a_photo_that_is_exchanged_makes_another_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize"]) == 0
    [kept] = (folder / "runs").iterdir()
    config = json.loads((kept / "config.json").read_text("utf-8"))
    capsys.readouterr()
    for photo in (folder / "photos").iterdir():
        photo.write_bytes(photo.read_bytes() + b"\0")
    assert run(["resume", str(config["id"])]) != 0
    assert "dataset" in capsys.readouterr().err
