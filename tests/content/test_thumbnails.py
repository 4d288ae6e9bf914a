"""Thumbnails in reports: small, of the run's own images, and nothing that a model says."""

from __future__ import annotations

import base64
import io
import random
import struct
import sys
from pathlib import Path

import pytest

from image_files import PDF, png
from promptgraft import File, Image
from promptgraft.journal.file import keep_files
from promptgraft.runs.report.data import thumbnails


def noise(side: int = 200) -> bytes:
    """Return a PNG that does not shrink."""
    pillow = pytest.importorskip("PIL.Image")
    data = random.Random(0).randbytes(side * side * 3)
    written = io.BytesIO()
    pillow.frombytes("RGB", (side, side), data).save(written, "PNG")
    return written.getvalue()


def shown(folder: Path, *files: File, text: str = "") -> dict[str, bytes]:
    keep_files(folder, files)
    found = thumbnails(folder, [text or " ".join(map(str, files))])
    return {name: base64.b64decode(address.partition(",")[2]) for name, address in found.items()}


def test_a_small_image_is_shown_as_it_is(tmp_path: Path) -> None:
    image = Image(data=png(), name="a.png")
    assert shown(tmp_path, image) == {str(image): image.read()}


def test_a_large_image_is_made_smaller(tmp_path: Path) -> None:
    image = Image(data=noise(), name="a.png")
    [data] = shown(tmp_path, image).values()
    assert len(data) < image.size / 5
    assert Image(data=data).pixels == (160, 160)


def test_without_pillow_a_large_image_is_only_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image(data=noise(), name="a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert shown(tmp_path, image) == {}
    small = Image(data=png(caption="x" * 8_000), name="b.png")
    assert shown(tmp_path, small) == {str(small): small.read()}


def test_files_and_strangers_are_not_shown(tmp_path: Path) -> None:
    image, contract = Image(data=png(), name="a.png"), File(data=PDF, name="c.pdf")
    strange = f"[image a.png {'0' * 16}] [image ../x {image.sha256[:15]}g] [image a.png *]"
    assert shown(tmp_path, image, contract, text=f"{contract} {strange}") == {}
    assert thumbnails(tmp_path / "none", [str(image)]) == {}


def test_damaged_and_huge_images_are_not_shown(tmp_path: Path) -> None:
    whole = noise()
    damaged = Image(data=whole[:9_000], name="a.png")
    header = png()[:16] + struct.pack(">II", 60_000, 60_000) + png()[24:]
    huge = Image(data=header + b"\0" * 5_000, name="b.png")
    assert shown(tmp_path, damaged, huge) == {}
