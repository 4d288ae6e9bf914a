"""Pictures with a palette, written with the standard library."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS, _PALETTE = 4, 3

Color = tuple[int, int, int]


def palette_png(rows: Sequence[Sequence[int]], palette: Sequence[Color]) -> bytes:
    """Return a PNG.

    Args:
        rows: for each pixel the position of its colour; rows of one length, at least one pixel.
        palette: at most 16 colours, each red, green and blue from 0 to 255.
    """
    width = len(rows[0])
    packed = b"".join(b"\0" + _packed(row) for row in rows)
    header = struct.pack(">IIBBBBB", width, len(rows), _BITS, _PALETTE, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", bytes(part for color in palette for part in color)),
            _chunk(b"IDAT", zlib.compress(packed, 9)),
            _chunk(b"IEND", b""),
        )
    )


def data_url(png: bytes) -> str:
    """Return a picture as the address of itself."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _packed(row: Sequence[int]) -> bytes:
    """Return two pixels a byte, the left one in the higher half."""
    even = [*row, 0] if len(row) % 2 else row
    return bytes(left << 4 | right for left, right in zip(even[::2], even[1::2], strict=True))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
