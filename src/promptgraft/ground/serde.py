"""Plain data: conversion, strict JSON, canonical JSON and digests."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, NewType, NoReturn, TypeAlias, TypeVar
from uuid import UUID

import attrs
import msgspec

from promptgraft.errors import DataFormatError, user_errors

HexDigest = NewType("HexDigest", str)
"""64 lower-case hexadecimal digits: a SHA-256."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

T = TypeVar("T")

_SHOWN_CHARS = 80

_TEXTS = {str}
_ALWAYS_ALIKE = {str, bool, type(None)}
_SORTED = msgspec.json.Encoder(order="sorted")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class PlainForm:
    """Base of classes whose plain form is not that of their fields."""

    __slots__ = ()

    def plain_form(self) -> Json:
        """Return the value as plain data."""
        raise NotImplementedError


def unstructure(value: object, *, path: str = "$") -> Json:
    """Convert attrs classes, dataclasses, enums, mappings, sequences, sets and dates to JSON data.

    Raises ``DataFormatError``, whose path begins with ``path``, if a part of ``value`` has no
    plain form.
    """
    try:
        return _plain(value, path)
    except RecursionError:
        raise DataFormatError(f"{path}: the data is nested too deeply") from None


def canonical_json(value: object) -> str:
    """Return the one JSON text of ``value``: sorted keys, no spaces, no NaN.

    Raises as :func:`unstructure` does.
    """
    return plain_json(unstructure(value))


def plain_json(plain: Json) -> str:
    """Like :func:`canonical_json`, for data that is plain already."""
    # Every call of a model is digested, and msgspec is several times faster.
    try:
        text = _SORTED.encode(plain).decode() if _is_written_alike(plain) else None
    except (UnicodeEncodeError, RecursionError):  # half of a surrogate pair, or deep
        text = None
    try:
        return _CANONICAL.encode(plain) if text is None else text
    except ValueError as error:  # an integer of absurd length
        raise DataFormatError(f"expected plain data, found {error}") from None


def _is_written_alike(plain: Json) -> bool:
    """Return whether msgspec writes a value as Python does."""
    kind = type(plain)
    if kind in _ALWAYS_ALIKE:
        return True
    if isinstance(plain, dict):
        return {*map(type, plain)} <= _TEXTS and all(map(_is_written_alike, plain.values()))
    if isinstance(plain, list):
        return all(map(_is_written_alike, plain))
    if kind is float:
        # Exponents, infinity and NaN are not.
        digits = repr(plain)
        return "e" not in digits and "n" not in digits
    return isinstance(plain, int) and kind is int and plain.bit_length() < 63


def digest(value: object) -> HexDigest:
    """Return the SHA-256 of the canonical JSON of ``value``."""
    return digest_text(canonical_json(value))


def digest_json(plain: Json) -> HexDigest:
    """Like :func:`digest`, for data that is plain already."""
    return digest_text(plain_json(plain))


def digest_text(text: str) -> HexDigest:
    """Return the SHA-256 of ``text`` in UTF-8."""
    # Answers of models may hold lone surrogates.
    return HexDigest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def digest_all(beginning: str, ends: Iterable[str]) -> list[HexDigest]:
    """Return the :func:`digest_text` of ``beginning`` followed by each of ``ends``."""
    begun = hashlib.sha256(beginning.encode("utf-8", "surrogatepass"))
    digests = []
    for end in ends:
        hasher = begun.copy()
        hasher.update(end.encode("utf-8", "surrogatepass"))
        digests.append(HexDigest(hasher.hexdigest()))
    return digests


def parse_json(text: str | bytes, *, where: str) -> Json:
    """Parse JSON strictly: UTF-8, finite numbers, no duplicate keys.

    Raises ``DataFormatError`` with line and column.
    """
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        raise DataFormatError(f"{where}:{error.lineno}:{error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise DataFormatError(
            f"{where}: expected UTF-8, found byte {error.object[error.start]:#04x} "
            f"at offset {error.start}"
        ) from None
    except ValueError as error:  # a MismatchError, or an integer of absurd length
        raise DataFormatError(f"{where}: {error}") from None
    except RecursionError:
        raise DataFormatError(f"{where}: the JSON is nested too deeply") from None


