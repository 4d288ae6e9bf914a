"""Content: texts, images and files, of which inputs and prompts are made.

A text is a ``str``; an :class:`Image` or :class:`File` stands among texts as a value of its own.
Where only a text will do, its name stands in for it: ``[image photo.png 3f9c1a2b4c5d6e7f]``. Its
plain form, which digests and journals use, is its name, media type and SHA-256, never its bytes.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypeGuard, cast
from urllib.parse import unquote, urlsplit

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.files import is_file
from promptgraft.ground.serde import HexDigest, Json, PlainForm, field_names, shown

MOST_BYTES = 32 * 1024 * 1024
"""The largest file: no provider takes more in one request."""

_SHORT = 16  # hexadecimal digits: no two files of a run share as many
_NAME = re.compile(r"\[(?:image|file) [^\[\]\n]{1,60} [0-9a-f]{16}\]")
_NAME_CHARS = 60
_UNNAMED = re.compile(r"[^\w.() +-]+")
_DATA_URL = re.compile(
    r"data:(?P<type>[\w.+/-]*)(?:;[\w-]+=[\w.-]+)*;base64,(?P<data>.*)", re.DOTALL
)
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml")
# The names of media types by extension, without those that a machine adds to them.
_KINDS = mimetypes.MimeTypes(filenames=())


def _as_path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


@attrs.frozen
class File(PlainForm):
    """A file that a model is shown: by its path, its bytes, or an address that it is read from.

    Files are equal if name, media type and content are. The content of an address is not read:
    the provider reads it.

    Attributes:
        path: the file on disk, absolute; None for the others. It is read when it is sent, and must
            be unchanged by then.
        data: the bytes.
        url: an address with ``https`` or ``http``.
        name: its name; by default the last part of the path or address.
        media_type: such as ``application/pdf``; by default by its first bytes or its name.
        sha256: the digest of the bytes, or of the address.
        size: bytes; 0 for an address.
        pixels: width and height of an image; None for others, and where they are not known.

    Raises:
        ConfigError: not exactly one of path, data and address is given, or one is unusable.
        DataFormatError: the file cannot be read, is empty or too large, or of another type.
    """

    path: str | None = attrs.field(default=None, eq=False, converter=_as_path)
    data: bytes | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)
    url: str | None = attrs.field(default=None, kw_only=True, eq=False)
    name: str = attrs.field(default="", kw_only=True)
    media_type: str = attrs.field(default="", kw_only=True)
    sha256: HexDigest = attrs.field(init=False)
    size: int = attrs.field(init=False, eq=False)
    pixels: tuple[int, int] | None = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        what = type(self).__name__
        sources = [source for source in (self.path, self.data, self.url) if source is not None]
        if len(sources) != 1:
            raise ConfigError(
                f"{what}: expected either a path, `data` or `url`, found {len(sources)} of them"
            )
        if self.url is not None:
            _check_address(self.url, what)
            start, content, size = b"", self.url.encode(), 0
            named = unquote(urlsplit(self.url).path)
        else:
            start = content = self._content()
            size, named = len(content), self.path or ""
        name = _UNNAMED.sub("_", self.name or Path(named).name)[-_NAME_CHARS:] or what.lower()
        kind = media_type_of(start)
        if kind is None and not (start and self.kind == "image"):
            # Only the bytes of an image say what it is, not its name.
            kind = self.media_type or _KINDS.guess_type(name)[0]
        for field, value in (
            ("name", name),
            ("media_type", kind or "application/octet-stream"),
            ("sha256", HexDigest(hashlib.sha256(content).hexdigest())),
            ("size", size),
            ("pixels", size_of(start)),
        ):
            object.__setattr__(self, field, value)

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            DataFormatError: the file cannot be read or has changed, or it is an address.
        """
        if self.url is not None:
            raise DataFormatError(f"{self.url}: its bytes are with the provider, not here")
        data = self._content()
        if self.data is None and hashlib.sha256(data).hexdigest() != self.sha256:
            raise DataFormatError(
                f"{self.path}: it has changed since it was loaded; restore it or start again"
            )
        return data

    def _content(self) -> bytes:
        if self.data is not None:
            data, where = self.data, f"{type(self).__name__}: data"
            if not isinstance(data, bytes):
                raise ConfigError(f"{where}: expected bytes, found {shown(data)}")
        else:
            where = str(self.path)
            data = _read(where)
        if not 0 < len(data) <= MOST_BYTES:
            raise DataFormatError(
                f"{where}: expected 1 to {MOST_BYTES:,} bytes, found {len(data):,}"
            )
        return data

    @property
    def base64(self) -> str:
        """The bytes in Base64; raises as :meth:`read` does."""
        return base64.b64encode(self.read()).decode("ascii")

    @property
    def data_url(self) -> str:
        """The bytes as a ``data:`` address; raises as :meth:`read` does."""
        return f"data:{self.media_type};base64,{self.base64}"

    @property
    def text(self) -> str | None:
        """The content of a text file in UTF-8; None for any other file."""
        if self.url is not None or not self.media_type.startswith(_TEXTS):
            return None
        try:
            return self.read().decode("utf-8")
        except UnicodeDecodeError:
            return None

    @property
    def kind(self) -> str:
        """``image`` or ``file``."""
        return "file"

    def plain_form(self) -> Json:
        return {
            "type": self.kind,
            "name": self.name,
            "media_type": self.media_type,
            "sha256": str(self.sha256),
        }

    def __str__(self) -> str:
        return f"[{self.kind} {self.name} {self.sha256[:_SHORT]}]"


