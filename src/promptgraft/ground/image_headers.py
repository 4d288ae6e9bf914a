"""Facts in the bytes of pictures: media type, width and height, and the caption stored in them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_PNG = b"\x89PNG\r\n\x1a\n"
_STARTS = (
    (_PNG, "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types that the providers take."""

_CAPTION = b"Description"  # the keyword that the PNG specification has for it
_LONGEST_CAPTION = 2_000
# Segments of a JPEG file that begin a frame and hold its size.
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_COMMENT, _SCAN, _END = 0xFE, 0xDA, 0xD9


def media_type_of(data: bytes) -> str | None:
    """Return the media type of an image or a PDF by its first bytes; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _STARTS if data.startswith(start)), None)


def size_of(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels; None if the header is damaged or of another format."""
    try:
        match media_type_of(data):
            case "image/png":
                width, height = struct.unpack_from(">II", data, 16)
                return width, height
            case "image/gif":
                width, height = struct.unpack_from("<HH", data, 6)
                return width, height
            case "image/jpeg":
                return _jpeg_size(data)
            case "image/webp":
                return _webp_size(data)
    except (struct.error, IndexError):
        pass
    return None


def caption_of(data: bytes) -> str:
    """Return the caption stored in a PNG file, or the comment of a JPEG file; may be empty."""
    try:
        match media_type_of(data):
            case "image/png":
                texts = _png_captions(data)
            case "image/jpeg":
                texts = (body.decode("utf-8") for kind, body in _segments(data) if kind == _COMMENT)
            case _:
                return ""
        return next(texts, "").strip()[:_LONGEST_CAPTION]
    except (struct.error, UnicodeDecodeError, zlib.error, IndexError):
        return ""


def _png_captions(data: bytes) -> Iterator[str]:
    at = len(_PNG)
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        keyword, _, body = data[at + 8 : at + 8 + length].partition(b"\0")
        if keyword == _CAPTION and kind == b"tEXt":
            yield body.decode("latin-1")
        elif keyword == _CAPTION and kind == b"iTXt" and body[:1] == b"\0":
            # After two flags: the language, the translated keyword, and the text.
            yield body[2:].split(b"\0", 2)[2].decode("utf-8")
        at += 12 + length


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield marker and content of the segments of a JPEG file before its first scan."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in (_SCAN, _END):
            return
        (length,) = struct.unpack_from(">H", data, at + 2)
        yield marker, data[at + 4 : at + 2 + length]
        at += 2 + length


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    for marker, body in _segments(data):
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", body, 1)
            return width, height
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            width, wide, height, high = struct.unpack_from("<HBHB", data, 24)
            return width + (wide << 16) + 1, height + (high << 16) + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    return None