def map_texts(value: Json, change: Callable[[str], str], *, keys: bool = False) -> Json:
    """Apply ``change`` to every text in plain data, with ``keys`` to keys as well."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change, keys=keys) for item in value]
    if isinstance(value, dict):
        named = ((change(key) if keys else key, item) for key, item in value.items())
        return {key: map_texts(item, change, keys=keys) for key, item in named}
    return value


def is_deeper(value: Json, levels: int) -> bool:
    """Return whether lists and objects are nested more than ``levels`` deep."""
    if not isinstance(value, (list, dict)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)


def is_unicode(value: Json) -> bool:
    """Return whether all texts of ``value`` are valid Unicode, without lone surrogates."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


_KEY = re.compile(r"\b(?:sk|pk|rk)-[\w-]{16,}")


def looks_like_a_key(text: str) -> bool:
    """Return whether ``text`` contains something that looks like an API key."""
    return _KEY.search(text) is not None


def without_keys(text: str) -> str:
    """Replace what looks like an API key by ``[secret]``."""
    return _KEY.sub("[secret]", text)


def shown(value: object) -> str:
    """Return a short ``repr`` for messages, without what looks like an API key."""
    # Python refuses to write integers of more than 4,300 digits.
    if isinstance(value, int) and value.bit_length() > 63:
        return f"an integer of {int(value.bit_length() * math.log10(2)) + 1:,} digits"
    try:
        # An address differs from process to process, and answers are compared.
        text = _ADDRESS.sub("", without_keys(repr(value)))
    except (ValueError, RecursionError) as error:  # a huge integer inside, or deeply nested data
        text = f"<{type(value).__name__}: {error}>"
    except user_errors() as error:  # the class is the user's
        text = f"<{type(value).__name__}: its `__repr__` raised {type(error).__name__}>"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST_LOOKED_AT, _MOST_COMPARED, _LONGEST_COMPARED = 10_000, 200, 200


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the known word that a misspelled one most likely is; empty for none.

    Bounded, whatever a file holds: of the first 10,000 known words, the first 200 of a similar
    length are compared, and no word of more than 200 characters is.

    Args:
        word: the word.
        known: the known words.
        cutoff: the least similarity, from 0 to 1, as :mod:`difflib` measures it.
    """
    size = len(word)
    if size > _LONGEST_COMPARED:
        return ""
    alike = (
        candidate
        for candidate in islice(known, _MOST_LOOKED_AT)
        if len(candidate) <= _LONGEST_COMPARED
        and 2 * min(size, len(candidate)) >= cutoff * (size + len(candidate))
    )
    near = difflib.get_close_matches(word, islice(alike, _MOST_COMPARED), n=1, cutoff=cutoff)
    return near[0] if near else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean `x`?)`` for the :func:`nearest` known word, or an empty text."""
    near = nearest(word, known)
    return f" (did you mean `{near}`?)" if near else ""


class MismatchError(ValueError):
    """Data does not have the expected form; the message is fit for users."""


def _loads(text: str | bytes) -> Json:
    decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    if decoded.startswith("\ufeff"):
        raise json.JSONDecodeError("Unexpected byte order mark", decoded, 0)
    parsed: Json = STRICT_JSON.decode(decoded)
    return parsed


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members: dict[str, Json] = {}
    for key, value in pairs:
        if key in members:
            raise MismatchError(f"the key {shown(key)} occurs twice in one object")
        members[key] = value
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise MismatchError(f"expected a finite number, found {name}")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant(text)


class _Decoder(json.JSONDecoder):
    """Words and places a trailing comma as Python 3.13 does, also before that."""

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        try:
            return super().raw_decode(s, idx)
        except json.JSONDecodeError as error:
            before, end = s[: error.pos].rstrip(" \t\r\n"), s[error.pos : error.pos + 1]
            kind = _TRAILING.get((error.msg, end))
            if kind is None or not before.endswith(","):
                raise
            message = f"Illegal trailing comma before end of {kind}"
            raise json.JSONDecodeError(message, s, len(before) - 1) from None


