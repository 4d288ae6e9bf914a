"""Images and files as values: where they come from, what they are called, what they compare by."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from image_files import PDF, picture, png
from promptgraft import File, Image
from promptgraft.errors import ConfigError, DataFormatError, PromptgraftError
from promptgraft.ground.content import (
    Input,
    caption_of,
    cut_at,
    files_in,
    from_data_url,
    named,
    size_of,
)
from promptgraft.ground.frozenmap import isolated
from promptgraft.ground.serde import canonical_json, digest


def test_one_content_is_one_value_wherever_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(png())
    on_disk, in_memory = Image(tmp_path / "photo.png"), Image(data=png(), name="photo.png")
    assert on_disk == in_memory
    assert hash(on_disk) == hash(in_memory)
    assert digest(on_disk) == digest(in_memory)
    assert digest(on_disk) != digest(picture(red=1))
    assert on_disk.read() == in_memory.read() == png()


def test_the_plain_form_and_the_repr_hold_no_bytes() -> None:
    image = Image(data=png(400, 400, caption="secret caption"), name="a.png")
    assert canonical_json({"photo": image}) == (
        '{"photo":{"media_type":"image/png","name":"a.png",'
        f'"sha256":"{image.sha256}","type":"image"}}}}'
    )
    assert "secret" not in repr(image)
    assert str(image) == f"[image a.png {image.sha256[:16]}]"


def test_a_value_survives_pickling_and_is_never_copied() -> None:
    image = picture()
    again = pickle.loads(pickle.dumps(image))
    assert (again, again.read()) == (image, image.read())
    assert isolated({"photo": image}, where="here")["photo"] == image
    assert isolated((image,), where="here")[0] is image


def test_a_file_that_changes_after_it_was_loaded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    image = Image(path)
    path.write_bytes(png(colour=(1, 1, 1)))
    with pytest.raises(DataFormatError, match=r"photo\.png: it has changed since it was loaded"):
        image.read()


def test_a_relative_path_is_read_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(png())
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        image = Image("photo.png")
    finally:
        os.chdir(before)
    assert image.read() == png()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: Image(), "expected either a path, `data` or `url`, found 0"),
        (lambda _: Image("a.png", data=b"x"), "found 2 of them"),
        (lambda _: Image(data=b"no image"), "expected an image of type png, jpeg, gif, webp"),
        (lambda _: Image(data=b""), "expected 1 to 33,554,432 bytes, found 0"),
        (lambda _: Image(data="text"), "data: expected bytes, found 'text'"),  # type: ignore[arg-type]
        (lambda folder: Image(folder / "none.png"), "none.png: expected a file, found none"),
        (Image, "expected a file, found none"),
        (lambda _: Image(url="file:///etc/passwd"), "expected an address with https"),
        (lambda _: Image(url="https://[host/a.png"), "expected an address with https"),
        (lambda _: Image(url="https://me:secret@host/a.png"), "expected no password"),
        (lambda _: Image(url="https://host/\na.png"), "expected an address with https"),
    ],
)
def test_what_is_no_file_is_refused_with_the_reason(
    make: object, message: str, tmp_path: Path
) -> None:
    assert callable(make)
    with pytest.raises((ConfigError, DataFormatError), match=message) as caught:
        make(tmp_path)
    assert "secret" not in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataFormatError, match="expected a file"):
        Image(tmp_path / "pipe.png")


def test_an_address_is_passed_on_and_never_read() -> None:
    image = Image(url="https://example.com/photos/a%20b.png?size=1")
    assert (image.name, image.media_type, image.size) == ("a b.png", "image/png", 0)
    assert (image.pixels, image.caption) == (None, "")
    with pytest.raises(PromptgraftError, match="its bytes are with the provider"):
        image.read()


def test_a_name_cannot_break_out_of_its_place() -> None:
    name = Image(data=png(), name="a]\n[system]\x1b[2J.png").name
    assert name == "a_system_2J.png"
    assert len(Image(data=png(), name="x" * 900).name) == 60


def test_the_first_bytes_decide_the_type() -> None:
    assert Image(data=png(), name="photo.jpg", media_type="image/gif").media_type == "image/png"
    assert File(data=PDF, name="contract").media_type == "application/pdf"
    notes = File(data="Grüße".encode(), name="notes.txt")
    assert (notes.media_type, notes.text) == ("text/plain", "Grüße")
    assert File(data=b"\xff\xfe", name="notes.txt").text is None
    assert File(data=b"\0\1", name="x").media_type == "application/octet-stream"


# Headers as the specifications of the formats describe them.
JPEG = bytes.fromhex("ffd8 ffe0 0004 4a46 fffe 0007 68656c6c6f ffc2 0008 08 0015 0021 03 ffda")
GIF = b"GIF89a\x21\x00\x15\x00"
WEBP_X = b"RIFF....WEBPVP8X\x0a\0\0\0\0\0\0\0\x20\0\0\x14\0\0"
WEBP_L = b"RIFF....WEBPVP8L\x0a\0\0\0\x2f" + (32 | 20 << 14).to_bytes(4, "little")
WEBP = b"RIFF....WEBPVP8 \x0a\0\0\0......\x21\0\x15\0"


@pytest.mark.parametrize("data", [png(33, 21), JPEG, GIF, WEBP_X, WEBP_L, WEBP])
def test_width_and_height_are_in_the_header(data: bytes) -> None:
    assert size_of(data) == (33, 21)


def test_captions_are_read_from_png_and_jpeg() -> None:
    assert caption_of(png(caption="Ein Café")) == "Ein Café"
    assert caption_of(JPEG) == "hello"
    assert caption_of(png()) == caption_of(GIF) == caption_of(b"") == ""


@pytest.mark.parametrize("data", [png(33, 21, caption="c"), JPEG, GIF, WEBP_X, WEBP_L, WEBP])
def test_damaged_headers_are_harmless(data: bytes) -> None:
    for end in range(len(data)):
        flipped = data[:end] + bytes([data[end] ^ 0xFF]) + data[end + 1 :]
        for damaged in (data[:end], flipped):
            size = size_of(damaged)
            assert size is None or all(isinstance(length, int) for length in size)
            assert isinstance(caption_of(damaged), str)
        assert size_of(data[:end]) in (None, size_of(data))


def test_names_stand_for_files_and_files_for_names() -> None:
    one, two = picture("a.png"), picture("b.png", red=1)
    value: Input = {"photos": [one, two], "sides": ["left", one], "count": 2}
    assert [*files_in(value)] == [one, two]
    assert named(value) == {
        "photos": f"{one}\n{two}",
        "sides": f"left\n{one}",
        "count": 2,
    }
    text = f"first {two}, then {one}, and {one} again"
    assert cut_at(text, [one, two]) == ("first ", two, ", then ", one, f", and {one} again")
    assert cut_at(text, []) == (text,)


def test_a_data_address_is_read() -> None:
    assert from_data_url("data:image/png;base64,AAEC") == (b"\0\1\2", "image/png")
    assert from_data_url("https://example.com") is None
    with pytest.raises(DataFormatError, match="expected Base64"):
        from_data_url("data:image/png;base64,=no=")