@attrs.frozen
class Image(File):
    """An image that a model is shown: PNG, JPEG, GIF or WebP; see :class:`File`."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.url is None and self.media_type not in IMAGE_TYPES:
            raise DataFormatError(
                f"{self.path or self.name}: expected an image of type "
                f"{', '.join(kind.partition('/')[2] for kind in IMAGE_TYPES)}, found "
                f"{self.media_type}; convert it, or give it as a file"
            )

    @property
    def kind(self) -> str:
        return "image"

    @property
    def caption(self) -> str:
        """The caption stored in the file: a PNG's ``Description``, a JPEG's comment; or empty."""
        return "" if self.url is not None else caption_of(self.read())


Input: TypeAlias = "Json | File | Sequence[Input] | Mapping[str, Input]"
"""Plain data in which images and files may stand."""

Content: TypeAlias = tuple[str | File, ...]
"""Texts, images and files in order."""


def files_in(value: object) -> Iterator[File]:
    """Yield the images and files in a value, in order, each content once."""
    files_seen: set[str] = set()
    for file in _files_in(value):
        if str(file) not in files_seen:
            files_seen.add(str(file))
            yield file


def _files_in(value: object) -> Iterator[File]:
    if isinstance(value, File):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _files_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _files_in(item)
    elif not isinstance(value, type):
        for name in field_names(type(value)) or ():
            yield from _files_in(getattr(value, name))


def kinds_of_files(values: Sequence[object]) -> list[int]:
    """Return the places of the first value and of the first with each kind of file."""
    places: dict[tuple[str, str, bool] | None, int] = {None: 0} if values else {}
    for place, value in enumerate(values):
        for file in files_in(value):
            places.setdefault((file.kind, file.media_type, file.url is None), place)
    return sorted(set(places.values()))


def named(value: Input) -> Json:
    """Return plain data with the names of images and files in their place; content as one text."""
    if isinstance(value, File):
        return str(value)
    if isinstance(value, Mapping):
        return {key: named(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return in_words(value) if is_content(value) else [named(item) for item in value]
    return cast("Json", value)


def in_words(content: str | Sequence[str | File]) -> str:
    """Return content as one text, with the names of images and files on lines of their own."""
    return content if isinstance(content, str) else "\n".join(map(str, content))


def is_content(value: object) -> TypeGuard[Sequence[str | File]]:
    """Return whether a value is a list of texts, images and files, with one that is no text."""
    if not isinstance(value, (list, tuple)):
        return False
    return any(isinstance(item, File) for item in value) and all(
        isinstance(item, (str, File)) for item in value
    )


def names_in(text: str) -> list[str]:
    """Return what may be names of images and files in a text, in order."""
    return _NAME.findall(text)


def cut_at(text: str, files: Iterable[File]) -> Content:
    """Cut a text at the names of files, and put each file in place of its first name there."""
    places = [(at, file) for file in files if (at := text.find(str(file))) >= 0]
    return cut(text, sorted(places, key=lambda place: place[0]))


def cut(text: str, places: Iterable[tuple[int, File]]) -> Content:
    """Cut a text at the places, in order, where the names of files stand."""
    content: list[str | File] = []
    end = 0
    for start, file in places:
        content += [text[end:start], file]
        end = start + len(str(file))
    return tuple(piece for piece in (*content, text[end:]) if piece != "")


def from_data_url(address: str) -> tuple[bytes, str] | None:
    """Return bytes and media type of a ``data:`` address; None for any other.

    Raises:
        DataFormatError: it is not Base64.
    """
    if not (parts := _DATA_URL.fullmatch(address)):
        return None
    return from_base64(parts["data"]), parts["type"]


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in Base64.

    Raises:
        DataFormatError: it is something else.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise DataFormatError(f"expected Base64, found {shown(text)}") from None


def _check_address(url: object, what: str) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() else None
    except ValueError:  # such as a bracket that never closes
        parts = None
    if parts is None or parts.scheme not in ("https", "http") or not parts.hostname:
        raise ConfigError(
            f"{what}: url: expected an address with https, found {shown(url)}; give bytes as `data`"
        )
    if parts.password or parts.username:
        raise ConfigError(f"{what}: url: expected no password in it; give the bytes as `data`")


def _read(path: str) -> bytes:
    # A pipe would be waited for, perhaps for ever.
    if not is_file(Path(path)):
        raise DataFormatError(f"{path}: expected a file, found none")
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None


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