_TRAILING = {
    ("Expecting property name enclosed in double quotes", "}"): "object",
    ("Expecting value", "]"): "array",
}

STRICT_JSON = _Decoder(
    object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite
)
"""The decoder of :func:`parse_json`; raises ``ValueError`` and ``RecursionError``."""


def _plain(value: object, path: str) -> Json:
    # Nearly all values, because it takes long to ask abstract classes.
    if type(value) is str or type(value) is int or type(value) is bool or value is None:
        return value
    if type(value) is list or type(value) is tuple:
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if type(value) is dict:
        return _plain_mapping(value, path)
    # Before texts and numbers, which members of a `StrEnum` or `IntEnum` are too.
    if isinstance(value, Enum):
        return _plain(value.value, path)
    if isinstance(value, float) and not math.isfinite(value):
        raise DataFormatError(f"{path}: expected a finite number, found {value!r}")
    if isinstance(value, (str, int, float)):  # of a class of its own, as texts of numpy
        return next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))
    if isinstance(value, Mapping):
        return _plain_mapping(value, path)
    is_binary = isinstance(value, (bytes, bytearray, memoryview))
    # A row of SQLite is a sequence with keys.
    if isinstance(value, Sequence) and not is_binary and not hasattr(value, "keys"):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        # Sorted as JSON, because items of several types cannot be compared.
        return sorted((_plain(item, path) for item in value), key=canonical_json)
    return _plain_object(value, path)


def _plain_mapping(value: Mapping[Any, object], path: str) -> dict[str, Json]:
    plain = {_plain_key(k, path): _plain(v, f"{path}.{k}") for k, v in value.items()}
    if len(plain) < len(value):
        raise DataFormatError(f"{path}: two keys have the same plain form, in {shown(value)}")
    return plain


def _plain_key(key: object, path: str) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if isinstance(plain, str):
        return plain
    raise DataFormatError(f"{path}: expected string keys, found {shown(key)}")


def _plain_object(value: object, path: str) -> Json:
    if isinstance(value, (date, time, UUID)):
        return str(value) if isinstance(value, UUID) else value.isoformat()
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == int(value) else float(value)
    if isinstance(value, PlainForm):
        return value.plain_form()
    kind: type[Any] = type(value)
    names = field_names(kind)
    if names is not None and not isinstance(value, type):
        # A field may have no value: litellm takes those away that a provider does not send.
        names_set = (name for name in names if hasattr(value, name))
        return {name: _plain(getattr(value, name), f"{path}.{name}") for name in names_set}
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):
        # Takes `dict()`, and is no `Mapping`, such as an example of DSPy.
        members: Any = value
        return _plain_mapping(dict(members), path)
    if hasattr(kind, "dtype") and hasattr(kind, "tolist"):  # a number or a list of numpy
        numbers: Any = value
        if numbers.dtype == "float32":  # 0.1, not 0.10000000149011612
            numbers = numbers.astype("U").astype(float)
        return _plain(numbers.tolist(), path)
    raise DataFormatError(
        f"{path}: expected plain data, an attrs class or a dataclass, found {shown(value)}"
    )


def field_names(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the field names of an attrs class, dataclass or pydantic model; None for others."""
    if kind not in _FIELD_NAMES:
        _FIELD_NAMES[kind] = _find_field_names(kind)
    return _FIELD_NAMES[kind]


# Classes live as long as the process does; so may their field names.
_FIELD_NAMES: dict[type, tuple[str, ...] | None] = {}


def _find_field_names(kind: type[Any]) -> tuple[str, ...] | None:
    if attrs.has(kind):
        return tuple(attribute.name for attribute in attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(kind.model_fields) if is_pydantic(kind) else None


def is_pydantic(kind: object) -> bool:
    """Return whether a type is a model of pydantic, which is imported only by those who use it."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(kind, type):
        return False
    return issubclass(kind, pydantic.BaseModel) and kind is not pydantic.BaseModel
