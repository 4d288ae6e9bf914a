"""What the options of adapters may be, beside what any setting may be."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.adapters.calling.access import ADDRESS, is_address
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.serde import unstructure
from promptgraft.strict.checks import check


def as_tuple(value: object) -> object:
    """Return a list as a tuple, and anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def _texts(value: object) -> tuple[str, ...] | None:
    items = tuple(value) if isinstance(value, (list, tuple)) else ("",)
    return items if all(isinstance(one, str) and one for one in items) else None


def _plain_fields(value: object) -> Mapping[str, object] | None:
    try:
        return value if isinstance(value, Mapping) and unstructure(value) is not None else None
    except DataFormatError:
        return None


def _secret(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() and _is_header(value) else None


def _headers(value: object) -> Mapping[str, str] | None:
    if isinstance(value, dict) and all(map(_is_header, (*value, *value.values()))):
        return value
    return None


def _address(value: object) -> str | None:
    return value if isinstance(value, str) and is_address(value) else None


def _is_header(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isascii() and value.isprintable()


TEXTS = check(
    "a list of texts", _texts, {"type": "array", "items": {"type": "string", "minLength": 1}}
)
FIELDS = check("a mapping that JSON can hold", _plain_fields, {"type": "object"}, hidden=True)
SECRET = check("printable ASCII characters", _secret, {"type": "string"}, hidden=True)
HEADERS = check(
    "a mapping of header names to printable ASCII texts", _headers, {"type": "object"}, hidden=True
)
# An address may hold a password.
ADDRESS_OF_SERVER = check(ADDRESS, _address, {"type": "string"}, hidden=True)


def refuse_fields(adapter: object, fields: Mapping[str, object], taken: Mapping[str, str]) -> None:
    """Refuse further fields of a request that something else sets.

    Args:
        adapter: the adapter.
        fields: its ``extra_body``.
        taken: what sets a field instead.

    Raises:
        ConfigError: naming the field.
    """
    for field in fields:
        if field in taken:
            name = type(adapter).__name__
            raise ConfigError(f"{name}: extra_body: `{field}` is set by {taken[field]}")
