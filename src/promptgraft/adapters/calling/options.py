"""Checks of the options of adapters; each names adapter and option when it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import attrs

from promptgraft.adapters.calling.access import ADDRESS, is_address
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.serde import shown, unstructure

Option: TypeAlias = "attrs.Attribute[Any]"
Check: TypeAlias = "Callable[[object, Option, Any], None]"


def as_tuple(value: object) -> object:
    """Return a list as a tuple, and anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def text(adapter: object, option: Option, value: Any) -> None:
    """Take a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise _refusal(adapter, option, "a text", value)


def texts(adapter: object, option: Option, value: Any) -> None:
    """Take a tuple of texts that are not empty."""
    if not isinstance(value, tuple) or not all(isinstance(one, str) and one for one in value):
        raise _refusal(adapter, option, "a list of texts", value)


def count(adapter: object, option: Option, value: Any) -> None:
    """Take an integer of at least 1."""
    if not _is_integer(value) or value < 1:
        raise _refusal(adapter, option, "an integer of at least 1", value)


def integer(adapter: object, option: Option, value: Any) -> None:
    """Take an integer."""
    if not _is_integer(value):
        raise _refusal(adapter, option, "an integer", value)


def number(most: float) -> Check:
    """Return a check that takes a number from 0 to ``most``."""

    def check(adapter: object, option: Option, value: Any) -> None:
        if not _is_number(value) or not 0 <= value <= most:
            raise _refusal(adapter, option, f"a number from 0 to {most:g}", value)

    return check


def seconds(adapter: object, option: Option, value: Any) -> None:
    """Take a number above 0."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise _refusal(adapter, option, "seconds above 0", value)


def instance(kind: type) -> Check:
    """Return a check that takes an instance of ``kind``."""

    def check(adapter: object, option: Option, value: Any) -> None:
        if not isinstance(value, kind):
            raise _refusal(adapter, option, f"a {kind.__name__}", value)

    return check


def optional(check: Check) -> Check:
    """Return a check that also takes None."""

    def check_optional(adapter: object, option: Option, value: Any) -> None:
        if value is not None:
            check(adapter, option, value)

    return check_optional


def plain_fields(adapter: object, option: Option, value: Any) -> None:
    """Take a mapping that JSON can hold. Its values are never shown."""
    try:
        fits = isinstance(unstructure(value), dict)
    except DataFormatError:
        fits = False
    if not fits:
        raise _refusal(adapter, option, "a mapping that JSON can hold", "something else")


def secret(adapter: object, option: Option, value: Any) -> None:
    """Take what can be the value of an HTTP header. It is never shown."""
    if not isinstance(value, str) or not value.strip() or not _is_header(value):
        raise _refusal(adapter, option, "printable ASCII characters", "something else (not shown)")


def headers(adapter: object, option: Option, value: Any) -> None:
    """Take a mapping of HTTP headers. Their values are never shown."""
    fits = isinstance(value, dict) and all(
        isinstance(part, str) and _is_header(part) for item in value.items() for part in item
    )
    if not fits:
        expected = "a mapping of header names to printable ASCII texts"
        raise _refusal(adapter, option, expected, "something else (not shown)")


def address(adapter: object, option: Option, value: Any) -> None:
    """Take the address of an HTTP interface. It is never shown, as it may hold a password."""
    if not isinstance(value, str) or not is_address(value):
        raise _refusal(adapter, option, ADDRESS, "something else (not shown)")


def refuse_fields(adapter: object, fields: object, taken: dict[str, str]) -> None:
    """Refuse further fields of a request that somebody else sets.

    Args:
        adapter: the adapter.
        fields: its ``extra_body``.
        taken: what sets a field instead.

    Raises:
        ConfigError: naming the field.
    """
    for field in fields if isinstance(fields, dict) else ():
        if field in taken:
            name = type(adapter).__name__
            raise ConfigError(f"{name}: extra_body: `{field}` is set by {taken[field]}")


def _refusal(adapter: object, option: Option, expected: str, found: object) -> ConfigError:
    said = found if isinstance(found, str) and found.startswith("something else") else shown(found)
    return ConfigError(
        f"{type(adapter).__name__}: {option.name}: expected {expected}, found {said}"
    )


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_header(value: str) -> bool:
    return bool(value) and value.isascii() and value.isprintable()
