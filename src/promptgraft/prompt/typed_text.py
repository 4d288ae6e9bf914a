"""Bare texts of answers as values: where a type takes a text, a date, or nothing."""

from __future__ import annotations

from datetime import date
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from promptgraft.prompt.fields import options_of

_WRAPPING = " \t\r\n`*\"'"


def members_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def takes_bare_text(kind: Any) -> bool:
    """Return whether a text that is no JSON may be a value: a text, a date or a choice."""
    return any(_is_text(member) for member in members_of(kind))


def bare_value(kind: Any, text: str) -> str | None:
    """Return a bare text as a value of a type that takes one; None where it stands for nothing."""
    bare = text.strip(_WRAPPING)
    is_nothing = bare.casefold().rstrip(".") in ("null", "none", "")
    return None if is_nothing and NoneType in members_of(kind) else bare


def _is_text(kind: Any) -> bool:
    is_date = isinstance(kind, type) and issubclass(kind, date)
    return kind is str or is_date or bool(options_of(kind))
