"""Images and files for tests, made without an image library."""

from __future__ import annotations

import struct
import zlib

from promptgraft.ground.content import Image

PDF = b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"


def png(
    width: int = 4, height: int = 3, *, colour: tuple[int, int, int] = (9, 9, 9), caption: str = ""
) -> bytes:
    """Return a PNG of one colour, with a caption."""
    rows = (b"\0" + bytes(colour) * width) * height
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))]
    if caption:
        chunks.append((b"iTXt", b"Description\0\0\0\0\0" + caption.encode()))
    chunks += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def picture(name: str = "photo.png", caption: str = "", red: int = 9) -> Image:
    """Return an image in memory."""
    return Image(data=png(colour=(red, 9, 9), caption=caption), name=name)
