"""Thumbnails of the images that a run keeps, as addresses that a page can hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from promptgraft.ground.content import IMAGE_TYPES, media_type_of, names_in, size_of
from promptgraft.journal.file import kept_file

_SIDE = 160
_SMALL = 4 * 1024
"""Bytes up to which an image is shown as it is."""
_SMALL_ALONE = 24 * 1024
"""The same where no thumbnail can be made."""
_MOST_PIXELS = 50_000_000
_MOST = 400
"""Thumbnails of one report."""


def thumbnails(folder: Path, texts: Iterable[str]) -> Mapping[str, str]:
    """Return ``data:`` addresses of the images that texts name, by name.

    Args:
        folder: the folder of kept files; it need not exist.
        texts: the texts, of which only the first few hundred images are shown.
    """
    by_name: dict[str, str] = {}
    if not folder.is_dir():
        return by_name
    for name in (name for text in texts for name in names_in(text)):
        if len(by_name) == _MOST:
            break
        path = None if name in by_name else kept_file(folder, name[-17:-1])
        address = "" if path is None else _thumbnail(path.read_bytes())
        if address:
            by_name[name] = address
    return by_name


def _thumbnail(data: bytes) -> str:
    media_type = media_type_of(data)
    pixels = size_of(data)
    if media_type not in IMAGE_TYPES or pixels is None or pixels[0] * pixels[1] > _MOST_PIXELS:
        return ""
    if len(data) > _SMALL and find_spec("PIL") is not None:
        return _made_smaller(data)
    return _address(media_type, data) if len(data) <= _SMALL_ALONE else ""


def _made_smaller(data: bytes) -> str:
    from PIL import Image  # takes its time, and is not there everywhere

    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "GIF", "WEBP"]) as picture:
            picture.thumbnail((_SIDE, _SIDE))
            small = io.BytesIO()
            picture.convert("RGB").save(small, "JPEG", quality=70)
    # What Pillow raises for damaged files, and for those that would fill the memory.
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return ""
    return _address("image/jpeg", small.getvalue())


def _address(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"
